//! Who is in the farm: hosts come and go, and are drained by admins.
//!
//! The numbers that placements change live in a host's cell. It stays the same object while the host is known, whatever
//! pool it moves to and however often it connects again, so that places given out before still count.

use std::sync::Arc;

use usher_availability::AvailabilityTracker;
use usher_types::{BootTime, Drain, HostId, HostState, Memory, Readiness, SessionCounts};

use super::{
    DrainMark, Farm, Grace, HostCell, HostEntry, HostFacts, HostView, Pool, PoolRecord, Reading,
    observe::LastGood,
};

/// What was stored of a host before the coordinator stopped.
#[derive(Clone, PartialEq, Debug)]
pub struct LastKnown {
    /// Who it is.
    pub facts: HostFacts,
    /// It was OFFLINE then: nobody waits for it.
    pub was_offline: bool,
    /// It had said goodbye for a shutdown.
    pub shut_down: bool,
    /// Size relative to a normal host.
    pub capacity: Option<f64>,
    /// Busy share, percent.
    pub cpu_percent: Option<f64>,
    /// Memory in use.
    pub memory: Option<Memory>,
    /// Users.
    pub users: Option<u32>,
    /// Processes.
    pub processes: Option<u32>,
    /// Sessions by state.
    pub sessions: Option<SessionCounts>,
}

impl Farm {
    /// Takes over what was stored. With hosts among it, a grace begins.
    pub fn restore(
        &mut self,
        pools: Vec<PoolRecord>,
        bindings: impl IntoIterator<Item = (String, HostId)>,
        known: Vec<LastKnown>,
        drains: Vec<(HostId, DrainMark)>,
        now: BootTime,
    ) {
        for record in pools {
            self.pools.insert(record.name.clone(), Pool::new(record));
        }
        self.bindings.extend(bindings);
        if !known.is_empty() {
            self.grace = Some(Grace { began: now });
        }
        for host in known {
            self.restore_host(host);
        }
        for (host_id, mark) in drains {
            if self.hosts.contains_key(&host_id) {
                self.set_drain(&host_id, Some(mark));
            } else {
                self.waiting_drains.insert(host_id, mark);
            }
        }
    }

    fn restore_host(&mut self, known: LastKnown) {
        let reading = Reading {
            measured_at: BootTime::ZERO,
            cpu_percent: known.cpu_percent,
            memory: known.memory,
            users: known.users,
            processes: known.processes,
            sessions: known.sessions,
            readiness: Readiness::Ready,
            availability_latched: false,
            overrides: usher_types::HostOverrides { capacity: known.capacity, ..Default::default() },
            streams_held: 1,
            listed_pending_users: 0,
            uptime: None,
            settings_version: None,
            collectors: Vec::new(),
            clock_skew_ms: None,
            stale: Vec::new(),
        };
        let mut entry = new_entry(known.facts);
        entry.view.shut_down = known.shut_down;
        entry.view.reading = Some(Arc::new(reading));
        if known.was_offline {
            entry.last_state = HostState::Offline;
        }
        entry.was_alive = !known.was_offline;
        self.insert_host(entry);
    }

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
            }
            None => {
                pool.positions.insert(facts.host_id.clone(), pool.host_ids.len());
                pool.host_ids.push(facts.host_id.clone());
                pool.views.push(Arc::new(entry.view.clone()));
                pool.members_changed = true;
                pool.replicas_changed |= !entry.view.replicas.is_empty();
                let rule = pool.policy.user_match;
                pool.sessions.replace(&facts.host_id, &[], &entry.view.sessions, rule, entry.sessions_at);
            }
        }
        self.hosts.insert(facts.host_id.clone(), entry);
    }

    /// Takes a host out of its pool and of the farm.
    pub(super) fn remove_host(&mut self, host_id: &HostId) -> Option<HostEntry> {
        let entry = self.hosts.remove(host_id)?;
        if let Some(pool) = self.pools.get_mut(&entry.view.facts.pool)
            && let Some(position) = pool.positions.remove(host_id)
        {
            pool.host_ids.remove(position);
            pool.views.remove(position);
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

    /// Sets or removes an admin's drain. The one that was there before.
    pub fn set_drain(&mut self, host_id: &HostId, mark: Option<DrainMark>) -> Option<Arc<DrainMark>> {
        // Of a host that nothing else is known of only a stored drain can be taken back.
        let Some(host) = self.hosts.get_mut(host_id) else {
            return self.waiting_drains.remove(host_id).map(Arc::new);
        };
        let before = std::mem::replace(&mut host.view.drain, mark.map(Arc::new));
        self.publish(host_id);
        before
    }

    /// The mark that a drain set now would be. Absent: no such host.
    pub fn drain_mark(&self, host_id: &HostId, drain: Drain) -> Option<DrainMark> {
        let host = self.hosts.get(host_id)?;
        Some(DrainMark { drain, boot_id: Some(host.view.facts.boot_id.clone()) })
    }

    /// Whether nobody need wait for a host: it was OFFLINE when it was last heard of. In a grace it is shown as UNKNOWN,
    /// which makes it no more alive.
    pub(super) fn is_gone(&self, host: &HostEntry) -> bool {
        let not_missed =
            self.grace.is_some() && !host.was_alive && !host.view.connected && !self.is_heard(host);
        host.last_state == HostState::Offline || not_missed
    }

    /// What should be stored of every host.
    pub fn last_known(&self) -> Vec<LastKnown> {
        let known = |host: &HostEntry| {
            let reading = host.view.reading.as_deref();
            LastKnown {
                facts: (*host.view.facts).clone(),
                was_offline: self.is_gone(host),
                shut_down: host.view.shut_down,
                capacity: host.view.overrides().capacity,
                cpu_percent: reading.and_then(|r| r.cpu_percent),
                memory: reading.and_then(|r| r.memory),
                users: reading.and_then(|r| r.users),
                processes: reading.and_then(|r| r.processes),
                sessions: reading.and_then(|r| r.sessions),
            }
        };
        self.hosts.values().map(known).collect()
    }
}

/// A host of which only its facts are known.
pub(super) fn new_entry(facts: HostFacts) -> HostEntry {
    HostEntry {
        view: HostView {
            facts: Arc::new(facts),
            connected: false,
            shut_down: false,
            reading: None,
            latency: None,
            drain: None,
            sessions: Arc::new([]),
            replicas: Arc::new([]),
            rejected_values: 0,
        },
        cell: Arc::new(HostCell::new()),
        tracker: AvailabilityTracker::default(),
        stream_epoch: None,
        last_state: HostState::Unknown,
        was_alive: false,
        sessions_at: BootTime::ZERO,
        last_good: LastGood::default(),
    }
}
