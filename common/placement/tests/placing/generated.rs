//! Farms, settings and requests of every kind, and a second opinion on who may be chosen.

use std::time::Duration;

use proptest::prelude::*;
use usher_placement::{
    decision::{Failover, Request},
    farm::{HostView, PoolView, StateInput, state_of},
};
use usher_types::{
    DrainMode, FailureCause, Hello, HostOverrides, HostState, Load, Memory, Method, Penalty, PenaltyCause,
    PendingLimit, PendingMode, Percent, PolicyChange, Readiness, ResourceId, UserLimit, WeightsChange,
    WhenBlind, Zone,
};

use crate::support::*;

/// What a generated host is, apart from its numbers.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Traits {
    reported: bool,
    not_ready: bool,
    drained: bool,
    connected: bool,
    holds: bool,
    warming: bool,
    penalised: bool,
    reporter: bool,
    door: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct AnyHost {
    pub(crate) name: String,
    numbers: (Option<f64>, Option<u64>, Option<u32>, Option<u32>),
    pending: u32,
    index: Option<f64>,
    traits: Traits,
    capacity: Option<f64>,
    max_users: Option<u32>,
    age_s: u64,
    ready_age_s: Option<u64>,
    streams: u32,
    /// Kept free for coordinators that are cut off: users, logons.
    held_back: (u32, u32),
}

impl AnyHost {
    /// The same, reporting to one coordinator only.
    pub(crate) fn without_peers(self) -> Self {
        Self { streams: 1, ..self }
    }
}

fn any_traits() -> impl Strategy<Value = Traits> {
    let often = proptest::bool::weighted;
    let first = (often(0.9), often(0.1), often(0.1), often(0.85), often(0.7));
    (first, (often(0.1), often(0.15), often(0.15), any::<bool>())).prop_map(
        |((reported, not_ready, drained, connected, holds), (warming, penalised, reporter, door))| Traits {
            reported,
            not_ready,
            drained,
            connected,
            holds,
            warming,
            penalised,
            reporter,
            door,
        },
    )
}

pub(crate) fn any_hosts() -> impl Strategy<Value = Vec<AnyHost>> {
    let numbers = (
        proptest::option::weighted(0.9, 0.0..=100.0),
        proptest::option::weighted(0.9, 0u64..=100),
        proptest::option::weighted(0.9, 0u32..40),
        proptest::option::weighted(0.9, 0u32..500),
    );
    let host = (
        (numbers, 0u32..6, proptest::option::of(0.0..100.0), any_traits()),
        proptest::option::weighted(0.3, 0.1..8.0),
        proptest::option::weighted(0.3, 1u32..50),
        prop_oneof![8 => 0u64..16, 2 => 16u64..40],
        proptest::option::weighted(0.2, 0u64..150),
        prop_oneof![3 => Just(1u32), 1 => 2u32..4],
        prop_oneof![3 => Just((0u32, 0u32)), 1 => (0u32..20, 0u32..5)],
    );
    proptest::collection::vec(host, 0..9).prop_map(|hosts| {
        let made = |(n, (what, capacity, max_users, age_s, ready_age_s, streams, held_back))| {
            let (numbers, pending, index, traits) = what;
            AnyHost {
                name: format!("h{n}"),
                numbers,
                pending,
                index,
                traits,
                capacity,
                max_users,
                age_s,
                ready_age_s,
                streams,
                held_back,
            }
        };
        hosts.into_iter().enumerate().map(made).collect()
    })
}

