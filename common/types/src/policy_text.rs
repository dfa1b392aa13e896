//! Settings as people type them: `weights=30/30/25/15`, `max_users=unlimited`, `reservation_ttl=60s`.
//!
//! A field goes by its full name or by the one without its unit. A value with a unit of time needs it.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

use crate::{CriticalLevel, Policy, PolicyChange, WeightsChange};

/// Why a setting was not taken.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SettingError {
    /// There is no such field.
    #[error("there is no setting {name}{}", .suggestion.map(|known| format!(", did you mean {known}?")).unwrap_or_default())]
    Unknown {
        /// As it was typed.
        name: String,
        /// The field that is spelled most like it.
        suggestion: Option<&'static str>,
    },
    /// The value is none of this field.
    #[error("{name} = {value}: expected {expected}")]
    Value {
        /// The field.
        name: &'static str,
        /// As it was typed.
        value: String,
        /// What may be typed.
        expected: String,
    },
}

/// A field whose value differs between two versions of a pool's settings, as people write them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FieldChange {
    /// The field.
    pub field: String,
    /// Its value in the older version.
    pub before: String,
    /// Its value in the newer one.
    pub after: String,
}

type Set = fn(&mut PolicyChange, &str) -> Option<()>;
type Show = fn(&Policy) -> String;

/// One field: its name, the name without its unit, what may be typed, how it is taken and shown.
struct Field {
    name: &'static str,
    short: &'static str,
    expected: &'static str,
    set: Set,
    show: Show,
}

const NUMBER: &str = "a number";
const PERCENT: &str = "a percentage";
const LEVEL: &str = "a percentage above 0, or off";
const DURATION: &str = "a duration such as 200ms, 15s, 2m or 1h";
const YES_NO: &str = "true or false";

