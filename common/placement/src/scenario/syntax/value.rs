//! Which value does a word stand for?
//!
//! Each reader takes a whole word and answers with the value or with what may stand there. Numbers of a report may be
//! anything that a broken sensor could send, `nan` too; times that drive the clock may not.

use std::time::Duration;

use usher_types::{FailureCause, HostName, IdError, SessionState, UserLimit};

use super::{
    error::{SyntaxError, nearest},
    statement::{Finished, Mount, Sample, SessionEntry},
    token::Text,
};

/// Longest label, in characters.
const LONGEST_NAME: usize = 128;

/// Longest duration: a hundred years. Beyond it is a mistake of units, and clocks would overflow.
const LONGEST: Duration = Duration::from_secs(36_500 * 86_400);

const DURATION: &str = "a number and a unit, such as 200ms, 15s, 2m or 1h";

/// Nanoseconds of each unit; a unit stands before those that it ends in.
const UNITS: [(&str, u64); 6] = [
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

pub(super) const YES_NO: [(&str, bool); 2] = [("yes", true), ("no", false)];

pub(super) const CAUSES: [(&str, FailureCause); 5] = [
    ("busy", FailureCause::Busy),
    ("unreachable", FailureCause::Unreachable),
    ("refused", FailureCause::Refused),
    ("auth", FailureCause::Auth),
    ("other", FailureCause::Other),
];

const SESSION_STATES: [(&str, SessionState); 3] = [
    ("active", SessionState::Active),
    ("disconnected", SessionState::Disconnected),
    ("lingering", SessionState::Lingering),
];

/// One of a few words, written exactly so.
pub(super) fn choice<T: Copy>(text: &Text, what: &str, table: &[(&str, T)]) -> Result<T, SyntaxError> {
    pick(text, what, table.iter().map(|(name, value)| (*name, *value)), |name| text.is(name))
}

/// One of a few words that people write in capitals or not.
pub(super) fn choice_in_any_case<T: Copy>(
    text: &Text,
    what: &str,
    table: &[(&str, T)],
) -> Result<T, SyntaxError> {
    let written = text.to_string();
    let is_it = |name: &str| written.eq_ignore_ascii_case(name);
    pick(text, what, table.iter().map(|(name, value)| (*name, *value)), is_it)
}

/// One of a few words, in capitals or not, as it is spelled in the list.
pub(super) fn word(text: &Text, what: &str, known: &[&'static str]) -> Result<&'static str, SyntaxError> {
    let written = text.to_string();
    let is_it = |name: &str| written.eq_ignore_ascii_case(name);
    pick(text, what, known.iter().map(|name| (*name, *name)), is_it)
}

fn pick<'a, T>(
    text: &Text,
    what: &str,
    table: impl Iterator<Item = (&'a str, T)> + Clone,
    is_it: impl Fn(&str) -> bool,
) -> Result<T, SyntaxError> {
    if let Some((_, value)) = table.clone().find(|(name, _)| is_it(name)) {
        return Ok(value);
    }
    let names = || table.clone().map(|(name, _)| name);
    let suggestion = nearest(&text.to_string(), names());
    let allowed = names().collect::<Vec<_>>().join(", ");
    Err(SyntaxError { suggestion, ..text.fault(format!("unknown {what} {}", text.quoted()), allowed) })
}

/// A name that the script gives: of a placement, a coordinator, or of a host in a call.
pub(super) fn name(text: &Text) -> Result<String, SyntaxError> {
    let name = text.to_string();
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '=' | ',' | '|');
    if name.is_empty() || text.len() > LONGEST_NAME || name.contains(is_odd) {
        let fault = if name.is_empty() {
            "a name is empty".to_owned()
        } else {
            format!("{} is no name", text.quoted())
        };
        return Err(text.fault(fault, format!("1 to {LONGEST_NAME} characters without blanks and = , |")));
    }
    Ok(name)
}

/// A name that the farm knows: a pool, a resource, an operation.
pub(super) fn id<T: TryFrom<String, Error = IdError>>(text: &Text) -> Result<T, SyntaxError> {
    T::try_from(text.to_string()).map_err(|error| match text.len() {
        0 => text.plain_fault(error.to_string()),
        _ => text.plain_fault(format!("{}: {error}", text.quoted())),
    })
}

/// A host by the name that the script uses.
pub(super) fn host(text: &Text) -> Result<HostName, SyntaxError> {
    id(text)
}

/// Several hosts; at least one.
pub(super) fn hosts(text: &Text) -> Result<Vec<HostName>, SyntaxError> {
    text.split(',').iter().map(host).collect()
}

/// Names or ids of hosts, as a gateway writes them; may be none.
pub(super) fn names(text: &Text) -> Result<Vec<String>, SyntaxError> {
    list(text)?.iter().map(name).collect()
}

/// Anything.
pub(super) fn text(text: &Text) -> Result<String, SyntaxError> {
    Ok(text.to_string())
}

/// The items of a list; an empty word is an empty list.
pub(super) fn list(text: &Text) -> Result<Vec<Text>, SyntaxError> {
    if text.is("") {
        return Ok(Vec::new());
    }
    let items = text.split(',');
    match items.iter().find(|item| item.is("")) {
        Some(empty) => Err(empty.fault("an item of this list is empty", "one comma between two items")),
        None => Ok(items),
    }
}

/// Any number, as a broken sensor may send it too: negative, huge, `nan`.
pub(super) fn number(text: &Text) -> Result<f64, SyntaxError> {
    let written = text.to_string();
    written.parse().map_err(|_| {
        let suggestion = written.strip_suffix('%').filter(|number| number.parse::<f64>().is_ok());
        let suggestion = suggestion.map(str::to_owned);
        let fault =
            text.fault(format!("{} is no number", text.quoted()), "a number such as 35 or 56.65, or nan");
        SyntaxError { suggestion, ..fault }
    })
}

/// A whole number that is not negative.
pub(super) fn whole<T: std::str::FromStr + std::fmt::Display>(text: &Text, max: T) -> Result<T, SyntaxError> {
    let written = text.to_string();
    let is_digits = !written.is_empty() && written.bytes().all(|b| b.is_ascii_digit());
    let value = if is_digits { written.parse().ok() } else { None };
    value.ok_or_else(|| {
        text.fault(format!("{} is no whole number", text.quoted()), format!("a whole number, 0..={max}"))
    })
}

/// A whole number of 32 bits.
pub(super) fn whole_u32(text: &Text) -> Result<u32, SyntaxError> {
    whole(text, u32::MAX)
}

/// A whole number of 64 bits.
pub(super) fn whole_u64(text: &Text) -> Result<u64, SyntaxError> {
    whole(text, u64::MAX)
}

/// A limit of users; 0 is for the farm to refuse.
pub(super) fn user_limit(text: &Text) -> Result<UserLimit, SyntaxError> {
    if text.is("unlimited") {
        return Ok(UserLimit::Unlimited);
    }
    whole_u32(text).map(UserLimit::Users).map_err(|error| SyntaxError {
        allowed: Some("a whole number of users, or unlimited".to_owned()),
        suggestion: nearest(&text.to_string(), ["unlimited"]),
        ..error
    })
}

/// A duration with its unit; `0` needs none.
pub(super) fn duration(text: &Text) -> Result<Duration, SyntaxError> {
    let written = text.to_string();
    if written == "0" {
        return Ok(Duration::ZERO);
    }
    let digits = written.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(written.len());
    let (number, unit) = written.split_at(digits);
    let is_number = number.bytes().any(|b| b.is_ascii_digit()) && number.matches('.').count() <= 1;
    if !is_number {
        return Err(text.fault(format!("{} is no duration", text.quoted()), DURATION));
    }
    let Some((_, nanos)) = UNITS.iter().find(|(known, _)| *known == unit) else {
        let fault = match unit {
            "" => format!("the duration {} has no unit", text.quoted()),
            _ => format!("unknown unit of time in {}", text.quoted()),
        };
        let suggestion = likely_unit(unit).map(|unit| format!("{number}{unit}"));
        return Err(SyntaxError { suggestion, ..text.fault(fault, DURATION) });
    };
    exact(number, *nanos)
        .filter(|duration| *duration <= LONGEST)
        .ok_or_else(|| text.fault(format!("the duration {} is too long", text.quoted()), "at most 36500d"))
}

/// A decimal number of units, without the detour over binary fractions. Absent: far too large.
fn exact(number: &str, unit_nanos: u64) -> Option<Duration> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Further digits are below a nanosecond of a day.
    let fraction = &fraction[..fraction.len().min(14)];
    let mut nanos = u128::from(whole) * u128::from(unit_nanos);
    if !fraction.is_empty() {
        let scale = fraction.bytes().fold(1_u128, |scale, _| scale * 10);
        nanos += u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit_nanos) / scale;
    }
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}

