//! What holds on any farm.

use proptest::prelude::*;
use usher_placement::{
    decision::{Decision, Excluded, Failover, FailoverCause, Flags, RefusalKind, Request},
    farm::{StateInput, state_of},
};
use usher_types::{
    DrainMode, Hello, HostOverrides, HostState, Load, PolicyChange, Readiness, ResourceId, UserLimit,
    WeightsChange, Zone,
};

use crate::support::*;

#[derive(Clone, Debug)]
struct AnyHost {
    name: String,
    numbers: (Option<f64>, Option<u64>, Option<u32>, Option<u32>),
    pending: u32,
    index: Option<f64>,
    flags: (bool, bool, bool, bool, bool),
    capacity: Option<f64>,
    max_users: Option<u32>,
    age: u64,
}

fn any_hosts() -> impl Strategy<Value = Vec<AnyHost>> {
    let numbers = (
        proptest::option::weighted(0.9, 0.0..=100.0),
        proptest::option::weighted(0.9, 0u64..=100),
        proptest::option::weighted(0.9, 0u32..40),
        proptest::option::weighted(0.9, 0u32..500),
    );
    // Reported, not ready, drained, connected, holds the resource.
    let flags = (
        proptest::bool::weighted(0.9),
        proptest::bool::weighted(0.1),
        proptest::bool::weighted(0.1),
        proptest::bool::weighted(0.85),
        proptest::bool::weighted(0.7),
    );
    let host = (
        numbers,
        0u32..6,
        proptest::option::of(0.0..100.0),
        flags,
        proptest::option::weighted(0.3, 0.1..8.0),
        proptest::option::weighted(0.3, 1u32..50),
        prop_oneof![9 => 0u64..16, 1 => 16u64..40],
    );
    proptest::collection::vec(host, 0..9).prop_map(|hosts| {
        let made = |(n, (numbers, pending, index, flags, capacity, max_users, age))| AnyHost {
            name: format!("h{n}"),
            numbers,
            pending,
            index,
            flags,
            capacity,
            max_users,
            age,
        };
        hosts.into_iter().enumerate().map(made).collect()
    })
}

fn any_policy() -> impl Strategy<Value = PolicyChange> {
    let cuts = (0.0..100.0f64, 0.0..100.0f64, 0.0..100.0f64);
    (cuts, 0.0..60.0f64, proptest::option::of(1u32..60), any::<bool>()).prop_map(
        |((a, b, c), threshold, max_users, allow_unknown)| {
            let mut cuts = [a, b, c];
            cuts.sort_by(f64::total_cmp);
            PolicyChange {
                weights: Some(WeightsChange {
                    cpu_percent: Some(cuts[0]),
                    memory_percent: Some(cuts[1] - cuts[0]),
                    users_percent: Some(cuts[2] - cuts[1]),
                    processes_percent: Some(100.0 - cuts[2]),
                }),
                threshold_percent: Some(threshold),
                max_users: Some(max_users.map_or(UserLimit::Unlimited, UserLimit::Users)),
                allow_unknown: Some(allow_unknown),
                ..PolicyChange::default()
            }
        },
    )
}

fn any_request() -> impl Strategy<Value = Request> {
    let name = || (0u32..10).prop_map(|n| format!("h{n}"));
    let causes = [FailoverCause::Busy, FailoverCause::Unreachable, FailoverCause::Other];
    let failover =
        (name(), proptest::collection::vec(name(), 0..4), proptest::sample::select(causes.to_vec()))
            .prop_map(|(from_host, tried, cause)| Failover { from_host, failed_request: None, tried, cause });
    (
        any::<bool>(),
        1u32..=20,
        proptest::collection::vec(name(), 0..3),
        proptest::option::of(name()),
        proptest::option::weighted(0.4, failover),
        proptest::option::of(0u8..2),
    )
        .prop_map(|(resource, cost, exclude, prefer_host, failover, zone)| Request {
            resource: resource.then(|| ResourceId::new("crm").unwrap()),
            cost,
            exclude,
            prefer_host,
            failover,
            client_zone: zone.map(|zone| Zone::new(format!("z{zone}")).unwrap()),
            ..ask("r")
        })
}

