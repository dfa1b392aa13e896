//! A pool and a host, as those who watch the farm are told of them: all that a decision is made of, and nobody's name.

use usher_availability::Basis;
use usher_placement::farm::{HostView, LatencyReading, PoolView, Reading};
use usher_proto::{v1, write};
use usher_types::{BootTime, Hello, Load, Percent};

use super::Counts;
use crate::{grpc::learned_costs, stored::millis};

/// Resources of one host that are listed. A host with more is said to have them unlisted: a list of ten thousands would
/// travel to every gateway.
const MOST_RESOURCES: usize = 4096;

/// Which of the large parts of a host are told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub(super) facts: bool,
    pub(super) replicas: bool,
}

impl Parts {
    pub(super) const ALL: Self = Self { facts: true, replicas: true };
}

pub(super) fn pool(pool: &PoolView) -> v1::WatchedPool {
    v1::WatchedPool {
        pool: pool.name.to_string(),
        version: pool.version,
        policy: Some(write::policy(&pool.policy)),
        costs: learned_costs(&pool.costs),
        typical_background: pool.typical.background,
        typical_cores: pool.typical.cores,
        typical_memory_bytes: pool.typical.memory_bytes,
        typical_memory_used: pool.typical.memory_used,
    }
}

pub(super) fn host(
    pool: &PoolView,
    position: usize,
    host: &HostView,
    counts: Counts,
    parts: Parts,
    now: BootTime,
) -> v1::WatchedHost {
    let reading = host.reading.as_deref();
    v1::WatchedHost {
        host_id: host.facts.host_id.to_string(),
        facts: parts.facts.then(|| write::hello(&hello(host))),
        load: reading.map(|reading| write::load(&load(reading))),
        load_age_ms: reading.and_then(|reading| reading.age(now)).map(millis),
        connected: host.connected,
        said_goodbye: host.said_goodbye,
        shut_down: host.shut_down,
        users: counts.users,
        pending_users: counts.pending_users,
        pending_places: counts.places,
        aged_places: host.aged_places,
        unheard_users: host.unheard_users,
        unheard_places: host.unheard_places,
        background: reading.and_then(|reading| reading.background),
        background_borrowed: reading.is_some_and(|reading| reading.background_is_borrowed),
        availability: host.latency.as_deref().map(|latency| availability(latency, now)),
        drain: host.drain.as_ref().map(|mark| write::drain(&mark.drain)),
        marks: (!host.marks.is_empty()).then(|| write::host_marks(&host.marks)),
        replicas: parts.replicas.then(|| replicas(pool, position, host)),
    }
}

fn hello(host: &HostView) -> Hello {
    let facts = &host.facts;
    Hello {
        agent_version: facts.agent_version.clone(),
        host_id: facts.host_id.clone(),
        boot_id: facts.boot_id.clone(),
        stream_epoch: 0,
        incarnation_ms: 0,
        host_name: facts.name.clone(),
        endpoints: facts.endpoints.to_vec(),
        labels: facts.labels.clone(),
        pool: facts.pool.clone(),
        zone: facts.zone.clone(),
        cores: facts.cores,
        memory_bytes: facts.memory_bytes,
        cpu_model: None,
        report_interval: facts.report_interval,
        latency_period: facts.latency_period,
        is_virtual: facts.is_virtual,
        is_reporter: facts.is_reporter,
    }
}

/// The report as far as a decision reads it. Penalties may name gateways, never users.
fn load(reading: &Reading) -> Load {
    Load {
        cpu: reading.cpu_percent.and_then(|cpu| Percent::new(cpu).ok()),
        memory: reading.memory,
        users: reading.users,
        sessions: reading.sessions,
        processes: reading.processes,
        readiness: reading.readiness.clone(),
        latched: Some(reading.latched),
        psi_full: reading.psi_full,
        mounts: reading.mounts.to_vec(),
        own_availability: reading.own_availability.as_deref().cloned(),
        ready_age: reading.ready_age,
        is_warming_up: reading.is_warming_up,
        replica_lag: reading.replica_lag,
        drain: reading.drain.clone(),
        penalties: reading.penalties.to_vec(),
        logons_in_progress: Some(usher_types::LogonsInProgress { now: reading.logons, mean: 0.0 }),
        overrides: reading.overrides,
        streams_held: reading.streams_held,
        coordinators: Some(reading.coordinators),
        held_back_users: reading.held_back_users,
        held_back_places: reading.held_back_places,
        ..Load::default()
    }
}

fn availability(latency: &LatencyReading, now: BootTime) -> v1::WatchedAvailability {
    let availability = latency.availability;
    v1::WatchedAvailability {
        index: availability.index,
        expansion_factor: availability.expansion_factor,
        basis: basis_name(availability.basis).to_owned(),
        provisional: availability.is_provisional,
        error_share_percent: latency.error_share_percent,
        age_ms: millis(now.since(latency.measured_at)),
    }
}

fn basis_name(basis: Basis) -> &'static str {
    match basis {
        Basis::Measured => "measured",
        Basis::Stalled => "stalled",
        Basis::Sparse => "sparse",
        Basis::Idle => "idle",
        Basis::NoData => "no_data",
    }
}

fn replicas(pool: &PoolView, position: usize, host: &HostView) -> v1::WatchedReplicas {
    if host.replicas.len() > MOST_RESOURCES {
        return v1::WatchedReplicas { resource_ids: Vec::new(), unlisted: true };
    }
    let in_service = |id: &&usher_types::ResourceId| pool.replica_mark(position, id).is_none();
    let ids = host.replicas.iter().map(|replica| &replica.resource_id).filter(in_service);
    v1::WatchedReplicas {
        resource_ids: ids.map(ToString::to_string).collect(),
        unlisted: host.replicas_unheard,
    }
}
