//! What state is a host in?
//!
//! One function. The list, the page, the metrics and every decision call it, so that no two views of a host differ. The
//! first rule that holds gives the state; its order is the order of certainty: a host that is gone is gone, whatever it
//! said before.
//!
//! Silence is not death at once: a lost stream changes nothing by itself, and after a start or a freeze of the
//! coordinator hosts that it has not heard yet are UNKNOWN, not OFFLINE.

use std::time::Duration;

use usher_types::{BootTime, HostState, Policy, Readiness};

use super::{CellWord, Grace, HostView, columns::UNLIMITED};

/// What a state is computed with.
#[derive(Copy, Clone, Debug)]
pub struct StateInput<'a> {
    /// The host.
    pub host: &'a HostView,
    /// Its cell.
    pub word: CellWord,
    /// Users that the login in question adds to this host; lists use 1.
    pub adds_users: u32,
    /// The pool's settings.
    pub policy: &'a Policy,
    /// The grace that is running.
    pub grace: Option<Grace>,
    /// The instant of the decision.
    pub now: BootTime,
}

/// The state of a host.
pub fn state_of(input: &StateInput<'_>) -> HostState {
    let host = input.host;
    if host.shut_down {
        return HostState::Offline;
    }
    let heard = heard_in_time(input);
    if heard == Heard::Offline {
        return HostState::Offline;
    }
    if let Some(reading) = &host.reading
        && reading.readiness != Readiness::Ready
    {
        return HostState::NotReady;
    }
    if host.is_drained() {
        return HostState::Restricted;
    }
    if heard == Heard::NotYet {
        return HostState::Unknown;
    }
    if input.is_full() {
        return HostState::MaxUsers;
    }
    if host.busy_reasons(input.policy, input.now).any() {
        return HostState::Busy;
    }
    if host.is_warming(input.policy) { HostState::Warming } else { HostState::Available }
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Heard {
    Yes,
    NotYet,
    Offline,
}

fn heard_in_time(input: &StateInput<'_>) -> Heard {
    let host = input.host;
    let in_grace = input.grace.filter(|grace| grace.holds(input.now));
    let Some(reading) = &host.reading else {
        return if host.connected || in_grace.is_some() { Heard::NotYet } else { Heard::Offline };
    };
    if in_grace.is_some_and(|grace| reading.measured_at < grace.began) {
        return Heard::NotYet;
    }
    match host.offline_at() {
        Some(at) if input.now > at => Heard::Offline,
        _ => Heard::Yes,
    }
}

impl StateInput<'_> {
    /// Whether its users, its places and this login come above its limit, as far as they were heard last; users that are
    /// not known count as above it.
    pub fn is_full(&self) -> bool {
        is_over(self.host.max_users(self.policy).finite().unwrap_or(UNLIMITED), self.word, self.adds_users)
    }
}

/// A login of more users is one of this many: the sum stays a number.
const MOST_USERS: u32 = 1 << 24;

/// Whether a limit would be passed; [`UNLIMITED`] never is.
///
/// No side is skipped: this is asked of many hosts at once, where a branch costs more than a comparison.
pub(crate) const fn is_over(limit: u32, word: CellWord, adds_users: u32) -> bool {
    let adds = if adds_users < MOST_USERS { adds_users } else { MOST_USERS };
    let passed = word.users_or_none() + word.pending_users() + adds > limit;
    (limit != UNLIMITED) & (passed | !word.knows_users())
}

/// Why the host is in `state`, for people. Empty where the state says it all.
pub fn state_reason(input: &StateInput<'_>, state: HostState) -> String {
    let host = input.host;
    match state {
        HostState::Available => String::new(),
        HostState::Offline if host.shut_down => "it said goodbye for a shutdown".to_owned(),
        HostState::Offline => match &host.reading {
            Some(reading) => match reading.age(input.now) {
                Some(age) => format!("last report {} ago", seconds(age)),
                None => "not heard since the coordinator started".to_owned(),
            },
            None => "never heard, not connected".to_owned(),
        },
        HostState::NotReady => match host.reading.as_ref().map(|reading| &reading.readiness) {
            Some(Readiness::NotReady(reason)) => reason.clone(),
            _ => String::new(),
        },
        HostState::Restricted => host.drains().map(drain_reason).collect::<Vec<_>>().join("; "),
        HostState::Unknown if host.connected && host.reading.is_none() => {
            "connected, not measured yet".to_owned()
        }
        HostState::Unknown => "not heard since the coordinator started or was frozen".to_owned(),
        HostState::MaxUsers => full_reason(input),
        HostState::Busy => host.busy_text(input.policy, input.now),
        HostState::Warming => warming_reason(input),
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

fn drain_reason(drain: &usher_types::Drain) -> String {
    let by = if drain.author.is_empty() { String::new() } else { format!(" by {}", drain.author) };
    let why = if drain.reason.is_empty() { String::new() } else { format!(": {}", drain.reason) };
    format!("drained{by}{why}")
}

fn full_reason(input: &StateInput<'_>) -> String {
    let limit = input.host.max_users(input.policy).finite().unwrap_or_default();
    match input.word.users() {
        None => format!("users_unknown, limit {limit}"),
        Some(users) => format!("users {users} + {} pending, limit {limit}", input.word.pending_users()),
    }
}

fn warming_reason(input: &StateInput<'_>) -> String {
    let Some(reading) = &input.host.reading else { return String::new() };
    let lag = reading.replica_lag.filter(|lag| *lag > input.policy.max_replica_lag);
    let lag = lag.map(|lag| {
        format!("replicas {} behind, limit {}", seconds(lag), seconds(input.policy.max_replica_lag))
    });
    let hook = reading.is_warming_up.then(|| "its warm-up is not done".to_owned());
    lag.into_iter().chain(hook).collect::<Vec<_>>().join("; ")
}