fn farm_of(hosts: &[AnyHost], policy: &PolicyChange) -> Sim {
    let mut sim = Sim::new();
    sim.apply(policy.clone());
    sim.now = at(100);
    sim.farm.tick(at(99));
    sim.farm.tick(sim.now);
    // The jump above was a freeze; its grace must be over.
    sim.pass(70);
    let now = sim.now;
    for host in hosts {
        let (reported, not_ready, drained, connected, holds) = host.flags;
        let zone = Some(Zone::new(format!("z{}", host.name.len() % 2)).unwrap());
        sim.farm.attach(&Hello { zone, ..hello(&host.name) }, None, false).unwrap();
        sim.now = now.before(std::time::Duration::from_secs(host.age));
        if reported {
            let (cpu, memory, users, processes) = host.numbers;
            let pending =
                (0..host.pending).map(|n| listed(&format!("{}-{n}", host.name), None, 1, 100)).collect();
            let report = Load {
                cpu: cpu.map(|cpu| usher_types::Percent::new(cpu).unwrap()),
                memory: memory.and_then(|memory| usher_types::Memory::new(memory, 100)),
                users,
                processes,
                pending,
                readiness: if not_ready { Readiness::NotReady("no".into()) } else { Readiness::Ready },
                overrides: HostOverrides {
                    capacity: host.capacity,
                    max_users: host.max_users.map(UserLimit::Users),
                    ..HostOverrides::default()
                },
                streams_held: 1,
                ..Load::default()
            };
            sim.report(&host.name, report);
        }
        if let Some(index) = host.index {
            sim.available(&host.name, index);
        }
        if holds {
            sim.serves(&host.name, &["crm"]);
        }
        if drained {
            sim.drain(&host.name, DrainMode::Persistent, false);
        }
        if !connected {
            sim.farm.detach(&id(&host.name), 1, None, sim.now);
        }
        sim.now = now;
    }
    sim
}

/// Why this host may not be chosen, from the rules alone and without the decision's help.
fn fault(sim: &mut Sim, request: &Request, position: usize) -> Option<&'static str> {
    let pool = sim.pool();
    let host = &pool.hosts[position];
    let name = host.facts.name.as_str();
    let word = pool.members.cells[position].load();
    let named = |hosts: &[String]| hosts.iter().any(|other| other == name);
    if request.resource.is_some() && host.replicas.is_empty() {
        return Some("does not hold the resource");
    }
    if named(&request.exclude) {
        return Some("is excluded");
    }
    if let Some(failover) = &request.failover {
        let from = failover.from_host == name;
        if from && failover.cause != FailoverCause::Busy {
            return Some("is where it failed");
        }
        if !from && named(&failover.tried) {
            return Some("was tried");
        }
    }
    let state = state_of(&StateInput {
        host,
        word,
        adds_users: request.cost,
        policy: &pool.policy,
        grace: pool.grace,
        now: sim.now,
    });
    match state {
        HostState::Available | HostState::Busy => {}
        HostState::Unknown if pool.policy.allow_unknown => {}
        _ => return Some("is in no state to take it"),
    }
    let limit = host.max_users(&pool.policy).finite()?;
    if state != HostState::Unknown
        && u64::from(word.users()?) + u64::from(word.pending_users()) + u64::from(request.cost)
            > u64::from(limit)
    {
        return Some("is full");
    }
    let listed = host.reading.as_ref().map_or(0, |reading| reading.listed_pending_users);
    let free = limit.saturating_sub(word.users().unwrap_or(limit)).saturating_sub(listed);
    (!host.connected && word.pending_users() - listed + request.cost > free).then_some("is out of its share")
}

