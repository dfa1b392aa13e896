//! The whole state of one host, without clocks, sockets or tasks.
//!
//! Measurements, coordinators' messages and the ends of periods go in, whole reports come out. Everything is decided
//! one after the other here, which is what makes a limit of users hard for any number of coordinators.
//!
//! An admin's settings of the host win over its own, which win over the pool's. When a place is asked for, the tighter
//! of the limit that the coordinator knows and the one that the host knows is kept: of two that differ one is old.

use std::time::Duration;

use usher_availability::{
    Availability, AvailabilityTracker, LatchInput, Latches, OperationSettings, Operations, PeriodCounts,
    RejectedSample, error_share_percent,
};
use usher_types::{
    BootTime, BusyReasons, EndReason, HostMarks, HostOverrides, Latency, OperationName, Outcome,
    OwnAvailability, Percent, Policy, PoolName, Readiness, Session, Token, ToldOutcome,
};

use super::{
    book::{HostBook, Limits, Occupancy},
    logons::Logons,
    measurement::Measurement,
    naming::{NameSettings, Naming},
    penalties::Penalties,
    reach::{HeldBack, Reach},
    ready_age::ReadyAge,
    record::HostRecord,
    session_list::SessionList,
    settings::{ToldSettings, VersionedSettings},
    standing::Standing,
};

/// What does not change while the agent runs.
#[derive(Debug, Clone)]
pub struct CoreSettings {
    /// The pool that the host serves.
    pub pool: PoolName,
    /// The host's own settings.
    pub overrides: HostOverrides,
    /// When the agent started, ms on the boot-time clock.
    pub incarnation_ms: u64,
    /// One period of the latency window.
    pub latency_period: Duration,
    /// Periods in it, 1..=20.
    pub periods: usize,
    /// Most names of operations kept.
    pub max_names: usize,
    /// What it has to hide login names with.
    pub names: NameSettings,
    /// The coordinators that it is configured to report to, by names that stay the same over restarts. Their positions are
    /// their numbers.
    pub coordinators: Vec<String>,
    /// How often it reports.
    pub report_interval: Duration,
}

/// The state of one host.
#[derive(Debug)]
pub struct HostCore {
    settings: CoreSettings,
    told: ToldSettings,
    book: HostBook,
    penalties: Penalties,
    logons: Logons,
    ready: ReadyAge,
    operations: Operations,
    tracker: AvailabilityTracker,
    availability: Availability,
    error_share_percent: Option<f64>,
    latches: Latches,
    /// What held the host in an earlier run, until a period of this one has ended.
    kept: BusyReasons,
    standing: Standing,
    measured: Option<(Measurement, BootTime)>,
    occupancy: Occupancy,
    occupied_at: BootTime,
    reach: Reach,
    /// As the last call of [`HostCore::reach_changed`] found it.
    held_back: HeldBack,
}

impl HostCore {
    /// A host with what an earlier run of its agent kept in this boot.
    #[must_use]
    pub fn new(settings: CoreSettings, record: HostRecord) -> Self {
        let held = record.latched();
        let mut core = Self {
            told: ToldSettings::default(),
            book: HostBook::restored(record.book),
            penalties: record.penalties,
            logons: Logons::default(),
            ready: record.ready,
            operations: Operations::new(operation_settings(&settings, &Policy::default())),
            tracker: AvailabilityTracker::default(),
            availability: Availability::NO_DATA,
            error_share_percent: None,
            latches: Latches::resume(held),
            kept: held,
            standing: Standing::default(),
            measured: None,
            occupancy: Occupancy::Unknown,
            occupied_at: BootTime::ZERO,
            reach: Reach::new(&settings.coordinators, settings.report_interval, &record.told),
            held_back: HeldBack::default(),
            settings,
        };
        core.tell_book();
        core
    }

