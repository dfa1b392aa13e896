//! The calls of each operation over the last periods.
//!
//! A sample is in exactly one period: the one that is open when it arrives. When a period ends, it moves into the
//! window, the oldest leaves, and the baselines learn from it; so the counts of all periods add up to what was sent, and
//! a mean is never compared with a baseline that does not know it yet.
//!
//! Names come from programs that may put ids into them. Beyond a cap, new names go into one bucket that is counted and
//! takes no part in the index; known ones go on. A name that nobody used for a day gives its place to a new one, with
//! what was learned of it: otherwise a flood of ids would keep every later program out until the agent is restarted.

mod counts;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub use counts::{PeriodCounts, RejectedSample};
use usher_types::{Baseline, BootTime, OperationName, OperationWindow, Percent};

use crate::baseline::{BaselineRecord, Learning, RecordFault};

/// The longest period; of a longer step of the clock, the rest was not observed (the host was suspended).
const LONGEST_PERIOD: Duration = Duration::from_secs(300);
/// The longest report interval: for longer, one value of CPU use cannot speak.
const LONGEST_CPU_INTERVAL: Duration = Duration::from_secs(3600);

/// A name that was not used for so long may go when the place is needed: a day, so that a nightly job keeps its own.
const UNUSED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// How samples are judged and kept.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct OperationSettings {
    /// Periods in the window, 1..=20.
    pub periods: usize,
    /// Most names kept.
    pub max_names: usize,
    /// Floor under every baseline, microseconds.
    pub min_possible_us: f64,
    /// Longer calls count as failed, microseconds.
    pub max_possible_us: f64,
    /// Which estimate of the baseline is reported.
    pub baseline: Baseline,
}

impl Default for OperationSettings {
    /// Five periods, 256 names, 1 us, 20 s, robust.
    fn default() -> Self {
        Self {
            periods: 5,
            max_names: 256,
            min_possible_us: 1.0,
            max_possible_us: 20_000_000.0,
            baseline: Baseline::default(),
        }
    }
}

#[derive(Clone, PartialEq, Debug, Default)]
struct Operation {
    open: PeriodCounts,
    window: VecDeque<PeriodCounts>,
    learning: Learning,
    in_flight: u32,
    oldest_in_flight: Option<Duration>,
    /// All closed periods since the start.
    total: PeriodCounts,
    /// The end of the last period in which it was used. Absent: it is new.
    used_at: Option<BootTime>,
}

impl Operation {
    fn close_period(&mut self, periods: usize, passed: Duration, now: BootTime) {
        let closed = std::mem::take(&mut self.open);
        self.total.add(&closed);
        if !closed.is_empty() || self.in_flight > 0 || self.used_at.is_none() {
            self.used_at = Some(now);
        }
        self.learning.observe_period(closed.ok, closed.sum_us, passed, now);
        self.window.push_back(closed);
        while self.window.len() > periods {
            self.window.pop_front();
        }
    }

    /// Whether nobody used it for a day before `now`, nor in the open period.
    fn is_unused(&self, now: BootTime) -> bool {
        self.open.is_empty() && self.used_at.is_some_and(|at| now.since(at) >= UNUSED_AFTER)
    }

    fn report(&self, name: &OperationName, settings: &OperationSettings, now: BootTime) -> OperationWindow {
        let mut counts = PeriodCounts::default();
        self.window.iter().for_each(|period| counts.add(period));
        let estimate = self.learning.estimate(settings.baseline, settings.min_possible_us, now);
        OperationWindow {
            name: name.clone(),
            ok: counts.ok,
            failed: counts.failed,
            too_long: counts.too_long,
            sum_us: counts.sum_us,
            min_us: counts.min_us,
            in_flight: self.in_flight,
            oldest_in_flight: self.oldest_in_flight,
            baseline_us: estimate.baseline_us,
            baseline_age: estimate.age,
            baseline_samples: estimate.samples,
            baseline_is_provisional: estimate.is_provisional,
        }
    }
}

/// All operations of a host.
#[derive(Clone, Debug)]
pub struct Operations {
    settings: OperationSettings,
    operations: BTreeMap<OperationName, Operation>,
    overflow_calls: u64,
    closed_at: Option<BootTime>,
    /// Some name was unused for a day when the last period ended.
    has_unused: bool,
    cpu_at: Option<BootTime>,
}