const FIELDS: [Field; 27] = [
    Field {
        name: "method",
        short: "method",
        expected: "weighted_load, availability, fill_first or predictive",
        set: |change, text| word(text).map(|value| change.method = Some(value)),
        show: |policy| shown_word(&policy.method),
    },
    Field {
        name: "weights",
        short: "weights",
        expected: "cpu/memory/users/processes in percent, such as 15/15/55/15",
        set: |change, text| weights(text).map(|value| change.weights = Some(value)),
        show: |policy| {
            let w = policy.weights;
            format!("{}/{}/{}/{}", w.cpu_percent, w.memory_percent, w.users_percent, w.processes_percent)
        },
    },
    Field {
        name: "users_full_scale",
        short: "users_full_scale",
        expected: NUMBER,
        set: |change, text| number(text).map(|value| change.users_full_scale = Some(value)),
        show: |policy| policy.users_full_scale.to_string(),
    },
    Field {
        name: "range",
        short: "range",
        expected: NUMBER,
        set: |change, text| number(text).map(|value| change.range = Some(value)),
        show: |policy| policy.range.to_string(),
    },
    Field {
        name: "threshold_percent",
        short: "threshold",
        expected: PERCENT,
        set: |change, text| number(text).map(|value| change.threshold_percent = Some(value)),
        show: |policy| policy.threshold_percent.to_string(),
    },
    Field {
        name: "exit_margin_percent",
        short: "exit_margin",
        expected: PERCENT,
        set: |change, text| number(text).map(|value| change.exit_margin_percent = Some(value)),
        show: |policy| policy.exit_margin_percent.to_string(),
    },
    Field {
        name: "max_users",
        short: "max_users",
        expected: "a number of users, or unlimited",
        set: |change, text| number_or_word(text).map(|value| change.max_users = Some(value)),
        show: |policy| policy.max_users.to_string(),
    },
    Field {
        name: "baseline",
        short: "baseline",
        expected: "robust or minimum",
        set: |change, text| word(text).map(|value| change.baseline = Some(value)),
        show: |policy| shown_word(&policy.baseline),
    },
    Field {
        name: "min_possible_us",
        short: "min_possible",
        expected: "a duration such as 1200us or 2ms",
        set: |change, text| micros(text).map(|value| change.min_possible_us = Some(value)),
        show: |policy| format!("{}us", policy.min_possible_us),
    },
    Field {
        name: "max_possible_us",
        short: "max_possible",
        expected: "a duration such as 500ms or 20s",
        set: |change, text| micros(text).map(|value| change.max_possible_us = Some(value)),
        show: |policy| format!("{}us", policy.max_possible_us),
    },
    Field {
        name: "predict",
        short: "predict",
        expected: YES_NO,
        set: |change, text| yes_no(text).map(|value| change.predict = Some(value)),
        show: |policy| policy.predict.to_string(),
    },
    Field {
        name: "affinity",
        short: "affinity",
        expected: "session, disconnected, linger or none",
        set: |change, text| word(text).map(|value| change.affinity = Some(value)),
        show: |policy| shown_word(&policy.affinity),
    },
    Field {
        name: "allow_unknown",
        short: "allow_unknown",
        expected: YES_NO,
        set: |change, text| yes_no(text).map(|value| change.allow_unknown = Some(value)),
        show: |policy| policy.allow_unknown.to_string(),
    },
    Field {
        name: "reservation_ttl_ms",
        short: "reservation_ttl",
        expected: DURATION,
        set: |change, text| millis(text).map(|value| change.reservation_ttl_ms = Some(value)),
        show: |policy| shown_duration(policy.reservation_ttl),
    },
    Field {
        name: "user_match",
        short: "user_match",
        expected: "folded or exact",
        set: |change, text| word(text).map(|value| change.user_match = Some(value)),
        show: |policy| shown_word(&policy.user_match),
    },
    Field {
        name: "shared_accounts",
        short: "shared_accounts",
        expected: "login names, separated by commas",
        set: |change, text| {
            let names = text.split(',').filter(|name| !name.is_empty()).map(str::to_owned);
            change.shared_accounts = Some(names.collect());
            Some(())
        },
        show: |policy| policy.shared_accounts.join(","),
    },
    Field {
        name: "user_names",
        short: "user_names",
        expected: "plain, hashed or none",
        set: |change, text| word(text).map(|value| change.user_names = Some(value)),
        show: |policy| shown_word(&policy.user_names),
    },
    Field {
        name: "max_error_share_percent",
        short: "max_error_share",
        expected: PERCENT,
        set: |change, text| number(text).map(|value| change.max_error_share_percent = Some(value)),
        show: |policy| policy.max_error_share_percent.to_string(),
    },
    Field {
        name: "mem_critical_percent",
        short: "mem_critical",
        expected: LEVEL,
        set: |change, text| level(text).map(|value| change.mem_critical_percent = Some(value)),
        show: |policy| policy.mem_critical.to_string(),
    },
    Field {
        name: "cpu_critical_percent",
        short: "cpu_critical",
        expected: LEVEL,
        set: |change, text| level(text).map(|value| change.cpu_critical_percent = Some(value)),
        show: |policy| policy.cpu_critical.to_string(),
    },
    Field {
        name: "psi_critical_percent",
        short: "psi_critical",
        expected: LEVEL,
        set: |change, text| level(text).map(|value| change.psi_critical_percent = Some(value)),
        show: |policy| policy.psi_critical.to_string(),
    },
    Field {
        name: "mount_critical_percent",
        short: "mount_critical",
        expected: LEVEL,
        set: |change, text| level(text).map(|value| change.mount_critical_percent = Some(value)),
        show: |policy| policy.mount_critical.to_string(),
    },
    Field {
        name: "max_replica_lag_ms",
        short: "max_replica_lag",
        expected: DURATION,
        set: |change, text| millis(text).map(|value| change.max_replica_lag_ms = Some(value)),
        show: |policy| shown_duration(policy.max_replica_lag),
    },
    Field {
        name: "max_pending",
        short: "max_pending",
        expected: "a number of logons, or unlimited",
        set: |change, text| number_or_word(text).map(|value| change.max_pending = Some(value)),
        show: |policy| policy.max_pending.to_string(),
    },
    Field {
        name: "max_pending_mode",
        short: "max_pending_mode",
        expected: "soft or hard",
        set: |change, text| word(text).map(|value| change.max_pending_mode = Some(value)),
        show: |policy| shown_word(&policy.max_pending_mode),
    },
    Field {
        name: "when_blind",
        short: "when_blind",
        expected: "spread or refuse",
        set: |change, text| word(text).map(|value| change.when_blind = Some(value)),
        show: |policy| shown_word(&policy.when_blind),
    },
    Field {
        name: "kind",
        short: "kind",
        expected: "ssh, rdp, http, tcp or none",
        set: |change, text| word(text).map(|value| change.kind = Some(value)),
        show: |policy| shown_word(&policy.kind),
    },
];

impl PolicyChange {
    /// Takes one setting as it is typed.
    ///
    /// # Errors
    /// [`SettingError`]: no such field, or no value of it. Whether the value is in range is checked when the whole
    /// change is applied.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let Some(field) = FIELDS.iter().find(|field| field.name == name || field.short == name) else {
            let suggestion = suggestion(name);
            return Err(SettingError::Unknown { name: name.to_owned(), suggestion });
        };
        (field.set)(self, value).ok_or_else(|| SettingError::Value {
            name: field.name,
            value: value.to_owned(),
            expected: field.expected.to_owned(),
        })
    }

    /// The names of every setting, with and without their units.
    pub fn setting_names() -> impl Iterator<Item = &'static str> {
        FIELDS.iter().flat_map(|field| {
            let full = (field.name != field.short).then_some(field.name);
            [field.short].into_iter().chain(full)
        })
    }
}

impl Policy {
    /// Every setting, by its name, as it would be typed.
    pub fn settings(&self) -> impl Iterator<Item = (&'static str, String)> {
        FIELDS.iter().map(|field| (field.short, (field.show)(self)))
    }

