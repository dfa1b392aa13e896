//! Numbers that refuse to be wrong.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a number was refused.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{value} is out of range, allowed are {allowed}")]
pub struct UnitError {
    /// The number, as it came.
    pub value: f64,
    /// What is allowed.
    pub allowed: &'static str,
}

/// A share in percent: finite, 0..=100.
#[derive(Copy, Clone, PartialEq, PartialOrd, Debug, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Percent(f64);

impl Percent {
    /// Nothing.
    pub const ZERO: Self = Self(0.0);
    /// All.
    pub const FULL: Self = Self(100.0);

    /// Checks and takes the value.
    ///
    /// # Errors
    /// [`UnitError`] if it is not finite or outside 0..=100.
    pub fn new(value: f64) -> Result<Self, UnitError> {
        if (0.0..=100.0).contains(&value) {
            Ok(Self(value))
        } else {
            Err(UnitError { value, allowed: "0..=100" })
        }
    }

    /// The share of `part` in `whole`. Absent when the whole is 0 or the part is larger than it.
    pub fn of(part: u64, whole: u64) -> Option<Self> {
        // Both fit f64 well enough: the error is far below a hundredth of a percent.
        (whole > 0 && part <= whole).then(|| Self(100.0 * part as f64 / whole as f64))
    }

    /// The value, 0..=100.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Percent {
    type Error = UnitError;

    fn try_from(value: f64) -> Result<Self, UnitError> {
        Self::new(value)
    }
}

impl From<Percent> for f64 {
    fn from(percent: Percent) -> Self {
        percent.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_finite_and_within_its_bounds() {
        for bad in [f64::NAN, f64::INFINITY, -0.1, 100.1, 354.0] {
            assert!(Percent::new(bad).is_err(), "{bad}");
        }
        assert_eq!(Percent::new(100.0).unwrap(), Percent::FULL);
        assert_eq!(Percent::of(1, 4).unwrap().get(), 25.0);
        assert_eq!(Percent::of(2, 1), None);
        assert_eq!(Percent::of(0, 0), None);
    }
}
