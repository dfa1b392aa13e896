//! Limits as people write them: a number, or the word for having none.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{CriticalLevel, PendingLimit, UserLimit};

impl fmt::Display for UserLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Users(users) => users.fmt(f),
        }
    }
}

impl fmt::Display for PendingLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Logons(logons) => logons.fmt(f),
        }
    }
}

impl fmt::Display for CriticalLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Percent(percent) => percent.fmt(f),
        }
    }
}

impl Serialize for UserLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unlimited => serializer.serialize_str("unlimited"),
            Self::Users(users) => serializer.serialize_u32(*users),
        }
    }
}

impl Serialize for PendingLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unlimited => serializer.serialize_str("unlimited"),
            Self::Logons(logons) => serializer.serialize_u32(*logons),
        }
    }
}

impl Serialize for CriticalLevel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_str("off"),
            Self::Percent(percent) => serializer.serialize_f64(*percent),
        }
    }
}

impl<'de> Deserialize<'de> for UserLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Count {
            expected: "a number of users from 1 to 4294967295, or \"unlimited\"",
            none: Self::Unlimited,
            some: Self::Users,
        })
    }
}

impl<'de> Deserialize<'de> for PendingLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Count {
            expected: "a number of logons from 1 to 4294967295, or \"unlimited\"",
            none: Self::Unlimited,
            some: Self::Logons,
        })
    }
}

/// A whole number, or `unlimited`.
struct Count<T> {
    expected: &'static str,
    none: T,
    some: fn(u32) -> T,
}

impl<T> de::Visitor<'_> for Count<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_u64<E: de::Error>(self, count: u64) -> Result<T, E> {
        match u32::try_from(count) {
            Ok(count) => Ok((self.some)(count)),
            Err(_) => Err(E::invalid_value(de::Unexpected::Unsigned(count), &self)),
        }
    }

    fn visit_i64<E: de::Error>(self, count: i64) -> Result<T, E> {
        match u32::try_from(count) {
            Ok(count) => Ok((self.some)(count)),
            Err(_) => Err(E::invalid_value(de::Unexpected::Signed(count), &self)),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        match text {
            "unlimited" => Ok(self.none),
            other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
        }
    }
}

impl<'de> Deserialize<'de> for CriticalLevel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Level;

        impl de::Visitor<'_> for Level {
            type Value = CriticalLevel;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a percentage above 0, at most 100, or \"off\"")
            }

            fn visit_f64<E: de::Error>(self, percent: f64) -> Result<CriticalLevel, E> {
                Ok(CriticalLevel::Percent(percent))
            }

            fn visit_u64<E: de::Error>(self, percent: u64) -> Result<CriticalLevel, E> {
                // Exact far beyond 100; what is too large is refused where it is applied.
                Ok(CriticalLevel::Percent(percent as f64))
            }

            fn visit_i64<E: de::Error>(self, percent: i64) -> Result<CriticalLevel, E> {
                Ok(CriticalLevel::Percent(percent as f64))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<CriticalLevel, E> {
                match text {
                    "off" => Ok(CriticalLevel::Off),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }
        }

        deserializer.deserialize_any(Level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_or_the_word_for_none() {
        assert_eq!(serde_json::from_str::<UserLimit>("\"unlimited\"").unwrap(), UserLimit::Unlimited);
        assert_eq!(serde_json::from_str::<UserLimit>("50").unwrap(), UserLimit::Users(50));
        assert!(serde_json::from_str::<UserLimit>("-1").is_err());
        assert!(serde_json::from_str::<UserLimit>("\"many\"").is_err());
        assert_eq!(serde_json::from_str::<PendingLimit>("4").unwrap(), PendingLimit::Logons(4));
        assert_eq!(serde_json::from_str::<CriticalLevel>("95").unwrap(), CriticalLevel::Percent(95.0));
        assert_eq!(serde_json::from_str::<CriticalLevel>("\"off\"").unwrap(), CriticalLevel::Off);
        assert!(serde_json::from_str::<CriticalLevel>("\"of\"").is_err());
    }
}
