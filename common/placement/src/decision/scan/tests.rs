//! What the scan says of all hosts at once is what the assessment says of each.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use proptest::prelude::*;
use usher_types::{
    BootId, BootTime, BusyReasons, Drain, DrainMode, Endpoint, FailureCause, Hello, HostId, HostMarks,
    HostName, HostOverrides, Latency, Load, LogonsInProgress, Memory, Method, OperationName, OperationWindow,
    Penalty, PenaltyCause, PendingLimit, PendingMode, Percent, PolicyChange, PoolName, Readiness, Replica,
    ResourceId, UserLimit, WeightsChange, WhenBlind, Zone,
};

use super::*;
use crate::{
    decision::{
        Decision, Drawn, Excluded, Failover, Inputs, Request, UserTrace, assess_pool,
        choose::decide_by_scan,
        crowd::{Crowd, Drawing, Effort},
        explain,
    },
    farm::{CellChange, Farm, PoolApply, PoolView},
    reservation::Ledger,
};

fn desk() -> PoolName {
    PoolName::new("desk").unwrap()
}

fn id(host: usize) -> HostId {
    HostId::new(format!("id-{host}")).unwrap()
}

fn at(seconds: u64) -> BootTime {
    BootTime::from_millis(1_000_000 + seconds * 1000)
}

#[derive(Clone, Debug)]
struct AnyHost {
    metrics: (Option<f64>, Option<u64>, Option<u32>, Option<u32>),
    places: u32,
    /// Rarely set, each by its bit: see the use.
    traits: u16,
    zone: u8,
    capacity: f64,
    limit: Option<u32>,
    age_s: u64,
    ready_age_s: Option<u64>,
    factor: Option<f64>,
    logons: u32,
    cores: Option<u32>,
    held_back: (u32, u32),
}

fn any_host() -> impl Strategy<Value = AnyHost> {
    let often = |share| proptest::option::weighted(share, 0u32..1);
    let traits = proptest::collection::vec(often(0.06), 12);
    let known = 0.97;
    (
        (
            proptest::option::weighted(known, 0.0..=100.0),
            proptest::option::weighted(known, 0u64..=100),
            proptest::option::weighted(known, 0u32..40),
            proptest::option::weighted(known, 0u32..500),
        ),
        (prop_oneof![Just(0u32), 0u32..6], traits, 0u8..3),
        (prop_oneof![Just(1.0), 0.1..8.0], proptest::option::weighted(0.2, 1u32..50)),
        (prop_oneof![8 => 0u64..15, 1 => 15u64..40], proptest::option::weighted(0.1, 0u64..150)),
        (proptest::option::weighted(0.8, 1.0..20.0), 0u32..4, proptest::option::weighted(0.9, 1u32..64)),
        prop_oneof![6 => Just((0u32, 0u32)), 1 => (0u32..9, 0u32..3)],
    )
        .prop_map(
            |(
                metrics,
                (places, traits, zone),
                (capacity, limit),
                ages,
                (factor, logons, cores),
                held_back,
            )| {
                let bits = traits.iter().enumerate().map(|(bit, set)| u16::from(set.is_some()) << bit);
                AnyHost {
                    metrics,
                    places,
                    traits: bits.sum(),
                    zone,
                    capacity,
                    limit,
                    age_s: ages.0,
                    ready_age_s: ages.1,
                    factor,
                    logons,
                    cores,
                    held_back,
                }
            },
        )
}

