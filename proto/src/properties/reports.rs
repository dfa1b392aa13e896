//! Any report of a host.

use std::time::Duration;

use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
};
use usher_types::{
    BusyReasons, FinishedLogons, Hello, HostOverrides, Latency, Load, LogonsInProgress, Memory,
    MountFullness, OperationName, OperationWindow, OwnAvailability, Readiness, SessionCounts, SettingsHash,
};

use super::values::{
    collector, drain, ended, endpoint, limit, millis, penalty, pending, percent, told_outcome,
};
use crate::fault::id;

pub(super) fn busy_reasons() -> impl Strategy<Value = BusyReasons> {
    any::<[bool; 7]>().prop_map(|set| {
        let reasons = [
            BusyReasons::AVAILABILITY,
            BusyReasons::MEMORY,
            BusyReasons::CPU,
            BusyReasons::PSI,
            BusyReasons::MOUNT,
            BusyReasons::ERRORS,
            BusyReasons::USER_SET,
        ];
        reasons.into_iter().zip(set).fold(BusyReasons::NONE, |held, (reason, set)| held.with(reason, set))
    })
}

/// What a load says beyond 0.1.
pub(super) fn told_by_host() -> impl Strategy<Value = Load> {
    let mount = ("/[a-z/ é]{0,30}", percent()).prop_map(|(path, used)| MountFullness { path, used });
    let own = (percent(), "[a-z]{1,9}").prop_map(|(index, source)| OwnAvailability { index, source });
    let now = (any::<u32>(), 0.0..=1e9).prop_map(|(now, mean)| LogonsInProgress { now, mean });
    let finished = (any::<u32>(), 0.0..=1e12, option::of(0.0..=1e12))
        .prop_map(|(count, seconds, core_seconds)| FinishedLogons { count, seconds, core_seconds });
    (
        (option::of(busy_reasons()), option::of(percent()), option::of(own), option::of(drain())),
        (option::of(millis(u64::MAX)), option::of(millis(u64::MAX)), any::<bool>()),
        (vec(mount, 0..4), vec(told_outcome(), 0..4), vec(penalty(), 0..4)),
        (option::of(now), option::of(finished)),
    )
        .prop_map(|(says, ages, lists, logons)| Load {
            latched: says.0,
            psi_full: says.1,
            own_availability: says.2,
            drain: says.3,
            ready_age: ages.0,
            replica_lag: ages.1,
            is_warming_up: ages.2,
            mounts: lists.0,
            outcomes: lists.1,
            penalties: lists.2,
            logons_in_progress: logons.0,
            finished_logons: logons.1,
            ..Load::default()
        })
}

pub(super) fn hello() -> impl Strategy<Value = Hello> {
    (
        ("[a-z0-9.]{1,9}", "[a-z0-9-]{1,40}", "[a-z0-9-]{1,40}", "[a-z0-9-]{1,60}", "[a-z_.-]{1,20}"),
        (vec(endpoint(), 1..5), btree_map("[a-z]{1,9}", "[a-zé ]{0,30}", 0..5)),
        (
            option::of("[a-zé ]{1,9}"),
            option::of(1..=u32::MAX),
            option::of(1..=u64::MAX),
            option::of("[a-z ]{1,9}"),
        ),
        (100..=3_600_000_u64, 100..=300_000_u64),
        any::<(u64, u64, bool, bool)>(),
    )
        .prop_map(|(names, (endpoints, labels), machine, intervals, rest)| Hello {
            agent_version: names.0,
            host_id: id("host_id", &names.1).unwrap(),
            boot_id: id("boot_id", &names.2).unwrap(),
            host_name: id("host_name", &names.3).unwrap(),
            pool: id("pool", &names.4).unwrap(),
            endpoints,
            labels,
            zone: machine.0.map(|zone| id("zone", &zone).unwrap()),
            cores: machine.1,
            memory_bytes: machine.2,
            cpu_model: machine.3,
            report_interval: Duration::from_millis(intervals.0),
            latency_period: Duration::from_millis(intervals.1),
            stream_epoch: rest.0,
            incarnation_ms: rest.1,
            is_virtual: rest.2,
            is_reporter: rest.3,
        })
}