pub(crate) fn any_policy() -> impl Strategy<Value = PolicyChange> {
    let cuts = (0.0..100.0f64, 0.0..100.0f64, 0.0..100.0f64);
    let methods = vec![Method::WeightedLoad, Method::Availability, Method::FillFirst];
    let pending = (proptest::option::of(1u32..8), any::<bool>());
    let limits = (proptest::option::of(1u32..60), any::<bool>(), any::<bool>());
    (cuts, 0.0..60.0f64, limits, pending, proptest::sample::select(methods)).prop_map(
        |((a, b, c), threshold, (max_users, allow_unknown, blind), (max_pending, hard), method)| {
            let mut cuts = [a, b, c];
            cuts.sort_by(f64::total_cmp);
            // Nothing can be filled without a limit.
            let max_users = max_users.or((method == Method::FillFirst).then_some(30));
            PolicyChange {
                method: Some(method),
                weights: Some(WeightsChange {
                    cpu_percent: Some(cuts[0]),
                    memory_percent: Some(cuts[1] - cuts[0]),
                    users_percent: Some(cuts[2] - cuts[1]),
                    processes_percent: Some(100.0 - cuts[2]),
                }),
                threshold_percent: Some(threshold),
                max_users: Some(max_users.map_or(UserLimit::Unlimited, UserLimit::Users)),
                allow_unknown: Some(allow_unknown),
                max_pending: Some(max_pending.map_or(PendingLimit::Unlimited, PendingLimit::Logons)),
                max_pending_mode: Some(if hard { PendingMode::Hard } else { PendingMode::Soft }),
                when_blind: Some(if blind { WhenBlind::Spread } else { WhenBlind::Refuse }),
                ..PolicyChange::default()
            }
        },
    )
}

pub(crate) fn any_request() -> impl Strategy<Value = Request> {
    let name = || (0u32..10).prop_map(|n| format!("h{n}"));
    let causes = [FailureCause::Busy, FailureCause::Unreachable, FailureCause::Other];
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

fn report_of_any(host: &AnyHost) -> Load {
    let (cpu, memory, users, processes) = host.numbers;
    let pending = (0..host.pending).map(|n| listed(&format!("{}-{n}", host.name), None, 1, 100)).collect();
    let penalty =
        Penalty { gateway: None, cause: PenaltyCause::Failed, left: Duration::from_secs(300), times: 1 };
    Load {
        cpu: cpu.map(|cpu| Percent::new(cpu).unwrap()),
        memory: memory.and_then(|memory| Memory::new(memory, 100)),
        users,
        processes,
        pending,
        readiness: if host.traits.not_ready { Readiness::NotReady("no".into()) } else { Readiness::Ready },
        is_warming_up: host.traits.warming,
        penalties: if host.traits.penalised { vec![penalty] } else { Vec::new() },
        ready_age: host.ready_age_s.map(Duration::from_secs),
        overrides: HostOverrides {
            capacity: host.capacity,
            max_users: host.max_users.map(UserLimit::Users),
            ..HostOverrides::default()
        },
        streams_held: host.streams,
        coordinators: Some(host.streams),
        held_back_users: host.held_back.0,
        held_back_places: host.held_back.1,
        ..Load::default()
    }
}

pub(crate) fn farm_of(hosts: &[AnyHost], policy: &PolicyChange) -> Sim {
    let mut sim = Sim::new();
    sim.apply(policy.clone());
    sim.now = at(100);
    sim.farm.tick(at(99));
    sim.farm.tick(sim.now);
    // The jump above was a freeze; its grace must be over.
    sim.pass(70);
    let now = sim.now;
    for host in hosts {
        let zone = Some(Zone::new(format!("z{}", host.name.len() % 2)).unwrap());
        let hello = Hello { zone, is_reporter: host.traits.reporter, ..hello(&host.name) };
        sim.farm.attach(&hello, None, false).unwrap();
        sim.now = now.before(Duration::from_secs(host.age_s));
        if host.traits.reported {
            sim.report(&host.name, report_of_any(host));
        }
        if let Some(index) = host.index {
            sim.available(&host.name, index);
        }
        if host.traits.holds {
            sim.serves(&host.name, &["crm"]);
        }
        if host.traits.drained {
            sim.drain(&host.name, DrainMode::Persistent, false);
        }
        if !host.traits.connected {
            sim.farm.detach(&id(&host.name), 1, None, sim.now);
        }
        if host.traits.door {
            sim.open_doors.push(id(&host.name));
        }
        sim.now = now;
    }
    sim
}

/// Whether a host may be chosen, from the rules alone and without the decision's help.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It may.
    Fit,
    /// It may if its door is tried: its agent is lost.
    FitBlind,
    /// It may not.
    Unfit(&'static str),
}

fn ruled_out(host: &HostView, request: &Request) -> Option<&'static str> {
    let name = host.facts.name.as_str();
    let named = |hosts: &[String]| hosts.iter().any(|other| other == name);
    if request.resource.is_some() && host.replicas.is_empty() {
        return Some("does not hold the resource");
    }
    if named(&request.exclude) {
        return Some("is excluded");
    }
    let failover = request.failover.as_ref()?;
    let from = failover.from_host == name;
    if from && failover.cause != FailureCause::Busy {
        return Some("is where it failed");
    }
    (!from && named(&failover.tried)).then_some("was tried")
}

