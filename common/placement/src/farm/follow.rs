//! What becomes of a farm when another coordinator has changed what they share?
//!
//! The same as if it had been changed here: the settings are in force, hosts are told. What is followed may have been done here
//! already, and may come twice; then nothing happens, so that a host is not told again what it knows.

use std::{collections::HashSet, sync::Arc};

use usher_types::{BootTime, HostId, HostMarks, HostName, PoolName, ReplicaMark, ResourceId};

use super::{DrainMark, Farm, Pool, PoolRecord, attach::compared, marks::AdminMarks};

impl Farm {
    /// A pool's settings are these now. Absent: there is no such pool any more; one that hosts are in has the defaults then.
    /// Whether anything is different.
    pub fn follow_pool(&mut self, name: &PoolName, record: Option<PoolRecord>) -> bool {
        let Some(pool) = self.pools.get(name) else {
            let Some(record) = record else { return false };
            self.pools.insert(name.clone(), Pool::new(record));
            return true;
        };
        let (applying, empty) = (pool.applying, pool.host_ids.is_empty());
        let record = match record {
            Some(record) => record,
            None if empty && !applying => return self.pools.remove(name).is_some(),
            None => PoolRecord::default_of(name.clone()),
        };
        if pool.record == record {
            return false;
        }
        self.put_in_force(record);
        if let Some(pool) = self.pools.get_mut(name) {
            // A change from here is on its way still, and will be refused.
            pool.applying = applying;
        }
        true
    }

    /// An admin's drain of a host is this now. Whether anything is different.
    pub fn follow_drain(&mut self, host_id: &HostId, mark: Option<DrainMark>) -> bool {
        let Some(host) = self.hosts.get(host_id) else {
            let waiting = self.waiting.entry(host_id.clone()).or_default();
            waiting.drain = mark.map(Arc::new);
            return false;
        };
        if host.view.drain.as_deref() == mark.as_ref() {
            return false;
        }
        self.set_drain(host_id, mark);
        true
    }

    /// An admin's settings of a host are these now. Whether anything is different.
    pub fn follow_marks(&mut self, host_id: &HostId, marks: HostMarks) -> bool {
        let Some(host) = self.hosts.get(host_id) else {
            self.waiting.entry(host_id.clone()).or_default().settings = marks;
            return false;
        };
        if host.view.marks == marks {
            return false;
        }
        self.set_marks(host_id, marks);
        true
    }

    /// An admin's word on a replica is this now. Whether anything is different.
    pub fn follow_replica_mark(
        &mut self,
        host_id: &HostId,
        resource_id: &ResourceId,
        mark: Option<ReplicaMark>,
        now: BootTime,
    ) -> bool {
        let before = self.replica_marks.get(host_id).and_then(|marks| marks.of(resource_id));
        if before == mark {
            return false;
        }
        self.mark_replica(host_id, resource_id, mark, now);
        true
    }

    /// A certificate's name belongs to this host now. The host that came with it and that it does not belong to: one that is
    /// gone is here no more, and its marks are the other one's; one that is alive goes once it is gone.
    pub fn follow_binding(&mut self, certificate: &str, host_id: Option<HostId>) -> Option<HostId> {
        let name = compared(certificate);
        let before = match &host_id {
            Some(host_id) => self.bindings.insert(name, host_id.clone()),
            None => self.bindings.remove(&name),
        };
        let (wrong, heir) = before.zip(host_id).filter(|(before, now)| before != now)?;
        self.displaced.insert(wrong.clone(), heir);
        self.retire_displaced();
        Some(wrong)
    }

    /// A host has one certificate, and this is the one of this host: its bonds to others, which nobody has stored, are over. The
    /// name of the machine that is connected under the host's id, if another certificate brought it.
    pub fn end_other_bonds(&mut self, certificate: &str, host_id: &HostId) -> Option<HostName> {
        let name = compared(certificate);
        self.bindings.retain(|other, bound| bound != host_id || *other == name);
        let host = self.hosts.get(host_id).filter(|host| host.view.connected)?;
        let facts = &host.view.facts;
        (!facts.is_virtual && !facts.name.matches(certificate)).then(|| facts.name.clone())
    }

    /// Hosts that were known before the start and whose name is by now that of another one's certificate: whoever gave it away
    /// may have been another coordinator, while this one was down.
    pub(super) fn find_displaced(&mut self) {
        let bound: HashSet<&HostId> = self.bindings.values().collect();
        for (host_id, host) in &self.hosts {
            let facts = &host.view.facts;
            if facts.is_virtual || bound.contains(host_id) {
                continue;
            }
            if let Some(heir) = self.bindings.get(&compared(facts.name.as_str())) {
                self.displaced.insert(host_id.clone(), heir.clone());
            }
        }
    }

    /// Takes hosts out whose place another one has, as soon as they are gone.
    pub(super) fn retire_displaced(&mut self) {
        let is_alive = |host_id: &HostId| self.hosts.get(host_id).is_some_and(|host| self.is_alive(host));
        let gone: Vec<HostId> = self.displaced.keys().filter(|host_id| !is_alive(host_id)).cloned().collect();
        for host_id in gone {
            let Some(heir) = self.displaced.remove(&host_id) else { continue };
            // What it kept itself the coordinator that let the other one in has handed down; it may have been ended since.
            let (AdminMarks { drain, settings }, _) = self.retire(&host_id, &heir);
            // One that is here has all that is stored already, or hears of it as of every change.
            if self.hosts.contains_key(&heir) || (drain.is_none() && settings.is_empty()) {
                continue;
            }
            let waiting = self.waiting.entry(heir).or_default();
            waiting.drain = waiting.drain.take().or(drain);
            if waiting.settings.is_empty() {
                waiting.settings = settings;
            }
        }
    }
}
