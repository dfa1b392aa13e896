//! Can these settings be in force? Every fault with its field, its value and what is allowed.

use std::time::Duration;

use crate::{CriticalLevel, FieldFault, Method, PendingLimit, Policy, UserLimit, user::MAX_USER_BYTES};

/// Bounds of the time to live of a place.
const TTL_MS: std::ops::RangeInclusive<u64> = 1_000..=86_400_000;
/// More shared accounts than this are a mistake, and each costs a comparison per placement.
const MAX_SHARED_ACCOUNTS: usize = 256;
/// A replica that is a week behind is no replica.
const MAX_REPLICA_LAG: Duration = Duration::from_secs(7 * 86_400);

pub(crate) fn in_range(faults: &mut Vec<FieldFault>, field: &str, value: f64, min: f64, max: f64) {
    if !(min..=max).contains(&value) {
        faults.push(FieldFault::new(field, value, format!("{min}..={max}")));
    }
}

impl Policy {
    /// What `range` may be, for people: pages about such servers call it a time.
    pub const RANGE_ALLOWED: &str = "1..=30: it is the exponent of the availability index, not a time; \
                                     the window of time is the agents' latency.period and latency.periods";
}

/// Everything that is wrong with a policy.
pub(crate) fn check(policy: &Policy, faults: &mut Vec<FieldFault>) {
    in_range(faults, "users_full_scale", policy.users_full_scale, 0.0, 1e6);
    if !(1.0..=30.0).contains(&policy.range) {
        faults.push(FieldFault::new("range", policy.range, Policy::RANGE_ALLOWED));
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
    in_range(faults, "max_error_share_percent", policy.max_error_share_percent, 0.0, 100.0);
    for (field, level) in [
        ("mem_critical_percent", policy.mem_critical),
        ("cpu_critical_percent", policy.cpu_critical),
        ("psi_critical_percent", policy.psi_critical),
        ("mount_critical_percent", policy.mount_critical),
    ] {
        if !level.is_valid() {
            faults.push(FieldFault::new(field, level, CriticalLevel::ALLOWED));
        }
    }
    if policy.max_pending == PendingLimit::Logons(0) {
        let allowed = "at least 1, or \"unlimited\"; to exclude a host, drain it";
        faults.push(FieldFault::new("max_pending", 0, allowed));
    }
    if policy.max_replica_lag > MAX_REPLICA_LAG {
        let allowed = format!("0..={}", MAX_REPLICA_LAG.as_millis());
        faults.push(FieldFault::new("max_replica_lag_ms", policy.max_replica_lag.as_millis(), allowed));
    }
    check_method(policy, faults);
    check_time_to_live(policy, faults);
    check_shared_accounts(policy, faults);
}

/// What a method needs.
fn check_method(policy: &Policy, faults: &mut Vec<FieldFault>) {
    if policy.method == Method::FillFirst && policy.max_users == UserLimit::Unlimited {
        faults.push(FieldFault::new("method", "fill_first", "only with a finite max_users"));
    }
}

fn check_time_to_live(policy: &Policy, faults: &mut Vec<FieldFault>) {
    let ttl_ms = policy.reservation_ttl.as_millis();
    if !u64::try_from(ttl_ms).is_ok_and(|ms| TTL_MS.contains(&ms)) {
        faults.push(FieldFault::new(
            "reservation_ttl_ms",
            ttl_ms,
            format!("{}..={}", TTL_MS.start(), TTL_MS.end()),
        ));
    }
}

fn check_shared_accounts(policy: &Policy, faults: &mut Vec<FieldFault>) {
    if policy.shared_accounts.len() > MAX_SHARED_ACCOUNTS {
        let count = format!("{} names", policy.shared_accounts.len());
        faults.push(FieldFault::new("shared_accounts", count, format!("at most {MAX_SHARED_ACCOUNTS}")));
    }
    if let Some(name) = policy.shared_accounts.iter().find(|name| policy.user_match.key(name).is_none()) {
        faults.push(FieldFault::new(
            "shared_accounts",
            // Whose name it is need not be told, and it may be of any length.
            format!("a name of {} bytes", name.len()),
            format!("login names of 1..={MAX_USER_BYTES} bytes without control characters"),
        ));
    }
}
