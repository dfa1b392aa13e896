//! What is known right after a start?
//!
//! A coordinator stores what it must not lose: settings and marks at once, what its hosts were like every few seconds.
//! The latter is enough to list a host with its numbers until it is heard again, and to deal fairly with hosts that
//! cannot be heard: how many coordinators share them, how full they were, and what was given of it already. It is never
//! taken for a report: a restored host is UNKNOWN until it speaks.
//!
//! What was given is known only if it was stored when nothing more was given, as the coordinator stopped. After a crash
//! nobody knows: then a host with a limit that cannot be asked gives nothing until it is heard.

use std::sync::Arc;

use usher_types::{
    BootTime, BusyReasons, Drain, HostId, HostMarks, HostOverrides, HostState, Memory, Readiness,
    SessionCounts,
};

use super::{
    CellChange, DrainMark, Farm, Grace, HostEntry, HostFacts, LearnedRecord, MarkedReplica, Pool, PoolRecord,
    Reading, attach::compared, learned::PoolLearning, registry::new_entry,
};

/// What was stored of a host before the coordinator stopped.
#[derive(Clone, PartialEq, Debug)]
pub struct LastKnown {
    /// Who it is.
    pub facts: HostFacts,
    /// It had reported. If not, only its facts are known.
    pub was_heard: bool,
    /// It was OFFLINE then: nobody waits for it.
    pub was_offline: bool,
    /// It had said goodbye for a shutdown.
    pub shut_down: bool,
    /// It had said goodbye, for whatever reason.
    pub said_goodbye: bool,
    /// Its own settings.
    pub overrides: HostOverrides,
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
    /// Whether it took sessions, as it said.
    pub readiness: Readiness,
    /// Drained on the host itself.
    pub drain: Option<Drain>,
    /// Coordinators that it reported to, >= 1.
    pub streams_held: u32,
    /// Users of the places that it listed.
    pub listed_pending_users: u32,
    /// The places that it listed.
    pub listed_places: u32,
    /// Coordinators that it was configured to report to, >= 1.
    pub coordinators: u32,
    /// Users that it kept free for those without a stream to it.
    pub held_back_users: u32,
    /// Logons that it kept free for them.
    pub held_back_places: u32,
    /// It had replicas. Which, it tells again.
    pub listed_replicas: bool,
    /// What this coordinator had given on it and it had not listed, if that is all: it was stored as the coordinator stopped.
    /// Absent: it may have given more since.
    pub given: Option<Given>,
}

/// What a coordinator has given on one host and the host has not listed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Given {
    /// Users.
    pub users: u32,
    /// Logons.
    pub places: u32,
}

/// Everything that was stored.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Restored {
    /// Settings of pools.
    pub pools: Vec<PoolRecord>,
    /// Which host a certificate's name belongs to.
    pub bindings: Vec<(String, HostId)>,
    /// The hosts.
    pub known: Vec<LastKnown>,
    /// Admins' drains.
    pub drains: Vec<(HostId, DrainMark)>,
    /// Admins' settings of hosts.
    pub marks: Vec<(HostId, HostMarks)>,
    /// Admins' marks of replicas.
    pub replica_marks: Vec<MarkedReplica>,
    /// What pools had learned of the cost of their sessions.
    pub learned: Vec<LearnedRecord>,
}

