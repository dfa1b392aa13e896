//! What is changed in a pool's settings, and what settings is an agent given?

use usher_types::{
    CriticalLevel, Drain, DrainMode, FieldFault, PendingLimit, Policy, PolicyChange, SettingsHash, UserLimit,
    WeightsChange,
};

use super::host_marks;
use crate::{
    enums,
    fault::{Faults, MAX_NAME_BYTES, MAX_TEXT_BYTES, cut, id, nested, required, user},
    messages::PoolSettings,
    v1,
};

/// The change that a policy of the wire asks for: fields not set keep their value.
///
/// Numbers pass as they are, NaN too: [`PolicyChange::apply_to`] refuses them, together with everything else.
///
/// # Errors
/// Every field that is no value at all: an unspecified or unknown enum, a limit that says neither a number nor
/// unlimited, an account that no login name can be.
pub fn policy_change(msg: v1::Policy) -> Result<PolicyChange, Vec<FieldFault>> {
    let mut faults = Faults::default();
    let change = PolicyChange {
        method: msg.method.and_then(|number| faults.ok(enums::method("method", number))),
        weights: msg.weights.map(weights),
        users_full_scale: msg.users_full_scale,
        range: msg.range,
        threshold_percent: msg.threshold_percent,
        exit_margin_percent: msg.exit_margin_percent,
        max_users: msg.max_users.and_then(|limit| faults.ok(user_limit("max_users", limit))),
        baseline: msg.baseline.and_then(|number| faults.ok(enums::baseline("baseline", number))),
        min_possible_us: msg.min_possible_us,
        max_possible_us: msg.max_possible_us,
        predict: msg.predict,
        affinity: msg.affinity.and_then(|number| faults.ok(enums::affinity("affinity", number))),
        allow_unknown: msg.allow_unknown,
        reservation_ttl_ms: msg.reservation_ttl_ms,
        user_match: msg.user_match.and_then(|number| faults.ok(enums::user_match("user_match", number))),
        shared_accounts: msg.shared_accounts.map(|accounts| shared_accounts(&mut faults, accounts.names)),
        user_names: msg.user_names.and_then(|number| faults.ok(enums::user_names("user_names", number))),
        max_error_share_percent: msg.max_error_share_percent,
        mem_critical_percent: level(&mut faults, "mem_critical_percent", msg.mem_critical),
        cpu_critical_percent: level(&mut faults, "cpu_critical_percent", msg.cpu_critical),
        psi_critical_percent: level(&mut faults, "psi_critical_percent", msg.psi_critical),
        mount_critical_percent: level(&mut faults, "mount_critical_percent", msg.mount_critical),
        max_replica_lag_ms: msg.max_replica_lag_ms,
        max_pending: msg.max_pending.and_then(|limit| faults.ok(pending_limit("max_pending", limit))),
        max_pending_mode: msg
            .max_pending_mode
            .and_then(|number| faults.ok(enums::pending_mode("max_pending_mode", number))),
        when_blind: msg.when_blind.and_then(|number| faults.ok(enums::when_blind("when_blind", number))),
        kind: msg.kind.and_then(|number| faults.ok(enums::door_kind("kind", number))),
    };
    let faults = faults.into_vec();
    if faults.is_empty() { Ok(change) } else { Err(faults) }
}

/// Names of any length must not come as far as a fault that shows them.
fn shared_accounts(faults: &mut Faults, names: Vec<String>) -> Vec<String> {
    names.into_iter().filter_map(|name| faults.ok(user("shared_accounts", name))).collect()
}

fn level(faults: &mut Faults, field: &str, msg: Option<v1::CriticalLevel>) -> Option<CriticalLevel> {
    msg.and_then(|msg| faults.ok(critical_level(field, msg)))
}

const fn weights(msg: v1::Weights) -> WeightsChange {
    WeightsChange {
        cpu_percent: msg.cpu_percent,
        memory_percent: msg.memory_percent,
        users_percent: msg.users_percent,
        processes_percent: msg.processes_percent,
    }
}

