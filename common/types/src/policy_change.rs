//! What an operator wants to change in a pool's settings, checked as a whole.
//!
//! A field that is not named keeps its value. All faults are reported together, each with its name, its value and what
//! is allowed; with one fault nothing changes.

use std::{fmt, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use crate::{Affinity, Baseline, Method, Policy, UserLimit, UserMatch, Weights, user::MAX_USER_BYTES};

/// A field that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field} = {value}: allowed {allowed}")]
pub struct FieldFault {
    /// Path of the field.
    pub field: String,
    /// The value, as it came.
    pub value: String,
    /// What is allowed.
    pub allowed: String,
}

impl FieldFault {
    /// A fault of `field`.
    pub fn new(field: impl Into<String>, value: impl fmt::Display, allowed: impl Into<String>) -> Self {
        Self { field: field.into(), value: value.to_string(), allowed: allowed.into() }
    }
}

/// Weights to change. If one is named, those not named become 0.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WeightsChange {
    /// Percent.
    pub cpu_percent: Option<f64>,
    /// Percent.
    pub memory_percent: Option<f64>,
    /// Percent.
    pub users_percent: Option<f64>,
    /// Percent.
    pub processes_percent: Option<f64>,
}

/// Settings to change; absent fields keep their value.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "each field is the one of the same name in `Policy`")]
pub struct PolicyChange {
    pub method: Option<Method>,
    pub weights: Option<WeightsChange>,
    pub users_full_scale: Option<f64>,
    pub range: Option<f64>,
    pub threshold_percent: Option<f64>,
    pub exit_margin_percent: Option<f64>,
    pub max_users: Option<UserLimit>,
    pub baseline: Option<Baseline>,
    pub min_possible_us: Option<f64>,
    pub max_possible_us: Option<f64>,
    pub predict: Option<bool>,
    pub affinity: Option<Affinity>,
    pub allow_unknown: Option<bool>,
    pub reservation_ttl_ms: Option<u64>,
    pub user_match: Option<UserMatch>,
    pub shared_accounts: Option<Vec<String>>,
}

/// Tolerance on the sum of the weights: three weights of 33.33 must pass.
const WEIGHT_SUM_TOLERANCE: f64 = 0.01 + 1e-9;
/// Bounds of the time to live of a place.
const TTL_MS: std::ops::RangeInclusive<u64> = 1_000..=86_400_000;
/// More shared accounts than this are a mistake, and each costs a comparison per placement.
const MAX_SHARED_ACCOUNTS: usize = 256;

impl PolicyChange {
    /// The policy that `base` becomes.
    ///
    /// # Errors
    /// Every field that is refused; `base` stays in force then.
    pub fn apply_to(&self, base: &Policy) -> Result<Policy, Vec<FieldFault>> {
        let mut faults = Vec::new();
        let policy = Policy {
            method: self.method.unwrap_or(base.method),
            weights: self.weights.map_or(base.weights, |change| change.weights(&mut faults)),
            users_full_scale: self.users_full_scale.unwrap_or(base.users_full_scale),
            range: self.range.unwrap_or(base.range),
            threshold_percent: self.threshold_percent.unwrap_or(base.threshold_percent),
            exit_margin_percent: self.exit_margin_percent.unwrap_or(base.exit_margin_percent),
            max_users: self.max_users.unwrap_or(base.max_users),
            baseline: self.baseline.unwrap_or(base.baseline),
            min_possible_us: self.min_possible_us.unwrap_or(base.min_possible_us),
            max_possible_us: self.max_possible_us.unwrap_or(base.max_possible_us),
            predict: self.predict.unwrap_or(base.predict),
            affinity: self.affinity.unwrap_or(base.affinity),
            allow_unknown: self.allow_unknown.unwrap_or(base.allow_unknown),
            reservation_ttl: self.reservation_ttl_ms.map_or(base.reservation_ttl, Duration::from_millis),
            user_match: self.user_match.unwrap_or(base.user_match),
            shared_accounts: self.shared_accounts.clone().unwrap_or_else(|| base.shared_accounts.clone()),
        };
        check_numbers(&policy, &mut faults);
        check_unbuilt(&policy, &mut faults);
        if faults.is_empty() { Ok(policy) } else { Err(faults) }
    }

    /// The change that sets every field to what `policy` has.
    pub fn of(policy: &Policy) -> Self {
        let weights = policy.weights;
        Self {
            method: Some(policy.method),
            weights: Some(WeightsChange {
                cpu_percent: Some(weights.cpu_percent),
                memory_percent: Some(weights.memory_percent),
                users_percent: Some(weights.users_percent),
                processes_percent: Some(weights.processes_percent),
            }),
            users_full_scale: Some(policy.users_full_scale),
            range: Some(policy.range),
            threshold_percent: Some(policy.threshold_percent),
            exit_margin_percent: Some(policy.exit_margin_percent),
            max_users: Some(policy.max_users),
            baseline: Some(policy.baseline),
            min_possible_us: Some(policy.min_possible_us),
            max_possible_us: Some(policy.max_possible_us),
            predict: Some(policy.predict),
            affinity: Some(policy.affinity),
            allow_unknown: Some(policy.allow_unknown),
            reservation_ttl_ms: Some(u64::try_from(policy.reservation_ttl.as_millis()).unwrap_or(u64::MAX)),
            user_match: Some(policy.user_match),
            shared_accounts: Some(policy.shared_accounts.clone()),
        }
    }
}

