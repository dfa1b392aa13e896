//! How do people and scripts see a message?
//!
//! As JSON with the names of the .proto files: an absent value is left out, a number that is none is null, an enum is
//! the word that operators know (`MAXUSERS`, `OWN_SESSION`) without its prefix, a time is RFC 3339 in UTC. The build
//! script attaches these writers to the fields; only writing is offered, since JSON never comes back in as a message.

use std::{borrow::Cow, collections::HashMap};

use prost_types::Timestamp;
use serde::{Serialize, Serializer};

use crate::v1;

/// The words for the values of an enum of the wire.
pub trait EnumNames {
    /// Number and word of each value, without the enum's prefix.
    const NAMES: &'static [(i32, &'static str)];
}

include!(concat!(env!("OUT_DIR"), "/enum_names.rs"));

/// The word for a value, as JSON and tables show it: `MAXUSERS`, `OFFLINE`. A number that this version does not know
/// (a newer peer's) is shown as `UNRECOGNIZED_9`.
pub fn enum_name<E: EnumNames>(number: i32) -> Cow<'static, str> {
    match E::NAMES.iter().find(|(known, _)| *known == number) {
        Some((_, name)) => Cow::Borrowed(name),
        None => Cow::Owned(format!("UNRECOGNIZED_{number}")),
    }
}

// The references below are what serde calls `serialize_with` and `skip_serializing_if` with.

pub(crate) const fn is_unspecified(number: &i32) -> bool {
    *number == 0
}

pub(crate) fn enum_value<E: EnumNames, S: Serializer>(
    number: &i32,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&enum_name::<E>(*number))
}

pub(crate) fn optional_enum_value<E: EnumNames, S: Serializer>(
    number: &Option<i32>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => enum_value::<E, S>(number, serializer),
        None => serializer.serialize_none(),
    }
}

pub(crate) fn finite<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.is_finite() { serializer.serialize_f64(*number) } else { serializer.serialize_none() }
}

pub(crate) fn optional_finite<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    finite(&number.unwrap_or(f64::NAN), serializer)
}

/// Hashes are names, not quantities, and pass 2^53, beyond which scripts lose digits.
pub(crate) fn hex<S: Serializer>(hash: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{hash:016x}"))
}

pub(crate) fn optional_hex<S: Serializer>(hash: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match hash {
        Some(hash) => hex(hash, serializer),
        None => serializer.serialize_none(),
    }
}

pub(crate) fn timestamp<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.collect_str(time),
        None => serializer.serialize_none(),
    }
}

/// Maps in the order of their keys, so that the same message is always the same text.
pub(crate) fn sorted<V: Serialize, S: Serializer>(
    map: &HashMap<String, V>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    serializer.collect_map(entries)
}

/// A number, or "unlimited"; null if the message says neither.
impl Serialize for v1::UserLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.limit {
            Some(v1::user_limit::Limit::Unlimited(true)) => serializer.serialize_str("unlimited"),
            Some(v1::user_limit::Limit::Users(users)) => serializer.serialize_u32(users),
            Some(v1::user_limit::Limit::Unlimited(false)) | None => serializer.serialize_none(),
        }
    }
}

/// A number, or "unlimited"; null if the message says neither.
impl Serialize for v1::PendingLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.limit {
            Some(v1::pending_limit::Limit::Unlimited(true)) => serializer.serialize_str("unlimited"),
            Some(v1::pending_limit::Limit::Logons(logons)) => serializer.serialize_u32(logons),
            Some(v1::pending_limit::Limit::Unlimited(false)) | None => serializer.serialize_none(),
        }
    }
}

/// A percentage, or "off"; null if the message says neither, or a number that is none.
impl Serialize for v1::CriticalLevel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.level {
            Some(v1::critical_level::Level::Off(true)) => serializer.serialize_str("off"),
            Some(v1::critical_level::Level::Percent(percent)) => finite(&percent, serializer),
            Some(v1::critical_level::Level::Off(false)) | None => serializer.serialize_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::write;

    #[test]
    fn an_enum_is_the_word_that_operators_know() {
        let host = v1::ReplicaInfo {
            host_state: v1::HostState::MaxUsers.into(),
            resource_id: "mail".to_owned(),
            ..Default::default()
        };
        let json = serde_json::to_value(host).unwrap();
        assert_eq!(json["host_state"], "MAXUSERS");
        assert!(json.get("path").is_none(), "{json}");
        let placement =
            v1::Placement { reason: v1::PlacementReason::OwnSession.into(), ..Default::default() };
        assert_eq!(serde_json::to_value(placement).unwrap()["reason"], "OWN_SESSION");
        let refused = v1::PlaceAnswer { refused: Some(1), ..Default::default() };
        assert_eq!(serde_json::to_value(refused).unwrap()["refused"], "MAX_USERS");
        assert_eq!(enum_name::<v1::HostState>(99), "UNRECOGNIZED_99");
        let unsaid = serde_json::to_value(v1::Explanation::default()).unwrap();
        assert!(unsaid.get("reason").is_none(), "{unsaid}");
    }

