//! Whether what the script expects is the case, and what is the case if not.

use usher_types::HostName;

use super::{Done, Fault, World, calls::Answered};
use crate::{
    decision::NO_DATA,
    scenario::{
        event::{Placed, Refused, Shown},
        syntax::{Check, Expect, Expected, Figure},
    },
};

/// What is expected and what is found, in the same words.
struct Differs {
    expected: String,
    found: String,
}

impl World {
    pub(super) fn expect(&mut self, expect: &Expect, via: Option<usize>) -> Done {
        match expect {
            Expect::Tally { label, counts } => {
                let (hosts, errors) = self.counts(label)?;
                for (name, range) in counts {
                    let found = match hosts.get(name).or_else(|| errors.get(name)) {
                        Some(count) => *count,
                        None if name == "error" => errors.values().sum(),
                        None => self.host_called(name).map_or(0, |number| {
                            let called = self.machines[number].identity.called.as_str();
                            hosts.get(called).copied().unwrap_or(0)
                        }),
                    };
                    self.run.checked += 1;
                    if !range.contains(&found) {
                        let (low, high) = (range.start(), range.end());
                        let expected = if low == high { low.to_string() } else { format!("{low}..{high}") };
                        let subject = format!("tally {label}");
                        self.fail(subject, format!("{name}={expected}"), format!("{name}={found}"));
                    }
                }
                Ok(())
            }
            Expect::Named { name, checks } => self.expect_of(name, checks, via),
        }
    }

    fn expect_of(&mut self, name: &str, checks: &[Check], via: Option<usize>) -> Done {
        let answered = self.answers.get(name).cloned();
        let is_host = answered.is_none() || checks.iter().any(is_of_host);
        let differs: Vec<Differs> = if is_host {
            let number = self.host_shown(name).map_err(|fault| self.neither(name, fault))?;
            let shown = number.map(|number| self.look(number, via.unwrap_or(0)));
            checks.iter().filter_map(|check| self.differs_on_host(check, shown.as_ref())).collect()
        } else {
            let of_answer = |check| answered.as_ref().and_then(|answered| self.differs(check, answered));
            checks.iter().filter_map(of_answer).collect()
        };
        self.run.checked += checks.len();
        for Differs { expected, found } in differs {
            self.fail(name.to_owned(), expected, found);
        }
        Ok(())
    }

    /// A name that is neither a placement's nor a host's.
    fn neither(&self, name: &str, fault: Fault) -> Fault {
        let known = self.answers.keys().chain(self.by_name.keys()).map(String::as_str);
        let unknown = Fault::unknown("placement or host", name, known);
        if unknown.suggestion.is_some() { unknown } else { Fault { fault: unknown.fault, ..fault } }
    }

    fn differs(&self, check: &Check, answered: &Answered) -> Option<Differs> {
        let placed = answered.result.as_ref().ok();
        let refused = answered.result.as_ref().err();
        let holds = match check {
            Check::Host(names) => placed.is_some_and(|placed| self.is_one_of(&placed.host, names)),
            Check::Error(code) => refused.map(|refused| refused.code) == *code,
            Check::Reason(reason) => {
                *reason == placed.map_or_else(|| reason_of(refused), |placed| placed.reason.clone())
            }
            Check::Flags(flags) => same(flags, placed.map_or(&[], |placed| &placed.flags)),
            Check::FlagsAmong(flags) => {
                flags.iter().all(|flag| placed.is_some_and(|placed| placed.flags.contains(flag)))
            }
            Check::Reservation(token) => match (token, placed.and_then(|placed| placed.reservation.as_ref()))
            {
                (None, None) => true,
                (Some(token), Some(taken)) => {
                    token == taken || *token == format!("{}/{taken}", answered.token.gateway)
                }
                _ => false,
            },
            Check::State(_) | Check::Number(..) => false,
        };
        let found = || match &answered.result {
            Ok(placed) => found_placed(check, placed),
            Err(refused) => format!("error={} reason={}", refused.code, refused.reason),
        };
        (!holds).then(|| Differs { expected: written(check), found: found() })
    }

