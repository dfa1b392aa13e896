//! For how long has this host been able to work?
//!
//! A host that has just booted is cold, and takes less than its share for a while. One that could not take sessions
//! for more than a minute is cold too: its users are gone and its caches with them. A shorter pause cools nothing, and
//! a restart of the agent is none at all, so what is remembered here is kept over it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use usher_types::{BootTime, Readiness};

/// A pause of at most this changes nothing. Shorter, and the reload of a service would send users elsewhere.
const COOLS_AFTER: Duration = Duration::from_secs(60);

/// Since when the host is ready; times of its boot-time clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ReadyAge {
    closed_us: Option<u64>,
    reopened_us: Option<u64>,
}

impl ReadyAge {
    /// Takes over whether the host takes sessions at `now`.
    pub(super) fn observe(&mut self, readiness: &Readiness, now: BootTime) {
        match readiness {
            Readiness::NotReady(_) => {
                self.closed_us.get_or_insert(now.as_micros());
            }
            Readiness::Ready => {
                let closed = self.closed_us.take().map(BootTime::from_micros);
                if closed.is_some_and(|closed| now.since(closed) > COOLS_AFTER) {
                    self.reopened_us = Some(now.as_micros());
                }
            }
        }
    }

    /// Since the boot, `uptime` ago, or since the end of a long pause, whichever is shorter. Absent: neither is known.
    pub(super) fn at(self, uptime: Option<Duration>, now: BootTime) -> Option<Duration> {
        let reopened = self.reopened_us.map(|at| now.since(BootTime::from_micros(at)));
        match (uptime, reopened) {
            (Some(uptime), Some(reopened)) => Some(uptime.min(reopened)),
            (uptime, reopened) => uptime.or(reopened),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Option<Duration> = Some(Duration::from_secs(3600));

    fn at(seconds: u64) -> BootTime {
        BootTime::from_millis(3_600_000 + seconds * 1000)
    }

    fn closed() -> Readiness {
        Readiness::NotReady("nologin".into())
    }

    // rule: ramp-age
    #[test]
    fn the_age_is_that_of_the_boot_until_a_long_pause_ends() {
        let mut age = ReadyAge::default();
        age.observe(&Readiness::Ready, at(0));
        assert_eq!(age.at(HOUR, at(0)), HOUR);
        age.observe(&closed(), at(10));
        age.observe(&closed(), at(60));
        assert_eq!(age.at(HOUR, at(60)), HOUR, "it has not ended");
        age.observe(&Readiness::Ready, at(71));
        assert_eq!(age.at(HOUR, at(75)), Some(Duration::from_secs(4)));
    }

    // rule: ramp-age
    #[test]
    fn a_pause_of_a_minute_is_none() {
        let mut age = ReadyAge::default();
        age.observe(&closed(), at(0));
        age.observe(&Readiness::Ready, at(60));
        assert_eq!(age.at(HOUR, at(61)), HOUR);
        assert_eq!(age.at(None, at(61)), None, "nothing is known");
    }

    #[test]
    fn a_boot_after_the_pause_is_what_counts() {
        let mut age = ReadyAge::default();
        age.observe(&closed(), at(0));
        age.observe(&Readiness::Ready, at(100));
        assert_eq!(age.at(Some(Duration::from_secs(5)), at(200)), Some(Duration::from_secs(5)));
        assert_eq!(age.at(None, at(200)), Some(Duration::from_secs(100)));
    }
}
