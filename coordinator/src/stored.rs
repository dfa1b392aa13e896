//! Between what the store keeps and what the farm knows.

use std::{sync::Arc, time::Duration};

use usher_placement::farm::{DrainMark, HostFacts, LastKnown, PoolRecord};
use usher_types::{HostId, Memory, Percent, PoolName};

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

pub(crate) fn drain_from_store(host_id: HostId, record: store::DrainRecord) -> (HostId, DrainMark) {
    (host_id, DrainMark { drain: record.drain, boot_id: record.boot_id })
}

pub(crate) fn drain_to_store(mark: &DrainMark, set_unix_ms: u64) -> store::DrainRecord {
    store::DrainRecord { drain: mark.drain.clone(), boot_id: mark.boot_id.clone(), set_unix_ms }
}

pub(crate) fn host_from_store(known: store::LastKnown) -> LastKnown {
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
            latency_period: DEFAULT_LATENCY_PERIOD,
            is_virtual: known.is_virtual,
        },
        was_offline: known.was_offline,
        shut_down: known.said_goodbye,
        capacity: Some(known.capacity),
        cpu_percent: known.cpu_percent.map(Percent::get),
        memory: known
            .memory_used_bytes
            .zip(known.memory_total_bytes)
            .and_then(|(used, total)| Memory::new(used, total)),
        users: known.users,
        processes: known.processes,
        sessions: known.sessions,
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
        report_interval_ms: u64::try_from(facts.report_interval.as_millis()).unwrap_or(u64::MAX),
        capacity: known.capacity.unwrap_or(1.0),
        was_offline: known.was_offline,
        said_goodbye: known.shut_down,
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
    }
}