/// The limit in `field`. That a number is at least 1 is checked where it is applied.
///
/// # Errors
/// The fault, if neither is set, or `unlimited` is false.
pub fn user_limit(field: &str, msg: v1::UserLimit) -> Result<UserLimit, FieldFault> {
    let shown = match msg.limit {
        Some(v1::user_limit::Limit::Unlimited(true)) => return Ok(UserLimit::Unlimited),
        Some(v1::user_limit::Limit::Users(users)) => return Ok(UserLimit::Users(users)),
        Some(v1::user_limit::Limit::Unlimited(false)) => "unlimited: false",
        None => "neither",
    };
    Err(FieldFault::new(field, shown, "a number of users, or unlimited: true"))
}

/// The limit of logons in `field`. That a number is at least 1 is checked where it is applied.
///
/// # Errors
/// The fault, if neither is set, or `unlimited` is false.
pub fn pending_limit(field: &str, msg: v1::PendingLimit) -> Result<PendingLimit, FieldFault> {
    let shown = match msg.limit {
        Some(v1::pending_limit::Limit::Unlimited(true)) => return Ok(PendingLimit::Unlimited),
        Some(v1::pending_limit::Limit::Logons(logons)) => return Ok(PendingLimit::Logons(logons)),
        Some(v1::pending_limit::Limit::Unlimited(false)) => "unlimited: false",
        None => "neither",
    };
    Err(FieldFault::new(field, shown, "a number of logons, or unlimited: true"))
}

/// The level in `field`. The range of a percentage is checked where it is applied.
///
/// # Errors
/// The fault, if neither is set, or `off` is false.
pub fn critical_level(field: &str, msg: v1::CriticalLevel) -> Result<CriticalLevel, FieldFault> {
    let shown = match msg.level {
        Some(v1::critical_level::Level::Off(true)) => return Ok(CriticalLevel::Off),
        Some(v1::critical_level::Level::Percent(percent)) => return Ok(CriticalLevel::Percent(percent)),
        Some(v1::critical_level::Level::Off(false)) => "off: false",
        None => "neither",
    };
    Err(FieldFault::new(field, shown, "a percentage, or off: true"))
}

/// A drain. Texts that are too long are cut.
///
/// # Errors
/// The fault, if the mode is unspecified or unknown.
pub fn drain(msg: v1::Drain) -> Result<Drain, FieldFault> {
    Ok(Drain {
        mode: enums::drain_mode("mode", msg.mode)?,
        reason: cut(msg.reason, MAX_TEXT_BYTES),
        author: cut(msg.author, MAX_NAME_BYTES),
        no_reconnect: msg.no_reconnect,
    })
}

/// The mode in an operator's request, where unspecified means the default.
///
/// # Errors
/// The fault, if the number is unknown.
pub fn drain_mode_or_default(number: i32) -> Result<DrainMode, FieldFault> {
    if number == 0 { Ok(DrainMode::default()) } else { enums::drain_mode("mode", number) }
}

/// The settings that a coordinator gives. A field that it does not send (an older coordinator) has its default.
///
/// # Errors
/// Every field that is refused; the settings in force stay.
pub fn pool_settings(msg: v1::PoolSettings) -> Result<PoolSettings, Vec<FieldFault>> {
    let mut faults = Faults::default();
    let pool = faults.ok(id("pool", &msg.pool));
    let policy = faults.ok(required("policy", msg.policy)).and_then(|policy| {
        let policy = policy_change(policy).and_then(|change| change.apply_to(&Policy::default()));
        policy
            .map_err(|refused| refused.into_iter().for_each(|fault| faults.push(nested(fault, "policy"))))
            .ok()
    });
    let drain = msg.drain.and_then(|msg| faults.ok(drain(msg).map_err(|fault| nested(fault, "drain"))));
    let marks = msg.marks.and_then(|msg| {
        let refuse = |refused: Vec<FieldFault>| {
            refused.into_iter().for_each(|fault| faults.push(nested(fault, "marks")));
        };
        host_marks(msg).map_err(refuse).ok()
    });
    let faults = faults.into_vec();
    match (pool, policy) {
        (Some(pool), Some(policy)) if faults.is_empty() => {
            let hash = msg.settings_hash.map(SettingsHash);
            Ok(PoolSettings { pool, version: msg.version, policy, drain, marks, hash })
        }
        _ => Err(faults),
    }
}

#[cfg(test)]
mod tests {
    use usher_types::HostMarks;

