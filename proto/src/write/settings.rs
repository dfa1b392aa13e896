//! What a pool and a host are set to.

use usher_types::{
    Change, CriticalLevel, Drain, FieldChange, HostMarks, HostMarksChange, PendingLimit, Percent, Policy,
    PolicyChange, UserLimit, Weights, WeightsChange,
};

use crate::{
    messages::{PoolSettings, SetDrain, SetDrainAnswer},
    v1,
};

/// The settings of a host's pool.
pub fn pool_settings(settings: &PoolSettings) -> v1::PoolSettings {
    v1::PoolSettings {
        pool: settings.pool.to_string(),
        version: settings.version,
        policy: Some(policy(&settings.policy)),
        drain: settings.drain.as_ref().map(drain),
        marks: settings.marks.as_ref().map(host_marks),
        settings_hash: settings.hash.map(|hash| hash.0),
    }
}

/// The settings of a host's pool, for an agent of this version.
///
/// An agent of 0.1 refuses settings whole if they ask for a way of ordering hosts, of predicting or of finding baselines
/// that it does not have, and would keep those it had. It orders no hosts and predicts nothing, and has one way of finding
/// baselines: it is told that.
pub fn pool_settings_for(agent_version: &str, settings: &PoolSettings) -> v1::PoolSettings {
    let mut msg = pool_settings(settings);
    if agent_version.starts_with("0.1.")
        && let Some(policy) = &mut msg.policy
    {
        policy.method = Some(v1::Method::WeightedLoad.into());
        policy.predict = Some(false);
        policy.baseline = Some(v1::Baseline::Minimum.into());
    }
    msg
}

/// A drain.
pub fn drain(drain: &Drain) -> v1::Drain {
    v1::Drain {
        mode: v1::DrainMode::from(drain.mode).into(),
        reason: drain.reason.clone(),
        author: drain.author.clone(),
        no_reconnect: drain.no_reconnect,
    }
}

/// The drain that a host is to keep.
pub fn set_drain(told: &SetDrain) -> v1::SetDrain {
    v1::SetDrain { nonce: told.nonce, drain: told.drain.as_ref().map(drain) }
}

/// What a host has kept of a drain.
pub fn set_drain_answer(answer: &SetDrainAnswer) -> v1::SetDrainAnswer {
    let kept = answer.outcome.as_ref().ok();
    v1::SetDrainAnswer {
        nonce: answer.nonce,
        error: answer.outcome.as_ref().err().cloned(),
        before: kept.and_then(|kept| kept.before.as_ref()).map(drain),
        holds: kept.and_then(|kept| kept.holds.as_ref()).map(drain),
    }
}

/// A pool's settings, with every field present.
pub fn policy(policy: &Policy) -> v1::Policy {
    policy_change(&PolicyChange::of(policy))
}

/// What an operator wants to change; fields that are not changed are not set.
pub fn policy_change(change: &PolicyChange) -> v1::Policy {
    v1::Policy {
        method: change.method.map(|method| v1::Method::from(method).into()),
        weights: change.weights.map(weights_change),
        users_full_scale: change.users_full_scale,
        range: change.range,
        threshold_percent: change.threshold_percent,
        exit_margin_percent: change.exit_margin_percent,
        max_users: change.max_users.map(user_limit),
        baseline: change.baseline.map(|baseline| v1::Baseline::from(baseline).into()),
        min_possible_us: change.min_possible_us,
        max_possible_us: change.max_possible_us,
        predict: change.predict,
        affinity: change.affinity.map(|affinity| v1::Affinity::from(affinity).into()),
        allow_unknown: change.allow_unknown,
        reservation_ttl_ms: change.reservation_ttl_ms,
        user_match: change.user_match.map(|user_match| v1::UserMatch::from(user_match).into()),
        shared_accounts: change.shared_accounts.clone().map(|names| v1::SharedAccounts { names }),
        user_names: change.user_names.map(|names| v1::UserNames::from(names).into()),
        max_error_share_percent: change.max_error_share_percent,
        mem_critical: change.mem_critical_percent.map(critical_level),
        cpu_critical: change.cpu_critical_percent.map(critical_level),
        psi_critical: change.psi_critical_percent.map(critical_level),
        mount_critical: change.mount_critical_percent.map(critical_level),
        max_replica_lag_ms: change.max_replica_lag_ms,
        max_pending: change.max_pending.map(pending_limit),
        max_pending_mode: change.max_pending_mode.map(|mode| v1::PendingMode::from(mode).into()),
        when_blind: change.when_blind.map(|choice| v1::WhenBlind::from(choice).into()),
        kind: change.kind.map(|kind| v1::DoorKind::from(kind).into()),
    }
}