    /// The fields in which a newer version differs from this one.
    pub fn changes_to(&self, newer: &Self) -> Vec<FieldChange> {
        FIELDS
            .iter()
            .map(|field| (field.name, (field.show)(self), (field.show)(newer)))
            .filter(|(_, before, after)| before != after)
            .map(|(field, before, after)| FieldChange { field: field.to_owned(), before, after })
            .collect()
    }
}

/// The field spelled most like `name`, if any is close.
fn suggestion(name: &str) -> Option<&'static str> {
    PolicyChange::setting_names()
        .map(|known| (strsim::jaro_winkler(name, known), known))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

/// A word that serde knows.
fn word<T: DeserializeOwned>(text: &str) -> Option<T> {
    T::deserialize(serde::de::value::StrDeserializer::<serde::de::value::Error>::new(text)).ok()
}

/// The word that stands for a value.
fn shown_word(value: &impl Serialize) -> String {
    struct Word<'a, T>(&'a T);
    impl<T: Serialize> fmt::Display for Word<'_, T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.serialize(f)
        }
    }
    Word(value).to_string()
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

fn yes_no(text: &str) -> Option<bool> {
    text.parse().ok()
}

fn number_or_word<T: DeserializeOwned>(text: &str) -> Option<T> {
    match text.parse::<u64>() {
        Ok(count) => {
            T::deserialize(serde::de::value::U64Deserializer::<serde::de::value::Error>::new(count)).ok()
        }
        Err(_) => word(text),
    }
}

fn level(text: &str) -> Option<CriticalLevel> {
    if text == "off" { Some(CriticalLevel::Off) } else { number(text).map(CriticalLevel::Percent) }
}

fn weights(text: &str) -> Option<WeightsChange> {
    let parts: Vec<f64> = text.split('/').map(number).collect::<Option<_>>()?;
    let [cpu, memory, users, processes] = parts.try_into().ok()?;
    Some(WeightsChange {
        cpu_percent: Some(cpu),
        memory_percent: Some(memory),
        users_percent: Some(users),
        processes_percent: Some(processes),
    })
}

/// Microseconds of a duration with a unit.
fn micros(text: &str) -> Option<f64> {
    let digits = text.find(|c: char| c != '.' && !c.is_ascii_digit())?;
    let (value, unit) = text.split_at(digits);
    let factor = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 6e7,
        "h" => 3.6e9,
        _ => return None,
    };
    number(value).map(|value| value * factor)
}

fn millis(text: &str) -> Option<u64> {
    let millis = micros(text)? / 1e3;
    // Whole milliseconds; what is beyond any range saturates and is refused there.
    (millis.fract() == 0.0).then_some(millis as u64)
}

fn shown_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis.is_multiple_of(1000) { format!("{}s", millis / 1000) } else { format!("{millis}ms") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Affinity, Method, PendingLimit, UserLimit};

    #[test]
    fn every_setting_reads_back_what_it_shows() {
        let mut change = PolicyChange::default();
        for (name, text) in [("method", "fill_first"), ("max_users", "10"), ("weights", "30/30/25/15")] {
            change.set(name, text).unwrap();
        }
        for (name, text) in
            [("mem_critical", "off"), ("reservation_ttl", "1500ms"), ("shared_accounts", "kiosk,guest")]
        {
            change.set(name, text).unwrap();
        }
        for (name, text) in [("affinity", "linger"), ("max_pending", "4"), ("max_pending_mode", "hard")] {
            change.set(name, text).unwrap();
        }
        let policy = change.apply_to(&Policy::default()).unwrap();
        assert_eq!((policy.method, policy.max_users), (Method::FillFirst, UserLimit::Users(10)));
        assert_eq!((policy.affinity, policy.max_pending), (Affinity::Linger, PendingLimit::Logons(4)));
        let mut again = PolicyChange::default();
        for (name, text) in policy.settings() {
            again.set(name, &text).unwrap_or_else(|error| panic!("{name}={text}: {error}"));
        }
        assert_eq!(again.apply_to(&Policy::default()).unwrap(), policy);
        assert_eq!(policy.settings().count(), FIELDS.len());
    }

    #[test]
    fn a_setting_that_does_not_exist_suggests_the_one_that_does() {
        let unknown = PolicyChange::default().set("treshold", "40").unwrap_err();
        assert_eq!(unknown.to_string(), "there is no setting treshold, did you mean threshold?");
        let unknown = PolicyChange::default().set("colour", "red").unwrap_err();
        assert_eq!(unknown.to_string(), "there is no setting colour");
        let wrong = PolicyChange::default().set("reservation_ttl", "60").unwrap_err();
        assert!(wrong.to_string().contains("reservation_ttl_ms = 60: expected a duration"), "{wrong}");
        assert!(PolicyChange::default().set("weights", "1/2/3").is_err());
    }

    #[test]
    fn the_difference_of_two_versions_names_each_field() {
        let older = Policy::default();
        let newer = Policy { range: 8.0, ..older.clone() };
        let changed = FieldChange { field: "range".into(), before: "6".into(), after: "8".into() };
        assert_eq!(older.changes_to(&newer), [changed]);
    }
}
