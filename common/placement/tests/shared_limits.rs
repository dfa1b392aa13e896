//! However coordinators lose a host and find it again: users, places that are alive and the login never pass its limit.
//!
//! A whole farm is played from a text that is made up at random. What is alive is counted here, by what gateways and users
//! know, and not by what any coordinator or the host believes: a login that was given counts until its user has come and
//! gone, it was given up, or it is void because its host was OFFLINE for whoever gave it before the host heard of it.

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::Value;
use usher_placement::scenario;

#[derive(Clone, Debug)]
enum Act {
    Place {
        via: usize,
        cost: u32,
    },
    /// As many as anybody could give, through each coordinator from this one on.
    Fill {
        from: usize,
    },
    Cut(usize),
    Join(usize),
    Comes(usize),
    /// Whether its gateway says so.
    Goes(usize, bool),
    Cancelled(usize),
    AgentRestarts,
    Reboots,
    Freeze(usize, u32),
    Passes(u32),
}

impl Act {
    /// The others are the same whatever has happened: the farm need not be played up to them.
    fn depends_on_what_happened(&self) -> bool {
        matches!(self, Self::Join(_) | Self::Comes(_) | Self::Goes(..) | Self::Cancelled(_) | Self::Reboots)
    }
}

fn act() -> impl Strategy<Value = Act> {
    let any = 0..64usize;
    let coordinator = 0..3usize;
    prop_oneof![
        8 => (coordinator.clone(), prop_oneof![4 => Just(1u32), 1 => 2..4u32])
            .prop_map(|(via, cost)| Act::Place { via, cost }),
        3 => coordinator.clone().prop_map(|from| Act::Fill { from }),
        4 => coordinator.clone().prop_map(Act::Cut),
        2 => coordinator.clone().prop_map(Act::Join),
        3 => any.clone().prop_map(Act::Comes),
        2 => (any.clone(), prop::bool::ANY).prop_map(|(number, is_told)| Act::Goes(number, is_told)),
        1 => any.prop_map(Act::Cancelled),
        1 => Just(Act::AgentRestarts),
        1 => prop_oneof![3 => Just(Act::AgentRestarts), 1 => Just(Act::Reboots)],
        1 => (coordinator, 1000..20_000u32).prop_map(|(of, millis)| Act::Freeze(of, millis)),
        4 => prop_oneof![3 => 0..3000u32, 2 => 3000..9000u32, 1 => 9000..30_000u32].prop_map(Act::Passes),
    ]
}

/// A login that a gateway was told a host for.
#[derive(Clone, Debug)]
struct Login {
    via: usize,
    cost: u32,
    is_blind: bool,
    /// Its host has heard of it.
    is_known: bool,
    /// Its place counts: the user is on the way.
    is_alive: bool,
    /// Its user is on the host.
    is_here: bool,
    /// Its user has been there.
    has_come: bool,
}

/// What is true, and the text that makes it so.
#[derive(Default)]
struct Truth {
    text: String,
    limit: usize,
    /// As asked for, by their numbers; absent: not given, or not known yet.
    asked: Vec<Login>,
    logins: Vec<Option<Login>>,
    is_cut: [bool; 3],
    seen_events: usize,
    now_ms: u32,
    frozen_until_ms: [u32; 3],
}

/// The line of a login, for the text; the login is there once it was given.
fn label(number: usize) -> String {
    format!("p{number}")
}

