//! The lowest mean ever.
//!
//! Simple, and right at once on a host that was ever idle. It never rises: a host that became slower for good (older
//! hardware, a larger database) looks loaded for ever, until somebody resets it.

use std::time::Duration;

use usher_types::BootTime;

use super::record::{Carried, Checked, MinimumRecord, RecordFault};
use super::{Moved, whole_calls, whole_ms};
use crate::MIN_CALLS;

/// The lowest mean ever of periods with at least five calls, as Domino keeps it.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct MinimumBaseline {
    lowest_us: Option<f64>,
    moved: Moved,
    samples: u64,
    carried: Carried,
}

impl MinimumBaseline {
    /// A baseline that somebody knows: `lowest_us` microseconds, > 0 and finite.
    pub(crate) fn known(lowest_us: f64, now: BootTime) -> Self {
        Self { lowest_us: Some(lowest_us), moved: Moved::now(now), ..Self::default() }
    }

    /// Takes in one period: its successful calls (>= 0, sampled ones weighted) and the sum of their durations in
    /// microseconds.
    pub fn observe_period(&mut self, calls: f64, sum_us: f64, now: BootTime) {
        let Some(merged) = self.carried.merge(calls, sum_us, MIN_CALLS) else { return };
        self.samples = self.samples.saturating_add(whole_calls(merged.calls));
        let mean_us = merged.sum_us / merged.calls;
        if mean_us > 0.0 && self.lowest_us.is_none_or(|lowest| mean_us < lowest) {
            self.lowest_us = Some(mean_us);
            self.moved = Moved::now(now);
        }
    }

    /// The baseline in microseconds, at least `min_possible_us`. Absent before the first period with enough calls.
    pub fn value_us(&self, min_possible_us: f64) -> Option<f64> {
        self.lowest_us.map(|lowest| lowest.max(min_possible_us))
    }

    /// Time since it last became lower.
    pub fn age(&self, now: BootTime) -> Duration {
        self.moved.age(now)
    }

    /// Calls behind it.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    pub(crate) fn record(&self, now: BootTime) -> MinimumRecord {
        MinimumRecord {
            lowest_us: self.lowest_us,
            moved_ms_ago: whole_ms(self.age(now)),
            samples: self.samples,
            carried: self.carried,
        }
    }

    pub(crate) fn restored(record: &MinimumRecord, now: BootTime, faults: &mut Vec<RecordFault>) -> Self {
        let mut checked = Checked(faults);
        Self {
            lowest_us: checked.duration("minimum.lowest_us", record.lowest_us),
            moved: Moved::ago(Duration::from_millis(record.moved_ms_ago), now),
            samples: record.samples,
            carried: checked.carried("minimum.carried", record.carried, MIN_CALLS),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // rule: baseline-minimum
    #[test]
    fn case_056_one_freak_fast_sample_does_not_move_it_by_a_percent() {
        let mut baseline = MinimumBaseline::default();
        for period in 0..400 {
            let freak = if period == 200 { 1.0 } else { 1000.0 };
            baseline.observe_period(100.0, 99.0 * 1000.0 + freak, BootTime::ZERO);
        }
        let value = baseline.value_us(1.0).unwrap();
        assert!(1000.0 / value < 1.011, "{value}");
        assert_eq!(baseline.value_us(1200.0), Some(1200.0));
    }

    // rule: baseline-merge
    #[test]
    fn thin_periods_are_merged_until_they_can_stand() {
        let mut baseline = MinimumBaseline::default();
        baseline.observe_period(2.0, 20.0, BootTime::ZERO);
        baseline.observe_period(2.0, 20.0, BootTime::ZERO);
        assert_eq!(baseline.value_us(1.0), None);
        baseline.observe_period(1.0, 60.0, BootTime::from_millis(30));
        assert_eq!(baseline.value_us(1.0), Some(20.0));
        assert_eq!(baseline.samples(), 5);
        assert_eq!(baseline.age(BootTime::from_millis(50)), Duration::from_millis(20));
    }

    #[test]
    fn a_mean_of_nothing_is_no_baseline() {
        let mut baseline = MinimumBaseline::default();
        baseline.observe_period(5.0, 0.0, BootTime::ZERO);
        assert_eq!(baseline.value_us(1.0), None);
    }

    #[test]
    fn its_age_counts_from_when_it_became_lower_not_from_when_it_was_reached_again() {
        let mut baseline = MinimumBaseline::default();
        for ms in [10, 20, 30] {
            baseline.observe_period(5.0, 100.0, BootTime::from_millis(ms));
        }
        assert_eq!(baseline.age(BootTime::from_millis(50)), Duration::from_millis(40));
    }

    proptest! {
        #[test]
        fn it_never_rises_and_never_falls_below_the_fastest_mean(
            periods in prop::collection::vec((0.0..100.0f64, 1.0..1e6f64), 1..60),
        ) {
            let mut baseline = MinimumBaseline::default();
            let (mut before, mut fastest) = (f64::INFINITY, f64::INFINITY);
            for (calls, mean_us) in periods {
                baseline.observe_period(calls, calls * mean_us, BootTime::ZERO);
                fastest = fastest.min(mean_us);
                if let Some(value) = baseline.value_us(1.0) {
                    prop_assert!(value <= before);
                    prop_assert!(value >= fastest * (1.0 - 1e-9));
                    before = value;
                }
            }
        }
    }
}