impl Operations {
    /// No operation yet.
    pub fn new(settings: OperationSettings) -> Self {
        Self {
            settings,
            operations: BTreeMap::new(),
            overflow_calls: 0,
            closed_at: None,
            has_unused: false,
            cpu_at: None,
        }
    }

    /// Takes over new settings; what was counted and learned stays. Both estimators always learn, so another method of
    /// the baseline has its value at once.
    pub fn configure(&mut self, settings: OperationSettings) {
        self.settings = settings;
        for operation in self.operations.values_mut() {
            while operation.window.len() > settings.periods {
                operation.window.pop_front();
            }
        }
    }

    /// Takes over what was learned earlier. Returns the fields that cannot be true; the others are taken.
    pub fn restore(
        &mut self,
        name: OperationName,
        record: &BaselineRecord,
        now: BootTime,
    ) -> Vec<RecordFault> {
        if self.operations.len() >= self.settings.max_names && !self.operations.contains_key(&name) {
            return vec![RecordFault { field: "operation", allowed: "a name within the cap on names" }];
        }
        let mut faults = Vec::new();
        self.operations.entry(name).or_default().learning = Learning::restored(record, now, &mut faults);
        faults
    }

    /// Counts one successful call of `duration_us` microseconds. `weight` is 1, or 1 / rate for a sampled call: it
    /// scales how often the call counts, never how long it took. A call longer than the longest possible counts as
    /// failed.
    ///
    /// # Errors
    /// [`RejectedSample`] says why nothing was counted.
    pub fn record(&mut self, name: &str, duration_us: f64, weight: f64) -> Result<(), RejectedSample> {
        if !duration_us.is_finite() || duration_us < 0.0 {
            return Err(RejectedSample::NotADuration);
        }
        if duration_us == 0.0 {
            return Err(RejectedSample::BelowResolution);
        }
        counts::check_weight(weight)?;
        let call = if duration_us > self.settings.max_possible_us {
            PeriodCounts { too_long: weight, ..PeriodCounts::default() }
        } else {
            PeriodCounts {
                ok: weight,
                sum_us: weight * duration_us,
                min_us: Some(duration_us),
                ..PeriodCounts::default()
            }
        };
        self.operation(name, weight)?.open.add(&call);
        Ok(())
    }

    /// Counts one failed call. How long it took says nothing about the host's speed, so it enters neither mean nor
    /// baseline: a host that fails fast would look the healthiest.
    ///
    /// # Errors
    /// [`RejectedSample`] says why nothing was counted.
    pub fn record_failure(&mut self, name: &str, weight: f64) -> Result<(), RejectedSample> {
        counts::check_weight(weight)?;
        self.operation(name, weight)?.open.failed += weight;
        Ok(())
    }

    /// Says how many calls have begun and not finished, and for how long the oldest has. It stands until the next such
    /// word; a count of 0 ends it.
    ///
    /// # Errors
    /// [`RejectedSample`] for a name that is none, or beyond the cap.
    pub fn set_in_flight(
        &mut self,
        name: &str,
        count: u32,
        oldest_age: Option<Duration>,
    ) -> Result<(), RejectedSample> {
        if count == 0 && !self.operations.contains_key(name) {
            return OperationName::new(name).map(drop).map_err(|_| RejectedSample::BadName);
        }
        // Not a call yet: nothing to count if the name does not fit.
        let operation = self.operation(name, 0.0)?;
        operation.in_flight = count;
        operation.oldest_in_flight = oldest_age.filter(|_| count > 0);
        Ok(())
    }

    /// Takes in one whole period of one operation, for a host that counts by itself. It belongs to the period that
    /// ended at exactly `now`, if this operation has nothing in it; otherwise a period is ended with it. So one word for
    /// each operation at one instant makes one period, whichever comes first.
    ///
    /// # Errors
    /// [`RejectedSample`] says why nothing was counted.
    pub fn amend_period(
        &mut self,
        name: &str,
        counts: PeriodCounts,
        now: BootTime,
    ) -> Result<(), RejectedSample> {
        let counts = counts.checked(&self.settings)?;
        let just_ended = self.closed_at == Some(now);
        let operation = self.operation(name, counts.calls())?;
        if just_ended && operation.window.back().is_none_or(PeriodCounts::is_empty) {
            operation.window.pop_back();
            operation.window.push_back(counts);
            operation.total.add(&counts);
            operation.used_at = Some(now);
            // That the period passed was learned when it ended.
            operation.learning.observe_period(counts.ok, counts.sum_us, Duration::ZERO, now);
        } else {
            operation.open.add(&counts);
            self.end_period(now);
        }
        Ok(())
    }

