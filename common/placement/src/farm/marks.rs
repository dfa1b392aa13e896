//! What has an admin said of a host, and of what it serves?
//!
//! A host owns what it measures and which replicas it has; an admin owns the marks: drained, its settings, a replica out
//! of service. A host can neither see a mark away nor lose it by forgetting: a list that comes again changes no mark, and
//! of a replica that is listed no more the mark is kept for a day, so that a disk that was away for an hour does not
//! come back in service. The day is one in which the host was heard: a coordinator that does not hear what a host serves
//! must not forget, for every other coordinator too, what was said of it. Marks of a host that nothing else is known of yet
//! wait for it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use usher_types::{BootTime, Drain, HostId, HostMarks, HostState, Replica, ReplicaMark, ResourceId};

use super::{DrainMark, Effect, Farm, HostEntry};

/// How long the mark of a replica is kept that its host lists no more.
const UNLISTED_FOR: Duration = Duration::from_secs(24 * 3600);

/// What an admin said of a host.
#[derive(Clone, Debug, Default)]
pub(super) struct AdminMarks {
    pub(super) drain: Option<Arc<DrainMark>>,
    pub(super) settings: HostMarks,
}

/// An admin's mark of one host's copy of a resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MarkedReplica {
    /// The host.
    pub host_id: HostId,
    /// What it holds, or held, a copy of.
    pub resource_id: ResourceId,
    /// The mark.
    pub mark: ReplicaMark,
    /// For how long its host was heard here and has not listed it. Absent: it lists it, or was not heard yet.
    pub unlisted_for: Option<Duration>,
}

/// The marked replicas of one host, those that it lists no more among them.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplicaMarks(BTreeMap<ResourceId, (ReplicaMark, Option<BootTime>)>);

impl ReplicaMarks {
    /// The host listed what it serves at `now`.
    pub(super) fn follow(&mut self, replicas: &[Replica], now: BootTime) {
        for (resource_id, (_, unlisted_since)) in &mut self.0 {
            let listed = replicas.iter().any(|replica| replica.resource_id == *resource_id);
            *unlisted_since = if listed { None } else { unlisted_since.or(Some(now)) };
        }
    }

    /// Each mark.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ResourceId, ReplicaMark)> {
        self.0.iter().map(|(resource_id, (mark, _))| (resource_id, *mark))
    }

    /// The mark of one replica.
    pub(super) fn of(&self, resource_id: &ResourceId) -> Option<ReplicaMark> {
        self.0.get(resource_id).map(|(mark, _)| *mark)
    }

    /// Takes over the marks of a host whose place this one has taken, as far as it has none of its own.
    fn inherit(&mut self, old: Self) {
        for (resource_id, (mark, _)) in old.0 {
            self.0.entry(resource_id).or_insert((mark, None));
        }
    }
}

impl HostEntry {
    /// Whether what it does not list now is not there.
    fn tells_what_it_serves(&self) -> bool {
        self.view.connected && self.has_listed && self.last_state != HostState::Offline
    }
}

impl Farm {
    /// Sets or removes an admin's drain. The one that was there before.
    pub fn set_drain(&mut self, host_id: &HostId, mark: Option<DrainMark>) -> Option<Arc<DrainMark>> {
        // Of a host that nothing else is known of only a stored drain can be taken back.
        let Some(host) = self.hosts.get_mut(host_id) else {
            return self.waiting.get_mut(host_id).and_then(|waiting| waiting.drain.take());
        };
        let before = std::mem::replace(&mut host.view.drain, mark.map(Arc::new));
        self.publish(host_id);
        before
    }

    /// A host that keeps its drain itself says what drains it now; its next report will say the same. The mark that it has taken
    /// over is gone, if it is still that one.
    pub fn drain_kept(&mut self, host_id: &HostId, holds: Option<Drain>, instead_of: Option<&DrainMark>) {
        let Some(host) = self.hosts.get_mut(host_id) else { return };
        if let Some(reading) = &mut host.view.reading {
            Arc::make_mut(reading).drain = holds;
        }
        if host.view.drain.as_deref() == instead_of {
            host.view.drain = None;
        }
        self.publish(host_id);
    }

    /// The drain that a host keeps itself, as it said last.
    pub fn own_drain(&self, host_id: &HostId) -> Option<&Drain> {
        self.hosts.get(host_id)?.view.reading.as_ref()?.drain.as_ref()
    }

    /// Whether the host may keep a drain that was set since it was heard here: it has no stream, and another coordinator may
    /// have one.
    pub fn may_be_drained_unheard(&self, host_id: &HostId) -> bool {
        let Some(host) = self.hosts.get(host_id).map(|host| &host.view) else { return false };
        let reports_elsewhere = host.reading.as_ref().is_none_or(|reading| reading.coordinators > 1);
        !host.connected && !host.facts.is_reporter && reports_elsewhere
    }

    /// The mark that a drain set now would be. Absent: no such host.
    pub fn drain_mark(&self, host_id: &HostId, drain: Drain) -> Option<DrainMark> {
        let host = self.hosts.get(host_id)?;
        Some(DrainMark { drain, boot_id: Some(host.view.facts.boot_id.clone()) })
    }

