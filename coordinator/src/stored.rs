//! Between what the store keeps and what the farm knows.

use std::{sync::Arc, time::Duration};

use usher_placement::farm::{DrainMark, Given, HostFacts, LastKnown, MarkedReplica, PoolRecord, Restored};
use usher_types::{HostId, HostOverrides, Memory, Percent, PoolName, Readiness, ResourceId};

use crate::store;

/// What latency period a restored host is taken to have until it says so itself.
const DEFAULT_LATENCY_PERIOD: Duration = Duration::from_secs(15);

pub(crate) fn pool_from_store(name: PoolName, record: store::PoolRecord) -> PoolRecord {
    PoolRecord {
        name,
        version: record.version,
        policy: record.policy,
        author: record.author,
        applied_unix_ms: Some(record.applied_unix_ms),
    }
}

pub(crate) fn pool_to_store(record: &PoolRecord) -> store::PoolRecord {
    store::PoolRecord {
        version: record.version,
        policy: record.policy.clone(),
        author: record.author.clone(),
        applied_unix_ms: record.applied_unix_ms.unwrap_or_default(),
    }
}

pub(crate) fn drain_from_store(record: store::DrainRecord) -> DrainMark {
    DrainMark { drain: record.drain, boot_id: record.boot_id }
}

pub(crate) fn drain_to_store(mark: &DrainMark, set_unix_ms: u64) -> store::DrainRecord {
    store::DrainRecord { drain: mark.drain.clone(), boot_id: mark.boot_id.clone(), set_unix_ms }
}

fn replica_mark_from_store(
    (host_id, resource_id): (HostId, ResourceId),
    record: &store::ReplicaMarkRecord,
    now_unix_ms: u64,
) -> MarkedReplica {
    let gone = |since: u64| Duration::from_millis(now_unix_ms.saturating_sub(since));
    MarkedReplica { host_id, resource_id, mark: record.mark, unlisted_for: record.gone_unix_ms.map(gone) }
}

/// Everything that the farm takes over from the store.
pub(crate) fn restored(stored: store::Stored, now_unix_ms: u64) -> Restored {
    let pools = stored.pools.into_iter().map(|(name, record)| pool_from_store(name, record));
    let drains = stored.drains.into_iter().map(|(host_id, record)| (host_id, drain_from_store(record)));
    let marks = stored.host_marks.into_iter().map(|(host_id, record)| (host_id, record.marks));
    let replica_marks = stored
        .replica_marks
        .into_iter()
        .map(|(of, record)| replica_mark_from_store(of, &record, now_unix_ms));
    Restored {
        pools: pools.collect(),
        bindings: stored.bindings.into_iter().collect(),
        known: stored.last_known.into_iter().map(host_from_store).collect(),
        drains: drains.collect(),
        marks: marks.collect(),
        replica_marks: replica_marks.collect(),
        learned: stored.learned,
    }
}

fn host_from_store(known: store::LastKnown) -> LastKnown {
    let latency_period = known.latency_period_ms.map_or(DEFAULT_LATENCY_PERIOD, Duration::from_millis);
    LastKnown {
        facts: HostFacts {
            host_id: known.host_id,
            boot_id: known.boot_id,
            name: known.host_name,
            pool: known.pool,
            zone: known.zone,
            endpoints: Arc::from(known.endpoints),
            labels: known.labels,
            agent_version: known.agent_version,
            cores: known.cores,
            memory_bytes: known.memory_total_bytes,
            cpu_model: known.cpu_model,
            report_interval: Duration::from_millis(known.report_interval_ms),
            latency_period,
            is_virtual: known.is_virtual,
            is_reporter: known.is_reporter,
        },
        was_heard: !known.never_heard,
        was_offline: known.was_offline,
        shut_down: known.said_goodbye,
        said_goodbye: known.said_goodbye || known.agent_said_goodbye,
        overrides: HostOverrides {
            capacity: Some(known.capacity),
            max_users: known.max_users,
            threshold: known.threshold,
            range: known.range,
        },
        cpu_percent: known.cpu_percent.map(Percent::get),
        memory: known
            .memory_used_bytes
            .zip(known.memory_total_bytes)
            .and_then(|(used, total)| Memory::new(used, total)),
        users: known.users,
        processes: known.processes,
        sessions: known.sessions,
        readiness: known.not_ready.map_or(Readiness::Ready, Readiness::NotReady),
        drain: known.drain,
        // A host of which an earlier build stored nothing else reported to this coordinator at least.
        streams_held: known.streams_held.unwrap_or(1).max(1),
        listed_pending_users: known.listed_pending_users,
        listed_places: known.listed_places,
        coordinators: known.coordinators.or(known.streams_held).unwrap_or(1).max(1),
        held_back_users: known.held_back_users,
        held_back_places: known.held_back_places,
        listed_replicas: known.listed_replicas,
        given: known.given.map(|(users, places)| Given { users, places }),
    }
}

pub(crate) fn host_to_store(known: LastKnown, stored_unix_ms: u64) -> store::LastKnown {
    let facts = known.facts;
    store::LastKnown {
        host_id: facts.host_id,
        host_name: facts.name,
        pool: facts.pool,
        boot_id: facts.boot_id,
        endpoints: facts.endpoints.to_vec(),
        labels: facts.labels,
        agent_version: facts.agent_version,
        is_virtual: facts.is_virtual,
        report_interval_ms: millis(facts.report_interval),
        capacity: known.overrides.capacity.unwrap_or(1.0),
        was_offline: known.was_offline,
        said_goodbye: known.shut_down,
        agent_said_goodbye: known.said_goodbye,
        never_heard: !known.was_heard,
        is_reporter: facts.is_reporter,
        stored_unix_ms,
        zone: facts.zone,
        cores: facts.cores,
        cpu_model: facts.cpu_model,
        cpu_percent: known.cpu_percent.and_then(|cpu| Percent::new(cpu).ok()),
        memory_used_bytes: known.memory.map(|memory| memory.used_bytes),
        memory_total_bytes: known.memory.map(|memory| memory.total_bytes),
        users: known.users,
        processes: known.processes,
        sessions: known.sessions,
        latency_period_ms: Some(millis(facts.latency_period)),
        streams_held: Some(known.streams_held),
        listed_pending_users: known.listed_pending_users,
        listed_places: known.listed_places,
        coordinators: Some(known.coordinators),
        held_back_users: known.held_back_users,
        held_back_places: known.held_back_places,
        listed_replicas: known.listed_replicas,
        given: known.given.map(|given| (given.users, given.places)),
        not_ready: match known.readiness {
            Readiness::Ready => None,
            Readiness::NotReady(reason) => Some(reason),
        },
        drain: known.drain,
        max_users: known.overrides.max_users,
        threshold: known.overrides.threshold,
        range: known.overrides.range,
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
