//! What should have become of a placement, a host or a tally?
//!
//! An expectation keeps the number of digits that were written: `ai=50` wants an index that is shown as 50, `w=56.65`
//! one within a hundredth. Which keys make sense for which subject is judged where the subject is known: a name in
//! `expect NAME` may be a host or a placement.

use std::ops::RangeInclusive;

use usher_types::HostState;

use super::{
    args::Args,
    error::SyntaxError,
    statement::Statement,
    token::Text,
    value::{self, choice_in_any_case, list, number, word},
};

/// What is expected of one subject.
#[derive(Clone, PartialEq, Debug)]
pub enum Expect {
    /// Of a host or a placement.
    Named {
        /// The host's name or the placement's label.
        name: String,
        /// At least one, in the order written.
        checks: Vec<Check>,
    },
    /// Of the hosts that a repeated placement was spread over.
    Tally {
        /// The label.
        label: String,
        /// Hosts, and how many each got; at least one.
        counts: Vec<(String, RangeInclusive<u64>)>,
    },
}

/// One key of an expectation.
#[derive(Clone, PartialEq, Debug)]
pub enum Check {
    /// `host=s1`, `host=s1|s2`: the chosen one is one of these.
    Host(Vec<String>),
    /// `error=RESOURCE_EXHAUSTED`: the code of the refusal. Absent: `none`, it was no refusal.
    Error(Option<&'static str>),
    /// `reason=max_users`: of the choice or of the refusal, in lower case.
    Reason(String),
    /// `flags=all_busy,sparse`: these and no others; `flags=` and `flags=none` are none.
    Flags(Vec<&'static str>),
    /// `flags+=blind`: these, and perhaps others.
    FlagsAmong(Vec<&'static str>),
    /// `reservation=R7`. Absent: `none`.
    Reservation(Option<String>),
    /// `state=BUSY`
    State(HostState),
    /// `ai=50.0`, `pending=3`, `users=absent`
    Number(Figure, Expected),
}

/// A number of a host.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Figure {
    /// Its availability index.
    Ai,
    /// Its expansion factor.
    Xf,
    /// Its weighted load.
    W,
    /// The users that it reported.
    Users,
    /// The places on it.
    Pending,
}

impl Figure {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ai => "ai",
            Self::Xf => "xf",
            Self::W => "w",
            Self::Users => "users",
            Self::Pending => "pending",
        }
    }

    const ALL: [Self; 5] = [Self::Ai, Self::Xf, Self::W, Self::Users, Self::Pending];
}

/// A number that is expected.
#[derive(Clone, PartialEq, Debug)]
pub enum Expected {
    /// There is none.
    Absent,
    /// This one.
    Number {
        /// As it was written.
        text: String,
        /// Finite.
        value: f64,
        /// Digits written after the point.
        decimals: u32,
    },
}

/// Closer than this is equal, whatever is written.
const TOLERANCE: f64 = 0.01;

/// Two numbers that differ only by the rounding of their last bits.
const ROUNDING: f64 = 1e-9;

impl Expected {
    /// Whether `actual` is it: within a hundredth, or shown alike with the digits that were written if those are fewer
    /// than two.
    pub fn admits(&self, actual: Option<f64>) -> bool {
        match (self, actual) {
            (Self::Absent, actual) => actual.is_none(),
            (Self::Number { .. }, None) => false,
            (Self::Number { value, decimals, .. }, Some(actual)) => {
                let tolerance = match decimals {
                    0 => 0.5,
                    1 => 0.05,
                    _ => TOLERANCE,
                };
                (actual - value).abs() <= tolerance + ROUNDING
            }
        }
    }
}

/// Codes of a refusal.
pub const ERROR_CODES: [&str; 16] = [
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "FAILED_PRECONDITION",
    "RESOURCE_EXHAUSTED",
    "UNAVAILABLE",
    "ABORTED",
    "ALREADY_EXISTS",
    "CANCELLED",
    "DEADLINE_EXCEEDED",
    "DATA_LOSS",
    "INTERNAL",
    "OUT_OF_RANGE",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "UNIMPLEMENTED",
    "UNKNOWN",
];

/// Reasons of a choice, then of a refusal.
pub const REASONS: [&str; 28] = [
    "own_session",
    "pending",
    "preferred",
    "lowest_load",
    "highest_availability",
    "predicted",
    "fill",
    "original",
    "local_decision",
    "max_users",
    "max_pending",
    "no_consent",
    "all_offline",
    "all_restricted",
    "all_excluded",
    "stale",
    "unknown_pool",
    "unknown_resource",
    "out_of_service",
    "request_id_reused",
    "policy_version",
    "invalid_field",
    "not_authorized",
    "identity_mismatch",
    "host_id_in_use",
    "retention",
    "deadline_passed",
    "frozen",
];

