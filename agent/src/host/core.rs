//! What does this host say of itself, and what may it promise?
//!
//! The whole state of one host, without clocks, sockets or tasks: measurements, coordinators' messages and the ends of
//! periods go in, whole reports come out. Everything is decided one after the other here, which is what makes a limit
//! of users hard for any number of coordinators.
//!
//! Settings: each coordinator tells the pool's; the highest version that is held by any of them is in force. A lower
//! one replaces what the *same* coordinator said before, so that a coordinator whose store was set back is not ignored
//! for ever. The agent's own settings win over the pool's.

use std::collections::BTreeMap;
use std::time::Duration;

use usher_availability::{Availability, AvailabilityTracker, OperationSettings, Operations, holds_busy};
use usher_placement::reservation::{BookRecord, HostBook, Occupancy};
use usher_types::{
    BootTime, EndReason, HostOverrides, Latency, Load, Outcome, PendingPlace, Policy, PoolName, Readiness,
    RefusalReason, Session, Token,
};

use super::measurement::Measurement;
use crate::latency::listener::OwnedTiming;

/// The settings of a pool, as a coordinator told them.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionedPolicy {
    /// Grows with every change.
    pub version: u64,
    /// The settings.
    pub policy: Policy,
}

/// What does not change while the agent runs.
#[derive(Debug, Clone, PartialEq)]
pub struct CoreSettings {
    /// The pool that the host serves.
    pub pool: PoolName,
    /// The agent's own settings.
    pub overrides: HostOverrides,
    /// When the agent started, ms on the boot-time clock.
    pub incarnation_ms: u64,
    /// One period of the latency window.
    pub latency_period: Duration,
    /// Periods in it, 1..=20.
    pub periods: usize,
    /// Most names of operations kept.
    pub max_names: usize,
}

/// The state of one host.
#[derive(Debug)]
pub struct HostCore {
    settings: CoreSettings,
    book: HostBook,
    operations: Operations,
    tracker: AvailabilityTracker,
    availability: Availability,
    latched: bool,
    /// The latch is that of an earlier run: no period has ended since, so nothing is known that could move it.
    latch_is_kept: bool,
    told: BTreeMap<usize, VersionedPolicy>,
    measured: Option<Measurement>,
    sessions: Vec<Session>,
    sessions_at: BootTime,
}

impl HostCore {
    /// A host with the book that an earlier run of the agent kept.
    #[must_use]
    pub fn new(settings: CoreSettings, kept: BookRecord) -> Self {
        let mut core = Self {
            book: HostBook::restored(kept),
            operations: Operations::new(operation_settings(&settings, &Policy::default())),
            tracker: AvailabilityTracker::default(),
            availability: Availability::NO_DATA,
            latched: false,
            latch_is_kept: false,
            told: BTreeMap::new(),
            measured: None,
            sessions: Vec::new(),
            sessions_at: BootTime::ZERO,
            settings,
        };
        core.latch();
        core
    }

    /// Takes over the latch of an earlier run, until the first period ends.
    pub fn restore_latch(&mut self, latched: bool) {
        (self.latched, self.latch_is_kept) = (latched, latched);
    }

    /// The pool that the host serves.
    #[must_use]
    pub fn pool(&self) -> &PoolName {
        &self.settings.pool
    }

    /// The operations, to restore and keep their baselines.
    pub fn operations_mut(&mut self) -> &mut Operations {
        &mut self.operations
    }

    /// The operations.
    #[must_use]
    pub fn operations(&self) -> &Operations {
        &self.operations
    }

    /// The book as it must be kept over a restart.
    #[must_use]
    pub fn record(&self) -> BookRecord {
        self.book.record()
    }

    /// Takes over a whole measurement. Whether the book changed.
    pub fn measure(&mut self, values: Measurement, occupancy: Occupancy, now: BootTime) -> bool {
        self.measured = Some(values);
        self.occupy(occupancy, now)
    }

    /// Takes over who is on the host. Whether users or places changed.
    pub fn occupy(&mut self, occupancy: Occupancy, now: BootTime) -> bool {
        let sessions = match &occupancy {
            Occupancy::Listed(sessions) => sessions.clone(),
            Occupancy::Counted(_) | Occupancy::Unknown => Vec::new(),
        };
        self.sessions = sessions;
        self.sessions_at = now;
        self.book.observe(occupancy, now)
    }

    /// The sessions as last listed, and when that was. Empty when they are not known one by one.
    #[must_use]
    pub fn sessions(&self) -> (&[Session], BootTime) {
        (&self.sessions, self.sessions_at)
    }

    /// Whether `user` has the session `id` now. Absent: not known.
    #[must_use]
    pub fn has_session(&self, id: &str, user: &str) -> Option<bool> {
        self.book.sessions()?;
        let rule = self.policy().user_match;
        let same_user = |session: &Session| {
            session.user == user || rule.key(&session.user).is_some_and(|key| rule.key(user) == Some(key))
        };
        Some(self.sessions.iter().any(|session| session.id == id && same_user(session)))
    }

