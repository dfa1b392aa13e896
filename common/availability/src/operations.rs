//! The calls of each operation over the last periods.
//!
//! A sample is in exactly one period: the one that is open when it arrives. When a period ends, it moves into the
//! window, the oldest leaves, and the baselines learn from it; so the counts of all periods add up to what was sent.
//!
//! Names come from programs that may put ids into them. Beyond a cap, new names go into one bucket that is counted and
//! takes no part in the index; known ones go on.

use std::collections::{BTreeMap, VecDeque};

use thiserror::Error;
use usher_types::{BootTime, OperationName, OperationWindow};

use crate::MinimumBaseline;

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
}

impl Default for OperationSettings {
    /// Five periods, 256 names, 1 us, 20 s.
    fn default() -> Self {
        Self { periods: 5, max_names: 256, min_possible_us: 1.0, max_possible_us: 20_000_000.0 }
    }
}

/// Why a sample was not taken.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum RejectedSample {
    /// Zero: below the resolution of the timer that took it.
    #[error("duration is zero, below the timer's resolution")]
    BelowResolution,
    /// Negative, or not a finite number.
    #[error("duration is negative or not a number")]
    NotADuration,
    /// The weight of a sampled call must be finite and at least 1.
    #[error("weight is below 1 or not a number")]
    BadWeight,
    /// Not a name.
    #[error("operation name is empty, too long, or holds other characters than A-Z a-z 0-9 _ . -")]
    BadName,
    /// The cap on names is reached; counted in the overflow bucket.
    #[error("too many operation names")]
    Overflow,
}

/// Counts of one period, or of a window of them.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
struct Counts {
    ok: f64,
    failed: f64,
    too_long: f64,
    sum_us: f64,
    min_us: Option<f64>,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.ok += other.ok;
        self.failed += other.failed;
        self.too_long += other.too_long;
        self.sum_us += other.sum_us;
        self.min_us = match (self.min_us, other.min_us) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

#[derive(Clone, PartialEq, Debug, Default)]
struct Operation {
    open: Counts,
    window: VecDeque<Counts>,
    baseline: MinimumBaseline,
}

/// All operations of a host.
#[derive(Clone, Debug)]
pub struct Operations {
    settings: OperationSettings,
    operations: BTreeMap<OperationName, Operation>,
    overflow_calls: u64,
}

impl Operations {
    /// No operation yet.
    pub fn new(settings: OperationSettings) -> Self {
        Self { settings, operations: BTreeMap::new(), overflow_calls: 0 }
    }

    /// Takes over new settings; what was counted stays.
    pub fn configure(&mut self, settings: OperationSettings) {
        self.settings = settings;
        for operation in self.operations.values_mut() {
            while operation.window.len() > settings.periods {
                operation.window.pop_front();
            }
        }
    }

    /// Takes over a baseline that was learned earlier.
    pub fn restore(&mut self, name: OperationName, baseline: MinimumBaseline) {
        if self.operations.len() < self.settings.max_names {
            self.operations.entry(name).or_default().baseline = baseline;
        }
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
        let too_long = duration_us > self.settings.max_possible_us;
        let counts = self.open(name, weight)?;
        if too_long {
            counts.too_long += weight;
        } else {
            counts.ok += weight;
            counts.sum_us += weight * duration_us;
            counts.min_us = Some(counts.min_us.map_or(duration_us, |min| min.min(duration_us)));
        }
        Ok(())
    }

    /// Counts one failed call. How long it took says nothing about the host's speed, so it enters neither mean nor
    /// baseline: a host that fails fast would look the healthiest.
    ///
    /// # Errors
    /// [`RejectedSample`] says why nothing was counted.
    pub fn record_failure(&mut self, name: &str, weight: f64) -> Result<(), RejectedSample> {
        self.open(name, weight)?.failed += weight;
        Ok(())
    }

    fn open(&mut self, name: &str, weight: f64) -> Result<&mut Counts, RejectedSample> {
        if !weight.is_finite() || weight < 1.0 {
            return Err(RejectedSample::BadWeight);
        }
        if !self.operations.contains_key(name) {
            let name = OperationName::new(name).map_err(|_| RejectedSample::BadName)?;
            if self.operations.len() >= self.settings.max_names {
                self.overflow_calls = self.overflow_calls.saturating_add(weight as u64);
                return Err(RejectedSample::Overflow);
            }
            self.operations.insert(name, Operation::default());
        }
        self.operations.get_mut(name).map(|operation| &mut operation.open).ok_or(RejectedSample::BadName)
    }

    /// Ends the open period: the baselines learn from it, and it joins the window.
    pub fn end_period(&mut self, now: BootTime) {
        for operation in self.operations.values_mut() {
            let closed = std::mem::take(&mut operation.open);
            operation.baseline.observe_period(closed.ok, closed.sum_us, now);
            operation.window.push_back(closed);
            while operation.window.len() > self.settings.periods {
                operation.window.pop_front();
            }
        }
    }

