//! What an operation has learned, in a form that outlives the agent.
//!
//! Nothing in a record depends on a clock: boot-time clocks of two boots have nothing in common, so instants become
//! ages. A record comes from a disk and is believed field by field: one that cannot be true is left out and named, the
//! others are taken.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::robust::{HOUR, HOURS_KEPT, MEANS_KEPT, MEANS_OF_AN_HOUR};

/// Longer than any call that counts, microseconds (11 days): beyond it a field is damaged, not slow.
const LONGEST_US: f64 = 1e12;
/// More periods in one mean than an hour of the shortest periods has.
const MOST_PERIODS_A_MEAN: u32 = 1 << 16;

/// A field of a record that cannot be true.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
#[error("{field} of a learned baseline is left out, allowed is {allowed}")]
pub struct RecordFault {
    /// Which one.
    pub field: &'static str,
    /// What is allowed.
    pub allowed: &'static str,
}

/// Everything that one operation has learned, both estimators.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BaselineRecord {
    /// The lowest mean ever.
    pub minimum: MinimumRecord,
    /// The percentiles of quiet hours.
    pub robust: RobustRecord,
}

/// What the lowest mean ever rests on.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MinimumRecord {
    /// Microseconds, > 0.
    pub lowest_us: Option<f64>,
    /// Milliseconds since it last became lower.
    pub moved_ms_ago: u64,
    /// Calls behind it.
    pub samples: u64,
    /// Not yet enough calls for a mean.
    pub carried: Carried,
}

/// What the percentiles of quiet hours rest on.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RobustRecord {
    /// The percentile of each of the last 24 qualified hours, oldest first, microseconds, > 0.
    pub qualified_us: Vec<f64>,
    /// Means of quiet hours that had too few to stand alone, microseconds, > 0.
    pub thin_us: Vec<f64>,
    /// The lowest percentile of the hours before the first that qualified, microseconds, > 0.
    pub lowest_us: Option<f64>,
    /// Milliseconds since the estimate last moved.
    pub moved_ms_ago: u64,
    /// Calls behind it.
    pub samples: u64,
    /// Not yet enough calls for a mean.
    pub carried: Carried,
    /// The running hour.
    pub hour: HourRecord,
}

/// An hour that is not over.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HourRecord {
    /// How much of it is over, milliseconds.
    pub observed_ms: u64,
    /// For how much of it CPU use was known, milliseconds.
    pub cpu_known_ms: u64,
    /// Mean CPU use while it was known, 0..=100.
    pub cpu_percent: Option<f64>,
    /// Means, microseconds, > 0.
    pub means_us: Vec<f64>,
    /// Periods that make one of the means, >= 1; 0 is read as 1.
    pub periods_a_mean: u32,
}

/// Calls of periods that were too thin to stand alone; the next period is merged with them.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Carried {
    /// Calls, >= 0.
    pub calls: f64,
    /// The sum of their durations, microseconds, >= 0.
    pub sum_us: f64,
}

impl Carried {
    /// Adds a period. Gives all that was carried once it has `enough` calls.
    pub(super) fn merge(&mut self, calls: f64, sum_us: f64, enough: f64) -> Option<Self> {
        self.calls += calls;
        self.sum_us += sum_us;
        (self.calls >= enough).then(|| std::mem::take(self))
    }
}

impl BaselineRecord {
    /// Nothing was learned: it need not be kept.
    pub fn is_empty(&self) -> bool {
        self.same_learning(&Self::default())
    }

    /// The same record after the host was not watched for `passed`: ages have grown, what was learned has not. Hours
    /// are counted in observed time, so the running hour goes on where it stood.
    #[must_use]
    pub fn older_by(mut self, passed: Duration) -> Self {
        let passed_ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        self.minimum.moved_ms_ago = self.minimum.moved_ms_ago.saturating_add(passed_ms);
        self.robust.moved_ms_ago = self.robust.moved_ms_ago.saturating_add(passed_ms);
        self
    }

    /// Whether both know the same. Time that passed without a call is no knowledge: ages are not compared, nor how much
    /// of an hour without a mean is over.
    pub fn same_learning(&self, other: &Self) -> bool {
        let learned = |record: &Self| {
            let mut record = record.clone();
            record.minimum.moved_ms_ago = 0;
            record.robust.moved_ms_ago = 0;
            if record.robust.hour.means_us.is_empty() {
                record.robust.hour = HourRecord::default();
            }
            record
        };
        learned(self) == learned(other)
    }
}

/// Takes fields that can be true, and names the others.
pub(super) struct Checked<'a>(pub(super) &'a mut Vec<RecordFault>);

