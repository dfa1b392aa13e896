//! Instants, as every decision sees them: read from the receiver's boot-time clock, which runs on during suspend.
//!
//! An age can never be negative: a clock that seems to step back gives age zero, not a panic.

use std::{fmt, ops::Add, time::Duration};

/// An instant on a boot-time clock, in microseconds since an arbitrary origin.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BootTime(u64);

impl BootTime {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);

    /// The instant `micros` microseconds after the clock's origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The instant `millis` milliseconds after the clock's origin; saturates.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1000))
    }

    /// Microseconds since the clock's origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Time passed since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The instant `age` before this one; the origin if that lies before it.
    pub fn before(self, age: Duration) -> Self {
        Self(self.0.saturating_sub(micros(age)))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }
}

impl fmt::Debug for BootTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} since boot", Duration::from_micros(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_never_negative() {
        let stored = BootTime::from_millis(1000);
        assert_eq!(BootTime::from_millis(999).since(stored), Duration::ZERO);
        assert_eq!(BootTime::ZERO.before(Duration::from_secs(1)), BootTime::ZERO);
        assert_eq!(BootTime::from_micros(u64::MAX) + Duration::MAX, BootTime::from_micros(u64::MAX));
    }
}
