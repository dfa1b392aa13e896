//! How long does an operation take on this host when it is not loaded?
//!
//! The answer is learned from *means of periods*, never from single calls: one freak sample (a cached answer, a clock
//! glitch) would otherwise stand as the best ever and make a healthy host look a thousand times slower than itself.

use usher_types::BootTime;

use crate::MIN_CALLS;

/// The lowest mean ever of periods with at least five calls, as Domino keeps it.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct MinimumBaseline {
    lowest_us: Option<f64>,
    moved_at: BootTime,
    samples: u64,
    /// Calls and sum of periods that were too thin to stand alone; the next period is merged with them.
    carried_calls: f64,
    carried_us: f64,
}

impl MinimumBaseline {
    /// A baseline learned earlier: `lowest_us` microseconds (> 0, finite; otherwise it starts empty), behind it
    /// `samples` calls.
    pub fn restored(lowest_us: f64, samples: u64, moved_at: BootTime) -> Self {
        if lowest_us.is_finite() && lowest_us > 0.0 {
            Self { lowest_us: Some(lowest_us), moved_at, samples, ..Self::default() }
        } else {
            Self::default()
        }
    }

    /// Takes in one period: its successful calls (>= 0, sampled ones weighted) and the sum of their durations in
    /// microseconds.
    pub fn observe_period(&mut self, calls: f64, sum_us: f64, now: BootTime) {
        let (calls, sum_us) = (calls + self.carried_calls, sum_us + self.carried_us);
        if calls < MIN_CALLS {
            (self.carried_calls, self.carried_us) = (calls, sum_us);
            return;
        }
        (self.carried_calls, self.carried_us) = (0.0, 0.0);
        // Whole calls, saturating: far above any count that a host can reach.
        self.samples = self.samples.saturating_add(calls as u64);
        let mean_us = sum_us / calls;
        if mean_us > 0.0 && self.lowest_us.is_none_or(|lowest| mean_us < lowest) {
            self.lowest_us = Some(mean_us);
            self.moved_at = now;
        }
    }

    /// The baseline in microseconds, at least `min_possible_us`. Absent before the first period with enough calls.
    pub fn value_us(&self, min_possible_us: f64) -> Option<f64> {
        self.lowest_us.map(|lowest| lowest.max(min_possible_us))
    }

    /// The baseline without its floor, as it is kept on disk.
    pub fn lowest_us(&self) -> Option<f64> {
        self.lowest_us
    }

    /// When it last became lower.
    pub fn moved_at(&self) -> BootTime {
        self.moved_at
    }

    /// Calls behind it.
    pub fn samples(&self) -> u64 {
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn thin_periods_are_merged_until_they_can_stand() {
        let mut baseline = MinimumBaseline::default();
        baseline.observe_period(2.0, 20.0, BootTime::ZERO);
        baseline.observe_period(2.0, 20.0, BootTime::ZERO);
        assert_eq!(baseline.value_us(1.0), None);
        baseline.observe_period(1.0, 60.0, BootTime::from_millis(30));
        assert_eq!(baseline.value_us(1.0), Some(20.0));
        assert_eq!((baseline.samples(), baseline.moved_at()), (5, BootTime::from_millis(30)));
    }

    #[test]
    fn a_restored_value_that_cannot_be_true_is_not_taken() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(MinimumBaseline::restored(bad, 9, BootTime::ZERO).value_us(1.0), None, "{bad}");
        }
    }
}
