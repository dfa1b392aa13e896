//! How does a person write a length of time?
//!
//! With its unit: `5s`, `250ms`, `2m`, `1h`, `1d`, or several as in `1m30s`. A bare number is refused,
//! because whether 5 means seconds or milliseconds is what people get wrong. Lengths are whole
//! microseconds up to ten years, so that adding one to a clock never overflows.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Largest first, so that writing picks the largest unit that divides the length.
const UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];
const MAX_MICROS: u64 = 3_650 * 86_400_000_000;

/// A length of time in a configuration file, 0 us to 3650 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HumanDuration {
    micros: u64,
}

impl HumanDuration {
    /// So many milliseconds; at most 3650 days.
    pub const fn from_millis(millis: u64) -> Self {
        let micros = millis.saturating_mul(1_000);
        Self { micros: if micros > MAX_MICROS { MAX_MICROS } else { micros } }
    }

    /// So many seconds; at most 3650 days.
    pub const fn from_secs(seconds: u64) -> Self {
        Self::from_millis(seconds.saturating_mul(1_000))
    }

    /// For the rest of the program.
    pub const fn get(self) -> Duration {
        Duration::from_micros(self.micros)
    }
}

impl From<HumanDuration> for Duration {
    fn from(duration: HumanDuration) -> Self {
        duration.get()
    }
}

/// Why a text is no length of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// A number alone.
    #[error("a duration needs a unit, write \"{0}s\" or \"{0}ms\"")]
    NoUnit(String),
    /// Anything else.
    #[error("{0:?} is not a duration, write a number and a unit (us, ms, s, m, h, d) as in \"5s\"")]
    Malformed(String),
    /// Longer than ten years.
    #[error("{0:?} is longer than 3650 days")]
    TooLong(String),
}

impl FromStr for HumanDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || DurationError::Malformed(text.to_owned());
        let too_long = || DurationError::TooLong(text.to_owned());
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(malformed());
        }
        let mut micros = 0_u64;
        while !rest.is_empty() {
            let digits_end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let (digits, after) = rest.split_at(digits_end);
            if digits.is_empty() {
                return Err(malformed());
            }
            let unit_end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
            let (unit, after) = after.split_at(unit_end);
            if unit.is_empty() && after.is_empty() && digits.len() == text.trim().len() {
                return Err(DurationError::NoUnit(digits.to_owned()));
            }
            let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(malformed)?;
            // Only digits are left, so a failure means too many of them.
            let number: u64 = digits.parse().map_err(|_overflow| too_long())?;
            micros = number
                .checked_mul(*factor)
                .and_then(|part| micros.checked_add(part))
                .filter(|sum| *sum <= MAX_MICROS)
                .ok_or_else(too_long)?;
            rest = after;
        }
        Ok(Self { micros })
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.micros == 0 {
            return f.write_str("0s");
        }
        let (name, factor) =
            UNITS.into_iter().find(|(_, factor)| self.micros.is_multiple_of(*factor)).unwrap_or(("us", 1));
        write!(f, "{}{name}", self.micros / factor)
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl Visitor<'_> for TextVisitor {
            type Value = HumanDuration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"5s\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<HumanDuration, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<HumanDuration, E> {
                Err(E::custom(DurationError::NoUnit(number.to_string())))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<HumanDuration, E> {
                Err(E::custom(DurationError::NoUnit(number.to_string())))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<HumanDuration, E> {
                Err(E::custom(DurationError::Malformed(number.to_string())))
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_understood_and_written_back() {
        for (text, micros, back) in [
            ("5s", 5_000_000, "5s"),
            ("250ms", 250_000, "250ms"),
            ("2m", 120_000_000, "2m"),
            ("90s", 90_000_000, "90s"),
            ("1m30s", 90_000_000, "90s"),
            ("1h", 3_600_000_000, "1h"),
            ("24h", 86_400_000_000, "1d"),
            ("1d", 86_400_000_000, "1d"),
            (" 350us ", 350, "350us"),
            ("0s", 0, "0s"),
        ] {
            let duration: HumanDuration = text.parse().unwrap();
            assert_eq!(duration.get(), Duration::from_micros(micros), "{text}");
            assert_eq!(duration.to_string(), back);
        }
    }

    #[test]
    fn a_bare_number_is_refused_with_the_cure() {
        let error = "5".parse::<HumanDuration>().unwrap_err();
        assert_eq!(error.to_string(), "a duration needs a unit, write \"5s\" or \"5ms\"");
    }

    #[test]
    fn case_132_anything_else_is_refused_without_a_panic() {
        let endless = format!("{}s", u64::MAX);
        for text in ["", "s", "5 s", "-5s", "1.5s", "5x", "5S", "5sec", "1m30", "\u{663}s", "inf", &endless] {
            assert!(text.parse::<HumanDuration>().is_err(), "{text}");
        }
        assert!(matches!(endless.parse::<HumanDuration>(), Err(DurationError::TooLong(_))));
        assert!(matches!("99999999999999999999d".parse::<HumanDuration>(), Err(DurationError::TooLong(_))));
        assert!("3650d".parse::<HumanDuration>().is_ok());
        assert!("3650d1us".parse::<HumanDuration>().is_err());
        assert_eq!(HumanDuration::from_secs(u64::MAX), "3650d".parse().unwrap());
    }
}