fn any_policy() -> impl Strategy<Value = PolicyChange> {
    let methods = vec![Method::WeightedLoad, Method::Predictive, Method::Availability, Method::FillFirst];
    (
        (0.0..100.0f64, 0.0..60.0f64, 0.0..20.0f64),
        (proptest::option::weighted(0.3, 1u32..60), proptest::option::weighted(0.3, 1u32..8)),
        any::<[bool; 4]>(),
        proptest::sample::select(methods),
    )
        .prop_map(
            |((cut, threshold, floor), (limit, pending), [hard, unknown, blind, predict], method)| {
                let limit = limit.or((method == Method::FillFirst).then_some(30));
                PolicyChange {
                    method: Some(method),
                    weights: Some(WeightsChange {
                        cpu_percent: Some(cut / 2.0),
                        memory_percent: Some(cut / 2.0),
                        users_percent: Some((100.0 - cut) * 0.75),
                        processes_percent: Some((100.0 - cut) * 0.25),
                    }),
                    users_full_scale: Some(floor),
                    threshold_percent: Some(threshold),
                    max_users: Some(limit.map_or(UserLimit::Unlimited, UserLimit::Users)),
                    max_pending: Some(pending.map_or(PendingLimit::Unlimited, PendingLimit::Logons)),
                    max_pending_mode: Some(if hard { PendingMode::Hard } else { PendingMode::Soft }),
                    allow_unknown: Some(unknown),
                    when_blind: Some(if blind { WhenBlind::Spread } else { WhenBlind::Refuse }),
                    predict: Some(predict),
                    ..PolicyChange::default()
                }
            },
        )
}

fn any_request() -> impl Strategy<Value = Request> {
    let host = || (0usize..150).prop_map(|host| format!("h{host}"));
    let cause = proptest::sample::select(vec![FailureCause::Busy, FailureCause::Other]);
    let failover = (host(), proptest::collection::vec(host(), 0..3), cause)
        .prop_map(|(from_host, tried, cause)| Failover { from_host, failed_request: None, tried, cause });
    (
        (any::<bool>(), 1u32..=20, proptest::collection::vec(host(), 0..3)),
        proptest::option::weighted(0.2, host()),
        proptest::option::weighted(0.2, failover),
        proptest::option::weighted(0.3, 0u8..4),
    )
        .prop_map(|((resource, cost, exclude), prefer_host, failover, zone)| Request {
            resource: resource.then(|| ResourceId::new("crm").unwrap()),
            cost,
            exclude,
            prefer_host,
            failover,
            client_zone: zone.map(|zone| Zone::new(format!("z{zone}")).unwrap()),
            ..Request::of_nobody(desk())
        })
}

fn hello(number: usize, host: &AnyHost) -> Hello {
    Hello {
        agent_version: "test".into(),
        host_id: id(number),
        boot_id: BootId::new("boot-1").unwrap(),
        stream_epoch: 1,
        incarnation_ms: 0,
        host_name: HostName::new(format!("h{number}")).unwrap(),
        endpoints: vec![Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 }],
        labels: BTreeMap::new(),
        pool: desk(),
        zone: (host.zone > 0).then(|| Zone::new(format!("z{}", host.zone)).unwrap()),
        cores: host.cores,
        memory_bytes: Some(1 << 34),
        cpu_model: None,
        report_interval: Duration::from_secs(5),
        latency_period: Duration::from_secs(5),
        is_virtual: false,
        is_reporter: host.traits & 1 != 0,
    }
}

fn load(host: &AnyHost) -> Load {
    let (cpu, memory, users, processes) = host.metrics;
    let has = |bit: u16| host.traits >> bit & 1 == 1;
    let penalty =
        Penalty { gateway: None, cause: PenaltyCause::Failed, left: Duration::from_secs(30), times: 1 };
    Load {
        cpu: cpu.map(|cpu| Percent::new(cpu).unwrap()),
        memory: memory.and_then(|memory| Memory::new(memory, 100)),
        users,
        processes,
        readiness: if has(1) { Readiness::NotReady("no".into()) } else { Readiness::Ready },
        is_warming_up: has(2) || has(3),
        penalties: if has(4) { vec![penalty] } else { Vec::new() },
        latched: Some(BusyReasons::NONE.with(BusyReasons::CPU, has(5) && cpu > Some(90.0))),
        ready_age: host.ready_age_s.map(Duration::from_secs),
        overrides: HostOverrides {
            capacity: Some(host.capacity),
            max_users: host.limit.map(UserLimit::Users),
            ..HostOverrides::default()
        },
        logons_in_progress: Some(LogonsInProgress { now: host.logons, mean: 1.0 }),
        runnable_demand: cpu.map(|cpu| cpu / 80.0),
        held_back_users: host.held_back.0,
        held_back_places: host.held_back.1,
        streams_held: 1,
        ..Load::default()
    }
}

