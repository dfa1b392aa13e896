//! Does this host fail the logins that are sent to it?
//!
//! A host can look idle because nobody gets in. Its own report cannot tell; those who tried can. So the host keeps what
//! gateways said of it and judges itself: one place, one verdict, the same for every coordinator, and kept over a
//! restart of the agent.
//!
//! Failures that do not blame the host (it said that it is busy, a wrong password) do not count. Two that do, within
//! 30 s, are its fault if they come from two gateways, or from one that had a success on another host of the pool; it
//! then comes last for everyone. Two of one gateway without such a success may be the gateway's fault: the host comes
//! last for that gateway only. Nothing is concluded from one failure.
//!
//! ```text
//!            fault                    time is over
//!   clear ---------> last, 60 s ... 15 min ---------> one logon at a time
//!     ^                  |         ^------------------------'  |
//!     |                  |            one more failure,        |
//!     '------------------'            twice as long            |
//!     '--------------------------------------------------------'
//!       a login connects, or its session lives for 10 s
//! ```
//!
//! What fails while the host comes last already belongs to the same trouble and makes nothing longer.
//!
//! Where no gateway reports outcomes, sessions speak: three places in a row that never became sessions, or sessions
//! that did not live for 10 s, while a place on another host of the pool did become one, are a fault as well, called
//! `unconfirmed`. If no place anywhere becomes a session, users stay away, and no host is to blame.

mod told;

use std::{collections::BTreeSet, time::Duration};

use serde::{Deserialize, Serialize};
use usher_types::{
    BootTime, EndReason, FailureCause, GatewayId, Outcome, Penalty, PenaltyCause, Session, SessionState,
    Token, ToldOutcome,
};

use self::told::{News, ToldOutcomes};
use super::{book::Finished, record::micros};

/// Failures further apart than this have nothing to do with each other.
const TOGETHER: Duration = Duration::from_secs(30);
/// The first penalty. Long enough for a service to be restarted, short enough not to miss the host when it was.
const FIRST: Duration = Duration::from_secs(60);
/// The longest one.
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// A session that lives so long did begin.
const LIVES: Duration = Duration::from_secs(10);
/// Places in a row that never became sessions.
const UNCONFIRMED_IN_A_ROW: u32 = 3;
/// Most penalties kept, as many as a Load may carry; that of the gateway which waits longest goes first. A farm has some
/// tens of gateways.
const MAX_PENALTIES: usize = 256;
/// Most failures and sessions that wait to be judged: as many as a full book of places can end at once.
const MAX_WAITING: usize = 4095;

/// A login that failed and has not been punished yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Failure {
    token: Token,
    succeeded_elsewhere: bool,
    #[serde(with = "micros")]
    at: BootTime,
    /// It has had its effect for its own gateway; with another gateway's it still counts.
    punished: bool,
}

/// What holds against the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Held {
    gateway: Option<GatewayId>,
    cause: PenaltyCause,
    times: u32,
    #[serde(with = "micros")]
    imposed: BootTime,
    #[serde(with = "micros")]
    until: BootTime,
}

impl Held {
    fn runs(&self, now: BootTime) -> bool {
        self.until > now
    }
}

/// Places in a row that came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Streak {
    count: u32,
    #[serde(with = "micros")]
    first_came: BootTime,
}

/// A session that ended a place and has not lived for 10 s yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Young {
    id: String,
    gateway: GatewayId,
    connected: bool,
    #[serde(with = "micros")]
    came: BootTime,
    #[serde(with = "micros")]
    began: BootTime,
}

/// What a host was told of logins, and what holds against it. As it is kept over a restart.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Penalties {
    told: ToldOutcomes,
    failures: Vec<Failure>,
    held: Vec<Held>,
    streak: Option<Streak>,
    young: Vec<Young>,
    /// When a place on another host of the pool last became a session. Told each second: not kept.
    #[serde(skip)]
    confirmed_elsewhere: Option<BootTime>,
}

