//! How old is a Load that has just come?
//!
//! Neither side trusts the other's clock. A coordinator counts ticks on each stream, and every Load echoes the newest
//! one that its host had received. An echo that is fresh says that the Load was not held up: it was measured now. One
//! that is older than two reports says that the stream, or this coordinator, stood still: then the Load is as old as
//! that tick.

use std::{collections::VecDeque, time::Duration};

use usher_types::BootTime;

/// Ticks remembered: with one a second, more than any delay that a stream survives.
const TICKS_KEPT: usize = 256;
/// Ticks come each second, so an echo may always be this old.
const MIN_ECHO_AGE: Duration = Duration::from_secs(3);

/// The ticks of one stream.
#[derive(Clone, Debug, Default)]
pub struct Ticks {
    sent: VecDeque<(u64, BootTime)>,
    last: u64,
}

impl Ticks {
    /// The next tick, sent at `now`.
    pub fn next(&mut self, now: BootTime) -> u64 {
        self.last += 1;
        self.sent.push_back((self.last, now));
        if self.sent.len() > TICKS_KEPT {
            self.sent.pop_front();
        }
        self.last
    }

    /// When a Load that arrives at `now` and echoes `echo` was measured: at its arrival, unless its echo is older than
    /// two intervals: then it was held up, and is as old as that tick.
    pub fn measured_at(&self, echo: Option<u64>, now: BootTime, interval: Duration) -> BootTime {
        let Some(echo) = echo else { return now };
        let sent = match self.sent.iter().find(|(tick, _)| *tick >= echo) {
            Some((_, sent)) => *sent,
            None => return now,
        };
        if now.since(sent) > interval.saturating_mul(2).max(MIN_ECHO_AGE) { sent } else { now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime::from_millis(seconds * 1000)
    }

    #[test]
    fn a_load_that_was_held_up_is_as_old_as_the_tick_that_it_echoes() {
        let mut ticks = Ticks::default();
        for second in 100..200 {
            ticks.next(at(second));
        }
        let interval = Duration::from_secs(5);
        assert_eq!(ticks.measured_at(Some(96), at(200), interval), at(200));
        assert_eq!(ticks.measured_at(Some(50), at(200), interval), at(149));
        assert_eq!(ticks.measured_at(None, at(200), interval), at(200));
        assert_eq!(ticks.measured_at(Some(u64::MAX), at(200), interval), at(200));
    }
}