impl Checked<'_> {
    /// `value` if it is `true_enough`, nothing otherwise.
    pub(super) fn field<T: Default>(
        &mut self,
        field: &'static str,
        allowed: &'static str,
        value: T,
        true_enough: bool,
    ) -> T {
        if true_enough {
            return value;
        }
        self.0.push(RecordFault { field, allowed });
        T::default()
    }

    pub(super) fn duration(&mut self, field: &'static str, value_us: Option<f64>) -> Option<f64> {
        let is_good = value_us.is_none_or(is_duration);
        self.field(field, "a duration of > 0 and <= 1e12 microseconds", value_us, is_good)
    }

    pub(super) fn qualified(&mut self, field: &'static str, values_us: &[f64]) -> Vec<f64> {
        let allowed = "at most 24 durations of > 0 and <= 1e12 microseconds";
        self.durations(field, allowed, values_us, HOURS_KEPT)
    }

    pub(super) fn thin(&mut self, field: &'static str, values_us: &[f64]) -> Vec<f64> {
        let allowed = "at most 3 durations of > 0 and <= 1e12 microseconds";
        self.durations(field, allowed, values_us, MEANS_OF_AN_HOUR - 1)
    }

    pub(super) fn means(&mut self, field: &'static str, values_us: &[f64]) -> Vec<f64> {
        let allowed = "at most 255 durations of > 0 and <= 1e12 microseconds";
        self.durations(field, allowed, values_us, MEANS_KEPT - 1)
    }

    fn durations(
        &mut self,
        field: &'static str,
        allowed: &'static str,
        values_us: &[f64],
        most: usize,
    ) -> Vec<f64> {
        let is_good = values_us.len() <= most && values_us.iter().all(|value| is_duration(*value));
        let values_us = if is_good { values_us.to_vec() } else { Vec::new() };
        self.field(field, allowed, values_us, is_good)
    }

    pub(super) fn periods_a_mean(&mut self, field: &'static str, periods: u32) -> u32 {
        self.field(field, "0..=65536", periods, periods <= MOST_PERIODS_A_MEAN).max(1)
    }

    pub(super) fn carried(&mut self, field: &'static str, carried: Carried, enough: f64) -> Carried {
        let is_good = (0.0..enough).contains(&carried.calls)
            && (0.0..=LONGEST_US * enough).contains(&carried.sum_us)
            && (carried.calls > 0.0 || carried.sum_us == 0.0);
        self.field(field, "fewer calls than make a mean, and a sum of >= 0 of theirs", carried, is_good)
    }

    pub(super) fn hour_ms(&mut self, field: &'static str, value_ms: u64) -> Duration {
        let value = Duration::from_millis(value_ms);
        self.field(field, "at most two hours", value, value <= 2 * HOUR)
    }

    pub(super) fn percent(&mut self, field: &'static str, value: Option<f64>) -> Option<f64> {
        let is_good = value.is_none_or(|value| (0.0..=100.0).contains(&value));
        self.field(field, "0..=100", value, is_good)
    }
}

