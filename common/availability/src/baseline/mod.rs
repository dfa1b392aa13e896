//! How long does an operation take on this host when it is not loaded?
//!
//! The answer is learned from *means of periods*, never from single calls: one freak sample (a cached answer, a clock
//! glitch) would otherwise stand as the best ever and make a healthy host look a thousand times slower than itself.
//!
//! | estimator | rests on | believes that the host was not loaded |
//! |---|---|---|
//! | [`MinimumBaseline`] | the lowest mean ever, of >= 5 calls | whenever it was fastest |
//! | [`RobustBaseline`] | the lowest of 24 hours' 25th percentiles, means of >= 20 calls | in hours with mean CPU < 50 % |
//!
//! Both always learn, so that a pool may change its method and have the other answer at once. Neither is told what the
//! other thinks.

mod minimum;
mod record;
mod robust;

use std::time::Duration;

pub use minimum::MinimumBaseline;
pub use record::{BaselineRecord, Carried, HourRecord, MinimumRecord, RecordFault, RobustRecord};
pub use robust::RobustBaseline;
use usher_types::{Baseline, BootTime};

/// Both estimators of one operation.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Learning {
    pub(crate) minimum: MinimumBaseline,
    pub(crate) robust: RobustBaseline,
}

/// What the estimator in force says.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Estimate {
    pub(crate) baseline_us: Option<f64>,
    pub(crate) age: Option<Duration>,
    pub(crate) samples: u64,
    pub(crate) is_provisional: bool,
}

impl Learning {
    /// Takes in one period of `passed`, which ended at `now`: its successful calls (>= 0) and the sum of their
    /// durations.
    pub(crate) fn observe_period(&mut self, calls: f64, sum_us: f64, passed: Duration, now: BootTime) {
        self.minimum.observe_period(calls, sum_us, now);
        self.robust.observe_period(calls, sum_us, passed, now);
    }

    /// What was learned before is forgotten for a value that somebody knows.
    pub(crate) fn set(&mut self, baseline_us: f64, now: BootTime) {
        self.minimum = MinimumBaseline::known(baseline_us, now);
        self.robust = RobustBaseline::known(baseline_us, now);
    }

    pub(crate) fn estimate(&self, method: Baseline, min_possible_us: f64, now: BootTime) -> Estimate {
        let (value_us, age, samples, is_provisional) = match method {
            Baseline::Minimum => {
                (self.minimum.value_us(min_possible_us), self.minimum.age(now), self.minimum.samples(), false)
            }
            Baseline::Robust => (
                self.robust.value_us(min_possible_us),
                self.robust.age(now),
                self.robust.samples(),
                self.robust.is_provisional(),
            ),
        };
        Estimate { baseline_us: value_us, age: value_us.map(|_| age), samples, is_provisional }
    }

    pub(crate) fn record(&self, now: BootTime) -> BaselineRecord {
        BaselineRecord { minimum: self.minimum.record(now), robust: self.robust.record(now) }
    }

    pub(crate) fn restored(record: &BaselineRecord, now: BootTime, faults: &mut Vec<RecordFault>) -> Self {
        Self {
            minimum: MinimumBaseline::restored(&record.minimum, now, faults),
            robust: RobustBaseline::restored(&record.robust, now, faults),
        }
    }
}

/// When a value last moved, which may be longer ago than the clock's origin: it was before the host's boot.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
struct Moved {
    at: BootTime,
    earlier: Duration,
}

impl Moved {
    fn now(now: BootTime) -> Self {
        Self { at: now, earlier: Duration::ZERO }
    }

    fn ago(age: Duration, now: BootTime) -> Self {
        Self { at: now, earlier: age }
    }

    fn age(self, now: BootTime) -> Duration {
        now.since(self.at).saturating_add(self.earlier)
    }
}

/// Whole calls of a weighted count; saturates far above any count that a host can reach.
fn whole_calls(calls: f64) -> u64 {
    calls as u64
}

/// Whole milliseconds; saturates.
fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
