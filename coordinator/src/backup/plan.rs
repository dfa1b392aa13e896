//! What does a backup change in the store as it is now?
//!
//! Drains, an admin's settings of hosts and marks of replicas become as they are in the backup. Settings of pools too, each as
//! a new version where they differ; a pool that the backup does not have stays, for hosts may be in it and nothing removes a
//! pool. A certificate that belongs to a host now goes on to belong to it, whatever the backup says: a host that was installed
//! anew since must not be put out. A pool that is not here comes with its versions as they were.

use std::collections::BTreeMap;

use usher_types::{DrainMode, HostId, HostMarks, PoolName};

use crate::store::{DrainRecord, HostMarksRecord, PoolRecord, ReplicaMarkRecord, SharedRows};

/// What a row is of; named as in the store.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Pool,
    Drain,
    HostMarks,
    ReplicaMark,
    Binding,
}

/// What becomes of a row.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// It is new.
    Added,
    /// It is another one.
    Changed,
    /// It is gone.
    Removed,
    /// It stays, though the backup has it otherwise or not at all.
    Kept,
}

/// One row of which a backup says something else than the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Planned {
    /// What it is of.
    pub kind: Kind,
    /// What becomes of it.
    pub what: What,
    /// Its key.
    pub name: String,
    /// The host that it is of.
    pub host: Option<HostId>,
    /// For people.
    pub detail: String,
}

/// Who restores, from what, and when.
#[derive(Clone, Debug)]
pub(crate) struct By {
    /// The admin.
    pub author: String,
    /// When the backup was made.
    pub created: String,
    /// Now; wall clock, ms since 1970 UTC.
    pub now_unix_ms: u64,
    /// The settings of pools come from elsewhere: they stay.
    pub without_pools: bool,
}

/// What the store is to hold, and in what that differs from now.
pub(crate) fn plan(now: &SharedRows, backup: &SharedRows, by: &By) -> (SharedRows, Vec<Planned>) {
    let mut rows = now.clone();
    let mut planned = Vec::new();
    if !by.without_pools {
        plan_pools(&mut rows, backup, by, &mut planned);
    }
    let mut host = |kind, what, id: &HostId, detail| {
        planned.push(Planned { kind, what, name: id.to_string(), host: Some(id.clone()), detail });
    };
    for (id, what, detail) in differences(&rows.drains, &backup.drains, shown_drain) {
        host(Kind::Drain, what, id, detail);
    }
    for (id, what, detail) in differences(&rows.host_marks, &backup.host_marks, shown_marks) {
        host(Kind::HostMarks, what, id, detail);
    }
    for ((id, resource), what, detail) in differences(&rows.replica_marks, &backup.replica_marks, shown_mark)
    {
        let (name, host) = (format!("{id}/{resource}"), Some(id.clone()));
        planned.push(Planned { kind: Kind::ReplicaMark, what, name, host, detail });
    }
    rows.drains.clone_from(&backup.drains);
    rows.host_marks.clone_from(&backup.host_marks);
    rows.replica_marks.clone_from(&backup.replica_marks);
    plan_bindings(&mut rows, backup, &mut planned);
    (rows, planned)
}

fn plan_pools(rows: &mut SharedRows, backup: &SharedRows, by: &By, planned: &mut Vec<Planned>) {
    let mut say = |name: &PoolName, what, detail| {
        planned.push(Planned { kind: Kind::Pool, what, name: name.to_string(), host: None, detail });
    };
    for (name, then) in &backup.pools {
        let Some(now) = rows.pools.get(name) else {
            say(name, What::Added, format!("version {} by {}", then.version, then.author));
            let mut versions = backup.history.get(name).cloned().unwrap_or_default();
            if versions.last().is_none_or(|newest| newest.version != then.version) {
                versions.retain(|kept| kept.version < then.version);
                versions.push(then.clone());
            }
            rows.history.insert(name.clone(), versions);
            rows.pools.insert(name.clone(), then.clone());
            continue;
        };
        if now.policy == then.policy && now.version >= then.version {
            continue;
        }
        let version = now.version.max(then.version) + 1;
        let changes = now.policy.changes_to(&then.policy);
        let changes: Vec<String> = changes
            .iter()
            .map(|change| format!("{} {} -> {}", change.field, change.before, change.after))
            .collect();
        let changes = if changes.is_empty() { "the same settings".to_owned() } else { changes.join(", ") };
        say(name, What::Changed, format!("version {version}, after {}: {changes}", now.version));
        let record = PoolRecord {
            version,
            policy: then.policy.clone(),
            author: format!("{}, from a backup of {}", by.author, by.created),
            applied_unix_ms: by.now_unix_ms,
        };
        rows.history.entry(name.clone()).or_default().push(record.clone());
        rows.pools.insert(name.clone(), record);
    }
    for (name, now) in rows.pools.iter().filter(|(name, _)| !backup.pools.contains_key(*name)) {
        say(name, What::Kept, format!("version {}; the backup has no such pool", now.version));
    }
}

fn plan_bindings(rows: &mut SharedRows, backup: &SharedRows, planned: &mut Vec<Planned>) {
    for (certificate, then) in &backup.bindings {
        let (what, detail) = match rows.bindings.get(certificate) {
            Some(now) if now == then => continue,
            Some(now) => (What::Kept, format!("belongs to host {now}, in the backup to {then}")),
            None => (What::Added, format!("belongs to host {then}")),
        };
        let host = Some(rows.bindings.entry(certificate.clone()).or_insert_with(|| then.clone()).clone());
        planned.push(Planned { kind: Kind::Binding, what, name: certificate.clone(), host, detail });
    }
}

/// The rows in which two tables differ, by key.
fn differences<'a, K: Ord, V: PartialEq>(
    now: &'a BTreeMap<K, V>,
    then: &'a BTreeMap<K, V>,
    shown: fn(&V) -> String,
) -> Vec<(&'a K, What, String)> {
    let gone = now.iter().filter(|(key, _)| !then.contains_key(*key));
    let gone = gone.map(|(key, value)| (key, What::Removed, shown(value)));
    let new = then.iter().filter_map(|(key, value)| match now.get(key) {
        Some(before) if before == value => None,
        Some(before) => Some((key, What::Changed, format!("{}, before: {}", shown(value), shown(before)))),
        None => Some((key, What::Added, shown(value))),
    });
    let mut all: Vec<_> = gone.chain(new).collect();
    all.sort_by(|a, b| a.0.cmp(b.0));
    all
}

fn shown_drain(record: &DrainRecord) -> String {
    let drain = &record.drain;
    let until = match drain.mode {
        DrainMode::UntilRestart => "until the restart",
        DrainMode::Persistent => "persistent",
    };
    let why = if drain.reason.is_empty() { String::new() } else { format!(": {}", drain.reason) };
    format!("drained by {}, {until}{why}", drain.author)
}

fn shown_marks(record: &HostMarksRecord) -> String {
    let HostMarks { capacity, max_users, threshold, range, busy } = record.marks;
    let parts = [
        capacity.map(|capacity| format!("capacity {capacity}")),
        max_users.map(|limit| format!("max_users {limit}")),
        threshold.map(|threshold| format!("threshold {}", threshold.get())),
        range.map(|range| format!("range {range}")),
        busy.then(|| "busy".to_owned()),
    ];
    format!("{}, by {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "), record.author)
}

fn shown_mark(record: &ReplicaMarkRecord) -> String {
    format!("{} by {}", record.mark.as_str(), record.author)
}
