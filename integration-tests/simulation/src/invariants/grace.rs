//! Was a host called OFFLINE by a coordinator that had not had the time to hear it?
//!
//! For 60 s from its start a coordinator takes hosts that it has not heard for UNKNOWN. Only those that said good-bye, that
//! it heard since and lost, or that were OFFLINE when it stored what it knew before it stopped are another matter.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Violation;

const GRACE: Duration = Duration::from_secs(60);
/// What a coordinator knew of hosts is stored so often; after a crash it knows no more, and lists are a second apart.
const STORED_EVERY: Duration = Duration::from_secs(12);

/// How one coordinator lists one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting {
    /// It says OFFLINE.
    pub is_offline: bool,
    /// It has a stream of the host, or heard it since its start.
    pub is_heard: bool,
}

/// The check of graces.
#[derive(Debug, Default)]
pub struct Grace {
    /// Of each coordinator: when it started, and what it heard since.
    runs: BTreeMap<usize, (Duration, BTreeSet<usize>)>,
    /// When a coordinator last called a host OFFLINE, and when it was last asked.
    offline: BTreeMap<(usize, usize), Duration>,
    asked: BTreeMap<usize, Duration>,
    excused: BTreeSet<(usize, usize)>,
    told: BTreeSet<(usize, usize)>,
    checks: u64,
}

impl Grace {
    /// How often a host was looked at in a grace.
    pub fn checks(&self) -> u64 {
        self.checks
    }

    /// A coordinator starts.
    pub fn started(&mut self, coordinator: usize, now: Duration) {
        self.runs.insert(coordinator, (now, BTreeSet::new()));
        let stored = self.asked.get(&coordinator).copied().unwrap_or_default().saturating_sub(STORED_EVERY);
        let of_before = self.offline.iter().filter(|((of, _), at)| *of == coordinator && **at >= stored);
        let of_before = of_before.map(|(key, _)| *key);
        self.excused =
            self.excused.iter().filter(|(of, _)| *of != coordinator).copied().chain(of_before).collect();
        self.told.retain(|(of, _)| *of != coordinator);
    }

    /// A stream of the host was open there.
    pub fn heard(&mut self, coordinator: usize, host: usize) {
        if let Some((_, heard)) = self.runs.get_mut(&coordinator) {
            heard.insert(host);
        }
    }

    /// How a coordinator lists a host; `said_goodbye`: the host was shut down in order.
    pub fn look(
        &mut self,
        coordinator: usize,
        host: usize,
        sighting: Sighting,
        said_goodbye: bool,
        now: Duration,
    ) -> Option<Violation> {
        let (started, heard) = self.runs.get_mut(&coordinator)?;
        if sighting.is_heard {
            heard.insert(host);
        }
        let key = (coordinator, host);
        self.asked.insert(coordinator, now);
        if sighting.is_offline {
            self.offline.insert(key, now);
        }
        if now.saturating_sub(*started) >= GRACE {
            return None;
        }
        self.checks += 1;
        let is_excused = said_goodbye || heard.contains(&host) || self.excused.contains(&key);
        (sighting.is_offline && !is_excused && self.told.insert(key)).then(|| {
            let age = now.saturating_sub(*started).as_secs_f64();
            let what = format!(
                "c{} calls h{} OFFLINE {age:.1} s after its start, unheard",
                coordinator + 1,
                host + 1
            );
            Violation::new("grace", now, what)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFLINE: Sighting = Sighting { is_offline: true, is_heard: false };
    const HEARD: Sighting = Sighting { is_offline: false, is_heard: true };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_host_not_heard_yet_may_not_be_offline_within_a_minute() {
        let mut grace = Grace::default();
        grace.started(0, at(10));
        assert!(grace.look(0, 1, OFFLINE, false, at(11)).is_some());
        assert_eq!(grace.look(0, 2, OFFLINE, true, at(11)), None, "it said good-bye");
        assert_eq!(grace.look(0, 3, OFFLINE, false, at(70)), None, "the grace is over");
    }

    #[test]
    fn a_host_that_was_heard_or_known_to_be_offline_may_be() {
        let mut grace = Grace::default();
        grace.started(0, at(10));
        assert_eq!(grace.look(0, 1, HEARD, false, at(11)), None);
        assert_eq!(grace.look(0, 1, OFFLINE, false, at(40)), None);
        grace.started(0, at(45));
        assert_eq!(grace.look(0, 1, OFFLINE, false, at(46)), None);
        grace.started(1, at(45));
        assert!(grace.look(1, 1, OFFLINE, false, at(46)).is_some(), "another coordinator's business");
    }
}