impl WeightsChange {
    fn weights(self, faults: &mut Vec<FieldFault>) -> Weights {
        if self == Self::default() {
            return Weights::default();
        }
        let mut weight = |name: &str, value: Option<f64>| {
            let value = value.unwrap_or(0.0);
            in_range(faults, &format!("weights.{name}"), value, 0.0, 100.0);
            value
        };
        let weights = Weights {
            cpu_percent: weight("cpu_percent", self.cpu_percent),
            memory_percent: weight("memory_percent", self.memory_percent),
            users_percent: weight("users_percent", self.users_percent),
            processes_percent: weight("processes_percent", self.processes_percent),
        };
        let sum =
            weights.cpu_percent + weights.memory_percent + weights.users_percent + weights.processes_percent;
        if sum.is_finite() && (sum - 100.0).abs() > WEIGHT_SUM_TOLERANCE {
            let allowed = format!("weights that add up to 100 (they add up to {sum})");
            let shown = format!(
                "{}/{}/{}/{}",
                weights.cpu_percent, weights.memory_percent, weights.users_percent, weights.processes_percent
            );
            faults.push(FieldFault::new("weights", shown, allowed));
        }
        weights
    }
}

fn in_range(faults: &mut Vec<FieldFault>, field: &str, value: f64, min: f64, max: f64) {
    if !(min..=max).contains(&value) {
        faults.push(FieldFault::new(field, value, format!("{min}..={max}")));
    }
}

fn check_numbers(policy: &Policy, faults: &mut Vec<FieldFault>) {
    in_range(faults, "users_full_scale", policy.users_full_scale, 0.0, 1e6);
    if !(1.0..=30.0).contains(&policy.range) {
        let allowed = "1..=30: it is the exponent of the availability index, not a time";
        faults.push(FieldFault::new("range", policy.range, allowed));
    }
    in_range(faults, "threshold_percent", policy.threshold_percent, 0.0, 100.0);
    in_range(faults, "exit_margin_percent", policy.exit_margin_percent, 0.0, 100.0);
    if policy.max_users == UserLimit::Users(0) {
        faults.push(FieldFault::new(
            "max_users",
            0,
            "at least 1, or \"unlimited\"; to exclude a host, drain it",
        ));
    }
    in_range(faults, "min_possible_us", policy.min_possible_us, 1e-3, 1e9);
    in_range(faults, "max_possible_us", policy.max_possible_us, 1.0, 3.6e9);
    if policy.min_possible_us > policy.max_possible_us {
        let allowed = format!("at most max_possible_us ({})", policy.max_possible_us);
        faults.push(FieldFault::new("min_possible_us", policy.min_possible_us, allowed));
    }
    let ttl_ms = policy.reservation_ttl.as_millis();
    if !u64::try_from(ttl_ms).is_ok_and(|ms| TTL_MS.contains(&ms)) {
        faults.push(FieldFault::new(
            "reservation_ttl_ms",
            ttl_ms,
            format!("{}..={}", TTL_MS.start(), TTL_MS.end()),
        ));
    }
    if policy.shared_accounts.len() > MAX_SHARED_ACCOUNTS {
        let count = format!("{} names", policy.shared_accounts.len());
        faults.push(FieldFault::new("shared_accounts", count, format!("at most {MAX_SHARED_ACCOUNTS}")));
    }
    if let Some(name) = policy.shared_accounts.iter().find(|name| policy.user_match.key(name).is_none()) {
        faults.push(FieldFault::new(
            "shared_accounts",
            format!("{name:?}"),
            format!("login names of 1..={MAX_USER_BYTES} bytes"),
        ));
    }
}