    use super::*;
    use crate::write;

    #[test]
    fn fields_not_set_are_not_changed() {
        assert_eq!(policy_change(v1::Policy::default()), Ok(PolicyChange::default()));
        let none_shared =
            v1::Policy { shared_accounts: Some(v1::SharedAccounts::default()), ..Default::default() };
        assert_eq!(policy_change(none_shared).unwrap().shared_accounts, Some(Vec::new()));
    }

    #[test]
    fn what_is_no_value_is_named_with_all_the_others() {
        let faults = policy_change(v1::Policy {
            method: Some(0),
            affinity: Some(99),
            max_users: Some(v1::UserLimit { limit: Some(v1::user_limit::Limit::Unlimited(false)) }),
            max_pending: Some(v1::PendingLimit { limit: Some(v1::pending_limit::Limit::Unlimited(false)) }),
            mem_critical: Some(v1::CriticalLevel { level: Some(v1::critical_level::Level::Off(false)) }),
            psi_critical: Some(v1::CriticalLevel::default()),
            when_blind: Some(0),
            kind: Some(9),
            user_names: Some(4),
            max_pending_mode: Some(-1),
            ..Default::default()
        })
        .unwrap_err();
        let fields: Vec<_> = faults.iter().map(|fault| fault.field.as_str()).collect();
        let expected = [
            "method",
            "max_users",
            "affinity",
            "user_names",
            "mem_critical_percent",
            "psi_critical_percent",
            "max_pending",
            "max_pending_mode",
            "when_blind",
            "kind",
        ];
        assert_eq!(fields, expected);
        assert!(user_limit("max_users", v1::UserLimit { limit: None }).is_err());
    }

    #[test]
    fn an_account_that_is_no_login_name_is_refused_and_not_shown() {
        let names = vec!["kiosk".to_owned(), "secret".repeat(10_000), "eve\n".to_owned()];
        let shared_accounts = Some(v1::SharedAccounts { names });
        let faults = policy_change(v1::Policy { shared_accounts, ..Default::default() }).unwrap_err();
        let expected = [
            "shared_accounts = a login name of 60000 bytes: allowed 1..=256 bytes without control characters",
            "shared_accounts = a login name of 4 bytes: allowed 1..=256 bytes without control characters",
        ];
        assert_eq!(faults.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_nan_is_left_to_the_policy_to_refuse() {
        let change = policy_change(v1::Policy { range: Some(f64::NAN), ..Default::default() }).unwrap();
        assert_eq!(change.apply_to(&Policy::default()).unwrap_err()[0].field, "range");
    }

    #[test]
    fn settings_are_refused_whole_and_every_fault_is_named() {
        let faults = pool_settings(v1::PoolSettings {
            policy: Some(v1::Policy { range: Some(99.0), ..write::policy(&Policy::default()) }),
            drain: Some(v1::Drain::default()),
            marks: Some(v1::HostMarks { capacity: Some(0.0), ..Default::default() }),
            ..Default::default()
        })
        .unwrap_err();
        let fields: Vec<_> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(fields, ["pool", "policy.range", "drain.mode", "marks.capacity"]);
    }

    #[test]
    fn settings_come_back_as_they_were_sent() {
        let settings = PoolSettings {
            pool: usher_types::PoolName::new("desk").unwrap(),
            version: 7,
            policy: Policy { max_users: UserLimit::Users(5), ..Policy::default() },
            drain: Some(Drain {
                mode: DrainMode::Persistent,
                reason: "repair".to_owned(),
                author: "ops".to_owned(),
                no_reconnect: true,
            }),
            marks: Some(HostMarks { busy: true, ..HostMarks::default() }),
            hash: Some(SettingsHash(7)),
        };
        assert_eq!(pool_settings(write::pool_settings(&settings)).unwrap(), settings);
    }

    #[test]
    fn an_unspecified_mode_is_the_default_only_in_a_request() {
        assert_eq!(drain_mode_or_default(0), Ok(DrainMode::UntilRestart));
        assert_eq!(drain_mode_or_default(2), Ok(DrainMode::Persistent));
        assert!(drain_mode_or_default(9).is_err());
        assert!(drain(v1::Drain::default()).is_err());
    }
}