    /// What must be kept over a restart of the agent.
    #[must_use]
    pub fn record(&self) -> HostRecord {
        let (book, told) = (self.book.record(), self.reach.record());
        HostRecord::new(book, self.latched(), self.penalties.clone(), self.ready, told)
    }

    /// The pool that the host serves.
    #[must_use]
    pub fn pool(&self) -> &PoolName {
        &self.settings.pool
    }

    /// The last measurement. Absent before the first.
    #[must_use]
    pub fn measured(&self) -> Option<&Measurement> {
        self.measured.as_ref().map(|(values, _)| values)
    }

    /// Takes over a whole measurement; an interval of reports ends with it. Whether what is kept over a restart
    /// changed.
    pub fn measure(&mut self, values: Measurement, occupancy: Occupancy, now: BootTime) -> bool {
        let before = (self.ready, self.latched());
        self.ready.observe(&self.standing.readiness(Some(&values.readiness)), now);
        self.operations.observe_cpu(values.cpu, now);
        let said = values.logons_in_progress;
        self.measured = Some((values, now));
        let changed = self.occupy(occupancy, now);
        self.logons.end_interval(said, self.book.begun().into_iter().flatten(), now);
        self.latch(now);
        changed || before != (self.ready, self.latched())
    }

    /// Takes over who is on the host. Whether users, places or penalties changed.
    pub fn occupy(&mut self, occupancy: Occupancy, now: BootTime) -> bool {
        let mut changed = self.book.observe(occupancy.clone(), now);
        changed |= self.judge_ends(now);
        if let Some(sessions) = occupancy.sessions() {
            changed |= self.penalties.sessions_seen(sessions, now);
        }
        self.occupancy = occupancy;
        self.occupied_at = now;
        changed
    }

    /// Between two measurements the source says how many logons are in progress.
    pub fn logons_told(&mut self, in_progress: u32, now: BootTime) {
        self.logons.tell(in_progress, now);
    }

    /// Places came or ended: the ends are judged. Whether penalties changed.
    fn judge_ends(&mut self, now: BootTime) -> bool {
        let ends = self.book.take_finished();
        ends.into_iter().fold(false, |changed, end| changed | self.penalties.finished(end, now))
    }

    /// The sessions as last listed, named as the pool lets names travel. Empty when they are not known one by one.
    #[must_use]
    pub fn session_list(&self) -> SessionList {
        SessionList::of(self.sessions(), self.book.naming(), self.occupied_at)
    }

    fn sessions(&self) -> &[Session] {
        self.occupancy.sessions().unwrap_or_default()
    }

    /// Whether `user` has the session `id` now. Absent: not known.
    #[must_use]
    pub fn has_session(&self, id: &str, user: &str) -> Option<bool> {
        self.book.sessions()?;
        let naming = self.book.naming();
        let same_user = |session: &Session| {
            session.user == user || naming.key(&session.user).is_some_and(|key| naming.key(user) == Some(key))
        };
        Some(self.sessions().iter().any(|session| session.id == id && same_user(session)))
    }

    /// Takes over what the host says of itself. Whether what is kept over a restart changed.
    pub fn set_standing(&mut self, standing: Standing, now: BootTime) -> bool {
        let before = (self.ready, self.latched());
        self.standing = standing;
        // Before the first measurement it is not known whether the host takes sessions.
        if self.measured.is_some() {
            self.ready.observe(&self.readiness(), now);
            self.latch(now);
        }
        before != (self.ready, self.latched())
    }

    fn readiness(&self) -> Readiness {
        self.standing.readiness(self.measured().map(|values| &values.readiness))
    }

    /// Ends a place given under `attempt` or a lower one. Whether anything changed.
    pub fn end(&mut self, token: &Token, attempt: u32, reason: EndReason, now: BootTime) -> bool {
        let ended = self.book.end(token, attempt, reason, now);
        self.judge_ends(now) | ended
    }

