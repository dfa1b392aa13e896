//! The lowest percentile of quiet hours.
//!
//! A mean may be low by chance, and the lowest of thousands of means is low by chance for sure. The 25th percentile of an
//! hour's means is not: a quarter of the hour must have been that fast. An hour counts only if the CPUs were mostly idle,
//! so a host that is saturated for days does not learn that being slow is normal; and only the last 24 such hours count,
//! so a host that became slower for good learns it within about a day.
//!
//! | until | the estimate is | provisional |
//! |---|---|---|
//! | the first mean of >= 20 calls | absent | no |
//! | the first qualified hour | the lowest percentile so far, of the hours and of the running one as it grew | yes |
//! | for ever | the lowest percentile of the last 24 qualified hours | no |
//!
//! Hours are counted in observed time: neither a suspended host nor a stopped agent lets one pass. An hour qualifies if
//! CPU use was known for at least half of it and its mean then was below 50 %; where CPU use is never known none does,
//! and the estimate stays provisional. A quiet hour with fewer than four means is merged with the next quiet one, as thin
//! periods are: a quarter of fewer is no quarter.
//!
//! Memory: at most 255 means an hour, whatever the length of a period. Each time the list is full, neighbours are merged
//! two by two, and from then on a mean of that hour takes twice as many periods. An hour of 15 s periods has 240 and is never merged;
//! one of 100 ms periods ends with means of 25.6 s.

use std::collections::VecDeque;
use std::time::Duration;

use usher_types::{BootTime, Percent};

use super::record::{Carried, Checked, HourRecord, RecordFault, RobustRecord};
use super::{Moved, whole_calls, whole_ms};

/// What is called an hour.
pub(super) const HOUR: Duration = Duration::from_secs(3600);
/// Qualified hours that count: a day of an idle host. Twice as many, and slower hardware takes twice as long to be seen.
pub(super) const HOURS_KEPT: usize = 24;
/// Means at which neighbours are merged: the first power of two above the 240 of an hour of 15 s periods.
pub(super) const MEANS_KEPT: usize = 256;
/// Calls that make a mean: at a spread of half the mean, its error is a tenth.
const CALLS_A_MEAN: f64 = 20.0;
/// Means of which a quarter can be told. A quiet hour with fewer is merged with the next quiet one, as thin periods are:
/// one mean of 20 calls in a quiet night would otherwise be an hour's word, and the lowest of 24 such words is too low.
pub(super) const MEANS_OF_AN_HOUR: usize = 4;
/// Mean CPU use below which a host counts as not loaded, percent.
const QUIET_CPU_PERCENT: f64 = 50.0;
/// The share of an hour's means that must have been as fast as its estimate.
const QUANTILE: f64 = 0.25;

/// The lowest 25th percentile of the last 24 qualified hours.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RobustBaseline {
    hour: Hour,
    qualified_us: VecDeque<f64>,
    /// Means of quiet hours that had too few to stand alone.
    thin_us: Vec<f64>,
    /// The lowest percentile so far, the running hour's at each of its means included, until an hour qualifies. A host
    /// that becomes slow in its first hour must not take that for what it always was.
    lowest_us: Option<f64>,
    estimate_us: Option<f64>,
    moved: Moved,
    samples: u64,
    carried: Carried,
}

impl RobustBaseline {
    /// A baseline that somebody knows, `value_us` > 0 and finite: it counts as one qualified hour.
    pub(crate) fn known(value_us: f64, now: BootTime) -> Self {
        Self {
            qualified_us: VecDeque::from([value_us]),
            estimate_us: Some(value_us),
            moved: Moved::now(now),
            ..Self::default()
        }
    }

    /// The host's CPU use over the last `known_for`.
    pub fn observe_cpu(&mut self, cpu: Percent, known_for: Duration) {
        self.hour.cpu_known += known_for;
        self.hour.cpu_percent_seconds += cpu.get() * known_for.as_secs_f64();
    }

    /// Takes in one period of `passed`, which ended at `now`: its successful calls (>= 0, sampled ones weighted) and
    /// the sum of their durations in microseconds.
    pub fn observe_period(&mut self, calls: f64, sum_us: f64, passed: Duration, now: BootTime) {
        if let Some(merged) = self.carried.merge(calls, sum_us, CALLS_A_MEAN) {
            self.samples = self.samples.saturating_add(whole_calls(merged.calls));
            self.hour.push(merged.sum_us / merged.calls);
            if self.qualified_us.is_empty() {
                self.lowest_us = lower(self.lowest_us, percentile(&self.hour.means_us));
            }
        }
        self.hour.observed += passed;
        if self.hour.observed >= HOUR {
            self.end_hour();
        }
        let estimate_us = self.estimate();
        if estimate_us != self.estimate_us {
            self.estimate_us = estimate_us;
            self.moved = Moved::now(now);
        }
    }

    fn end_hour(&mut self) {
        let hour = std::mem::take(&mut self.hour);
        if !hour.is_quiet() {
            return;
        }
        self.thin_us.extend(&hour.means_us);
        if self.thin_us.len() < MEANS_OF_AN_HOUR {
            return;
        }
        self.qualified_us.extend(percentile(&self.thin_us));
        self.thin_us.clear();
        // At least four means: there is one now.
        self.lowest_us = None;
        if self.qualified_us.len() > HOURS_KEPT {
            self.qualified_us.pop_front();
        }
    }

