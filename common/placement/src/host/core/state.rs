//! What does the host say of itself?
//!
//! One place where everything that is known becomes a report. What belongs to one stream is not in it.

use usher_types::{BootTime, BusyReasons, CollectorState, EndReason, Load, Token};

use super::HostCore;

impl HostCore {
    /// The whole state as a report. Absent before the first measurement. What belongs to one stream (sequence, tick,
    /// streams held) is not filled in.
    #[must_use]
    pub fn load(&self, now: BootTime, wall_clock_unix_ms: u64) -> Option<Load> {
        let state = self.state(now, wall_clock_unix_ms)?;
        Some(Load { ended: self.book.ended(now), ..state })
    }

    /// Why a place ended within the last 60 s, by the last time that it did.
    #[must_use]
    pub fn end_of(&self, token: &Token) -> Option<EndReason> {
        self.book.end_of(token)
    }

    /// The same without the places that ended: they are most of it where many come and go.
    #[must_use]
    pub fn state(&self, now: BootTime, wall_clock_unix_ms: u64) -> Option<Load> {
        let (measured, measured_at) = self.measured.as_ref()?;
        let uptime = measured.uptime.map(|uptime| uptime + now.since(*measured_at));
        let held_back = self.held_back(now);
        Some(Load {
            sequence: 0,
            incarnation_ms: self.settings.incarnation_ms,
            tick_echo: None,
            cpu: measured.cpu,
            runnable_demand: measured.runnable_demand,
            memory: measured.memory,
            users: self.book.users(),
            sessions: self.book.sessions(),
            processes: measured.processes,
            readiness: self.readiness(),
            uptime,
            latched: Some(self.latched().with(BusyReasons::USER_SET, self.standing.is_busy)),
            psi_full: measured.psi_full,
            mounts: measured.mounts.clone(),
            own_availability: self.own_availability().cloned(),
            ready_age: self.ready.at(uptime, now),
            is_warming_up: measured.is_warming_up || self.standing.is_warming_up,
            replica_lag: measured.replica_lag.max(self.standing.replica_lag),
            drain: self.standing.drain.clone(),
            outcomes: self.penalties.outcomes(now),
            penalties: self.penalties.report(now),
            logons_in_progress: self.logons.report(self.book.begun(), now),
            finished_logons: measured.finished_logons,
            collectors: self.collectors(&measured.collectors),
            pending: self.book.pending(now),
            ended: Vec::new(),
            settings_version: self.told.in_force().map(|told| told.version),
            settings_hash: self.told.in_force().and_then(|told| told.hash),
            overrides: self.settings.overrides,
            streams_held: 0,
            coordinators: Some(self.reach.coordinators()),
            held_back_users: held_back.users,
            held_back_places: held_back.places,
            wall_clock_unix_ms: Some(wall_clock_unix_ms),
        })
    }

    fn collectors(&self, measured: &[CollectorState]) -> Vec<CollectorState> {
        measured.iter().chain(&self.standing.collectors).cloned().chain(self.names_state()).collect()
    }

    /// A pool that wants hashed names from a host without the key gets none: an operator should know.
    fn names_state(&self) -> Option<CollectorState> {
        self.book.naming().lacks_key().then(|| CollectorState {
            name: "user_names".into(),
            source: "config".into(),
            error: None,
            warning: Some(
                "the pool wants hashed login names, the agent has no key for them: none are sent".into(),
            ),
        })
    }
}
