//! What an operator wants to change in a pool's settings, checked as a whole.
//!
//! A field that is not named keeps its value. All faults are reported together, each with its name, its value and what
//! is allowed; with one fault nothing changes.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    Affinity, Baseline, CriticalLevel, DoorKind, Method, PendingLimit, PendingMode, Policy, UserLimit,
    UserMatch, UserNames, Weights, WhenBlind,
    policy_check::{self, in_range},
};

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
    pub user_names: Option<UserNames>,
    pub max_error_share_percent: Option<f64>,
    pub mem_critical_percent: Option<CriticalLevel>,
    pub cpu_critical_percent: Option<CriticalLevel>,
    pub psi_critical_percent: Option<CriticalLevel>,
    pub mount_critical_percent: Option<CriticalLevel>,
    pub max_replica_lag_ms: Option<u64>,
    pub max_pending: Option<PendingLimit>,
    pub max_pending_mode: Option<PendingMode>,
    pub when_blind: Option<WhenBlind>,
    pub kind: Option<DoorKind>,
}

/// Tolerance on the sum of the weights: three weights of 33.33 must pass.
const WEIGHT_SUM_TOLERANCE: f64 = 0.01 + 1e-9;

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
            user_names: self.user_names.unwrap_or(base.user_names),
            max_error_share_percent: self.max_error_share_percent.unwrap_or(base.max_error_share_percent),
            mem_critical: self.mem_critical_percent.unwrap_or(base.mem_critical),
            cpu_critical: self.cpu_critical_percent.unwrap_or(base.cpu_critical),
            psi_critical: self.psi_critical_percent.unwrap_or(base.psi_critical),
            mount_critical: self.mount_critical_percent.unwrap_or(base.mount_critical),
            max_replica_lag: self.max_replica_lag_ms.map_or(base.max_replica_lag, Duration::from_millis),
            max_pending: self.max_pending.unwrap_or(base.max_pending),
            max_pending_mode: self.max_pending_mode.unwrap_or(base.max_pending_mode),
            when_blind: self.when_blind.unwrap_or(base.when_blind),
            kind: self.kind.unwrap_or(base.kind),
        };
        policy_check::check(&policy, &mut faults);
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
            reservation_ttl_ms: Some(millis(policy.reservation_ttl)),
            user_match: Some(policy.user_match),
            shared_accounts: Some(policy.shared_accounts.clone()),
            user_names: Some(policy.user_names),
            max_error_share_percent: Some(policy.max_error_share_percent),
            mem_critical_percent: Some(policy.mem_critical),
            cpu_critical_percent: Some(policy.cpu_critical),
            psi_critical_percent: Some(policy.psi_critical),
            mount_critical_percent: Some(policy.mount_critical),
            max_replica_lag_ms: Some(millis(policy.max_replica_lag)),
            max_pending: Some(policy.max_pending),
            max_pending_mode: Some(policy.max_pending_mode),
            when_blind: Some(policy.when_blind),
            kind: Some(policy.kind),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
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

    // rule: load-weights
    #[test]
    fn case_145_weights_must_add_up_to_100() {
        assert!(refusal(weights(30.0, 30.0, 25.0, 10.0)).contains("they add up to 95"));
        assert!(weights(33.3, 33.3, 33.4, 0.0).apply_to(&Policy::default()).is_ok());
        assert!(weights(33.33, 33.33, 33.33, 0.0).apply_to(&Policy::default()).is_ok());
    }

    // rule: load-weights
    #[test]
    fn case_147_a_missing_weight_is_zero_if_any_is_given() {
        let users_only = WeightsChange { users_percent: Some(100.0), ..Default::default() };
        let change = PolicyChange { weights: Some(users_only), ..Default::default() };
        let all_given = weights(0.0, 0.0, 100.0, 0.0).apply_to(&Policy::default()).unwrap();
        assert_eq!(change.apply_to(&Policy::default()).unwrap(), all_given);
        let none = PolicyChange { weights: Some(WeightsChange::default()), ..Default::default() };
        assert_eq!(none.apply_to(&Policy::default()).unwrap().weights, Weights::default());
    }

    // rule: index-range
    #[test]
    fn case_058_a_range_taken_for_seconds_is_refused_and_explained() {
        let text = refusal(PolicyChange { range: Some(120.0), ..Default::default() });
        assert!(
            ["range = 120", "1..=30", "exponent", "latency.period"].iter().all(|word| text.contains(word)),
            "{text}"
        );
        assert!(
            PolicyChange { range: Some(25.0), ..Default::default() }.apply_to(&Policy::default()).is_ok()
        );
    }

    // rule: error-fields
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
    fn prediction_is_on_unless_it_is_turned_off() {
        assert!(Policy::default().predict);
        let change =
            PolicyChange { method: Some(Method::Predictive), predict: Some(false), ..Default::default() };
        let policy = change.apply_to(&Policy::default()).unwrap();
        assert_eq!((policy.method, policy.predict), (Method::Predictive, false));
    }

    // rule: error-fields
    #[test]
    fn case_148_a_critical_level_is_a_percentage_or_off() {
        let at = |percent| PolicyChange {
            cpu_critical_percent: Some(CriticalLevel::Percent(percent)),
            ..Default::default()
        };
        for wrong in [120.0, 0.0, -1.0, f64::NAN] {
            let text = refusal(at(wrong));
            let expected =
                format!("cpu_critical_percent = {wrong}: allowed above 0, at most 100, or \"off\"");
            assert_eq!(text, expected);
        }
        let off = PolicyChange { cpu_critical_percent: Some(CriticalLevel::Off), ..Default::default() };
        assert_eq!(off.apply_to(&Policy::default()).unwrap().cpu_critical, CriticalLevel::Off);
    }

    // rule: error-fields
    #[test]
    fn filling_hosts_up_needs_to_know_when_one_is_full() {
        let fill = PolicyChange { method: Some(Method::FillFirst), ..Default::default() };
        assert!(refusal(fill.clone()).contains("method = fill_first: allowed only with a finite max_users"));
        let limited = PolicyChange { max_users: Some(UserLimit::Users(10)), ..fill };
        let policy = limited.apply_to(&Policy::default()).unwrap();
        let unlimited = PolicyChange { max_users: Some(UserLimit::Unlimited), ..Default::default() };
        assert!(unlimited.apply_to(&policy).is_err(), "nor can the limit be taken away later");
    }
}