    /// The window as it is reported: every operation, with the baseline as it is after the last period.
    pub fn window(&self, now: BootTime) -> Vec<OperationWindow> {
        let report = |(name, operation): (&OperationName, &Operation)| {
            let mut counts = Counts::default();
            operation.window.iter().for_each(|period| counts.add(period));
            let baseline_us = operation.baseline.value_us(self.settings.min_possible_us);
            OperationWindow {
                name: name.clone(),
                ok: counts.ok,
                failed: counts.failed,
                too_long: counts.too_long,
                sum_us: counts.sum_us,
                min_us: counts.min_us,
                in_flight: 0,
                oldest_in_flight: None,
                baseline_us,
                baseline_age: baseline_us.map(|_| now.since(operation.baseline.moved_at())),
                baseline_samples: operation.baseline.samples(),
            }
        };
        self.operations.iter().map(report).collect()
    }

    /// Every baseline, to be kept on disk.
    pub fn baselines(&self) -> impl Iterator<Item = (&OperationName, &MinimumBaseline)> {
        self.operations.iter().map(|(name, operation)| (name, &operation.baseline))
    }

    /// Calls of names beyond the cap.
    pub fn overflow_calls(&self) -> u64 {
        self.overflow_calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations() -> Operations {
        Operations::new(OperationSettings::default())
    }

    fn only(operations: &Operations) -> OperationWindow {
        let windows = operations.window(BootTime::ZERO);
        assert_eq!(windows.len(), 1);
        windows.into_iter().next().unwrap()
    }

    #[test]
    fn case_041_a_sample_that_is_no_number_spoils_nothing() {
        let mut operations = operations();
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
            assert_eq!(operations.record("open_db", bad, 1.0), Err(RejectedSample::NotADuration));
        }
        operations.record("open_db", 10.0, 1.0).unwrap();
        operations.end_period(BootTime::ZERO);
        let window = only(&operations);
        assert_eq!((window.ok, window.sum_us, window.min_us), (1.0, 10.0, Some(10.0)));
    }

    #[test]
    fn case_043_a_zero_enters_neither_minimum_nor_mean() {
        let mut operations = operations();
        assert_eq!(operations.record("open_db", 0.0, 1.0), Err(RejectedSample::BelowResolution));
        for _ in 0..99 {
            operations.record("open_db", 12_000.0, 1.0).unwrap();
        }
        operations.end_period(BootTime::ZERO);
        let window = only(&operations);
        assert_eq!((window.ok, window.min_us, window.baseline_us), (99.0, Some(12_000.0), Some(12_000.0)));
        assert_eq!(window.sum_us / window.ok, 12_000.0);
    }

    #[test]
    fn case_044_the_sample_rate_scales_the_count_and_not_the_value() {
        let mut operations = operations();
        operations.record("q", 10_000.0, 1.0 / 0.5).unwrap();
        operations.record("q", 20_000.0, 1.0 / 0.1).unwrap();
        operations.end_period(BootTime::ZERO);
        let window = only(&operations);
        assert_eq!((window.min_us, window.ok), (Some(10_000.0), 12.0));
        assert!((window.sum_us / window.ok - 18_333.33).abs() < 0.01);
    }

    #[test]
    fn case_049_names_beyond_the_cap_are_counted_apart_and_known_ones_go_on() {
        let mut operations = operations();
        operations.record("open_db", 9.0, 1.0).unwrap();
        for n in 0..100_000 {
            let _ = operations.record(&format!("t{n}"), 5.0, 1.0);
        }
        operations.record("open_db", 9.0, 1.0).unwrap();
        assert_eq!(operations.operations.len(), 256);
        assert_eq!(operations.overflow_calls(), 100_000 - 255);
        assert_eq!(operations.operations.get("open_db").unwrap().open.ok, 2.0);
    }

    #[test]
    fn case_050_hostile_names_are_refused() {
        let mut operations = operations();
        for bad in ["", "open\0db", "../../etc", "<b>x</b>", &"a".repeat(10_000)] {
            assert_eq!(operations.record(bad, 1.0, 1.0), Err(RejectedSample::BadName));
        }
    }

    #[test]
    fn case_063_the_counts_of_all_periods_add_up() {
        let mut operations = operations();
        let mut seen = 0.0;
        for period in 0..10 {
            for _ in 0..150 {
                operations.record("q", 1.0, 1.0).unwrap();
            }
            operations.end_period(BootTime::from_millis(15_000 * period));
            seen += operations.operations.get("q").unwrap().window.back().unwrap().ok;
        }
        assert_eq!(seen, 1500.0);
        assert_eq!(only(&operations).ok, 750.0);
    }

    #[test]
    fn a_call_that_takes_too_long_counts_as_failed() {
        let mut operations = operations();
        operations.record("q", 30e6, 1.0).unwrap();
        operations.record_failure("q", 1.0).unwrap();
        operations.end_period(BootTime::ZERO);
        let window = only(&operations);
        assert_eq!((window.ok, window.failed, window.too_long, window.min_us), (0.0, 1.0, 1.0, None));
    }
}