fn latency(factor: f64) -> Latency {
    let operation = OperationWindow {
        name: OperationName::new("login").unwrap(),
        ok: 100.0,
        failed: 0.0,
        too_long: 0.0,
        sum_us: 100_000.0 * factor,
        min_us: Some(1000.0),
        in_flight: 0,
        oldest_in_flight: None,
        baseline_us: Some(1000.0),
        baseline_age: None,
        baseline_samples: 100,
        baseline_is_provisional: false,
    };
    Latency { window: Duration::from_secs(25), operations: vec![operation], ..Latency::default() }
}

/// The pool as it is published 60 s after the start; places are given on it afterwards.
fn pool_of(hosts: &[AnyHost], policy: &PolicyChange) -> Arc<PoolView> {
    let mut farm = Farm::new(Arc::new(Ledger::new()), at(0));
    let record = farm.prepare_pool(&desk(), &PoolApply::of(policy.clone()), false).unwrap();
    farm.commit_pool(record);
    for (number, host) in hosts.iter().enumerate() {
        let has = |bit: u16| host.traits >> bit & 1 == 1;
        farm.attach(&hello(number, host), None, false).unwrap();
        let measured_at = at(60).before(Duration::from_secs(host.age_s));
        if !has(6) {
            farm.observe_load(&id(number), load(host), &[], measured_at, 0);
        }
        if let Some(factor) = host.factor {
            farm.observe_latency(&id(number), latency(factor), 0, measured_at);
        }
        if !has(7) {
            let resource_id = ResourceId::new("crm").unwrap();
            farm.observe_replicas(&id(number), vec![Replica { resource_id, path: None, title: None }]);
        }
        if has(8) {
            let drain = Drain {
                mode: DrainMode::Persistent,
                reason: String::new(),
                author: String::new(),
                no_reconnect: false,
            };
            let mark = farm.drain_mark(&id(number), drain);
            farm.set_drain(&id(number), mark);
        }
        if has(9) {
            farm.set_marks(&id(number), HostMarks { busy: true, ..HostMarks::default() });
        }
        if has(10) {
            farm.detach(&id(number), 1, None, measured_at);
        }
    }
    let mut pool = (*farm.snapshot(at(60)).pools[&desk()]).clone();
    // Hosts say so themselves; how is not what is tested here.
    pool.costs.logon_seconds.is_learned = hosts.len().is_multiple_of(2);
    for (host, cell) in hosts.iter().zip(&pool.members.cells) {
        let users = cell.load().users();
        let places = i64::from(host.places);
        cell.apply(CellChange { users, pending_users: places * 2, places });
        cell.set_silent(host.traits >> 11 & 1 == 1);
    }
    Arc::new(pool)
}

fn inputs<'a>(
    pool: &'a PoolView,
    words: Words<'a>,
    request: &'a Request,
    user: &'a UserTrace,
    unwilling: &'a [(HostId, Excluded)],
    now: BootTime,
) -> Inputs<'a> {
    Inputs { pool, words, request, user, unwilling, doors: &[], now, seed: 7 }
}

