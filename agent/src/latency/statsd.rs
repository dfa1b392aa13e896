//! Which timings does a datagram of StatsD lines hold?
//!
//! A line is `name:value|ms`, then in any order at most one `|@rate` and `|#tags`. The value is milliseconds. A rate
//! says that the sender told only this share of its calls: it multiplies how often the call counts, never the time.
//! Of the tags one means something: `outcome:failed` says that the call failed, which is no measure of speed.
//!
//! `name.in_flight:count|g` says how many calls of `name` have begun and not finished, with the tag
//! `oldest_ms:milliseconds` also for how long the oldest has. Other gauges are not ours.
//!
//! Whatever reaches this parser may come from any program of the host, so it takes only what is certainly meant:
//! numbers are digits with at most one point between them (Rust's own parser would take `nan`, `inf` and `1e400`),
//! names are of harmless characters and bounded, and the last line of a cut datagram is thrown away whole, since half
//! a number is a number. Each line that is not taken is counted with its reason.

use std::time::Duration;

/// Bound of an operation's name.
pub const MAX_NAME_BYTES: usize = 128;

/// End of a gauge's name that counts calls in flight.
const IN_FLIGHT: &str = ".in_flight";

/// One call in a million: a smaller rate would let one line outweigh all honest traffic of a window.
const MIN_RATE: f64 = 1e-6;

/// One told call, or the share of calls that it stands for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing<'a> {
    /// The operation: `A-Z a-z 0-9 _ . -`, 1..=128 bytes.
    pub name: &'a str,
    /// How long the call took, microseconds, > 0 and finite.
    pub duration_us: f64,
    /// Calls that it stands for, 1..=1e6.
    pub weight: f64,
}

/// What one line tells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Word<'a> {
    /// A call that succeeded.
    Finished(Timing<'a>),
    /// A call that failed, or the share of calls that it stands for.
    Failed {
        /// The operation.
        name: &'a str,
        /// Calls that it stands for, 1..=1e6.
        weight: f64,
    },
    /// Calls that have begun and not finished.
    InFlight {
        /// The operation.
        name: &'a str,
        /// How many.
        count: u32,
        /// Since when the oldest of them runs. Absent: not told.
        oldest: Option<Duration>,
    },
}

/// Why a line told nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum RejectReason {
    /// Not of the form `name:value|type`.
    Form,
    /// The name is empty, too long or has other characters than `A-Z a-z 0-9 _ . -`.
    Name,
    /// A type other than `ms`, or a gauge other than of calls in flight: they say nothing about latency.
    Type,
    /// Not a plain decimal number of milliseconds, or one beyond all measure.
    Value,
    /// Not a plain decimal number in 0.000001..=1, or one where none belongs.
    Rate,
    /// The tag `outcome` or `oldest_ms` has a value that is none.
    Tag,
}

impl RejectReason {
    /// All reasons, in the order of their counts.
    pub const ALL: [Self; 6] = [Self::Form, Self::Name, Self::Type, Self::Value, Self::Rate, Self::Tag];

    /// A word for metrics and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Form => "form",
            Self::Name => "name",
            Self::Type => "type",
            Self::Value => "value",
            Self::Rate => "rate",
            Self::Tag => "tag",
        }
    }
}

/// What became of the lines of one datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatagramCounts {
    /// Lines that told something.
    pub accepted: u64,
    /// Lines with a time of 0.
    pub below_resolution: u64,
    /// Lines that gave nothing, in the order of [`RejectReason::ALL`].
    pub rejected: [u64; RejectReason::ALL.len()],
    /// The datagram was cut and its last line thrown away.
    pub truncated: bool,
}

/// What one line holds.
enum Line<'a> {
    Word(Word<'a>),
    BelowResolution,
}

/// What stands behind a line's type.
#[derive(Default)]
struct Extras {
    weight: Option<f64>,
    failed: bool,
    oldest: Option<Duration>,
}

/// Hands each word of `datagram` to `take`. `truncated` says that the datagram was longer than what was received.
pub fn parse_datagram<'a>(
    datagram: &'a [u8],
    truncated: bool,
    mut take: impl FnMut(Word<'a>),
) -> DatagramCounts {
    let mut counts = DatagramCounts { truncated, ..DatagramCounts::default() };
    let whole_lines = if truncated {
        let end = datagram.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
        datagram.get(..end).unwrap_or_default()
    } else {
        datagram
    };
    for line in whole_lines.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        match parse_line(line) {
            Ok(Line::Word(word)) => {
                counts.accepted += 1;
                take(word);
            }
            Ok(Line::BelowResolution) => counts.below_resolution += 1,
            Err(reason) => counts.rejected[reason as usize] += 1,
        }
    }
    counts
}