    fn differs_on_host(&self, check: &Check, shown: Option<&Shown>) -> Option<Differs> {
        let Some(shown) = shown.filter(|shown| shown.state.is_some()) else {
            let why = shown.map(|shown| shown.state_reason.as_str()).filter(|why| !why.is_empty());
            let found = why.map_or_else(String::new, |why| format!(": {why}"));
            let found = format!("it is not registered{found}");
            return Some(Differs { expected: written(check), found });
        };
        // What qualifies the index is no flag of the host; who names it asks for it too.
        let flags = |named: &[&'static str]| {
            let data = (shown.no_data && named.contains(&NO_DATA)).then_some(NO_DATA);
            shown.flags.iter().map(String::as_str).chain(data).collect::<Vec<_>>()
        };
        let (holds, found) = match check {
            Check::State(state) => {
                let reason = match shown.state_reason.as_str() {
                    "" => String::new(),
                    reason => format!(" ({reason})"),
                };
                let state_now = shown.state.map_or("", |state| state.as_str());
                (shown.state == Some(*state), format!("state={state_now}{reason}"))
            }
            Check::Number(figure, expected) => {
                let actual = number_of(*figure, shown);
                let found = actual.map_or("absent".to_owned(), shown_number);
                (expected.admits(actual), format!("{}={found}", figure.as_str()))
            }
            Check::Flags(expected) => {
                let actual = flags(expected);
                (same(expected, &actual), format!("flags={}", actual.join(",")))
            }
            Check::FlagsAmong(expected) => {
                let actual = flags(expected);
                let holds = expected.iter().all(|flag| actual.contains(flag));
                (holds, format!("flags={}", actual.join(",")))
            }
            Check::Host(_) | Check::Error(_) | Check::Reason(_) | Check::Reservation(_) => {
                (false, format!("{} is a host, not a placement", shown.host))
            }
        };
        (!holds).then(|| Differs { expected: written(check), found })
    }

    fn is_one_of(&self, host: &str, names: &[String]) -> bool {
        names.iter().any(|name| {
            let same = HostName::new(name).ok().zip(HostName::new(host).ok());
            same.is_some_and(|(a, b)| a == b)
                || self
                    .host_called(name)
                    .is_some_and(|number| self.machines[number].identity.called.as_str() == host)
        })
    }
}

fn is_of_host(check: &Check) -> bool {
    matches!(check, Check::State(_) | Check::Number(..))
}

fn reason_of(refused: Option<&Refused>) -> String {
    refused.map(|refused| refused.reason.clone()).unwrap_or_default()
}

/// The same words, in whatever order.
fn same(expected: &[&str], actual: &[&str]) -> bool {
    expected.iter().all(|word| actual.contains(word)) && actual.iter().all(|word| expected.contains(word))
}

fn number_of(figure: Figure, shown: &Shown) -> Option<f64> {
    let numbers = &shown.numbers;
    match figure {
        Figure::Ai => numbers.availability_index,
        Figure::Xf => numbers.expansion_factor,
        Figure::W => numbers.weighted_load,
        Figure::Users => numbers.users.map(f64::from),
        Figure::Pending => numbers.pending.map(f64::from),
    }
}

/// With the digits that matter: to a thousandth, without those that are 0 at the end.
fn shown_number(number: f64) -> String {
    ((number * 1000.0).round() / 1000.0).to_string()
}

/// What the placement has instead.
fn found_placed(check: &Check, placed: &Placed) -> String {
    match check {
        Check::Host(_) => format!("host={}", placed.host),
        Check::Reason(_) => format!("reason={}", placed.reason),
        Check::Flags(_) | Check::FlagsAmong(_) => format!("flags={}", placed.flags.join(",")),
        Check::Reservation(_) => {
            format!("reservation={}", placed.reservation.as_deref().unwrap_or("none"))
        }
        Check::Error(_) => format!("error=none host={}", placed.host),
        Check::State(_) | Check::Number(..) => format!("{} is a placement, not a host", placed.name),
    }
}

/// The expectation as it is written.
fn written(check: &Check) -> String {
    match check {
        Check::Host(names) => format!("host={}", names.join("|")),
        Check::Error(code) => format!("error={}", code.unwrap_or("none")),
        Check::Reason(reason) => format!("reason={reason}"),
        Check::Flags(flags) => format!("flags={}", flags.join(",")),
        Check::FlagsAmong(flags) => format!("flags+={}", flags.join(",")),
        Check::Reservation(token) => format!("reservation={}", token.as_deref().unwrap_or("none")),
        Check::State(state) => format!("state={state}"),
        Check::Number(figure, Expected::Absent) => format!("{}=absent", figure.as_str()),
        Check::Number(figure, Expected::Number { text, .. }) => format!("{}={text}", figure.as_str()),
    }
}
