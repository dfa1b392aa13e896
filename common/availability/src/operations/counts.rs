//! Which numbers of a program count as calls, and how they add up.

use thiserror::Error;

use super::OperationSettings;

/// Most calls that one sample or one period may stand for. Sums of such periods stay finite.
const MOST_CALLS: f64 = 1e12;

/// Why a sample was not taken.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum RejectedSample {
    /// Zero: below the resolution of the timer that took it.
    #[error("duration is zero, below the timer's resolution")]
    BelowResolution,
    /// Negative, or not a finite number.
    #[error("duration is negative or not a number, or a baseline is longer than the longest call")]
    NotADuration,
    /// The weight of a sampled call must be at least 1.
    #[error("weight is below 1, above 1e12 or not a number")]
    BadWeight,
    /// Counts of a period must be at least 0, and the shortest call cannot be longer than the mean.
    #[error("count is negative, above 1e12 or not a number, or does not fit the durations")]
    BadCounts,
    /// Not a name.
    #[error("operation name is empty, too long, or holds other characters than A-Z a-z 0-9 _ . -")]
    BadName,
    /// The cap on names is reached; counted in the overflow bucket.
    #[error("too many operation names")]
    Overflow,
}

/// The calls of one operation in one period, or in a window of them.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct PeriodCounts {
    /// Successful calls, >= 0; a sampled call counts 1 / rate.
    pub ok: f64,
    /// Failed calls, >= 0.
    pub failed: f64,
    /// Calls that took too long, >= 0; they count as failed.
    pub too_long: f64,
    /// Sum over the successful calls, microseconds, >= 0.
    pub sum_us: f64,
    /// Shortest successful call, microseconds, > 0.
    pub min_us: Option<f64>,
}

impl PeriodCounts {
    pub(super) fn add(&mut self, other: &Self) {
        self.ok += other.ok;
        self.failed += other.failed;
        self.too_long += other.too_long;
        self.sum_us += other.sum_us;
        self.min_us = match (self.min_us, other.min_us) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn calls(&self) -> f64 {
        self.ok + self.failed + self.too_long
    }

    /// The counts as they are taken. If their mean is longer than the longest possible call, the successful ones count
    /// as too long, as each of them would alone.
    pub(super) fn checked(self, settings: &OperationSettings) -> Result<Self, RejectedSample> {
        let are_counts = [self.ok, self.failed, self.too_long].iter().all(|n| (0.0..=MOST_CALLS).contains(n));
        if !are_counts {
            return Err(RejectedSample::BadCounts);
        }
        let durations = [Some(self.sum_us), self.min_us];
        if durations.into_iter().flatten().any(|us| !us.is_finite() || us < 0.0) {
            return Err(RejectedSample::NotADuration);
        }
        if self.ok == 0.0 {
            let is_bare = self.sum_us == 0.0 && self.min_us.is_none();
            return if is_bare { Ok(self) } else { Err(RejectedSample::BadCounts) };
        }
        let mean_us = self.sum_us / self.ok;
        if mean_us <= 0.0 || self.min_us == Some(0.0) {
            return Err(RejectedSample::BelowResolution);
        }
        // The sum was rounded when it was made.
        if self.min_us.is_some_and(|min| min > mean_us * (1.0 + 1e-9)) {
            return Err(RejectedSample::BadCounts);
        }
        if mean_us > settings.max_possible_us {
            return Ok(Self { too_long: self.too_long + self.ok, failed: self.failed, ..Self::default() });
        }
        Ok(self)
    }
}

/// Checks how many calls a sampled one stands for.
pub(super) fn check_weight(weight: f64) -> Result<(), RejectedSample> {
    if (1.0..=MOST_CALLS).contains(&weight) { Ok(()) } else { Err(RejectedSample::BadWeight) }
}