fn parse_line(line: &[u8]) -> Result<Line<'_>, RejectReason> {
    let line = std::str::from_utf8(line).map_err(|_| RejectReason::Form)?;
    let (name, rest) = line.split_once(':').ok_or(RejectReason::Form)?;
    if !is_name(name) {
        return Err(RejectReason::Name);
    }
    let mut parts = rest.split('|');
    let value = parts.next().ok_or(RejectReason::Form)?;
    match (parts.next().ok_or(RejectReason::Form)?, name.strip_suffix(IN_FLIGHT)) {
        ("ms", _) => timing(name, value, Extras::read(parts)?),
        ("g", Some(name)) if is_name(name) => in_flight(name, value, &Extras::read(parts)?),
        _ => Err(RejectReason::Type),
    }
}

impl Extras {
    fn read<'a>(parts: impl Iterator<Item = &'a str>) -> Result<Self, RejectReason> {
        let mut extras = Self::default();
        for part in parts {
            if let Some(rate) = part.strip_prefix('@') {
                if extras.weight.is_some() {
                    return Err(RejectReason::Rate);
                }
                extras.weight = Some(weight_of(rate)?);
            } else if let Some(tags) = part.strip_prefix('#') {
                tags.split(',').try_for_each(|tag| extras.take_tag(tag))?;
            } else {
                return Err(RejectReason::Form);
            }
        }
        Ok(extras)
    }

    fn take_tag(&mut self, tag: &str) -> Result<(), RejectReason> {
        match tag.split_once(':') {
            Some(("outcome", "ok")) => self.failed = false,
            Some(("outcome", "failed")) => self.failed = true,
            Some(("outcome", _)) => return Err(RejectReason::Tag),
            Some(("oldest_ms", age)) => self.oldest = Some(age_of(age).ok_or(RejectReason::Tag)?),
            _ => {}
        }
        Ok(())
    }
}

fn timing<'a>(name: &'a str, value: &str, extras: Extras) -> Result<Line<'a>, RejectReason> {
    let milliseconds = decimal(value).ok_or(RejectReason::Value)?;
    let duration_us = milliseconds * 1000.0;
    if !duration_us.is_finite() {
        return Err(RejectReason::Value);
    }
    let weight = extras.weight.unwrap_or(1.0);
    if extras.failed {
        return Ok(Line::Word(Word::Failed { name, weight }));
    }
    if duration_us == 0.0 {
        return Ok(Line::BelowResolution);
    }
    Ok(Line::Word(Word::Finished(Timing { name, duration_us, weight })))
}

/// A count told for a share of the time only would be a guess, so a rate is refused.
fn in_flight<'a>(name: &'a str, value: &str, extras: &Extras) -> Result<Line<'a>, RejectReason> {
    if extras.weight.is_some() {
        return Err(RejectReason::Rate);
    }
    let count = Some(value).filter(|value| value.bytes().all(|byte| byte.is_ascii_digit()));
    let count = count.and_then(|value| value.parse().ok()).ok_or(RejectReason::Value)?;
    Ok(Line::Word(Word::InFlight { name, count, oldest: extras.oldest }))
}

/// Whether `name` may name an operation: `A-Z a-z 0-9 _ . -`, 1..=128 bytes.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(allowed)
}

fn weight_of(rate: &str) -> Result<f64, RejectReason> {
    let rate = decimal(rate).filter(|rate| (MIN_RATE..=1.0).contains(rate)).ok_or(RejectReason::Rate)?;
    Ok(1.0 / rate)
}

/// An age of at most a day: whatever runs longer is no call that anybody waits for.
fn age_of(milliseconds: &str) -> Option<Duration> {
    const DAY_MS: f64 = 86_400_000.0;
    decimal(milliseconds).filter(|age| *age <= DAY_MS).map(|age| Duration::from_secs_f64(age / 1000.0))
}

