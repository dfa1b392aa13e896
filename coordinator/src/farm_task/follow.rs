//! What other coordinators have changed, put in force here.

use std::collections::BTreeSet;

use usher_types::{HostId, PoolName};

use super::FarmTask;
use crate::{
    store::{Change, Followed},
    stored,
};

/// Who must be told what has changed.
#[derive(Default)]
struct Told {
    pools: BTreeSet<PoolName>,
    hosts: BTreeSet<HostId>,
    drained: BTreeSet<HostId>,
}

impl FarmTask {
    /// Whether the watch has told the farm of this revision, and perhaps of later ones, already.
    pub(super) fn has_followed(&self, revision: Option<u64>) -> bool {
        revision.is_some_and(|revision| revision <= self.followed)
    }

    pub(super) fn follow(&mut self, followed: Followed) {
        let mut told = Told::default();
        for change in followed.changes {
            self.follow_one(change, &mut told);
        }
        self.followed = self.followed.max(followed.revision);
        // Decisions use what is new before any host is told of it.
        self.publish();
        for pool in &told.pools {
            self.send_settings(pool);
        }
        for host_id in &told.hosts {
            self.send_settings_to(host_id);
        }
        for host_id in &told.drained {
            self.offer_drain(host_id, self.drains_of(host_id).mark);
        }
    }

    fn follow_one(&mut self, change: Change, told: &mut Told) {
        match change {
            Change::Pool(name, record) => {
                let version = record.as_ref().map(|record| record.version);
                let record = record.map(|record| stored::pool_from_store(name.clone(), record));
                if self.farm.follow_pool(&name, record) {
                    tracing::info!(pool = %name, version, "settings of a pool came from the shared store");
                    told.pools.insert(name);
                }
            }
            Change::Version(..) => {}
            Change::Drain(host_id, record) => {
                if self.farm.follow_drain(&host_id, record.map(stored::drain_from_store)) {
                    told.hosts.insert(host_id.clone());
                    told.drained.insert(host_id);
                }
            }
            Change::HostMarks(host_id, record) => {
                let marks = record.map(|record| record.marks).unwrap_or_default();
                if self.farm.follow_marks(&host_id, marks) {
                    told.hosts.insert(host_id);
                }
            }
            Change::ReplicaMark(host_id, resource_id, record) => {
                let mark = record.map(|record| record.mark);
                self.farm.follow_replica_mark(&host_id, &resource_id, mark, self.shared.now());
            }
            Change::Binding(certificate, host_id) => {
                let belongs_to = host_id.as_ref().map(HostId::to_string);
                let Some(wrong) = self.farm.follow_binding(&certificate, host_id) else { return };
                tracing::warn!(
                    certificate, host_id = %wrong, belongs_to,
                    "a certificate belongs to another host than the one that came with it here: that one is cut off"
                );
                if let Some(link) = self.shared.links.get(&wrong) {
                    link.ended.cancel();
                }
            }
        }
    }
}
