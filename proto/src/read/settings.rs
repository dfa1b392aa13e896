//! What is changed in a pool's settings, and what settings is an agent given?

use usher_types::{Drain, DrainMode, FieldFault, Policy, PolicyChange, UserLimit, WeightsChange};

use crate::{
    enums,
    fault::{Faults, MAX_NAME_BYTES, MAX_TEXT_BYTES, cut, id, nested, required},
    messages::PoolSettings,
    v1,
};

/// The change that a policy of the wire asks for: fields not set keep their value.
///
/// Numbers pass as they are, NaN too: [`PolicyChange::apply_to`] refuses them, together with everything else.
///
/// # Errors
/// Every field that is no value at all: an unspecified or unknown enum, a limit that says neither a number nor
/// unlimited.
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
        shared_accounts: msg.shared_accounts.map(|accounts| accounts.names),
    };
    let faults = faults.into_vec();
    if faults.is_empty() { Ok(change) } else { Err(faults) }
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
    let faults = faults.into_vec();
    match (pool, policy) {
        (Some(pool), Some(policy)) if faults.is_empty() => {
            Ok(PoolSettings { pool, version: msg.version, policy, drain })
        }
        _ => Err(faults),
    }
}

#[cfg(test)]
mod tests {
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
            ..Default::default()
        })
        .unwrap_err();
        let fields: Vec<_> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(fields, ["method", "max_users", "affinity"]);
        assert!(user_limit("max_users", v1::UserLimit { limit: None }).is_err());
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
            ..Default::default()
        })
        .unwrap_err();
        let fields: Vec<_> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(fields, ["pool", "policy.range", "drain.mode"]);
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