/// Digits, or digits with one point between them.
fn decimal(text: &str) -> Option<f64> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let plain = match text.split_once('.') {
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => digits(text),
    };
    if !plain {
        return None;
    }
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Name, milliseconds and weight of each timing, with the counts.
    fn parsed(datagram: &str, truncated: bool) -> (Vec<(String, f64, f64)>, DatagramCounts) {
        let mut timings = Vec::new();
        let counts = parse_datagram(datagram.as_bytes(), truncated, |word| {
            if let Word::Finished(timing) = word {
                timings.push((timing.name.to_owned(), timing.duration_us / 1000.0, timing.weight));
            }
        });
        (timings, counts)
    }

    fn timings(datagram: &str) -> Vec<(String, f64, f64)> {
        parsed(datagram, false).0
    }

    fn words(datagram: &str) -> Vec<Word<'_>> {
        let mut words = Vec::new();
        parse_datagram(datagram.as_bytes(), false, |word| words.push(word));
        words
    }

    fn reject(line: &str) -> RejectReason {
        let (timings, counts) = parsed(line, false);
        assert_eq!((timings.len(), counts.rejected.iter().sum::<u64>()), (0, 1), "{line:?}");
        *RejectReason::ALL.iter().find(|&&reason| counts.rejected[reason as usize] == 1).expect("a reason")
    }

    #[test]
    fn case_041_words_for_no_number_are_bad_lines() {
        for value in ["NaN", "nan", "inf", "-Infinity", "infinity", "1e400", "1e3", "-5", "+5"] {
            assert_eq!(reject(&format!("open_db:{value}|ms")), RejectReason::Value);
        }
        assert_eq!(reject(&format!("open_db:{}|ms", "9".repeat(400))), RejectReason::Value);
        assert_eq!(reject(&format!("open_db:{}|ms", "9".repeat(307))), RejectReason::Value);
        assert_eq!(timings("open_db:10|ms"), [("open_db".into(), 10.0, 1.0)]);
    }

    #[test]
    fn case_043_a_zero_is_counted_apart() {
        let (timings, counts) = parsed("open_db:0|ms\nopen_db:0.000|ms\nopen_db:12|ms", false);
        assert_eq!(timings, [("open_db".into(), 12.0, 1.0)]);
        assert_eq!((counts.accepted, counts.below_resolution), (1, 2));
    }

    #[test]
    fn case_044_a_rate_scales_the_count_not_the_time() {
        let timings = timings("q:10|ms|@0.5\nq:20|ms|@0.1");
        let count: f64 = timings.iter().map(|(_, _, weight)| weight).sum();
        let sum: f64 = timings.iter().map(|(_, milliseconds, weight)| milliseconds * weight).sum();
        assert!((count - 12.0).abs() < 1e-9 && (sum / count - 18.333).abs() < 0.001, "{timings:?}");
        assert_eq!(timings[0].1, 10.0);
    }

    #[test]
    fn case_046_the_last_line_of_a_cut_datagram_is_thrown_away() {
        for cut in ["save_note:15", "save_note:1500|m", "save_note:1500|ms|@0.", "save_note:1500|ms"] {
            let (timings, counts) = parsed(&format!("open_db:7|ms\n{cut}"), true);
            assert_eq!(timings, [("open_db".into(), 7.0, 1.0)], "{cut}");
            assert_eq!((counts.truncated, counts.rejected), (true, [0; 6]), "{cut}");
        }
        assert_eq!(parsed("save_note:15", true).0, []);
        assert_eq!(parsed("a:1|ms\nb:2|ms\n", true).0.len(), 2);
    }

    #[test]
    fn case_047_blank_lines_and_crlf_are_no_errors() {
        let (timings, counts) = parsed("open_db:100|ms\r\n\n", false);
        assert_eq!(timings, [("open_db".into(), 100.0, 1.0)]);
        assert_eq!(counts, DatagramCounts { accepted: 1, ..DatagramCounts::default() });
    }

    #[test]
    fn case_050_giant_and_hostile_names_are_bad_lines() {
        let giant = "a".repeat(10_000);
        for name in [&giant, &"a".repeat(129), "open\0db", "../../etc", "<b>x</b>", "", "ä", "a b"] {
            assert_eq!(reject(&format!("{name}:5|ms")), RejectReason::Name);
        }
        assert_eq!(timings(&format!("{}:5|ms", "a".repeat(128))).len(), 1);
    }

    #[test]
    fn case_052_fractions_are_fine_other_spellings_are_not() {
        let told: Vec<f64> = timings("q:12.5|ms\nq:0.35|ms").iter().map(|timing| timing.1).collect();
        assert_eq!(told, [12.5, 0.35]);
        for value in ["12,5", "0x10", "1_000", " 12", "12 ", "12.", ".5", "1.2.3", "", "1:2"] {
            assert_eq!(reject(&format!("q:{value}|ms")), RejectReason::Value, "{value:?}");
        }
    }

    #[test]
    fn other_types_and_broken_forms_are_bad_lines() {
        for line in ["hits:1|c", "load:3|g", "q:5|s", "q:5|us", "q:5|"] {
            assert_eq!(reject(line), RejectReason::Type, "{line:?}");
        }
        for line in ["q", "q:5", "q:5|ms|", "q:5|ms|x", "q|ms"] {
            assert_eq!(reject(line), RejectReason::Form, "{line:?}");
        }
        assert_eq!(parse_datagram(b"\xff\xfe:5|ms", false, |_| ()).rejected[RejectReason::Form as usize], 1);
    }

    #[test]
    fn rates_outside_their_range_are_bad_lines() {
        for rate in ["0", "1.1", "-1", "nan", "0.0000001", "", "0.5|@0.5"] {
            assert_eq!(reject(&format!("q:5|ms|@{rate}")), RejectReason::Rate, "{rate:?}");
        }
        assert_eq!(timings("q:5|ms|@1")[0].2, 1.0);
    }

    #[test]
    fn case_065_a_failed_call_is_told_by_its_outcome_and_has_no_duration() {
        let failed = |weight| Word::Failed { name: "q", weight };
        assert_eq!(words("q:1|ms|#outcome:failed"), [failed(1.0)]);
        assert_eq!(words("q:0|ms|@0.5|#env:a,outcome:failed,v:1"), [failed(2.0)]);
        assert_eq!(timings("q:5|ms|#outcome:ok"), [("q".into(), 5.0, 1.0)]);
        for tags in ["outcome:perhaps", "outcome:", "oldest_ms:-1"] {
            assert_eq!(reject(&format!("q:5|ms|#{tags}")), RejectReason::Tag, "{tags}");
        }
        assert_eq!(reject("q:nan|ms|#outcome:failed"), RejectReason::Value);
    }

    #[test]
    fn a_gauge_of_calls_in_flight_names_its_operation() {
        let told = |count, oldest| Word::InFlight { name: "open_db", count, oldest };
        assert_eq!(words("open_db.in_flight:3|g"), [told(3, None)]);
        let oldest = Some(Duration::from_millis(1500));
        assert_eq!(words("open_db.in_flight:1|g|#oldest_ms:1500,a:b"), [told(1, oldest)]);
        for value in ["+1", "-1", "1.5", "", "4294967296", "x"] {
            assert_eq!(reject(&format!("open_db.in_flight:{value}|g")), RejectReason::Value, "{value:?}");
        }
        assert_eq!(reject("open_db.in_flight:1|g|@0.5"), RejectReason::Rate);
        for line in [".in_flight:1|g", "in_flight:1|g", "open_db:1|g"] {
            assert_eq!(reject(line), RejectReason::Type, "{line}");
        }
        assert_eq!(reject("q.in_flight:1|g|#oldest_ms:86400001"), RejectReason::Tag);
    }

    #[test]
    fn other_tags_are_ignored() {
        assert_eq!(timings("q:5|ms|#env:prod,v:1|@0.5"), [("q".into(), 5.0, 2.0)]);
    }

    proptest! {
        #[test]
        fn any_bytes_give_only_sound_timings(bytes in proptest::collection::vec(any::<u8>(), 0..400), cut: bool) {
            let counts = parse_datagram(&bytes, cut, |word| {
                let (name, weight) = match word {
                    Word::Finished(Timing { name, duration_us, weight }) => {
                        assert!(duration_us > 0.0 && duration_us.is_finite());
                        (name, weight)
                    }
                    Word::Failed { name, weight } => (name, weight),
                    Word::InFlight { name, .. } => (name, 1.0),
                };
                assert!(is_name(name) && (1.0..=1e6).contains(&weight));
            });
            let lines = counts.accepted + counts.below_resolution + counts.rejected.iter().sum::<u64>();
            prop_assert!(lines <= bytes.len() as u64);
        }

        #[test]
        fn any_plain_number_comes_through(milliseconds in 0.001_f64..1e9) {
            let told = timings(&format!("q:{milliseconds:.6}|ms"));
            prop_assert!((told[0].1 - milliseconds).abs() <= 1e-6 + milliseconds * 1e-12);
        }
    }
}
