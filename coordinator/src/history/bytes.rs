//! What does a kept decision cost in memory?
//!
//! Roughly, and rather too much than too little: the bound on the history must hold.

use std::sync::Arc;

use usher_placement::{
    decision::{DecisionRecord, ExplainedHost, ExplainedRecord},
    farm::{HostView, PoolView, Reading},
};
use usher_types::{HostId, HostName};

use super::entry::Headline;

/// Of a session, a replica, an operation or a collector with its texts.
const LIST_ENTRY: usize = 160;
/// Of the pointers to the shards of the index of sessions.
pub(super) const SESSION_SHARDS: usize = 2048;
/// Names, lists of a few entries and what the allocator adds.
const SMALL_CHANGE: usize = 512;

/// Of a headline.
pub(super) const HEADLINE: usize = size_of::<Headline>() + SMALL_CHANGE;

/// Of a record on a pool as it is: what it holds that a record on the pool as it was `before` does not hold.
pub(super) fn of_record(record: &DecisionRecord, before: Option<&Arc<PoolView>>) -> usize {
    let named = record.request.exclude.iter();
    let named = named.chain(record.request.failover.iter().flat_map(|failover| &failover.tried));
    let texts: usize = named.map(|host| host.len() + size_of::<String>()).sum();
    let lists = record.words.bytes()
        + (record.user.sessions.len() + record.user.places.len() + record.doors.len()) * LIST_ENTRY;
    HEADLINE + size_of::<DecisionRecord>() + SMALL_CHANGE + texts + lists + of_pool(&record.pool, before)
}

/// Of a reduced explanation.
pub(super) fn of_explained(explained: &ExplainedRecord) -> usize {
    let named = size_of::<(HostId, HostName)>();
    let hosts = explained.explanation.hosts.iter();
    let hosts: usize = hosts.map(|host| size_of::<ExplainedHost>() + named + host.state_reason.len()).sum();
    HEADLINE + size_of::<ExplainedRecord>() + SMALL_CHANGE + hosts
}

/// Roughly what keeps `pool` from being freed costs, beyond what the pool as it was `before` holds anyway. A host is
/// made anew with each of its reports; lists that did not change meanwhile are shared.
fn of_pool(pool: &Arc<PoolView>, before: Option<&Arc<PoolView>>) -> usize {
    if before.is_some_and(|before| Arc::ptr_eq(before, pool)) {
        return 0;
    }
    let before = before.map(Arc::as_ref);
    let newer = pool.hosts.newer_than(before.map(|before| &before.hosts));
    let hosts: usize = newer.map(|(host, old)| of_host(host, old)).sum();
    SESSION_SHARDS + pool.bytes_beside(before) + hosts
}

fn of_host(host: &Arc<HostView>, old: Option<&Arc<HostView>>) -> usize {
    if old.is_some_and(|old| Arc::ptr_eq(old, host)) {
        return 0;
    }
    let list = |entries: usize| entries * LIST_ENTRY;
    let mut bytes = size_of::<HostView>();
    if let Some(reading) = &host.reading {
        bytes += size_of::<Reading>()
            + list(reading.collectors.len() + reading.mounts.len() + reading.penalties.len());
    }
    if let Some(latency) = &host.latency
        && !old.and_then(|old| old.latency.as_ref()).is_some_and(|old| Arc::ptr_eq(old, latency))
    {
        bytes += list(1 + latency.latency.operations.len());
    }
    if !old.is_some_and(|old| Arc::ptr_eq(&old.sessions, &host.sessions)) {
        // Once as listed, once in the index by user.
        bytes += 2 * list(host.sessions.len());
    }
    if !old.is_some_and(|old| Arc::ptr_eq(&old.replicas, &host.replicas)) {
        bytes += list(host.replicas.len());
    }
    bytes
}