    /// A coordinator gives a place, or asks for one under `limit` users.
    ///
    /// # Errors
    /// Why it is not in the book.
    pub fn expect(
        &mut self,
        place: &PendingPlace,
        ask: bool,
        limit: Option<u32>,
        now: BootTime,
    ) -> Result<(), RefusalReason> {
        let ready = self.measured.as_ref().is_none_or(|measured| measured.readiness == Readiness::Ready);
        self.book.expect(place, ask, limit, ready, now)
    }

    /// Ends a place given under `attempt` or a lower one. Whether anything changed.
    pub fn end(&mut self, token: &Token, attempt: u32, reason: EndReason, now: BootTime) -> bool {
        self.book.end(token, attempt, reason, now)
    }

    /// What became of a login. Whether anything changed.
    pub fn outcome(&mut self, token: &Token, outcome: Outcome, now: BootTime) -> bool {
        match outcome {
            Outcome::Connected => self.book.connected(token),
            Outcome::Failed => self.book.end(token, u32::MAX, EndReason::Failed, now),
            Outcome::Cancelled => self.book.end(token, u32::MAX, EndReason::Cancelled, now),
        }
    }

    /// Ends the places whose time has passed. Whether there were any.
    pub fn expire(&mut self, now: BootTime) -> bool {
        self.book.expire(now)
    }

    /// When the next place ends by itself.
    #[must_use]
    pub fn next_expiry(&self) -> Option<BootTime> {
        self.book.next_expiry()
    }

    /// The coordinator number `from` told the pool's settings. Whether those in force changed.
    pub fn settings_told(&mut self, from: usize, told: VersionedPolicy, now: BootTime) -> bool {
        let before = self.in_force().cloned();
        self.told.insert(from, told);
        if self.in_force() == before.as_ref() {
            return false;
        }
        let policy = self.policy();
        self.book.set_users_rule(policy.user_match, &policy.shared_accounts);
        self.operations.configure(operation_settings(&self.settings, &policy));
        self.assess(now);
        true
    }

    fn in_force(&self) -> Option<&VersionedPolicy> {
        self.told.values().max_by_key(|told| told.version)
    }

    fn policy(&self) -> Policy {
        self.in_force().map(|told| told.policy.clone()).unwrap_or_default()
    }

    /// Counts finished calls. How many were refused, for an impossible number or one name too many.
    pub fn count_calls(&mut self, calls: &[OwnedTiming]) -> usize {
        calls
            .iter()
            .filter(|call| self.operations.record(&call.name, call.duration_us, call.weight).is_err())
            .count()
    }

    /// Ends a period: baselines learn from it, and the latch is judged anew.
    pub fn end_period(&mut self, now: BootTime) -> Latency {
        self.latch_is_kept = false;
        self.operations.end_period(now);
        self.assess(now);
        self.latency(now)
    }

    /// The whole window.
    #[must_use]
    pub fn latency(&self, now: BootTime) -> Latency {
        // At most 20 periods: it fits.
        let periods = u32::try_from(self.settings.periods).unwrap_or(u32::MAX);
        Latency {
            sequence: 0,
            incarnation_ms: self.settings.incarnation_ms,
            window: self.settings.latency_period.saturating_mul(periods),
            operations: self.operations.window(now),
            overflow_calls: self.operations.overflow_calls(),
        }
    }

    fn assess(&mut self, now: BootTime) {
        let range = self.settings.overrides.range.unwrap_or_else(|| self.policy().range);
        self.availability = self.tracker.assess(&self.latency(now), range, now);
        self.latch();
    }

    fn latch(&mut self) {
        let policy = self.policy();
        let own = self.settings.overrides.threshold;
        let threshold = own.map_or(policy.threshold_percent, |percent| percent.get());
        let is_off = threshold <= 0.0 && (own.is_some() || self.in_force().is_some());
        if self.latch_is_kept && !is_off {
            return;
        }
        self.latch_is_kept = false;
        self.latched =
            holds_busy(self.availability.index, threshold, policy.exit_margin_percent, self.latched);
    }

    /// Whether the availability index holds the host BUSY.
    #[must_use]
    pub fn is_latched(&self) -> bool {
        self.latched
    }

    /// The whole state as a report. Absent before the first measurement. What belongs to one stream (sequence, tick,
    /// streams held) is not filled in.
    #[must_use]
    pub fn load(&self, now: BootTime, wall_clock_unix_ms: u64) -> Option<Load> {
        let measured = self.measured.as_ref()?;
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
            readiness: measured.readiness.clone(),
            uptime: measured.uptime,
            availability_latched: self.latched,
            collectors: measured.collectors.clone(),
            pending: self.book.pending(now),
            ended: self.book.ended(now),
            settings_version: self.in_force().map(|told| told.version),
            overrides: self.settings.overrides,
            streams_held: 0,
            wall_clock_unix_ms: Some(wall_clock_unix_ms),
        })
    }
}

fn operation_settings(settings: &CoreSettings, policy: &Policy) -> OperationSettings {
    OperationSettings {
        periods: settings.periods,
        max_names: settings.max_names,
        min_possible_us: policy.min_possible_us,
        max_possible_us: policy.max_possible_us,
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