/// Whether two scores are equal but for rounding.
fn is_close(one: f64, other: f64) -> bool {
    one == other || (one - other).abs() <= 1e-11 * one.abs().max(1.0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    // rule: explain-same
    #[test]
    fn the_scan_is_what_the_assessment_says(
        hosts in proptest::collection::vec(any_host(), 0..150),
        policy in any_policy(),
        request in any_request(),
        later_s in prop_oneof![Just(0u64), 0u64..30],
        refused in proptest::collection::vec(0usize..150, 0..3),
    ) {
        let pool = pool_of(&hosts, &policy);
        let words = pool.words();
        let unwilling: Vec<_> = refused.iter().map(|host| (id(*host), Excluded::RefusedConsent)).collect();
        let user = UserTrace::default();
        let inputs =
            inputs(&pool, Words::All(&words), &request, &user, &unwilling, at(60 + later_s));
        let truth = assess_pool(&inputs);
        let mut assessment = Assessment::new(&inputs);
        let scan = Scan::of(&mut assessment);
        prop_assert_eq!(assessment.is_blind(), truth.is_blind());
        if pool.policy.method == Method::WeightedLoad && !truth.is_blind() {
            prop_assert_eq!(assessment.scale().top_users, truth.scale().top_users);
            prop_assert_eq!(assessment.scale().top_processes, truth.scale().top_processes);
        }
        for position in truth.positions() {
            let (n, standing) = (position as usize, truth.standing(position));
            let (code, score) = standing.map_or((code::NONE, None), |s| (s.code(), Some(s.rank.score)));
            prop_assert_eq!(scan.codes[n], code, "host {}: {:?}", n, standing);
            if let Some(score) = score {
                prop_assert!(is_close(scan.scores[n], score), "host {}: {} {}", n, scan.scores[n], score);
                prop_assert!(scan.lowest[n / ROW] <= scan.scores[n]);
            }
        }
        // And what is made of it.
        let (decision, explanation) = (decide_by_scan(&inputs).0, explain(&inputs));
        prop_assert_eq!(&decision, &explanation.decision);
        if let Decision::Take(choice) = &decision {
            let others = explanation.hosts.iter().skip(1).filter_map(|host| host.rank.map(|_| host.score));
            let others: Vec<Option<f64>> = others.take(4).collect();
            prop_assert_eq!(others.len(), choice.alternatives.len(), "{:?} {:?}", choice, scan);
            for ((_, shown), score) in choice.alternatives.iter().zip(others) {
                prop_assert!(shown.zip(score).is_none_or(|(a, b)| is_close(a, b)), "{:?} {:?}", shown, score);
                prop_assert_eq!(shown.is_some(), score.is_some());
            }
        }
    }

    // rule: tie-draw-large
    #[test]
    fn drawn_hosts_stand_as_they_would_in_the_whole_pool(
        hosts in proptest::collection::vec(any_host(), 20..150),
        policy in any_policy(),
        request in any_request(),
        later_s in 0u64..30,
        seed in any::<u64>(),
    ) {
        let mut pool = (*pool_of(&hosts, &policy)).clone();
        pool.crowd = Crowd::of_any(&pool, at(60));
        let Some(crowd) = pool.crowd.clone() else { return Ok(()) };
        let user = UserTrace::default();
        let drawing = Drawing { pool: &pool, request: &request, user: &user, seed };
        let Some(drawn) = crowd.draw(&drawing, Effort::Draw) else { return Ok(()) };
        prop_assert!(drawn.is_sorted() && drawn.iter().all(|position| (*position as usize) < hosts.len()));
        let words: Vec<_> = drawn.iter().map(|n| (*n, pool.members.word(*n as usize))).collect();
        let inputs =
            inputs(&pool, Words::Drawn(&words), &request, &user, &[], at(60 + later_s));
        let truth = assess_pool(&inputs);
        let (decision, scan) = decide_by_scan(&inputs);
        let Some(scan) = scan else { return Ok(()) };
        for (n, position) in drawn.iter().enumerate() {
            let standing = truth.standing(*position);
            let code = standing.map_or(code::NONE, |standing| standing.code());
            prop_assert_eq!(scan.codes[n], code, "host {}: {:?}", position, standing);
            if let Ok(standing) = standing {
                prop_assert!(is_close(scan.scores[n], standing.rank.score), "host {}", position);
            }
        }
        let explanation = explain(&inputs);
        prop_assert_eq!(&decision, &explanation.decision);
        let expected = Drawn { looked_at: drawn.len(), of: hosts.len(), best_class: crowd.best_class() };
        prop_assert_eq!(explanation.drawn, Some(expected));
        if let Decision::Take(choice) = &decision {
            prop_assert!(drawn.contains(&choice.position));
        }
    }
}