/// Words that qualify an answer or a host.
pub const FLAGS: [&str; 26] = [
    "all_busy",
    "over_pending",
    "incomplete",
    "provisional",
    "sparse",
    "idle",
    "stalled",
    "ramping",
    "partial_view",
    "blind",
    "affinity_unknown",
    "reduced",
    "local_decision",
    "users_unknown",
    "no_data",
    "stale_cpu",
    "stale_memory",
    "stale_users",
    "stale_processes",
    "stale_psi",
    "stale_mounts",
    "stale_own_availability",
    "stale_capacity",
    "stale_max_users",
    "stale_threshold",
    "stale_range",
];

/// Hosts' states.
const STATES: [(&str, HostState); 8] = {
    use HostState::{Available, Busy, MaxUsers, NotReady, Offline, Restricted, Unknown, Warming};
    [
        (Available.as_str(), Available),
        (Warming.as_str(), Warming),
        (Busy.as_str(), Busy),
        (Unknown.as_str(), Unknown),
        (MaxUsers.as_str(), MaxUsers),
        (Restricted.as_str(), Restricted),
        (NotReady.as_str(), NotReady),
        (Offline.as_str(), Offline),
    ]
};

/// `expect NAME key=value ...`, `expect tally LABEL host=count ...`
pub(super) fn expect(args: &mut Args) -> Option<Statement> {
    let name = args.next("host or label", value::name)?;
    if name == "tally" {
        return tally(args).map(Statement::Expect);
    }
    let mut checks = Vec::new();
    for (key, text) in args.keys_in_order(&KEYS) {
        match check(key, &text) {
            Ok(check) => checks.push(check),
            Err(error) => args.fault(error),
        }
    }
    args.finish()?;
    if checks.is_empty() {
        args.missing(&format!("something to expect of {name}, such as {}", KEYS.join("=, ") + "="));
        return None;
    }
    Some(Statement::Expect(Expect::Named { name, checks }))
}

const KEYS: [&str; 12] = [
    "host",
    "error",
    "reason",
    "flags",
    "flags+",
    "reservation",
    "state",
    "ai",
    "xf",
    "w",
    "users",
    "pending",
];

fn check(key: &str, text: &Text) -> Result<Check, SyntaxError> {
    if let Some(figure) = Figure::ALL.into_iter().find(|figure| figure.as_str() == key) {
        return expected(text).map(|expected| Check::Number(figure, expected));
    }
    Ok(match key {
        "host" => Check::Host(text.split('|').iter().map(value::name).collect::<Result<_, _>>()?),
        "error" if text.is("none") => Check::Error(None),
        "error" => Check::Error(Some(word(text, "error code", &ERROR_CODES)?)),
        "reason" => Check::Reason(word(text, "reason", &REASONS)?.to_owned()),
        "flags" => Check::Flags(flags(text)?),
        "flags+" => Check::FlagsAmong(flags(text)?),
        "reservation" if text.is("none") => Check::Reservation(None),
        "reservation" if text.is("") => return Err(text.fault("reservation is empty", "a token, or none")),
        "reservation" => Check::Reservation(Some(text.to_string())),
        _ => Check::State(choice_in_any_case(text, "state", &STATES)?),
    })
}

fn flags(text: &Text) -> Result<Vec<&'static str>, SyntaxError> {
    if text.is("none") {
        return Ok(Vec::new());
    }
    list(text)?.iter().map(|flag| word(flag, "flag", &FLAGS)).collect()
}

fn expected(text: &Text) -> Result<Expected, SyntaxError> {
    if text.is("absent") {
        return Ok(Expected::Absent);
    }
    let written = text.to_string();
    let is_plain = written.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-'));
    match number(text) {
        Ok(value) if is_plain && value.is_finite() => {
            let decimals = written.split_once('.').map_or(0, |(_, digits)| digits.len());
            Ok(Expected::Number {
                value,
                decimals: u32::try_from(decimals).unwrap_or(u32::MAX),
                text: written,
            })
        }
        _ => Err(text.fault(
            format!("{} is no number", text.quoted()),
            "digits as they are shown, such as 3 or 56.65, or absent",
        )),
    }
}

fn tally(args: &mut Args) -> Option<Expect> {
    let label = args.next("label", value::name)?;
    let mut counts = Vec::new();
    for (key, text) in args.every_key() {
        match value::name(&key).and_then(|host| Ok((host, count(&text)?))) {
            Ok(count) => counts.push(count),
            Err(error) => args.fault(error),
        }
    }
    args.finish()?;
    if counts.is_empty() {
        args.missing("hosts and how many each got, such as s1=10 s2=8..12");
        return None;
    }
    Some(Expect::Tally { label, counts })
}

/// `10` or `8..12`, both ends included.
fn count(text: &Text) -> Result<RangeInclusive<u64>, SyntaxError> {
    let written = text.to_string();
    let (low, high) = written.split_once("..").unwrap_or((&written, &written));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok()).flatten();
    match (digits(low), digits(high)) {
        (Some(low), Some(high)) if low <= high => Ok(low..=high),
        _ => Err(text.fault(format!("{} is no count", text.quoted()), "a count, or a range such as 8..12")),
    }
}