    /// What became of a login, and what that says of the host. Whether anything changed.
    pub fn outcome(&mut self, told: &ToldOutcome, now: BootTime) -> bool {
        let news = self.penalties.outcome(told, now);
        let token = &told.token;
        let place = match told.outcome {
            Outcome::Connected => self.book.connected(token),
            Outcome::Failed => self.book.end(token, u32::MAX, EndReason::Failed, now),
            Outcome::Cancelled => self.book.end(token, u32::MAX, EndReason::Cancelled, now),
            // It came and went between two looks.
            Outcome::Ended => self.book.end(token, u32::MAX, EndReason::Session, now),
        };
        self.judge_ends(now) | news | place
    }

    /// A coordinator saw, `age` ago, that a place on another host of the pool became a session. Whether penalties
    /// changed.
    pub fn confirmed_elsewhere(&mut self, age: Duration, now: BootTime) -> bool {
        self.penalties.confirmed_elsewhere(age, now)
    }

    /// Ends the places whose time has passed. Whether there were any.
    pub fn expire(&mut self, now: BootTime) -> bool {
        let ended = self.book.expire(now);
        self.judge_ends(now) | ended
    }

    /// When the next place ends by itself.
    #[must_use]
    pub fn next_expiry(&self) -> Option<BootTime> {
        self.book.next_expiry()
    }

    /// The coordinator number `from` told the pool's settings. Whether those in force changed.
    pub fn settings_told(&mut self, from: usize, told: VersionedSettings, now: BootTime) -> bool {
        if !self.told.tell(from, told) {
            return false;
        }
        self.operations.configure(operation_settings(&self.settings, &self.policy()));
        if self.tell_book() {
            // The same users under their new names.
            self.book.observe(self.occupancy.clone(), now);
            self.judge_ends(now);
        }
        self.assess(now);
        true
    }

    /// Tells the book how names are compared and sent. Whether that is new.
    fn tell_book(&mut self) -> bool {
        let policy = self.policy();
        let naming = Naming::new(policy.user_match, policy.user_names, &self.settings.names);
        self.book.set_time_to_live(policy.reservation_ttl);
        let is_new = !naming.same_rules(self.book.naming());
        self.book.set_users_rule(naming, &policy.shared_accounts);
        is_new
    }

    /// The pool's settings in force. Absent before any coordinator told them.
    #[must_use]
    pub fn told_policy(&self) -> Option<&Policy> {
        self.told.in_force().map(|told| &told.policy)
    }

    fn policy(&self) -> Policy {
        self.told.in_force().map(|told| told.policy.clone()).unwrap_or_default()
    }

    /// The host's settings: an admin's, else its own.
    fn overrides(&self) -> HostOverrides {
        let marks = self.told.in_force().map_or_else(HostMarks::default, |told| told.marks);
        marks.over(self.settings.overrides)
    }

    /// Counts finished calls of an operation.
    ///
    /// # Errors
    /// Why they are not counted: an impossible number, or one name too many.
    pub fn count_call(&mut self, name: &str, duration_us: f64, weight: f64) -> Result<(), RejectedSample> {
        self.operations.record(name, duration_us, weight)
    }

    /// Takes in one whole period of one operation, for a host that counts by itself, and judges the latches anew.
    ///
    /// # Errors
    /// Why it is not counted.
    pub fn amend_period(
        &mut self,
        name: &str,
        counts: PeriodCounts,
        now: BootTime,
    ) -> Result<(), RejectedSample> {
        let taken = self.operations.amend_period(name, counts, now);
        self.assess(now);
        taken
    }

    /// Says how long an operation takes without load, in place of what was learned, and judges the latches anew.
    ///
    /// # Errors
    /// Why that cannot be.
    pub fn set_baseline(
        &mut self,
        name: &str,
        baseline_us: f64,
        now: BootTime,
    ) -> Result<(), RejectedSample> {
        let set = self.operations.set_baseline(name, baseline_us, now);
        self.assess(now);
        set
    }