impl Penalties {
    /// A gateway's word of a login. Whether it says anything new.
    pub(super) fn outcome(&mut self, told: &ToldOutcome, now: BootTime) -> bool {
        let news = self.told.note(told, now);
        let at = now.before(told.age);
        match (told.outcome, news) {
            (_, News::Known) => return false,
            (Outcome::Connected, News::New) => {
                self.succeed(&told.token.gateway, at);
            }
            (Outcome::Failed, _) if told.cause.is_none_or(FailureCause::blames_host) => {
                self.fail(told, at, now);
            }
            _ => {}
        }
        true
    }

    fn fail(&mut self, told: &ToldOutcome, at: BootTime, now: BootTime) {
        self.failures.retain(|failure| now.since(failure.at) <= TOGETHER);
        match self.of(None) {
            Some(everyone) if everyone.runs(now) => return,
            Some(_) => return self.impose(None, PenaltyCause::Failed, now),
            None => {}
        }
        let gateway = &told.token.gateway;
        let punished = self.of(Some(gateway)).is_some_and(|own| own.runs(now));
        let known = self.failures.iter().position(|failure| failure.token == told.token);
        if let Some(failure) = known.and_then(|index| self.failures.get_mut(index)) {
            // Only that it had a success elsewhere is new.
            failure.succeeded_elsewhere |= told.succeeded_elsewhere;
        } else if self.failures.len() < MAX_WAITING && now.since(at) <= TOGETHER {
            let (token, succeeded_elsewhere) = (told.token.clone(), told.succeeded_elsewhere);
            self.failures.push(Failure { token, succeeded_elsewhere, at, punished });
        }
        if self.two_failures(|a, b| {
            a.token.gateway != b.token.gateway || a.succeeded_elsewhere || b.succeeded_elsewhere
        }) {
            return self.impose(None, PenaltyCause::Failed, now);
        }
        let of_gateway = |failure: &Failure| !failure.punished && failure.token.gateway == *gateway;
        let again = self.of(Some(gateway)).is_some() && self.failures.iter().any(of_gateway);
        if again || self.two_failures(|a, b| of_gateway(a) && of_gateway(b)) {
            self.impose(Some(gateway), PenaltyCause::Failed, now);
        }
    }

    /// Whether two failures that belong together are `alike`.
    fn two_failures(&self, alike: impl Fn(&Failure, &Failure) -> bool) -> bool {
        let together = |a: &Failure, b: &Failure| a.at.since(b.at).max(b.at.since(a.at)) <= TOGETHER;
        self.failures
            .iter()
            .enumerate()
            .any(|(index, a)| self.failures[..index].iter().any(|b| together(a, b) && alike(a, b)))
    }

    fn of(&self, gateway: Option<&GatewayId>) -> Option<&Held> {
        self.held.iter().find(|held| held.gateway.as_ref() == gateway)
    }

    fn impose(&mut self, gateway: Option<&GatewayId>, cause: PenaltyCause, now: BootTime) {
        let times = self.of(gateway).map_or(0, |held| held.times).saturating_add(1);
        // Doubled four times, a minute is longer than the longest.
        let lasts = LONGEST.min(FIRST.saturating_mul(1 << (times - 1).min(4)));
        self.held.retain(|held| held.gateway.as_ref() != gateway);
        if self.held.len() >= MAX_PENALTIES
            && let Some(oldest) = self.held.iter().position(|held| held.gateway.is_some())
        {
            self.held.remove(oldest);
        }
        let held = Held { gateway: gateway.cloned(), cause, times, imposed: now, until: now + lasts };
        self.held.push(held);
        match gateway {
            Some(gateway) => {
                let own = self.failures.iter_mut().filter(|failure| failure.token.gateway == *gateway);
                own.for_each(|failure| failure.punished = true);
            }
            None => {
                self.failures.clear();
                self.streak = None;
            }
        }
    }