/// What this version cannot do is refused by name rather than done otherwise.
fn check_unbuilt(policy: &Policy, faults: &mut Vec<FieldFault>) {
    let method = match policy.method {
        Method::WeightedLoad => None,
        Method::Availability => Some("availability"),
        Method::Predictive => Some("predictive"),
        Method::FillFirst => Some("fill_first"),
    };
    if let Some(method) = method {
        faults.push(FieldFault::new("method", method, "weighted_load (this version has no other)"));
    }
    if policy.baseline == Baseline::Robust {
        faults.push(FieldFault::new("baseline", "robust", "minimum (this version has no other)"));
    }
    if policy.predict {
        faults.push(FieldFault::new("predict", true, "false (this version does not predict)"));
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

impl<'de> Deserialize<'de> for UserLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = UserLimit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of users from 1 to 4294967295, or \"unlimited\"")
            }

            fn visit_u64<E: de::Error>(self, users: u64) -> Result<UserLimit, E> {
                u32::try_from(users)
                    .map(UserLimit::Users)
                    .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(users), &self))
            }

            fn visit_i64<E: de::Error>(self, users: i64) -> Result<UserLimit, E> {
                u32::try_from(users)
                    .map(UserLimit::Users)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(users), &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<UserLimit, E> {
                match text {
                    "unlimited" => Ok(UserLimit::Unlimited),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: PolicyChange) -> String {
        let faults = change.apply_to(&Policy::default()).unwrap_err();
        faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    fn weights(cpu: f64, memory: f64, users: f64, processes: f64) -> PolicyChange {
        let weights = WeightsChange {
            cpu_percent: Some(cpu),
            memory_percent: Some(memory),
            users_percent: Some(users),
            processes_percent: Some(processes),
        };
        PolicyChange { weights: Some(weights), ..PolicyChange::default() }
    }

    #[test]
    fn fields_not_named_keep_their_value() {
        let base =
            PolicyChange { range: Some(8.0), ..Default::default() }.apply_to(&Policy::default()).unwrap();
        let next = PolicyChange { max_users: Some(UserLimit::Users(5)), ..Default::default() }
            .apply_to(&base)
            .unwrap();
        assert_eq!((next.range, next.max_users), (8.0, UserLimit::Users(5)));
        assert_eq!(PolicyChange::of(&next).apply_to(&Policy::default()).unwrap(), next);
    }

    #[test]
    fn case_145_weights_must_add_up_to_100() {
        assert!(refusal(weights(30.0, 30.0, 25.0, 10.0)).contains("they add up to 95"));
        assert!(weights(33.3, 33.3, 33.4, 0.0).apply_to(&Policy::default()).is_ok());
        assert!(weights(33.33, 33.33, 33.33, 0.0).apply_to(&Policy::default()).is_ok());
    }

    #[test]
    fn case_147_a_missing_weight_is_zero_if_any_is_given() {
        let users_only = WeightsChange { users_percent: Some(100.0), ..Default::default() };
        let change = PolicyChange { weights: Some(users_only), ..Default::default() };
        let all_given = weights(0.0, 0.0, 100.0, 0.0).apply_to(&Policy::default()).unwrap();
        assert_eq!(change.apply_to(&Policy::default()).unwrap(), all_given);
        let none = PolicyChange { weights: Some(WeightsChange::default()), ..Default::default() };
        assert_eq!(none.apply_to(&Policy::default()).unwrap().weights, Weights::default());
    }

    #[test]
    fn case_058_a_range_taken_for_seconds_is_refused_and_explained() {
        let text = refusal(PolicyChange { range: Some(120.0), ..Default::default() });
        assert!(
            text.contains("range = 120") && text.contains("1..=30") && text.contains("exponent"),
            "{text}"
        );
        assert!(
            PolicyChange { range: Some(25.0), ..Default::default() }.apply_to(&Policy::default()).is_ok()
        );
    }

    #[test]
    fn every_fault_is_named_with_its_value_and_what_is_allowed() {
        let text = refusal(PolicyChange {
            threshold_percent: Some(f64::NAN),
            exit_margin_percent: Some(-10.0),
            max_users: Some(UserLimit::Users(0)),
            reservation_ttl_ms: Some(5),
            ..weights(f64::NAN, 50.0, 50.0, 0.0)
        });
        for part in [
            "weights.cpu_percent = NaN: allowed 0..=100",
            "threshold_percent = NaN: allowed 0..=100",
            "exit_margin_percent = -10: allowed 0..=100",
            "max_users = 0: allowed at least 1, or \"unlimited\"",
            "reservation_ttl_ms = 5: allowed 1000..=86400000",
        ] {
            assert!(text.contains(part), "{part} not in {text}");
        }
    }

    #[test]
    fn what_this_version_cannot_do_is_refused_by_name() {
        let text = refusal(PolicyChange {
            method: Some(Method::Predictive),
            baseline: Some(Baseline::Robust),
            predict: Some(true),
            ..Default::default()
        });
        for name in ["method = predictive", "baseline = robust", "predict = true"] {
            assert!(text.contains(name), "{text}");
        }
    }

    #[test]
    fn a_limit_is_a_number_or_the_word_unlimited() {
        assert_eq!(serde_json::from_str::<UserLimit>("\"unlimited\"").unwrap(), UserLimit::Unlimited);
        assert_eq!(serde_json::from_str::<UserLimit>("50").unwrap(), UserLimit::Users(50));
        assert!(serde_json::from_str::<UserLimit>("-1").is_err());
        assert!(serde_json::from_str::<UserLimit>("\"many\"").is_err());
    }
}