    /// Sets an admin's settings of a host; empty ones remove them. Those of before. Absent: no such host; of one that
    /// nothing else is known of, stored ones can only be removed.
    pub fn set_marks(&mut self, host_id: &HostId, marks: HostMarks) -> Option<HostMarks> {
        let Some(host) = self.hosts.get_mut(host_id) else {
            return self.waiting.get_mut(host_id).map(|waiting| std::mem::take(&mut waiting.settings));
        };
        let before = std::mem::replace(&mut host.view.marks, marks);
        self.follow_settings(host_id, false);
        self.publish(host_id);
        Some(before)
    }

    /// An admin's settings of a host. Absent: no such host.
    pub fn marks_of(&self, host_id: &HostId) -> Option<HostMarks> {
        Some(self.hosts.get(host_id)?.view.marks)
    }

    /// Marks a host's copy of a resource, or puts it in service again. The mark that it had.
    pub fn mark_replica(
        &mut self,
        host_id: &HostId,
        resource_id: &ResourceId,
        mark: Option<ReplicaMark>,
        now: BootTime,
    ) -> Option<ReplicaMark> {
        let marks = self.replica_marks.entry(host_id.clone()).or_default();
        let before = match mark {
            Some(mark) => marks.0.insert(resource_id.clone(), (mark, None)),
            None => marks.0.remove(resource_id),
        };
        // Of a host that was not heard yet it cannot be told what it lists.
        if let Some(host) = self.hosts.get(host_id).filter(|host| host.has_listed) {
            marks.follow(&host.view.replicas, now);
        }
        if marks.0.is_empty() {
            self.replica_marks.remove(host_id);
        }
        self.show_replica_marks(host_id);
        before.map(|(mark, _)| mark)
    }

    /// Every marked replica, with what the store must keep of it at `now`.
    pub fn replica_marks(&self, now: BootTime) -> impl Iterator<Item = MarkedReplica> {
        self.replica_marks.keys().flat_map(move |host_id| self.replica_marks_of(host_id, now))
    }

    /// The marked replicas of one host.
    pub fn replica_marks_of(&self, host_id: &HostId, now: BootTime) -> impl Iterator<Item = MarkedReplica> {
        let marks = self.replica_marks.get_key_value(host_id);
        marks.into_iter().flat_map(move |(host_id, marks)| {
            marks.0.iter().map(move |(resource_id, (mark, unlisted_since))| MarkedReplica {
                host_id: host_id.clone(),
                resource_id: resource_id.clone(),
                mark: *mark,
                unlisted_for: unlisted_since.map(|since| now.since(since)),
            })
        })
    }

    pub(super) fn restore_replica_mark(&mut self, marked: MarkedReplica, now: BootTime) {
        let unlisted_since = marked.unlisted_for.map(|unlisted_for| now.before(unlisted_for));
        let marks = self.replica_marks.entry(marked.host_id.clone()).or_default();
        marks.0.insert(marked.resource_id, (marked.mark, unlisted_since));
        self.show_replica_marks(&marked.host_id);
    }

    /// What an admin said of a host that gives way to another one: for that one.
    pub(super) fn take_replica_marks(&mut self, old: &HostId, heir: &HostId, now: BootTime) {
        if let Some(marks) = self.replica_marks.remove(old) {
            let inherited = self.replica_marks.entry(heir.clone()).or_default();
            inherited.inherit(marks);
            if let Some(host) = self.hosts.get(heir).filter(|host| host.has_listed) {
                inherited.follow(&host.view.replicas, now);
            }
            self.show_replica_marks(heir);
        }
    }

    /// The time since the last tick does not count for hosts that were not heard in it; after a freeze for nobody.
    pub(super) fn pause_replica_marks(&mut self, gap: Duration, was_frozen: bool) {
        for (host_id, marks) in &mut self.replica_marks {
            if !was_frozen && self.hosts.get(host_id).is_some_and(HostEntry::tells_what_it_serves) {
                continue;
            }
            for since in marks.0.values_mut().filter_map(|(_, since)| since.as_mut()) {
                *since = *since + gap;
            }
        }
    }

    /// Forgets the marks of replicas that were not listed for a day, of hosts that are heard.
    pub(super) fn expire_replica_marks(&mut self, now: BootTime) -> Vec<Effect> {
        let mut expired = Vec::new();
        for (host_id, marks) in &mut self.replica_marks {
            if !self.hosts.get(host_id).is_some_and(HostEntry::tells_what_it_serves) {
                continue;
            }
            let is_over = |since: &Option<BootTime>| since.is_some_and(|at| now.since(at) >= UNLISTED_FOR);
            let over = marks.0.extract_if(.., |_, (_, since)| is_over(since));
            expired.extend(over.map(|(resource_id, _)| (host_id.clone(), resource_id)));
        }
        if expired.is_empty() {
            return Vec::new();
        }
        self.replica_marks.retain(|_, marks| !marks.0.is_empty());
        let effect = |(host_id, resource_id): (HostId, ResourceId)| {
            self.show_replica_marks(&host_id);
            Effect::MarkExpired { host_id, resource_id }
        };
        expired.into_iter().map(effect).collect()
    }

    fn show_replica_marks(&mut self, host_id: &HostId) {
        if let Some(host) = self.hosts.get(host_id)
            && let Some(pool) = self.pools.get_mut(&host.view.facts.pool)
        {
            (pool.replicas_changed, pool.dirty) = (true, true);
        }
    }
}