    fn estimate(&self) -> Option<f64> {
        let qualified = self.qualified_us.iter().copied().reduce(f64::min);
        qualified.or(self.lowest_us)
    }

    /// The baseline in microseconds, at least `min_possible_us`. Absent before the first mean.
    pub fn value_us(&self, min_possible_us: f64) -> Option<f64> {
        self.estimate_us.map(|estimate| estimate.max(min_possible_us))
    }

    /// There is an estimate, and no qualified hour behind it.
    pub fn is_provisional(&self) -> bool {
        self.estimate_us.is_some() && self.qualified_us.is_empty()
    }

    /// Time since the estimate last moved.
    pub fn age(&self, now: BootTime) -> Duration {
        self.moved.age(now)
    }

    /// Calls behind it.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    pub(crate) fn record(&self, now: BootTime) -> RobustRecord {
        RobustRecord {
            qualified_us: self.qualified_us.iter().copied().collect(),
            thin_us: self.thin_us.clone(),
            lowest_us: self.lowest_us,
            moved_ms_ago: whole_ms(self.age(now)),
            samples: self.samples,
            carried: self.carried,
            hour: self.hour.record(),
        }
    }

    pub(crate) fn restored(record: &RobustRecord, now: BootTime, faults: &mut Vec<RecordFault>) -> Self {
        let mut checked = Checked(faults);
        let mut restored = Self {
            hour: Hour::restored(&record.hour, &mut checked),
            qualified_us: checked.qualified("robust.qualified_us", &record.qualified_us).into(),
            thin_us: checked.thin("robust.thin_us", &record.thin_us),
            lowest_us: checked.duration("robust.lowest_us", record.lowest_us),
            estimate_us: None,
            moved: Moved::ago(Duration::from_millis(record.moved_ms_ago), now),
            samples: record.samples,
            carried: checked.carried("robust.carried", record.carried, CALLS_A_MEAN),
        };
        if restored.qualified_us.is_empty() {
            restored.lowest_us = lower(restored.lowest_us, percentile(&restored.hour.means_us));
        }
        restored.estimate_us = restored.estimate();
        restored
    }
}

/// The running hour.
#[derive(Clone, PartialEq, Debug)]
struct Hour {
    observed: Duration,
    cpu_known: Duration,
    cpu_percent_seconds: f64,
    means_us: Vec<f64>,
    periods_a_mean: u32,
    /// Sum and number of the means of periods that are not yet one of ours.
    part_us: f64,
    part_periods: u32,
}

impl Default for Hour {
    fn default() -> Self {
        Self {
            observed: Duration::ZERO,
            cpu_known: Duration::ZERO,
            cpu_percent_seconds: 0.0,
            means_us: Vec::new(),
            periods_a_mean: 1,
            part_us: 0.0,
            part_periods: 0,
        }
    }
}

impl Hour {
    fn push(&mut self, mean_us: f64) {
        if mean_us <= 0.0 {
            return;
        }
        self.part_us += mean_us;
        self.part_periods += 1;
        if self.part_periods < self.periods_a_mean {
            return;
        }
        self.means_us.push(self.part_us / f64::from(self.part_periods));
        (self.part_us, self.part_periods) = (0.0, 0);
        if self.means_us.len() >= MEANS_KEPT {
            self.means_us = self.means_us.chunks_exact(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
            self.periods_a_mean = self.periods_a_mean.saturating_mul(2);
        }
    }

    fn cpu_percent(&self) -> Option<f64> {
        (!self.cpu_known.is_zero()).then(|| self.cpu_percent_seconds / self.cpu_known.as_secs_f64())
    }

    fn is_quiet(&self) -> bool {
        self.cpu_known * 2 >= self.observed && self.cpu_percent().is_some_and(|cpu| cpu < QUIET_CPU_PERCENT)
    }

    fn record(&self) -> HourRecord {
        HourRecord {
            observed_ms: whole_ms(self.observed),
            cpu_known_ms: whole_ms(self.cpu_known),
            cpu_percent: self.cpu_percent(),
            means_us: self.means_us.clone(),
            periods_a_mean: self.periods_a_mean,
        }
    }

    fn restored(record: &HourRecord, checked: &mut Checked<'_>) -> Self {
        let cpu_percent = checked.percent("robust.hour.cpu_percent", record.cpu_percent);
        let cpu_known = checked.hour_ms("robust.hour.cpu_known_ms", record.cpu_known_ms);
        // Neither says anything without the other.
        let cpu_known = if cpu_percent.is_some() { cpu_known } else { Duration::ZERO };
        Self {
            observed: checked.hour_ms("robust.hour.observed_ms", record.observed_ms),
            cpu_known,
            cpu_percent_seconds: cpu_percent.unwrap_or(0.0) * cpu_known.as_secs_f64(),
            means_us: checked.means("robust.hour.means_us", &record.means_us),
            periods_a_mean: checked.periods_a_mean("robust.hour.periods_a_mean", record.periods_a_mean),
            part_us: 0.0,
            part_periods: 0,
        }
    }
}

/// Interpolated between the two nearest means, so that of two or three it is not the fastest one.
fn percentile(means_us: &[f64]) -> Option<f64> {
    let mut sorted = means_us.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let rank = sorted.len().checked_sub(1)? as f64 * QUANTILE;
    let below = sorted.get(rank.floor() as usize)?;
    let above = sorted.get(rank.ceil() as usize)?;
    Some(below + (above - below) * rank.fract())
}

fn lower(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests;