fn is_duration(value_us: f64) -> bool {
    value_us > 0.0 && value_us <= LONGEST_US
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use usher_types::BootTime;

    use super::*;
    use crate::baseline::Learning;

    fn restored(record: &BaselineRecord) -> (Learning, Vec<&'static str>) {
        let mut faults = Vec::new();
        let learning = Learning::restored(record, BootTime::ZERO, &mut faults);
        (learning, faults.iter().map(|fault| fault.field).collect())
    }

    fn good() -> BaselineRecord {
        BaselineRecord {
            minimum: MinimumRecord {
                lowest_us: Some(900.0),
                moved_ms_ago: 86_400_000,
                samples: 70,
                carried: Carried { calls: 2.0, sum_us: 2000.0 },
            },
            robust: RobustRecord {
                qualified_us: vec![1000.0, 1100.0],
                thin_us: vec![990.0],
                lowest_us: None,
                moved_ms_ago: 7_200_000,
                samples: 60,
                carried: Carried { calls: 7.0, sum_us: 7000.0 },
                hour: HourRecord {
                    observed_ms: 60_000,
                    cpu_known_ms: 55_000,
                    cpu_percent: Some(20.0),
                    means_us: vec![1000.0, 1001.0],
                    periods_a_mean: 2,
                },
            },
        }
    }

    // rule: baseline-keeps
    #[test]
    fn a_record_comes_back_as_it_was_also_through_json() {
        let record = good();
        let (learning, faults) = restored(&record);
        assert_eq!(faults, [""; 0]);
        assert_eq!(learning.record(BootTime::ZERO), record);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<BaselineRecord>(&text).unwrap(), record);
    }

    #[test]
    fn an_age_outlives_the_boot_in_which_it_began() {
        let (learning, _) = restored(&good().older_by(Duration::from_secs(60)));
        let later = BootTime::from_millis(5_000);
        assert_eq!(learning.minimum.age(later), Duration::from_secs(86_400 + 65));
        assert_eq!(learning.robust.age(later), Duration::from_secs(7_200 + 65));
    }

    #[test]
    fn a_field_that_is_missing_is_nothing_learned() {
        let record: BaselineRecord = serde_json::from_str(r#"{"minimum":{"lowest_us":5.0}}"#).unwrap();
        assert_eq!(record.minimum.lowest_us, Some(5.0));
        assert_eq!(record.robust, RobustRecord::default());
        let (learning, faults) = restored(&record);
        assert_eq!((learning.robust.value_us(1.0), faults), (None, vec![]));
    }

    #[test]
    fn a_value_that_cannot_be_true_is_left_out_and_the_others_are_taken() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            let mut record = good();
            record.minimum.lowest_us = Some(bad);
            let (learning, faults) = restored(&record);
            assert_eq!(faults, ["minimum.lowest_us"], "{bad}");
            assert_eq!(learning.minimum.value_us(1.0), None);
            assert_eq!(learning.robust.value_us(1.0), Some(1000.0));

            let mut record = good();
            record.robust.qualified_us.push(bad);
            let (learning, faults) = restored(&record);
            assert_eq!(faults, ["robust.qualified_us"], "{bad}");
            assert_eq!(
                (learning.robust.value_us(1.0), learning.robust.is_provisional()),
                (Some(1000.25), true)
            );
        }
    }

    #[test]
    fn lists_and_times_of_absurd_length_are_left_out() {
        let mut record = good();
        record.robust.qualified_us = vec![1.0; 25];
        record.robust.thin_us = vec![1.0; 4];
        record.robust.hour.means_us = vec![1.0; 256];
        record.robust.hour.observed_ms = u64::MAX;
        record.robust.hour.cpu_known_ms = u64::MAX;
        record.robust.hour.cpu_percent = Some(101.0);
        record.robust.hour.periods_a_mean = u32::MAX;
        record.robust.carried.calls = 20.0;
        record.minimum.carried.sum_us = -1.0;
        let (learning, mut faults) = restored(&record);
        faults.sort_unstable();
        assert_eq!(
            faults,
            [
                "minimum.carried",
                "robust.carried",
                "robust.hour.cpu_known_ms",
                "robust.hour.cpu_percent",
                "robust.hour.means_us",
                "robust.hour.observed_ms",
                "robust.hour.periods_a_mean",
                "robust.qualified_us",
                "robust.thin_us"
            ]
        );
        assert_eq!(learning.robust.value_us(1.0), None);
    }

    #[test]
    fn calls_too_few_for_a_mean_are_taken_over_if_their_sum_can_be_theirs() {
        let carried = |calls, sum_us| {
            let mut record = good();
            record.robust.carried = Carried { calls, sum_us };
            restored(&record).1
        };
        for (calls, sum_us) in [(0.0, 0.0), (19.0, 19e12), (19.0, 20e12)] {
            assert_eq!(carried(calls, sum_us), [""; 0], "{calls} calls of {sum_us} us");
        }
        for (calls, sum_us) in [(0.0, 1.0), (19.0, 21e12), (20.0, 1.0), (-1.0, 1.0)] {
            assert_eq!(carried(calls, sum_us), ["robust.carried"], "{calls} calls of {sum_us} us");
        }
    }

    #[test]
    fn only_what_was_learned_makes_a_record_worth_keeping() {
        assert!(BaselineRecord::default().is_empty());
        let mut waiting = BaselineRecord::default();
        waiting.robust.hour.observed_ms = 30_000;
        assert!(waiting.is_empty());
        assert!(!good().is_empty());
        assert!(good().same_learning(&good().older_by(Duration::from_secs(9))));
        assert!(!good().same_learning(&waiting));
    }

    proptest! {
        #[test]
        fn no_record_makes_a_panic_or_a_baseline_that_is_none(
            us in prop::collection::vec(any::<f64>(), 0..8),
            ms in any::<u64>(),
            number in any::<f64>(),
            periods_a_mean in any::<u32>(),
        ) {
            let carried = Carried { calls: number, sum_us: number };
            let hour = HourRecord {
                observed_ms: ms,
                cpu_known_ms: ms,
                cpu_percent: Some(number),
                means_us: us.clone(),
                periods_a_mean,
            };
            let robust = RobustRecord {
                qualified_us: us.clone(),
                thin_us: us.clone(),
                lowest_us: us.first().copied(),
                moved_ms_ago: ms,
                samples: ms,
                carried,
                hour,
            };
            let minimum =
                MinimumRecord { lowest_us: us.first().copied(), moved_ms_ago: ms, samples: ms, carried };
            let (mut learning, _) = restored(&BaselineRecord { minimum, robust });
            let now = BootTime::from_millis(15_000);
            learning.observe_period(100.0, 100_000.0, Duration::from_secs(15), now);
            for value in [learning.minimum.value_us(1.0), learning.robust.value_us(1.0)].into_iter().flatten() {
                prop_assert!(value.is_finite() && value >= 1.0);
            }
        }
    }
}
