//! Who is in the farm? Hosts come and go.
//!
//! The numbers that placements change live in a host's cell. It stays the same object while the host is known, whatever
//! pool it moves to and however often it connects again, so that places given out before still count.

use std::sync::Arc;

use usher_availability::{AvailabilityTracker, Latches};
use usher_types::{BootTime, HostId, HostMarks, HostState, PoolName};

use super::{
    Farm, HostCell, HostEntry, HostFacts, HostView, Pool, PoolRecord, last_good::LastGood,
    learned::HostLearning,
};

impl Farm {
    /// Puts a host into its pool, or, if it is there already, shows it as it is now.
    pub(super) fn insert_host(&mut self, entry: HostEntry) {
        let facts = entry.view.facts.clone();
        let pool = self
            .pools
            .entry(facts.pool.clone())
            .or_insert_with(|| Pool::new(PoolRecord::default_of(facts.pool.clone())));
        pool.dirty = true;
        match pool.positions.get(&facts.host_id) {
            Some(position) => {
                let view = &mut pool.views[*position];
                pool.members_changed |= view.facts.name != facts.name;
                *view = Arc::new(entry.view.clone());
                pool.shown.changed(*position);
            }
            None => {
                pool.positions.insert(facts.host_id.clone(), pool.host_ids.len());
                pool.host_ids.push(facts.host_id.clone());
                pool.shown.changed(pool.views.len());
                pool.views.push(Arc::new(entry.view.clone()));
                pool.members_changed = true;
                let is_marked = self.replica_marks.contains_key(&facts.host_id);
                pool.replicas_changed |= is_marked || !entry.view.replicas.is_empty();
                let rule = pool.policy.user_match;
                pool.sessions.replace(&facts.host_id, &[], &entry.view.sessions, rule, entry.sessions_at);
            }
        }
        self.shortest_interval = None;
        self.hosts.insert(facts.host_id.clone(), entry);
    }

    /// A cell for a host that comes to this pool.
    pub(super) fn new_cell(&mut self, pool: &PoolName) -> Arc<HostCell> {
        Arc::new(self.cells.entry(pool.clone()).or_default().add())
    }

    /// Takes a host out of its pool and of the farm.
    pub(super) fn remove_host(&mut self, host_id: &HostId) -> Option<HostEntry> {
        let entry = self.hosts.remove(host_id)?;
        self.shortest_interval = None;
        if let Some(pool) = self.pools.get_mut(&entry.view.facts.pool)
            && let Some(position) = pool.positions.remove(host_id)
        {
            pool.host_ids.remove(position);
            pool.views.remove(position);
            pool.shown.moved();
            for (position, host_id) in pool.host_ids.iter().enumerate().skip(position) {
                pool.positions.insert(host_id.clone(), position);
            }
            let rule = pool.policy.user_match;
            pool.sessions.replace(host_id, &entry.view.sessions, &[], rule, entry.sessions_at);
            (pool.members_changed, pool.replicas_changed, pool.dirty) = (true, true, true);
            if !pool.exists() && !pool.applying {
                self.pools.remove(&entry.view.facts.pool);
            }
        }
        Some(entry)
    }

    /// What a host listed of its sessions is true no more.
    pub(super) fn forget_sessions(&mut self, entry: &mut HostEntry) {
        if let Some(pool) = self.pools.get_mut(&entry.view.facts.pool) {
            let (host_id, rule) = (&entry.view.facts.host_id, pool.policy.user_match);
            pool.sessions.replace(host_id, &entry.view.sessions, &[], rule, entry.sessions_at);
        }
        entry.view.sessions = Arc::new([]);
    }

    /// Whether nobody need wait for a host: it was OFFLINE when it was last heard of. In a grace it is shown as UNKNOWN,
    /// which makes it no more alive.
    pub(super) fn is_gone(&self, host: &HostEntry) -> bool {
        let not_missed =
            self.grace.is_some() && !host.was_alive && !host.view.connected && !self.is_heard(host);
        host.last_state == HostState::Offline || not_missed
    }

    /// Whether nobody may take the place of a host. One that has come back since the last tick is announced as OFFLINE
    /// still; one that has said goodbye since, or was never heard and has no stream, is OFFLINE before that is announced.
    pub(super) fn is_alive(&self, host: &HostEntry) -> bool {
        let is_silent = !host.view.connected && host.view.reading.is_none() && self.grace.is_none();
        if host.view.shut_down || is_silent {
            return false;
        }
        let is_fresh = || host.view.offline_at().is_none_or(|at| self.last_tick <= at);
        !self.is_gone(host) || (host.view.connected && is_fresh())
    }
}

/// A host of which only its facts are known.
pub(super) fn new_entry(facts: HostFacts, cell: Arc<HostCell>) -> HostEntry {
    HostEntry {
        view: HostView {
            facts: Arc::new(facts),
            connected: false,
            shut_down: false,
            said_goodbye: false,
            reading: None,
            latency: None,
            drain: None,
            marks: HostMarks::default(),
            sessions: Arc::new([]),
            replicas: Arc::new([]),
            replicas_unheard: false,
            settings_differ: None,
            rejected_values: 0,
            unheard_users: 0,
            unheard_places: 0,
            aged_places: 0,
        },
        cell,
        tracker: AvailabilityTracker::default(),
        latches: Latches::default(),
        keeps_latches: false,
        stream_epoch: None,
        last_state: HostState::Unknown,
        was_alive: false,
        has_listed: false,
        sessions_at: BootTime::ZERO,
        last_good: LastGood::default(),
        learning: HostLearning::default(),
        differing: None,
    }
}
