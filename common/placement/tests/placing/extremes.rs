//! Nothing that a host reports, and nothing that an admin applies, breaks a decision.

use std::time::Duration;

use proptest::prelude::*;
use usher_placement::decision::Decision;
use usher_types::{
    BusyReasons, Hello, HostOverrides, HostState, Load, LogonsInProgress, Memory, MountFullness,
    OwnAvailability, Penalty, PenaltyCause, Percent, UserLimit,
};

use crate::{
    generated::{any_policy, any_request},
    support::*,
};

fn any_percent() -> impl Strategy<Value = Option<Percent>> {
    let value = prop_oneof![Just(0.0), Just(100.0), Just(f64::MIN_POSITIVE), 0.0..=100.0];
    proptest::option::of(value.prop_map(|value| Percent::new(value).unwrap()))
}

fn any_count() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(1), Just(u32::MAX), any::<u32>()]
}

fn any_duration() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(Duration::ZERO), Just(Duration::MAX), (0u64..300).prop_map(Duration::from_secs)]
}

fn any_overrides() -> impl Strategy<Value = HostOverrides> {
    let capacity = prop_oneof![Just(f64::MIN_POSITIVE), Just(1000.0), 0.001..1000.0f64];
    let limit = prop_oneof![Just(UserLimit::Unlimited), (1u32..=u32::MAX).prop_map(UserLimit::Users)];
    (
        proptest::option::of(capacity),
        proptest::option::of(limit),
        any_percent(),
        proptest::option::of(1.0..=30.0f64),
    )
        .prop_map(|(capacity, max_users, threshold, range)| HostOverrides {
            capacity,
            max_users,
            threshold,
            range,
        })
}

fn any_penalty() -> impl Strategy<Value = Penalty> {
    (any_duration(), any_count()).prop_map(|(left, times)| Penalty {
        gateway: None,
        cause: PenaltyCause::Unconfirmed,
        left,
        times,
    })
}

fn any_load() -> impl Strategy<Value = Load> {
    let numbers = (
        any_percent(),
        proptest::option::of((any::<u64>(), any::<u64>())),
        proptest::option::of(any_count()),
        proptest::option::of(any_count()),
    );
    let busy = (any_percent(), proptest::option::of(any_percent()), any_percent(), any::<bool>());
    let ages = (proptest::option::of(any_duration()), proptest::option::of(any_duration()));
    let pending = proptest::collection::vec((any_count(), any_duration(), any::<u16>()), 0..3);
    let rest = (any_count(), any_overrides(), proptest::collection::vec(any_penalty(), 0..3));
    (numbers, busy, ages, pending, rest).prop_map(
        |(
            (cpu, memory, users, processes),
            (psi_full, latched, own, is_warming_up),
            (ready_age, replica_lag),
            pending,
            (streams_held, overrides, penalties),
        )| {
            let place = |(counted_users, left, name): (u32, Duration, u16)| usher_types::PendingPlace {
                counted_users,
                left,
                ..listed(&format!("p{name}"), None, u32::MAX, 1)
            };
            Load {
                cpu,
                memory: memory.and_then(|(used, total)| Memory::new(used.min(total), total)),
                users,
                processes,
                psi_full,
                mounts: psi_full.into_iter().map(|used| MountFullness { path: "/".into(), used }).collect(),
                own_availability: own.map(|index| OwnAvailability { index, source: "own".into() }),
                latched: latched.map(|held| BusyReasons::NONE.with(BusyReasons::CPU, held.is_some())),
                ready_age,
                replica_lag,
                is_warming_up,
                penalties,
                pending: pending.into_iter().map(place).collect(),
                logons_in_progress: Some(LogonsInProgress { now: streams_held, mean: f64::MAX }),
                overrides,
                streams_held,
                ..Load::default()
            }
        },
    )
}

proptest! {
    // rule: absent-values
    #[test]
    fn no_report_breaks_a_decision_and_no_number_of_an_explanation_is_no_number(
        loads in proptest::collection::vec((any_load(), any::<bool>(), 0u64..40), 1..6),
        policy in any_policy(), request in any_request(), factor in prop_oneof![Just(1.0), Just(1e300), 1.0..100.0f64],
    ) {
        let mut sim = Sim::new();
        sim.apply(policy);
        for (n, (load, is_reporter, age_s)) in loads.into_iter().enumerate() {
            let host = format!("h{n}");
            sim.farm.attach(&Hello { is_reporter, ..hello(&host) }, None, false).unwrap();
            sim.now = at(100).before(Duration::from_secs(age_s));
            sim.report(&host, load);
            sim.farm.observe_latency(&id(&host), latency(factor), 0, sim.now);
            sim.serves(&host, &["crm"]);
            sim.open_doors.push(id(&host));
        }
        sim.now = at(100);
        let explanation = sim.explain(&request);
        for host in &explanation.hosts {
            let terms = host.terms.map(|terms| [terms.cpu, terms.memory, terms.users, terms.processes]);
            let shown = [host.score, host.availability_index, host.filled_share, host.ramp];
            let numbers = terms.into_iter().flatten().chain(shown.into_iter().flatten());
            prop_assert!(numbers.into_iter().all(f64::is_finite), "{:?}", host);
        }
        for n in 0..3 {
            let request = usher_placement::decision::Request { token: token(&format!("r{n}")), ..request.clone() };
            let placed = sim.place(&request);
            if let Decision::Take(choice) = &placed.decision {
                prop_assert!(choice.score.is_none_or(f64::is_finite));
            }
        }
    }

    // rule: unchanged-moves-nothing
    #[test]
    fn the_same_reports_again_change_no_state_and_no_choice(
        hosts in proptest::collection::vec(
            (0.0..100.0f64, 0u64..100, 0u32..30, 0u32..300, proptest::option::of(0.0..100.0f64)), 1..7,
        ),
        policy in any_policy(),
    ) {
        let mut sim = Sim::new();
        sim.apply(policy);
        let names: Vec<String> = (0..hosts.len()).map(|n| format!("h{n}")).collect();
        let report = |sim: &mut Sim| {
            for (name, (cpu, memory, users, processes, index)) in names.iter().zip(&hosts) {
                sim.report(name, load((*cpu, *memory, *users, *processes)));
                index.iter().for_each(|index| sim.available(name, *index));
            }
        };
        names.iter().for_each(|name| sim.attach(name));
        report(&mut sim);
        sim.pass(1);
        let look = |sim: &mut Sim| -> (Vec<HostState>, Option<u32>) {
            let dry = usher_placement::decision::Request { dry_run: true, ..ask("r") };
            sim.seed = 7;
            let chosen = sim.place(&dry).decision.position();
            (names.iter().map(|name| sim.state(name)).collect(), chosen)
        };
        let first = look(&mut sim);
        for _ in 0..8 {
            prop_assert!(sim.pass(5).is_empty());
            report(&mut sim);
            prop_assert_eq!(&look(&mut sim), &first);
        }
    }
}
