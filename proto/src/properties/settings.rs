//! Any settings of a pool or of a host, and what a coordinator tells a host with them.

use std::time::Duration;

use proptest::{collection::vec, option, prelude::*};
use usher_types::{
    Affinity, Baseline, Change, CriticalLevel, DoorKind, HostMarks, HostMarksChange, Method, PendingLimit,
    PendingMode, Policy, SettingsHash, UserMatch, UserNames, Weights, WhenBlind,
};

use super::values::{drain, limit, millis, pending, percent};
use crate::{ExpectSession, PoolSettings, Tick, fault::id};

pub(super) fn pending_limit() -> impl Strategy<Value = PendingLimit> {
    prop_oneof![Just(PendingLimit::Unlimited), (1..=u32::MAX).prop_map(PendingLimit::Logons)]
}

pub(super) fn level() -> impl Strategy<Value = CriticalLevel> {
    prop_oneof![Just(CriticalLevel::Off), (0.001..=100.0).prop_map(CriticalLevel::Percent)]
}

pub(super) fn host_marks() -> impl Strategy<Value = HostMarks> {
    let numbers =
        (option::of(0.001..=1000.0), option::of(limit()), option::of(percent()), option::of(1.0..=30.0));
    (numbers, any::<bool>()).prop_map(|((capacity, max_users, threshold, range), busy)| HostMarks {
        capacity,
        max_users,
        threshold,
        range,
        busy,
    })
}

pub(super) fn change_to<T: Clone + std::fmt::Debug>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Change<T>> {
    prop_oneof![
        any::<bool>().prop_map(|keep| if keep { Change::Keep } else { Change::Clear }),
        value.prop_map(Change::Set),
    ]
}

pub(super) fn host_marks_change() -> impl Strategy<Value = HostMarksChange> {
    (
        change_to(0.001..=1000.0),
        change_to(limit()),
        change_to(0.0..=100.0),
        change_to(1.0..=30.0),
        any::<Option<bool>>(),
    )
        .prop_map(|(capacity, max_users, threshold, range, busy)| HostMarksChange {
            capacity,
            max_users,
            threshold,
            range,
            busy,
        })
}

pub(super) fn expect_session() -> impl Strategy<Value = ExpectSession> {
    (pending(), any::<bool>(), limit(), pending_limit())
        .prop_map(|(place, ask, max_users, max_pending)| ExpectSession { place, ask, max_users, max_pending })
}

pub(super) fn pool_settings() -> impl Strategy<Value = PoolSettings> {
    let numbers = any::<(u64, Option<u64>)>();
    ("[a-z_.-]{1,20}", numbers, policy(), option::of(drain()), option::of(host_marks())).prop_map(
        |(pool, (version, hash), policy, drain, marks)| PoolSettings {
            pool: id("pool", &pool).unwrap(),
            version,
            policy,
            drain,
            marks,
            hash: hash.map(SettingsHash),
        },
    )
}

pub(super) fn tick() -> impl Strategy<Value = Tick> {
    (any::<u64>(), option::of(millis(u32::MAX.into())), option::of(millis(u64::MAX))).prop_map(
        |(tick, reconnect_spread, confirmed_elsewhere)| Tick { tick, reconnect_spread, confirmed_elsewhere },
    )
}

/// What a policy says beyond 0.1.
pub(super) fn limits_and_levels() -> impl Strategy<Value = Policy> {
    (
        prop_oneof![Just(UserNames::Plain), Just(UserNames::Hashed), Just(UserNames::None)],
        (0.0..=100.0, level(), level(), level(), level()),
        (millis(7 * 86_400_000), pending_limit()),
        prop_oneof![Just(PendingMode::Soft), Just(PendingMode::Hard)],
        prop_oneof![Just(WhenBlind::Spread), Just(WhenBlind::Refuse)],
        prop_oneof![Just(DoorKind::None), Just(DoorKind::Ssh), Just(DoorKind::Rdp), Just(DoorKind::Http)],
    )
        .prop_map(|(user_names, levels, limits, max_pending_mode, when_blind, kind)| Policy {
            user_names,
            max_error_share_percent: levels.0,
            mem_critical: levels.1,
            cpu_critical: levels.2,
            psi_critical: levels.3,
            mount_critical: levels.4,
            max_replica_lag: limits.0,
            max_pending: limits.1,
            max_pending_mode,
            when_blind,
            kind,
            ..Policy::default()
        })
}

pub(super) fn policy() -> impl Strategy<Value = Policy> {
    let weights = (0.0..=40.0, 0.0..=30.0, 0.0..=30.0).prop_map(|(cpu, memory, users)| Weights {
        cpu_percent: cpu,
        memory_percent: memory,
        users_percent: users,
        processes_percent: 100.0 - cpu - memory - users,
    });
    let affinity = prop_oneof![
        Just(Affinity::Session),
        Just(Affinity::Disconnected),
        Just(Affinity::Linger),
        Just(Affinity::None),
    ];
    let user_match = prop_oneof![Just(UserMatch::Folded), Just(UserMatch::Exact)];
    (
        (weights, 0.0..=1e6, 1.0..=30.0, 0.0..=100.0, 0.0..=100.0, limit()),
        (1e-3..=1e3, 1e4..=3.6e9, affinity, any::<bool>(), 1_000..=86_400_000_u64, user_match),
        vec("[a-z]{1,12}", 0..5),
        (any::<bool>(), any::<bool>()),
        limits_and_levels(),
    )
        .prop_map(|(numbers, rest, shared_accounts, (availability, minimum), others)| Policy {
            method: if availability { Method::Availability } else { Method::WeightedLoad },
            baseline: if minimum { Baseline::Minimum } else { Baseline::Robust },
            weights: numbers.0,
            users_full_scale: numbers.1,
            range: numbers.2,
            threshold_percent: numbers.3,
            exit_margin_percent: numbers.4,
            max_users: numbers.5,
            min_possible_us: rest.0,
            max_possible_us: rest.1,
            affinity: rest.2,
            allow_unknown: rest.3,
            reservation_ttl: Duration::from_millis(rest.4),
            user_match: rest.5,
            shared_accounts,
            ..others
        })
}