impl Truth {
    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{line}");
    }

    fn holders(&self) -> u32 {
        let holds = |login: &Login| match (login.is_here, login.is_alive) {
            (true, _) => 1,
            (false, true) => login.cost,
            (false, false) => 0,
        };
        self.logins.iter().flatten().map(holds).sum()
    }

    fn pick(&self, number: usize, which: impl Fn(&Login) -> bool) -> Option<usize> {
        let fits = |(n, login): (usize, &Option<Login>)| login.as_ref().is_some_and(&which).then_some(n);
        let fitting: Vec<usize> = self.logins.iter().enumerate().filter_map(fits).collect();
        (!fitting.is_empty()).then(|| fitting[number % fitting.len()])
    }

    fn login(&mut self, number: usize) -> &mut Login {
        self.logins[number].as_mut().unwrap()
    }

    /// Writes the lines of one act, and takes over what is true by it alone.
    fn act(&mut self, act: &Act, coordinators: usize) {
        match *act {
            Act::Place { via, cost } => {
                let (via, number) = (via % coordinators, self.logins.len());
                let call =
                    format!("place desk user=u{number} request=R{number} cost={cost} as {}", label(number));
                self.line(&format!("via c{} {call}", via + 1));
                let is_known = !self.is_cut[via];
                let login = Login {
                    via,
                    cost,
                    is_blind: false,
                    is_known,
                    is_alive: true,
                    is_here: false,
                    has_come: false,
                };
                self.asked.push(login);
                self.logins.push(None);
            }
            Act::Fill { from } => {
                for n in 0..coordinators * (self.limit + 1) {
                    self.act(&Act::Place { via: from + n / (self.limit + 1), cost: 1 }, coordinators);
                }
            }
            Act::Cut(of) => {
                let of = of % coordinators;
                if !std::mem::replace(&mut self.is_cut[of], true) {
                    self.line(&format!("cut c{} s1", of + 1));
                }
            }
            Act::Join(of) => self.join(of % coordinators),
            Act::Comes(number) => {
                if let Some(number) = self.pick(number, |login| login.is_alive && !login.is_here) {
                    self.line(&format!("session s1 +u{number}"));
                    let login = self.login(number);
                    (login.is_alive, login.is_here, login.has_come) = (false, true, true);
                }
            }
            Act::Goes(number, is_told) => {
                if let Some(number) = self.pick(number, |login| login.is_here) {
                    self.line(&format!("session s1 -u{number}"));
                    if is_told {
                        self.line(&format!("outcome {} ended", label(number)));
                    }
                    self.login(number).is_here = false;
                }
            }
            Act::Cancelled(number) => {
                if let Some(number) = self.pick(number, |login| login.is_alive && !login.is_here) {
                    self.line(&format!("outcome {} cancelled", label(number)));
                    self.login(number).is_alive = false;
                }
            }
            Act::AgentRestarts => self.line("host s1 pool=desk"),
            Act::Reboots if (0..coordinators).any(|of| self.is_frozen(of)) => {}
            Act::Reboots => self.reboot(),
            Act::Freeze(of, millis) => {
                let of = of % coordinators;
                self.line(&format!("freeze c{} {millis}ms", of + 1));
                self.frozen_until_ms[of] = self.frozen_until_ms[of].max(self.now_ms + millis);
            }
            Act::Passes(millis) => {
                self.line(&format!("advance {millis}ms"));
                self.now_ms += millis;
            }
        }
    }

    fn is_frozen(&self, of: usize) -> bool {
        self.frozen_until_ms[of] > self.now_ms
    }

    fn join(&mut self, of: usize) {
        // One that stands still lets nobody in before it runs again: then is not now.
        if self.is_frozen(of) || !std::mem::replace(&mut self.is_cut[of], false) {
            return;
        }
        self.line(&format!("join c{} s1", of + 1));
        for login in self.logins.iter_mut().flatten().filter(|login| login.via == of) {
            login.is_known = true;
        }
    }

    fn reboot(&mut self) {
        self.line("reboot s1");
        self.line("report s1 cpu=1 mem=1 procs=1");
        self.line("sessions s1");
        for login in self.logins.iter_mut().flatten() {
            login.is_here = false;
            // What was given while it was not heard may have been given after the boot.
            login.is_alive &= !login.is_known;
        }
    }

    /// Takes over what happened since the last call. The most logins and users that there were at once.
    fn follow(&mut self) -> Result<u32, TestCaseError> {
        let run = scenario::run(&self.text).map_err(|errors| TestCaseError::fail(format!("{errors:?}")))?;
        prop_assert!(run.stopped.is_none(), "{:?}", run.stopped);
        let events: Vec<Value> = run
            .events
            .iter()
            .skip(self.seen_events)
            .map(|event| serde_json::to_value(event).unwrap())
            .collect();
        self.seen_events = run.events.len();
        let mut most = self.holders();
        for event in &events {
            self.event(event);
            most = most.max(self.holders());
        }
        Ok(most)
    }

    fn event(&mut self, event: &Value) {
        let number_of = |id: &Value| id.as_str().and_then(|id| id[1..].parse::<usize>().ok());
        match event["event"].as_str() {
            Some("placed") => {
                let number = number_of(&event["reservation"]).unwrap();
                let is_blind = event["flags"].as_array().is_some_and(|flags| flags.contains(&"blind".into()));
                self.logins[number] = Some(Login { is_blind, ..self.asked[number].clone() });
            }
            Some("place_ended") => {
                if let Some(login) = number_of(&event["reservation"]).and_then(|n| self.logins[n].as_mut()) {
                    login.is_alive = false;
                }
            }
            // A coordinator that is frozen does not hear that it was given up.
            Some("outcome_unknown") => {
                if let Some(login) = number_of(&event["name"]).and_then(|n| self.logins[n].as_mut()) {
                    login.is_alive = !login.has_come;
                }
            }
            Some("state_changed") if event["to"] == "OFFLINE" => {
                let by = event["coordinators"].as_array().cloned().unwrap_or_default();
                let gone = |of: usize| by.is_empty() || by.contains(&format!("c{}", of + 1).into());
                let logins = self.logins.iter_mut().flatten();
                logins
                    .filter(|login| gone(login.via) && !login.is_known && !login.is_blind)
                    .for_each(|login| login.is_alive = false);
            }
            _ => {}
        }
    }
}