impl Farm {
    /// Takes over what was stored. With hosts among it, a grace begins.
    pub fn restore(&mut self, stored: Restored, now: BootTime) {
        for record in stored.pools {
            self.pools.insert(record.name.clone(), Pool::new(record));
        }
        for record in stored.learned {
            if let Some(pool) = self.pools.get_mut(&record.pool) {
                pool.learned = PoolLearning::resume(record.anchors);
            }
        }
        self.bindings.extend(stored.bindings.into_iter().map(|(name, host_id)| (compared(&name), host_id)));
        if !stored.known.is_empty() {
            self.grace = Some(Grace { began: now });
        }
        for host in stored.known {
            self.restore_host(host);
        }
        self.find_displaced();
        for (host_id, mark) in stored.drains {
            if self.hosts.contains_key(&host_id) {
                self.set_drain(&host_id, Some(mark));
            } else {
                self.waiting.entry(host_id).or_default().drain = Some(Arc::new(mark));
            }
        }
        for (host_id, marks) in stored.marks {
            if self.hosts.contains_key(&host_id) {
                self.set_marks(&host_id, marks);
            } else {
                self.waiting.entry(host_id).or_default().settings = marks;
            }
        }
        for marked in stored.replica_marks {
            self.restore_replica_mark(marked, now);
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
            readiness: known.readiness,
            latched: BusyReasons::NONE,
            psi_full: None,
            mounts: Arc::new([]),
            own_availability: None,
            ready_age: None,
            is_warming_up: false,
            replica_lag: None,
            drain: known.drain,
            penalties: Arc::new([]),
            overrides: known.overrides,
            streams_held: known.streams_held.max(1),
            coordinators: known.coordinators.max(1),
            held_back_users: known.held_back_users,
            held_back_places: known.held_back_places,
            listed_pending_users: known.listed_pending_users,
            listed_places: known.listed_places,
            background: None,
            background_is_borrowed: false,
            logons: 0,
            uptime: None,
            settings_version: None,
            settings_hash: None,
            collectors: Vec::new(),
            clock_skew_ms: None,
            stale: Vec::new(),
        };
        let cell = self.new_cell(&known.facts.pool);
        let mut entry = new_entry(known.facts, cell);
        entry.view.shut_down = known.shut_down;
        entry.view.said_goodbye = known.said_goodbye || known.shut_down;
        entry.view.reading = known.was_heard.then(|| Arc::new(reading));
        entry.view.replicas_unheard = known.listed_replicas;
        // The places are forgotten, and their users may come yet. What is not known may be all of the share.
        let given = known.given.unwrap_or(Given { users: u32::MAX, places: u32::MAX });
        (entry.view.unheard_users, entry.view.unheard_places) = (given.users, given.places);
        // A host that can be heard no more is full or not by what it said last.
        entry.cell.apply(CellChange { users: known.users, ..CellChange::default() });
        if known.was_offline {
            entry.last_state = HostState::Offline;
        }
        entry.was_alive = !known.was_offline;
        self.insert_host(entry);
    }

    /// What should be stored of every host; `as_it_stops`: nothing more will be given.
    pub fn last_known(&self, as_it_stops: bool) -> Vec<LastKnown> {
        self.hosts.values().map(|host| last_known(host, self.is_gone(host), as_it_stops)).collect()
    }
}

fn last_known(host: &HostEntry, was_offline: bool, as_it_stops: bool) -> LastKnown {
    let reading = host.view.reading.as_deref();
    let word = host.cell.load();
    let listed = host.cell.listed();
    let given = Given {
        users: word.pending_users().saturating_add(host.view.unheard_users).saturating_sub(listed.users),
        places: word.places().saturating_add(host.view.unheard_places).saturating_sub(listed.places),
    };
    LastKnown {
        facts: (*host.view.facts).clone(),
        was_heard: reading.is_some(),
        was_offline,
        shut_down: host.view.shut_down,
        said_goodbye: host.view.said_goodbye,
        overrides: reading.map(|r| r.overrides).unwrap_or_default(),
        cpu_percent: reading.and_then(|r| r.cpu_percent),
        memory: reading.and_then(|r| r.memory),
        users: reading.and_then(|r| r.users),
        processes: reading.and_then(|r| r.processes),
        sessions: reading.and_then(|r| r.sessions),
        readiness: reading.map(|r| r.readiness.clone()).unwrap_or_default(),
        listed_replicas: host.view.replicas_unheard || !host.view.replicas.is_empty(),
        drain: reading.and_then(|r| r.drain.clone()),
        streams_held: reading.map_or(1, |r| r.streams_held),
        listed_pending_users: reading.map_or(0, |r| r.listed_pending_users),
        listed_places: reading.map_or(0, |r| r.listed_places),
        coordinators: reading.map_or(1, |r| r.coordinators),
        held_back_users: reading.map_or(0, |r| r.held_back_users),
        held_back_places: reading.map_or(0, |r| r.held_back_places),
        given: as_it_stops.then_some(given),
    }
}