    /// A login through `gateway` that succeeded at `at` clears what was held against the host before, for everyone and
    /// for that gateway. Whether there was anything.
    fn succeed(&mut self, gateway: &GatewayId, at: BootTime) -> bool {
        let before = self.held.len();
        let others = |held: &Held| held.gateway.as_ref().is_some_and(|of| of != gateway);
        self.held.retain(|held| held.imposed > at || others(held));
        self.streak = None;
        before != self.held.len()
    }

    /// A place has ended. Whether what holds against the host changed.
    pub(super) fn finished(&mut self, end: Finished, now: BootTime) -> bool {
        let Finished { gateway, reason, came, connected, session } = end;
        match (reason, session) {
            (EndReason::Session, Some((id, began))) => {
                if self.young.len() < MAX_WAITING {
                    self.young.push(Young { id, gateway, connected, came, began });
                }
                false
            }
            (EndReason::Expired, _) if !connected => self.unconfirmed(came, now),
            _ => false,
        }
    }

    /// Judges the sessions that ended places by how long they live. Whether what holds against the host changed.
    pub(super) fn sessions_seen(&mut self, sessions: &[Session], now: BootTime) -> bool {
        if self.young.is_empty() {
            return false;
        }
        let logged_in = sessions.iter().filter(|session| session.state != SessionState::Lingering);
        let alive: BTreeSet<&str> = logged_in.map(|session| session.id.as_str()).collect();
        let mut changed = false;
        for young in std::mem::take(&mut self.young) {
            let is_old = now.since(young.began) >= LIVES;
            match (alive.contains(young.id.as_str()), is_old) {
                (true, true) => changed |= self.succeed(&young.gateway, young.began),
                (true, false) => self.young.push(young),
                (false, false) if !young.connected => changed |= self.unconfirmed(young.came, now),
                // Gone, and nobody looked when it was 10 s old: it proves nothing.
                (false, _) => {}
            }
        }
        changed
    }

    /// The place that came at `came` became nothing, and no gateway said why.
    fn unconfirmed(&mut self, came: BootTime, now: BootTime) -> bool {
        if self.of(None).is_some_and(|everyone| everyone.runs(now)) {
            return false;
        }
        let (count, first) = self.streak.map_or((0, came), |streak| (streak.count, streak.first_came));
        self.streak = Some(Streak { count: count.saturating_add(1), first_came: first.min(came) });
        self.judge_streak(now)
    }

    /// A place on another host of the pool became a session `age` ago. Whether what holds against this one changed.
    pub(super) fn confirmed_elsewhere(&mut self, age: Duration, now: BootTime) -> bool {
        self.confirmed_elsewhere = self.confirmed_elsewhere.max(Some(now.before(age)));
        self.judge_streak(now)
    }

    fn judge_streak(&mut self, now: BootTime) -> bool {
        let on_probation = self.of(None).is_some_and(|held| held.cause == PenaltyCause::Unconfirmed);
        let needed = if on_probation { 1 } else { UNCONFIRMED_IN_A_ROW };
        let is_fault = self.streak.is_some_and(|streak| {
            streak.count >= needed && self.confirmed_elsewhere.is_some_and(|at| at >= streak.first_came)
        });
        if is_fault {
            self.impose(None, PenaltyCause::Unconfirmed, now);
        }
        is_fault
    }

    /// What was told in the last 60 s.
    pub(super) fn outcomes(&self, now: BootTime) -> Vec<ToldOutcome> {
        self.told.report(now)
    }

    /// What holds against the host.
    pub(super) fn report(&self, now: BootTime) -> Vec<Penalty> {
        let report = |held: &Held| Penalty {
            gateway: held.gateway.clone(),
            cause: held.cause,
            left: held.until.since(now),
            times: held.times,
        };
        self.held.iter().map(report).collect()
    }
}

#[cfg(test)]
mod tests;
