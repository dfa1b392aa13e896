//! What was told of the farm, as decisions take it: checked, number by number.
//!
//! A host that is told of wrongly is left out and counted, like one that nobody told of; a wrong number of it is not known.

use usher_availability::{Availability, Basis};
use usher_placement::farm::{DrainMark, PoolRecord, WatchedHost, WatchedPool};
use usher_placement::load::{LearnedCosts, LearnedValue, Typical};
use usher_proto::{read, v1};
use usher_types::{BootTime, Percent, Policy, PoolName, Replica, ResourceId};

use super::{Host, Known};

/// More coordinators decide without seeing each other's places than any host has streams: each must draw.
const DECIDERS: u32 = 2;

/// The pools and hosts that make sense, and how many do not.
pub(crate) fn watched(known: &Known) -> (Vec<WatchedPool>, Vec<WatchedHost>, usize) {
    let pools: Vec<WatchedPool> = known.pools.values().filter_map(pool).collect();
    let hosts: Vec<WatchedHost> = known.hosts.values().filter_map(|told| host(told)).collect();
    let wrong = known.pools.len() - pools.len() + known.hosts.len() - hosts.len();
    (pools, hosts, wrong)
}

fn pool(told: &v1::WatchedPool) -> Option<WatchedPool> {
    let name = PoolName::new(&told.pool).ok()?;
    let change = read::policy_change(told.policy.clone()?).ok()?;
    let policy = change.apply_to(&Policy::default()).ok()?;
    let finite = |value: Option<f64>| value.filter(|value| value.is_finite() && *value >= 0.0);
    Some(WatchedPool {
        record: PoolRecord { version: told.version, policy, ..PoolRecord::default_of(name) },
        costs: costs(&told.costs),
        typical: Typical {
            background: finite(told.typical_background),
            cores: finite(told.typical_cores).filter(|cores| *cores > 0.0),
            memory_bytes: finite(told.typical_memory_bytes).filter(|bytes| *bytes > 0.0),
            memory_used: finite(told.typical_memory_used).map(|used| used.min(1.0)),
        },
    })
}

fn costs(told: &[v1::LearnedCost]) -> LearnedCosts {
    let mut costs = LearnedCosts::PRIOR;
    let bounds = costs.each();
    let mut fields = [
        &mut costs.logon_cores,
        &mut costs.logon_seconds,
        &mut costs.connect_seconds,
        &mut costs.session_cores,
        &mut costs.session_memory_bytes,
    ];
    for ((bounds, _), field) in bounds.iter().zip(&mut fields) {
        if let Some(cost) = told.iter().find(|cost| cost.name == bounds.name) {
            let samples = if cost.samples.is_finite() { cost.samples.max(0.0) } else { 0.0 };
            **field = LearnedValue { value: bounds.hold(cost.value), samples, is_learned: cost.learned };
        }
    }
    costs
}

fn host(host: &Host) -> Option<WatchedHost> {
    let told = &host.told;
    let hello = read::hello(told.facts.clone()?).ok()?;
    if hello.host_id.as_str() != told.host_id {
        return None;
    }
    let load = told.load.clone().map(|load| {
        let (mut load, _) = read::load(load);
        load.streams_held = load.streams_held.max(DECIDERS);
        // No coordinator tells of these; what says so is not to fill our book.
        (load.pending, load.ended, load.outcomes) = Default::default();
        // Never measured since its coordinator started: as old as can be.
        (load, host.measured_at.unwrap_or(BootTime::ZERO))
    });
    let finite = |value: Option<f64>| value.filter(|value| value.is_finite() && *value >= 0.0);
    let drain = told.drain.clone().and_then(|drain| read::drain(drain).ok());
    let replicas =
        told.replicas.as_ref().map(|replicas| replicas.resource_ids.as_slice()).unwrap_or_default();
    let replica = |id: &String| {
        let resource_id = ResourceId::new(id).ok()?;
        Some(Replica { resource_id, path: None, title: None })
    };
    Some(WatchedHost {
        connected: told.connected,
        shut_down: told.shut_down,
        said_goodbye: told.said_goodbye,
        load,
        availability: told
            .availability
            .as_ref()
            .map(|told| (availability(told), finite(told.error_share_percent), host.timed_at)),
        background: finite(told.background),
        background_is_borrowed: told.background_borrowed,
        users: told.users,
        pending_users: told.pending_users,
        places: told.pending_places,
        aged_places: told.aged_places,
        unheard_users: told.unheard_users,
        unheard_places: told.unheard_places,
        drain: drain.map(|drain| DrainMark { drain, boot_id: Some(hello.boot_id.clone()) }),
        marks: told.marks.and_then(|marks| read::host_marks(marks).ok()).unwrap_or_default(),
        replicas: replicas.iter().filter_map(replica).collect(),
        hello,
    })
}

fn availability(told: &v1::WatchedAvailability) -> Availability {
    let index = told.index.and_then(|index| Percent::new(index).ok()).map(Percent::get);
    Availability {
        index,
        expansion_factor: told.expansion_factor.filter(|factor| factor.is_finite() && *factor >= 1.0),
        basis: match told.basis.as_str() {
            "measured" => Basis::Measured,
            "stalled" => Basis::Stalled,
            "sparse" => Basis::Sparse,
            "idle" => Basis::Idle,
            _ => Basis::NoData,
        },
        is_provisional: told.provisional,
    }
}