pub(super) fn load() -> impl Strategy<Value = Load> {
    let memory = (0..=u64::MAX, 1..=u64::MAX).prop_map(|(a, b)| Memory::new(a.min(b), a.max(b)).unwrap());
    let sessions = any::<(u32, u32, u32)>().prop_map(|(active, disconnected, lingering)| SessionCounts {
        active,
        disconnected,
        lingering,
    });
    let readiness = prop_oneof![Just(Readiness::Ready), "[a-z ]{0,99}".prop_map(Readiness::NotReady)];
    let overrides =
        (option::of(0.001..=1000.0), option::of(limit()), option::of(percent()), option::of(1.0..=30.0))
            .prop_map(|(capacity, max_users, threshold, range)| HostOverrides {
                capacity,
                max_users,
                threshold,
                range,
            });
    (
        any::<(u64, u64, Option<u64>, Option<u64>, Option<u64>, Option<u64>)>(),
        (option::of(percent()), option::of(0.0..=1e6), option::of(memory), option::of(sessions)),
        (any::<(Option<u32>, Option<u32>, u32)>(), option::of(1..=u32::MAX), any::<(u32, u32)>()),
        (readiness, option::of(millis(u64::MAX)), overrides),
        (vec(collector(), 0..4), vec(pending(), 0..4), vec(ended(), 0..4)),
        told_by_host(),
    )
        .prop_map(
            |(
                numbers,
                metrics,
                (counts, coordinators, held_back),
                (readiness, uptime, overrides),
                lists,
                told,
            )| Load {
                coordinators,
                held_back_users: held_back.0,
                held_back_places: held_back.1,
                sequence: numbers.0,
                incarnation_ms: numbers.1,
                tick_echo: numbers.2,
                settings_version: numbers.3,
                wall_clock_unix_ms: numbers.4,
                settings_hash: numbers.5.map(SettingsHash),
                cpu: metrics.0,
                runnable_demand: metrics.1,
                memory: metrics.2,
                sessions: metrics.3,
                users: counts.0,
                processes: counts.1,
                streams_held: counts.2,
                readiness,
                uptime,
                overrides,
                collectors: lists.0,
                pending: lists.1,
                ended: lists.2,
                ..told
            },
        )
}

pub(super) fn operation(i: usize) -> impl Strategy<Value = OperationWindow> {
    (
        [0.0..=1e18, 0.0..=1e18, 0.0..=1e18, 0.0..=1e18],
        option::of(1e-9..=1e18),
        option::of(1e-9..=1e18),
        (
            any::<u32>(),
            option::of(millis(u64::MAX)),
            option::of(millis(u64::MAX)),
            any::<u64>(),
            any::<bool>(),
        ),
    )
        .prop_map(move |([ok, failed, too_long, sum_us], min_us, baseline_us, rest)| OperationWindow {
            name: OperationName::new(format!("op{i}")).unwrap(),
            ok,
            failed,
            too_long,
            sum_us,
            min_us,
            in_flight: rest.0,
            oldest_in_flight: rest.1,
            baseline_us,
            baseline_age: rest.2,
            baseline_samples: rest.3,
            baseline_is_provisional: rest.4,
        })
}

pub(super) fn latency() -> impl Strategy<Value = Latency> {
    let operations = (0..5_usize).prop_flat_map(|count| (0..count).map(operation).collect::<Vec<_>>());
    (any::<(u64, u64, u64)>(), millis(u64::MAX), operations).prop_map(|(numbers, window, operations)| {
        Latency {
            sequence: numbers.0,
            incarnation_ms: numbers.1,
            overflow_calls: numbers.2,
            window,
            operations,
        }
    })
}