fn farm(coordinators: usize, limit: u32) -> Truth {
    let mut truth = Truth { limit: limit as usize, ..Truth::default() };
    truth.line(&format!("pool desk max_users={limit} reservation_ttl=10m"));
    (2..=coordinators).for_each(|number| truth.line(&format!("coordinator c{number}")));
    for line in [
        "host s1 pool=desk",
        "report s1 cpu=1 mem=1 procs=1",
        "sessions s1",
        "every 5s s1 report",
        "door s1 open",
    ] {
        truth.line(line);
    }
    truth
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    // rule: never-over-limit
    // rule: held-back
    // rule: held-back-until
    // rule: held-back-kept
    // rule: consent-share
    #[test]
    fn whichever_coordinators_lose_a_host_its_limit_holds_and_nothing_is_kept_from_those_who_are_back(
        coordinators in 1..=3usize,
        limit in 1..=9u32,
        acts in prop::collection::vec(act(), 1..30),
    ) {
        let mut truth = farm(coordinators, limit);
        for act in &acts {
            if act.depends_on_what_happened() {
                let most = truth.follow()?;
                prop_assert!(most <= limit, "{most} of {limit}:\n{}", truth.text);
            }
            truth.act(act, coordinators);
        }
        let most = truth.follow()?;
        prop_assert!(most <= limit, "{most} of {limit}:\n{}", truth.text);
        // Everybody is back, and no login is on its way any more: whatever is free can be had through any of them.
        truth.act(&Act::Passes(21_000), coordinators);
        let _ = truth.follow()?;
        (0..coordinators).for_each(|of| truth.join(of));
        truth.act(&Act::Passes(11 * 60_000), coordinators);
        let _ = truth.follow()?;
        truth.act(&Act::Fill { from: 0 }, coordinators);
        let most = truth.follow()?;
        prop_assert!(most <= limit, "{most} of {limit}:\n{}", truth.text);
        prop_assert_eq!(truth.holders(), limit, "{}", truth.text);
    }
}