proptest! {
    #[test]
    fn a_placement_obeys_every_rule_and_a_refusal_happens_because_nobody_could(
        hosts in any_hosts(), policy in any_policy(), request in any_request(), seed in any::<u64>(),
    ) {
        let mut sim = farm_of(&hosts, &policy);
        sim.seed = seed >> 1;
        let faults: Vec<_> = (0..hosts.len()).map(|position| fault(&mut sim, &request, position)).collect();
        let before = sim.pool().words();
        let placed = sim.place(&request);
        match &placed.decision {
            Decision::Take(choice) => {
                let at = choice.position as usize;
                prop_assert_eq!(faults[at], None);
                let word = placed.pool.members.cells[at].load();
                prop_assert_eq!(word.pending_users(), before[at].pending_users() + request.cost);
                prop_assert_eq!(word.places(), before[at].places() + 1);
                let states: Vec<_> =
                    choice.alternatives.iter().map(|n| faults[n.0 as usize]).collect();
                prop_assert!(states.iter().all(Option::is_none));
                prop_assert_eq!(
                    choice.alternatives.len(), (faults.iter().filter(|f| f.is_none()).count() - 1).min(8)
                );
                // Whoever is AVAILABLE is never passed over for one that is not, but where the caller says BUSY.
                let available = |n: usize| sim_state(&placed, &request, n, sim.now) == HostState::Available
                    && request.failover.as_ref().is_none_or(|f| f.from_host != hosts[n].name);
                if (0..hosts.len()).any(|n| faults[n].is_none() && available(n)) {
                    prop_assert!(available(at));
                    prop_assert!(!choice.flags.has(Flags::ALL_BUSY));
                }
            }
            Decision::Refused(refusal) => {
                prop_assert!(
                    refusal.kind == RefusalKind::UnknownResource || faults.iter().all(Option::is_some),
                    "{:?} {:?}", refusal, faults
                );
                prop_assert_eq!(&before, &placed.pool.words());
                for (position, why) in &refusal.hosts {
                    prop_assert_ne!(*why, Excluded::NoReplica);
                    prop_assert!(faults[*position as usize].is_some());
                }
            }
            other => prop_assert!(false, "no user was named: {:?}", other),
        }
    }

    #[test]
    fn the_explanation_is_the_decision_and_adds_up(
        hosts in any_hosts(), policy in any_policy(), request in any_request(), seed in any::<u64>(),
    ) {
        let mut sim = farm_of(&hosts, &policy);
        sim.seed = seed >> 1;
        let explanation = sim.explain(&request);
        prop_assert_eq!(explanation.hosts.len(), hosts.len());
        if let Decision::Take(choice) = &explanation.decision {
            prop_assert_eq!(explanation.hosts[0].position, choice.position as usize);
            prop_assert_eq!(explanation.hosts[0].rank, Some(1));
            prop_assert_eq!(explanation.hosts[0].terms, choice.terms);
        }
        for host in &explanation.hosts {
            prop_assert_eq!(host.rank.is_some(), host.excluded.is_none());
            if let Some(terms) = host.terms {
                let sum = terms.cpu + terms.memory + terms.users + terms.processes;
                prop_assert!((sum - terms.weighted_load()).abs() < 0.01);
                prop_assert!((0.0..=100.01).contains(&sum));
            }
        }
    }

    #[test]
    fn the_order_of_hosts_decides_nothing_but_ties(
        hosts in any_hosts(), policy in any_policy(), request in any_request(), turn in 0usize..8,
    ) {
        let mut turned = hosts.clone();
        if !turned.is_empty() {
            let turn = turn % turned.len();
            turned.rotate_left(turn);
        }
        let (one, other) = (farm_of(&hosts, &policy).place(&request), farm_of(&turned, &policy).place(&request));
        match (&one.decision, &other.decision) {
            (Decision::Take(a), Decision::Take(b)) => {
                prop_assert_eq!(a.tied, b.tied);
                prop_assert_eq!(a.reason, b.reason);
                if a.tied == 1 {
                    prop_assert_eq!(one.host(), other.host());
                }
            }
            (Decision::Refused(a), Decision::Refused(b)) => prop_assert_eq!(a.kind, b.kind),
            (a, b) => prop_assert!(false, "{:?} {:?}", a, b),
        }
    }

    #[test]
    fn a_retry_never_makes_a_second_place(
        hosts in any_hosts(), policy in any_policy(), requests in proptest::collection::vec(any_request(), 1..6),
        retries in proptest::collection::vec((0usize..6, 1u32..5), 0..20),
    ) {
        let mut sim = farm_of(&hosts, &policy);
        let before: u32 = sim.pool_words().iter().map(|word| word.places()).sum();
        let named = |n: usize| Request { token: token(&format!("own-{n}")), ..requests[n].clone() };
        let mut given: Vec<Option<String>> = Vec::new();
        for n in 0..requests.len() {
            let placed = sim.place(&named(n));
            given.push(placed.grant.as_ref().map(|_| placed.host().to_owned()));
        }
        for (n, attempt) in retries {
            let n = n % requests.len();
            let placed = sim.place(&Request { attempt, ..named(n) });
            if let Some(host) = &given[n] {
                prop_assert_eq!(placed.host(), host);
            } else if placed.grant.is_some() {
                given[n] = Some(placed.host().to_owned());
            }
        }
        let after: u32 = sim.pool_words().iter().map(|word| word.places()).sum();
        prop_assert_eq!(after - before, given.iter().flatten().count() as u32);
    }

    #[test]
    fn more_weight_on_users_never_helps_the_host_that_has_more(
        few in 0u32..50, more in 1u32..50, rest in 0u32..50, low in 0.0..100.0f64, by in 0.0..100.0f64,
    ) {
        let high = (low + by).min(100.0);
        let mut margins = Vec::new();
        for weight in [low, high] {
            let mut sim = Sim::new();
            let weights = WeightsChange {
                users_percent: Some(weight), cpu_percent: Some(100.0 - weight), ..WeightsChange::default()
            };
            sim.apply(PolicyChange { weights: Some(weights), ..PolicyChange::default() });
            for (host, count) in [("few", few), ("more", few + more), ("rest", rest)] {
                sim.attach(host);
                sim.report(host, load((50.0, 50, count, 50)));
            }
            let explanation = sim.explain(&ask("r"));
            let of = |position: usize| {
                let host = explanation.hosts.iter().find(|host| host.position == position).unwrap();
                (host.terms.unwrap().weighted_load(), host.rank.unwrap())
            };
            prop_assert!(of(0).0 <= of(1).0);
            margins.push((of(1).0 - of(0).0, of(1).1));
        }
        prop_assert!(margins[1].0 >= margins[0].0 - 1e-9);
    }
}

fn sim_state(placed: &Placed, request: &Request, position: usize, now: usher_types::BootTime) -> HostState {
    let pool = &placed.pool;
    // As it was before the place was taken: the place of this very request is not held against it.
    let mut word = pool.members.cells[position].load();
    if let Some(grant) =
        placed.grant.as_ref().filter(|grant| grant.host_id == pool.hosts[position].facts.host_id)
    {
        let cell = usher_placement::farm::HostCell::new();
        cell.apply(usher_placement::farm::CellChange {
            users: word.users(),
            pending_users: i64::from(word.pending_users() - grant.counted_users()),
            places: 0,
        });
        word = cell.load();
    }
    state_of(&pool.state_input(position, word, request.cost, now))
}