/// The unit that somebody meant who wrote `sec` or `Hours`.
fn likely_unit(written: &str) -> Option<&'static str> {
    let written = written.to_lowercase();
    [("ms", "ms"), ("mil", "ms"), ("us", "us"), ("\u{b5}", "us"), ("\u{3bc}", "us"), ("mic", "us")]
        .into_iter()
        .chain([("s", "s"), ("m", "m"), ("h", "h"), ("d", "d")])
        .find(|(start, _)| written.starts_with(start))
        .map(|(_, unit)| unit)
}

/// A duration that is not zero.
pub(super) fn interval(text: &Text) -> Result<Duration, SyntaxError> {
    let interval = duration(text)?;
    if interval < Duration::from_millis(1) {
        return Err(text.fault(format!("the interval {} is too short", text.quoted()), "at least 1ms"));
    }
    Ok(interval)
}

/// A jump of a wall clock, milliseconds.
pub(super) fn offset_ms(text: &Text) -> Result<i64, SyntaxError> {
    let sign = text.first_bare().filter(|c| matches!(c, '+' | '-'));
    let size = duration(&if sign.is_some() { text.skip(1) } else { text.clone() })?;
    // A hundred years of milliseconds fit.
    let millis = i64::try_from(size.as_millis()).unwrap_or(i64::MAX);
    Ok(if sign == Some('-') { -millis } else { millis })
}

