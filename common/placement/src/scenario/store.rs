//! What do coordinators keep on their disks?
//!
//! Settings, marks and bindings are stored at once, and are the same for all coordinators: whoever applies them applies
//! them everywhere. What hosts were like each coordinator stores for itself, every ten seconds and when it stops in
//! order.

use std::collections::BTreeMap;

use usher_types::{BootTime, HostId, HostMarks, PoolName, ReplicaMark, ResourceId};

use crate::farm::{DrainMark, Farm, LastKnown, MarkedReplica, PoolRecord, Restored};

/// What an admin changed.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Pool(Box<PoolRecord>),
    Drain(HostId, Option<DrainMark>),
    Marks(HostId, HostMarks),
    Replica(HostId, ResourceId, Option<ReplicaMark>),
}

impl Change {
    /// Puts it in force.
    pub(super) fn apply(self, farm: &mut Farm, now: BootTime) {
        match self {
            Self::Pool(record) => {
                if farm.pool_record(&record.name).is_none() {
                    // The name is kept for it, whatever it is to hold; it is not there before this.
                    let _ = farm.prepare_pool(&record.name, &crate::farm::PoolApply::default(), false);
                }
                farm.commit_pool(*record);
            }
            Self::Drain(host_id, mark) => _ = farm.set_drain(&host_id, mark),
            Self::Marks(host_id, marks) => _ = farm.set_marks(&host_id, marks),
            Self::Replica(host_id, resource, mark) => {
                let _ = farm.mark_replica(&host_id, &resource, mark, now);
            }
        }
    }
}

/// What is stored for all coordinators.
#[derive(Debug, Default)]
pub(super) struct Store {
    pub pools: BTreeMap<PoolName, PoolRecord>,
    pub bindings: BTreeMap<String, HostId>,
    drains: BTreeMap<HostId, DrainMark>,
    marks: BTreeMap<HostId, HostMarks>,
    /// And since when the host has not listed it.
    replica_marks: BTreeMap<(HostId, ResourceId), (ReplicaMark, Option<BootTime>)>,
}

impl Store {
    /// Keeps a change.
    pub(super) fn keep(&mut self, change: &Change) {
        match change.clone() {
            Change::Pool(record) => _ = self.pools.insert(record.name.clone(), *record),
            Change::Drain(host_id, Some(mark)) => _ = self.drains.insert(host_id, mark),
            Change::Drain(host_id, None) => _ = self.drains.remove(&host_id),
            Change::Marks(host_id, marks) if marks.is_empty() => _ = self.marks.remove(&host_id),
            Change::Marks(host_id, marks) => _ = self.marks.insert(host_id, marks),
            Change::Replica(host_id, resource, mark) => {
                let key = (host_id, resource);
                match mark {
                    Some(mark) => _ = self.replica_marks.insert(key, (mark, None)),
                    None => _ = self.replica_marks.remove(&key),
                }
            }
        }
    }

    /// The marks of a host that another machine has taken the place of are that machine's.
    pub(super) fn move_marks(&mut self, from: &HostId, to: &HostId) {
        if let Some(mark) = self.drains.remove(from) {
            self.drains.entry(to.clone()).or_insert(mark);
        }
        if let Some(marks) = self.marks.remove(from) {
            self.marks.entry(to.clone()).or_insert(marks);
        }
        let of_old: Vec<_> = self.replica_marks.extract_if(.., |(host_id, _), _| host_id == from).collect();
        for ((_, resource), mark) in of_old {
            self.replica_marks.entry((to.clone(), resource)).or_insert(mark);
        }
    }

    /// The host has booted: a drain until then is over.
    pub(super) fn end_drain(&mut self, host_id: &HostId) {
        self.drains.remove(host_id);
    }

    /// The mark of a replica is forgotten.
    pub(super) fn forget_mark(&mut self, host_id: &HostId, resource: &ResourceId) {
        self.replica_marks.remove(&(host_id.clone(), resource.clone()));
    }

    /// Notes since when hosts have not listed what is marked.
    pub(super) fn note_unlisted(&mut self, farm: &Farm, now: BootTime) {
        for MarkedReplica { host_id, resource_id, unlisted_for, .. } in farm.replica_marks(now) {
            if let Some((_, since)) = self.replica_marks.get_mut(&(host_id, resource_id)) {
                *since = unlisted_for.map(|passed| now.before(passed));
            }
        }
    }

    /// What a coordinator that starts at `now` finds; `known` is its own.
    pub(super) fn restored(&self, known: Vec<LastKnown>, now: BootTime) -> Restored {
        let marked =
            |((host_id, resource_id), (mark, since)): (&(HostId, ResourceId), &(_, Option<BootTime>))| {
                let unlisted_for = since.map(|since| now.since(since));
                MarkedReplica {
                    host_id: host_id.clone(),
                    resource_id: resource_id.clone(),
                    mark: *mark,
                    unlisted_for,
                }
            };
        Restored {
            pools: self.pools.values().cloned().collect(),
            bindings: self.bindings.clone().into_iter().collect(),
            known,
            drains: self.drains.clone().into_iter().collect(),
            marks: self.marks.clone().into_iter().collect(),
            replica_marks: self.replica_marks.iter().map(marked).collect(),
            learned: Vec::new(),
        }
    }
}