/// The weights of a pool.
pub const fn weights(weights: Weights) -> v1::Weights {
    v1::Weights {
        cpu_percent: Some(weights.cpu_percent),
        memory_percent: Some(weights.memory_percent),
        users_percent: Some(weights.users_percent),
        processes_percent: Some(weights.processes_percent),
    }
}

const fn weights_change(change: WeightsChange) -> v1::Weights {
    v1::Weights {
        cpu_percent: change.cpu_percent,
        memory_percent: change.memory_percent,
        users_percent: change.users_percent,
        processes_percent: change.processes_percent,
    }
}

/// A limit on users.
pub const fn user_limit(limit: UserLimit) -> v1::UserLimit {
    let limit = match limit {
        UserLimit::Unlimited => v1::user_limit::Limit::Unlimited(true),
        UserLimit::Users(users) => v1::user_limit::Limit::Users(users),
    };
    v1::UserLimit { limit: Some(limit) }
}

/// A limit on logons in progress.
pub const fn pending_limit(limit: PendingLimit) -> v1::PendingLimit {
    let limit = match limit {
        PendingLimit::Unlimited => v1::pending_limit::Limit::Unlimited(true),
        PendingLimit::Logons(logons) => v1::pending_limit::Limit::Logons(logons),
    };
    v1::PendingLimit { limit: Some(limit) }
}

/// A level at which a host is BUSY.
pub const fn critical_level(level: CriticalLevel) -> v1::CriticalLevel {
    let level = match level {
        CriticalLevel::Off => v1::critical_level::Level::Off(true),
        CriticalLevel::Percent(percent) => v1::critical_level::Level::Percent(percent),
    };
    v1::CriticalLevel { level: Some(level) }
}

/// An admin's settings of one host.
pub fn host_marks(marks: &HostMarks) -> v1::HostMarks {
    v1::HostMarks {
        capacity: marks.capacity,
        max_users: marks.max_users.map(user_limit),
        threshold_percent: marks.threshold.map(Percent::get),
        range: marks.range,
        busy: marks.busy,
    }
}

/// The request that changes an admin's settings of a host, which goes by its name or id.
pub fn host_marks_change(host: &str, change: &HostMarksChange) -> v1::SetHostMarksRequest {
    fn wanted<T>(change: Change<T>) -> Option<T> {
        match change {
            Change::Set(value) => Some(value),
            Change::Keep | Change::Clear => None,
        }
    }
    let cleared = [
        ("capacity", change.capacity == Change::Clear),
        ("max_users", change.max_users == Change::Clear),
        ("threshold_percent", change.threshold == Change::Clear),
        ("range", change.range == Change::Clear),
    ];
    v1::SetHostMarksRequest {
        host: host.to_owned(),
        marks: Some(v1::HostMarks {
            capacity: wanted(change.capacity),
            max_users: wanted(change.max_users).map(user_limit),
            threshold_percent: wanted(change.threshold),
            range: wanted(change.range),
            busy: false,
        }),
        clear: cleared.iter().filter(|(_, clear)| *clear).map(|(field, _)| (*field).to_owned()).collect(),
        busy: change.busy,
        dry_run: false,
    }
}

/// A setting that differs between two versions.
pub fn field_change(change: &FieldChange) -> v1::FieldChange {
    v1::FieldChange {
        field: change.field.clone(),
        before: change.before.clone(),
        after: change.after.clone(),
    }
}

#[cfg(test)]
mod tests {
    use usher_types::{Baseline, Method, PoolName};

    use super::*;

    #[test]
    fn an_agent_of_0_1_gets_settings_that_it_takes_and_a_newer_one_gets_them_all() {
        let policy = Policy { method: Method::Availability, baseline: Baseline::Robust, ..Policy::default() };
        let pool = PoolName::new("desk").unwrap();
        let settings = PoolSettings { pool, version: 3, policy, drain: None, marks: None, hash: None };
        let mut old = pool_settings_for("0.1.0", &settings);
        let new = pool_settings_for("0.2.0", &settings);
        assert_eq!(new, pool_settings(&settings));
        let policy = old.policy.as_mut().unwrap();
        assert_eq!((policy.method(), policy.baseline()), (v1::Method::WeightedLoad, v1::Baseline::Minimum));
        assert_eq!(policy.predict, Some(false));
        (policy.method, policy.baseline, policy.predict) = (Some(2), Some(2), Some(true));
        assert_eq!(old, new, "nothing else differs");
    }
}