/// Whether the places that this coordinator may give on a host are given out.
fn is_out_of_places(pool: &PoolView, position: usize, request: &Request, lost: bool) -> bool {
    let host = &pool.hosts[position];
    let word = pool.members.cells[position].load();
    let reading = host.reading.as_ref();
    let listed = reading.map_or((0, 0), |reading| (reading.listed_pending_users, reading.listed_places));
    let hard = pool.policy.max_pending_mode == PendingMode::Hard;
    let logons = pool.policy.max_pending.finite().filter(|_| hard);
    let users = host.max_users(&pool.policy).finite();
    let asked = host.connected && !host.facts.is_reporter && !lost;
    let coordinators = if asked { 1 } else { reading.map_or(1, |reading| reading.coordinators) };
    let kept = reading.map_or((0, 0), |reading| (reading.held_back_users, reading.held_back_places));
    let share = |limit: u32, used: u32| limit.saturating_sub(used) / coordinators;
    let free_logons = logons.map(|limit| share(limit, listed.1 + kept.1) > word.places() - listed.1);
    let used = word.users().map(|users| users + listed.0 + kept.0);
    let own = word.pending_users() - listed.0;
    // A host that can be asked says itself whether it is full: of what it keeps for others it gives nothing.
    // One that was never heard is asked, too: it knows its users.
    let fits = |limit: u32| used.map_or(asked, |used| share(limit, used) >= own + request.cost);
    let free_users = users.map(fits);
    free_logons == Some(false) || free_users == Some(false)
}

/// The verdict on each host of the pool.
pub(crate) fn verdicts(sim: &mut Sim, request: &Request) -> Vec<Verdict> {
    let (pool, now) = (sim.pool(), sim.now);
    let state = |position: usize| {
        state_of(&StateInput {
            host: &pool.hosts[position],
            word: pool.members.cells[position].load(),
            adds_users: request.cost,
            policy: &pool.policy,
            grace: pool.grace,
            now,
        })
    };
    let all = 0..pool.hosts.len();
    let lost: Vec<usize> = pool.lost(now).collect();
    let candidate = |position: usize| ruled_out(&pool.hosts[position], request).is_none();
    let nobody_is_well = !all.clone().any(|n| candidate(n) && state(n).is_eligible());
    let blind = pool.policy.when_blind == WhenBlind::Spread
        && (pool.lost_share(now).is_over_half()
            || (nobody_is_well && lost.iter().any(|position| candidate(*position))));
    let verdict = |position: usize| {
        let host = &pool.hosts[position];
        if let Some(why) = ruled_out(host, request) {
            return Verdict::Unfit(why);
        }
        let is_lost = lost.contains(&position);
        let ready = host.reading.as_ref().is_some_and(|reading| reading.readiness == Readiness::Ready);
        let open = sim.open_doors.contains(&host.facts.host_id) && ready && host.drain.is_none();
        let fit = match state(position) {
            HostState::Available | HostState::Warming | HostState::Busy => Verdict::Fit,
            HostState::Unknown if pool.policy.allow_unknown => Verdict::Fit,
            _ if blind && is_lost && open => Verdict::FitBlind,
            _ => return Verdict::Unfit("is in no state to take it"),
        };
        if is_out_of_places(&pool, position, request, is_lost) {
            return Verdict::Unfit("has no place for it");
        }
        fit
    };
    all.map(verdict).collect()
}
