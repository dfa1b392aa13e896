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
            Change::Binding(certificate, host_id) => self.follow_binding(&certificate, host_id),
        }
    }

    fn follow_binding(&mut self, certificate: &str, host_id: Option<HostId>) {
        if let Some(host_id) = &host_id
            && let Some(name) = self.farm.end_other_bonds(certificate, host_id)
        {
            tracing::error!(
                %host_id, certificate, %name,
                "a host id belongs to another certificate than the one that came with it here: that machine is cut off"
            );
            self.cut_off(host_id);
        }
        let belongs_to = host_id.as_ref().map(HostId::to_string);
        let Some(wrong) = self.farm.follow_binding(certificate, host_id) else { return };
        tracing::warn!(
            certificate, host_id = %wrong, belongs_to,
            "a certificate belongs to another host than the one that came with it here: that one is cut off, and is \
             listed no more once it is OFFLINE"
        );
        self.cut_off(&wrong);
    }

    fn cut_off(&self, host_id: &HostId) {
        if let Some(link) = self.shared.links.get(host_id) {
            link.ended.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio::sync::oneshot;
    use usher_types::{HostMarks, Percent, PolicyChange};

    use super::*;
    use crate::{
        farm_command::FarmCommand,
        metrics::Metrics,
        placing::testing,
        store::{HostMarksRecord, MemoryStore, PoolRecord, StoreHandle},
    };

    fn task() -> FarmTask {
        let store =
            StoreHandle::inline(Path::new("memory"), Metrics::new("0", "none"), MemoryStore::new("c"));
        let (mut farm, ledger) = testing::farm(&PolicyChange::default(), &[("a", 1)]);
        let (shared, _commands) = testing::shared(&mut farm, ledger);
        FarmTask { farm, shared, store, dirty: false, last_store: None, followed: 0 }
    }

    fn marks(percent: f64) -> HostMarks {
        HostMarks { threshold: Some(Percent::new(percent).unwrap()), ..HostMarks::default() }
    }

    fn host() -> HostId {
        HostId::new("a").unwrap()
    }

    fn followed(percent: f64, revision: u64) -> Followed {
        let record = HostMarksRecord { marks: marks(percent), author: "bob".to_owned(), set_unix_ms: 1 };
        Followed { changes: vec![Change::HostMarks(host(), Some(record))], revision }
    }

    fn set(task: &mut FarmTask, percent: f64, revision: u64) {
        let (answer, mut answered) = oneshot::channel();
        let (host_id, marks, revision) = (host(), marks(percent), Some(revision));
        task.handle(FarmCommand::SetMarks { host_id, marks, revision, answer });
        answered.try_recv().expect("whoever asked hears that it is done");
    }

    #[tokio::test]
    async fn a_change_from_here_does_not_undo_a_later_one_that_the_watch_has_told_already() {
        let mut task = task();
        task.follow(followed(20.0, 11));
        set(&mut task, 10.0, 10);
        assert_eq!(task.farm.marks_of(&host()), Some(marks(20.0)));
        set(&mut task, 30.0, 12);
        assert_eq!(task.farm.marks_of(&host()), Some(marks(30.0)));
        // The watch tells it too, and what came between.
        task.follow(followed(25.0, 11));
        task.follow(followed(30.0, 12));
        assert_eq!(task.farm.marks_of(&host()), Some(marks(30.0)));
    }

    #[tokio::test]
    async fn a_machine_that_came_under_a_host_id_with_another_certificate_is_cut_off() {
        for (certificate, is_cut) in [("A.", false), ("app1", true)] {
            let mut task = task();
            let (link, _output) = crate::links::HostLink::new(1, 8);
            task.shared.links.open(host(), link.clone());
            let change = Change::Binding(certificate.to_owned(), Some(host()));
            task.follow(Followed { changes: vec![change], revision: 3 });
            assert_eq!(link.ended.is_cancelled(), is_cut, "{certificate}");
        }
    }

    #[tokio::test]
    async fn settings_that_came_from_elsewhere_are_decided_by_at_once() {
        let mut task = task();
        let pool = task.farm.pool_records().next().map(|(record, _)| record.clone()).unwrap();
        let policy = usher_types::Policy { users_full_scale: 9.0, ..pool.policy.clone() };
        let record =
            PoolRecord { version: pool.version + 1, policy, author: "bob".to_owned(), applied_unix_ms: 1 };
        let change = Change::Pool(pool.name.clone(), Some(record));
        task.follow(Followed { changes: vec![change], revision: 3 });
        let snapshot = task.shared.snapshot.load();
        assert_eq!(snapshot.pools[&pool.name].policy.users_full_scale, 9.0);
    }
}