    /// The operations.
    #[must_use]
    pub fn operations(&self) -> &Operations {
        &self.operations
    }

    /// The operations, to restore and keep their baselines.
    pub fn operations_mut(&mut self) -> &mut Operations {
        &mut self.operations
    }

    /// Ends a period: baselines learn from it, and the latches are judged anew.
    pub fn end_period(&mut self, now: BootTime) -> Latency {
        self.kept = BusyReasons::NONE;
        self.operations.end_period(now);
        self.assess(now);
        self.latency(now)
    }

    /// The whole window. The sequence is the stream's.
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

    /// Forgets what was learned of how fast operations are without load; of one, or of all. How many it was of.
    pub fn reset_baselines(&mut self, operation: Option<&OperationName>, now: BootTime) -> usize {
        let forgotten = self.operations.reset(operation);
        self.assess(now);
        forgotten
    }

    fn assess(&mut self, now: BootTime) {
        let range = self.overrides().range.unwrap_or_else(|| self.policy().range);
        let latency = self.latency(now);
        self.availability = self.tracker.assess(&latency, range, now);
        self.error_share_percent = error_share_percent(&latency.operations);
        self.latch(now);
    }

    fn latch(&mut self, now: BootTime) {
        let policy = self.policy();
        let threshold = self.overrides().threshold;
        let values = self.measured();
        let own_index = self.own_availability().map(|own| own.index.get());
        let fuller = |a: Percent, b: Percent| if b > a { b } else { a };
        let fullest = |values: &Measurement| values.mounts.iter().map(|mount| mount.used).reduce(fuller);
        let mut input = LatchInput {
            cpu: values.and_then(|values| values.cpu),
            memory: values.and_then(|values| values.memory).map(|memory| memory.used()),
            psi_full: values.and_then(|values| values.psi_full),
            fullest_mount: values.and_then(fullest),
            error_share_percent: self.error_share_percent,
            availability_index: own_index.or(self.availability.index),
            threshold_percent: threshold.map_or(policy.threshold_percent, Percent::get),
            exit_margin_percent: policy.exit_margin_percent,
        };
        let threshold_known = threshold.is_some() || self.told.in_force().is_some();
        self.stand_in(&mut input, threshold_known);
        self.latches.update(&input, &policy, now);
    }

    /// The empty window of a new run says nothing, and neither does its first look at the CPU. Until a period of it has
    /// ended, values that hold what was held stand in for them; only a rule that is turned off lets go.
    fn stand_in(&self, input: &mut LatchInput, threshold_known: bool) {
        if self.kept.has(BusyReasons::AVAILABILITY) && self.own_availability().is_none() {
            if !threshold_known {
                input.threshold_percent = Percent::FULL.get();
            }
            input.availability_index = Some(input.threshold_percent);
        }
        if self.kept.has(BusyReasons::CPU) {
            input.cpu = input.cpu.or(Some(Percent::FULL));
        }
        if self.kept.has(BusyReasons::ERRORS) {
            input.error_share_percent = Some(Percent::FULL.get());
        }
    }

    /// An index of the host's own making: what a program says before what its source measured.
    fn own_availability(&self) -> Option<&OwnAvailability> {
        let measured = || self.measured().and_then(|values| values.own_availability.as_ref());
        self.standing.own_availability.as_ref().or_else(measured)
    }

    /// What holds the host BUSY by its load.
    #[must_use]
    pub fn latched(&self) -> BusyReasons {
        self.latches.held()
    }
}

fn operation_settings(settings: &CoreSettings, policy: &Policy) -> OperationSettings {
    OperationSettings {
        periods: settings.periods,
        max_names: settings.max_names,
        min_possible_us: policy.min_possible_us,
        max_possible_us: policy.max_possible_us,
        baseline: policy.baseline,
    }
}

mod limits;
mod state;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