    fn operation(&mut self, name: &str, calls: f64) -> Result<&mut Operation, RejectedSample> {
        if !self.operations.contains_key(name) {
            let name = OperationName::new(name).map_err(|_| RejectedSample::BadName)?;
            if self.operations.len() >= self.settings.max_names && !self.forget_unused() {
                self.overflow_calls = self.overflow_calls.saturating_add(calls as u64);
                return Err(RejectedSample::Overflow);
            }
            self.operations.insert(name, Operation::default());
        }
        self.operations.get_mut(name).ok_or(RejectedSample::BadName)
    }

    /// Forgets the name that was unused for the longest time, if that is a day. Whether there was one.
    fn forget_unused(&mut self) -> bool {
        let Some(now) = self.closed_at.filter(|_| self.has_unused) else { return false };
        let unused = self.operations.iter().filter(|(_, operation)| operation.is_unused(now));
        let longest = unused.min_by_key(|(_, operation)| operation.used_at).map(|(name, _)| name.clone());
        match longest {
            Some(name) => self.operations.remove(&name).is_some(),
            None => {
                self.has_unused = false;
                false
            }
        }
    }

    /// Takes in the host's mean CPU use since the last call of this function; absent: not known. It says which hours
    /// were quiet. The first call only marks where the next value begins.
    pub fn observe_cpu(&mut self, cpu: Option<Percent>, now: BootTime) {
        let since = self.cpu_at.replace(now);
        let (Some(cpu), Some(since)) = (cpu, since) else { return };
        let known_for = now.since(since).min(LONGEST_CPU_INTERVAL);
        for operation in self.operations.values_mut() {
            operation.learning.robust.observe_cpu(cpu, known_for);
        }
    }

    /// Ends the open period: the baselines learn from it, and it joins the window.
    pub fn end_period(&mut self, now: BootTime) {
        let since = self.closed_at.replace(now);
        let passed = since.map_or(Duration::ZERO, |since| now.since(since)).min(LONGEST_PERIOD);
        self.has_unused = false;
        for operation in self.operations.values_mut() {
            operation.close_period(self.settings.periods, passed, now);
            self.has_unused |= operation.is_unused(now);
        }
    }

    /// What was counted of every operation since the start, the open period included.
    pub fn totals(&self) -> impl Iterator<Item = (&OperationName, PeriodCounts)> {
        self.operations.iter().map(|(name, operation)| {
            let mut total = operation.total;
            total.add(&operation.open);
            (name, total)
        })
    }

    /// The window as it is reported: every operation, with the baseline as it is after the last period.
    pub fn window(&self, now: BootTime) -> Vec<OperationWindow> {
        self.operations.iter().map(|(name, operation)| operation.report(name, &self.settings, now)).collect()
    }

    /// Forgets what was learned of one operation, or of all; what was counted stays. Returns of how many.
    pub fn reset(&mut self, name: Option<&OperationName>) -> usize {
        let chosen = self.operations.iter_mut().filter(|(known, _)| name.is_none_or(|name| name == *known));
        chosen.map(|(_, operation)| operation.learning = Learning::default()).count()
    }

    /// Says how long an operation takes without load, `baseline_us` microseconds, in place of what was learned of it.
    /// Both estimators go on from there: it counts as the lowest mean and as one qualified hour.
    ///
    /// # Errors
    /// [`RejectedSample`] for a duration that is none or longer than the longest possible, a name that is none or
    /// beyond the cap.
    pub fn set_baseline(
        &mut self,
        name: &str,
        baseline_us: f64,
        now: BootTime,
    ) -> Result<(), RejectedSample> {
        if baseline_us == 0.0 {
            return Err(RejectedSample::BelowResolution);
        }
        if !(0.0..=self.settings.max_possible_us).contains(&baseline_us) {
            return Err(RejectedSample::NotADuration);
        }
        self.operation(name, 0.0)?.learning.set(baseline_us, now);
        Ok(())
    }

    /// What was learned of every operation, to be kept on disk.
    pub fn baselines(&self, now: BootTime) -> impl Iterator<Item = (&OperationName, BaselineRecord)> {
        self.operations.iter().map(move |(name, operation)| (name, operation.learning.record(now)))
    }

    /// Calls of names beyond the cap.
    pub fn overflow_calls(&self) -> u64 {
        self.overflow_calls
    }
}

#[cfg(test)]
mod long_run_tests;
#[cfg(test)]
mod tests;