    #[test]
    fn an_enum_has_the_same_words_here_and_in_the_types() {
        for state in [
            usher_types::HostState::Available,
            usher_types::HostState::Warming,
            usher_types::HostState::Busy,
            usher_types::HostState::Unknown,
            usher_types::HostState::MaxUsers,
            usher_types::HostState::Restricted,
            usher_types::HostState::NotReady,
            usher_types::HostState::Offline,
        ] {
            assert_eq!(enum_name::<v1::HostState>(v1::HostState::from(state).into()), state.as_str());
        }
    }

    #[test]
    fn a_number_that_is_none_is_null_and_an_absent_one_is_left_out() {
        let host = v1::HostInfo {
            cpu_percent: Some(f64::NAN),
            memory_percent: Some(12.5),
            capacity: f64::INFINITY,
            ..Default::default()
        };
        let json = serde_json::to_value(host).unwrap();
        assert_eq!(json["cpu_percent"], json!(null));
        assert_eq!(json["memory_percent"], json!(12.5));
        assert_eq!(json["capacity"], json!(null));
        assert!(json.get("availability_index").is_none(), "{json}");
        assert_eq!(json["virtual"], json!(false));
    }

    #[test]
    fn a_time_is_rfc_3339_and_a_hash_is_hex() {
        let applied_at = Some(Timestamp { seconds: 1_700_000_000, nanos: 0 });
        let pool = v1::PoolInfo { applied_at, ..Default::default() };
        assert_eq!(serde_json::to_value(pool).unwrap()["applied_at"], "2023-11-14T22:13:20Z");
        let place = v1::PendingPlace { content_hash: 0xabc, ..Default::default() };
        assert_eq!(serde_json::to_value(place).unwrap()["content_hash"], "0000000000000abc");
    }

    #[test]
    fn times_out_of_range_do_not_panic() {
        for (seconds, nanos) in [(i64::MAX, i32::MAX), (i64::MIN, i32::MIN), (0, -1)] {
            let pool = v1::PoolInfo { applied_at: Some(Timestamp { seconds, nanos }), ..Default::default() };
            assert!(serde_json::to_value(pool).unwrap()["applied_at"].is_string());
        }
    }

    #[test]
    fn a_policy_shows_its_limit_and_its_accounts_as_plain_values() {
        let mut policy = usher_types::Policy::default();
        let json = serde_json::to_value(write::policy(&policy)).unwrap();
        assert_eq!(json["max_users"], "unlimited");
        assert_eq!(json["method"], "WEIGHTED_LOAD");
        assert_eq!(json["shared_accounts"], json!([]));
        policy.max_users = usher_types::UserLimit::Users(5);
        policy.max_pending = usher_types::PendingLimit::Logons(3);
        policy.cpu_critical = usher_types::CriticalLevel::Off;
        policy.shared_accounts = vec!["kiosk".to_owned()];
        let json = serde_json::to_value(write::policy(&policy)).unwrap();
        assert_eq!((&json["max_users"], &json["shared_accounts"]), (&json!(5), &json!(["kiosk"])));
        assert_eq!((&json["max_pending"], &json["cpu_critical"]), (&json!(3), &json!("off")));
        assert_eq!((&json["mem_critical"], &json["user_names"]), (&json!(95.0), &json!("PLAIN")));
    }

    #[test]
    fn a_limit_that_says_nothing_is_null() {
        let neither = v1::Policy {
            max_pending: Some(v1::PendingLimit::default()),
            mem_critical: Some(v1::CriticalLevel {
                level: Some(v1::critical_level::Level::Percent(f64::NAN)),
            }),
            psi_critical: Some(v1::CriticalLevel { level: Some(v1::critical_level::Level::Off(false)) }),
            ..Default::default()
        };
        let json = serde_json::to_value(neither).unwrap();
        for field in ["max_pending", "mem_critical", "psi_critical"] {
            assert_eq!(json.get(field), Some(&json!(null)), "{field}");
        }
    }

    #[test]
    fn maps_are_written_in_order() {
        let labels = [("b", "2"), ("c", "3"), ("a", "1")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let text = serde_json::to_string(&v1::HostInfo { labels, ..Default::default() }).unwrap();
        assert!(text.contains(r#"{"a":"1","b":"2","c":"3"}"#), "{text}");
        let excluded_counts = [("zone".to_owned(), 2), ("drained".to_owned(), 7)].into();
        let explained = v1::Explanation { excluded_counts, ..Default::default() };
        let text = serde_json::to_string(&explained).unwrap();
        assert!(text.contains(r#"{"drained":7,"zone":2}"#), "{text}");
    }
}