/// A measured time, microseconds, as a broken timer may send it too: negative, huge, `nan`.
pub(super) fn micros(text: &Text) -> Result<f64, SyntaxError> {
    let written = text.to_string();
    if let Ok(odd) = written.parse::<f64>()
        && (odd == 0.0 || !odd.is_finite())
    {
        return Ok(odd);
    }
    let measured = UNITS.iter().find_map(|(unit, nanos)| {
        let number: f64 = written.strip_suffix(unit)?.parse().ok()?;
        // Units are powers of ten or small: exact.
        Some(number * (*nanos as f64 / 1e3))
    });
    match measured {
        Some(micros) => Ok(micros),
        None => Err(duration(text).err().unwrap_or_else(|| text.fault("no time", DURATION))),
    }
}

/// `12ms`, `30s:failed`
fn sample(text: &Text) -> Result<Sample, SyntaxError> {
    match text.split_once(':') {
        None => Ok(Sample { micros: micros(text)?, failed: false }),
        Some((time, result)) => Ok(Sample {
            micros: micros(&time)?,
            failed: choice(&result, "result of a call", &[("ok", false), ("failed", true)])?,
        }),
    }
}

/// Calls, each for itself; may be none.
pub(super) fn samples(text: &Text) -> Result<Vec<Sample>, SyntaxError> {
    list(text)?.iter().map(sample).collect()
}

/// `98`, `/home:98,/var:20`
pub(super) fn mounts(text: &Text) -> Result<Vec<Mount>, SyntaxError> {
    let mount = |text: &Text| match text.rsplit_once(':') {
        None => Ok(Mount { path: None, used: number(text)? }),
        Some((path, used)) => Ok(Mount { path: Some(path.to_string()), used: number(&used)? }),
    };
    list(text)?.iter().map(mount).collect()
}

/// `12/180/240`, or `12/180`.
pub(super) fn finished(text: &Text) -> Result<Finished, SyntaxError> {
    let parts: Vec<f64> = text.split('/').iter().map(number).collect::<Result<_, _>>()?;
    match *parts.as_slice() {
        [count, seconds] => Ok(Finished { count, seconds, core_seconds: None }),
        [count, seconds, core_seconds] => Ok(Finished { count, seconds, core_seconds: Some(core_seconds) }),
        _ => Err(text.fault(
            format!("{} is no number of finished logons", text.quoted()),
            "how many, their seconds and their core-seconds, such as 12/180/240",
        )),
    }
}

/// `alice`, `alice:disconnected`, `alice:active:2h`. A hashed name, `hmac:KEY:HASH`, holds colons of its own.
pub(super) fn session(text: &Text) -> Result<SessionEntry, SyntaxError> {
    let state_of = |text: &Text| choice(text, "session state", &SESSION_STATES);
    let entry = |user: &Text, state, age| match user.is("") {
        true => Err(text.fault("a session without a user", "user, user:state or user:state:age")),
        false => Ok(SessionEntry { user: user.to_string(), state, age }),
    };
    let Some((front, last)) = text.rsplit_once(':') else {
        return entry(text, SessionState::Active, None);
    };
    if let Ok(state) = state_of(&last) {
        return entry(&front, state, None);
    }
    if let Some((user, state)) = front.rsplit_once(':')
        && let Ok(state) = state_of(&state)
    {
        return entry(&user, state, Some(duration(&last)?));
    }
    if text.to_string().starts_with("hmac:") {
        return entry(text, SessionState::Active, None);
    }
    // Neither: the word behind the user is the wrong one.
    let (_, rest) = text.split_once(':').unwrap_or((front, last));
    let state = rest.split_once(':').map_or(rest, |(state, _)| state);
    Err(state_of(&state).err().unwrap_or_else(|| state.fault("unknown session state", "user:state:age")))
}
