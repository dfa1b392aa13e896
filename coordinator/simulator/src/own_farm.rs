//! The farm of somebody who wants to know before they buy, or before Monday morning.
//!
//! It is checked as a whole before any work: each fault says what is allowed.

use std::time::Duration;

use thiserror::Error;

use crate::{
    machines::MEMORY_GB,
    scene::{Arrivals, Scene, Sizes},
};

/// More hosts than this are no question for a model on one machine.
const MOST_HOSTS: usize = 20_000;
/// Longer storms would only take longer to compute: 4 h is the mean life of a session.
const LONGEST: Duration = Duration::from_secs(4 * 3600);
/// As agents may be told.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));
/// Mean memory of a session, and of a host at rest, as the model has them, GB.
const SESSION_GB: f64 = 0.69;
const AT_REST_GB: f64 = 2.0;

/// What an operator knows of a farm.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct OwnFarm {
    /// Hosts of 8 cores and 32 GB; in a mixed farm every second and third is 2 and 4 times as large.
    pub hosts: usize,
    /// Logins that come in all.
    pub logons: usize,
    /// Within which time.
    pub within: Duration,
    /// How often agents report.
    pub report_interval: Duration,
    /// Hosts of three sizes.
    pub mixed: bool,
}

/// Why a farm cannot be simulated.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum FarmFault {
    /// No hosts, or too many.
    #[error("hosts = {0}: allowed are 1..={MOST_HOSTS}")]
    Hosts(usize),
    /// Nobody comes.
    #[error("logons = 0: at least 1 must come")]
    NoLogons,
    /// Their sessions do not fit into the memory of all hosts together.
    #[error(
        "logons = {logons}: their sessions need {needed_gb:.0} GB with those that are there, all hosts together have \
         {there_gb:.0} GB; at most {most} fit"
    )]
    Memory {
        /// As asked.
        logons: usize,
        /// Memory of everybody's sessions, GB.
        needed_gb: f64,
        /// Memory that there is, GB.
        there_gb: f64,
        /// Logons that fit.
        most: usize,
    },
    /// No time, or too much.
    #[error("in = {0:?}: allowed is longer than 0 s, up to {LONGEST:?}")]
    Within(Duration),
    /// A report interval that agents do not have.
    #[error("report interval = {0:?}: allowed are 100ms..=1h")]
    Interval(Duration),
}

impl OwnFarm {
    /// The scene that it stands for.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn scene(&self) -> Result<Scene, FarmFault> {
        if !(1..=MOST_HOSTS).contains(&self.hosts) {
            return Err(FarmFault::Hosts(self.hosts));
        }
        if self.logons == 0 {
            return Err(FarmFault::NoLogons);
        }
        if self.within.is_zero() || self.within > LONGEST {
            return Err(FarmFault::Within(self.within));
        }
        if self.report_interval < INTERVALS.0 || self.report_interval > INTERVALS.1 {
            return Err(FarmFault::Interval(self.report_interval));
        }
        let sizes = if self.mixed { Sizes::Mixed } else { Sizes::Equal };
        let storm = Scene::storm(self.hosts, sizes, self.report_interval.as_secs_f64());
        self.check_memory(&storm)?;
        let arrivals = Arrivals::Logons { count: self.logons, within_s: self.within.as_secs_f64() };
        Ok(Scene { arrivals, ..storm }.named("own farm"))
    }

    fn check_memory(&self, storm: &Scene) -> Result<(), FarmFault> {
        let size: f64 = (0..self.hosts).map(|host| storm.sizes.of(host)).sum();
        let there_gb = (MEMORY_GB - AT_REST_GB) * size;
        let before = storm.sessions as f64 * size;
        let needed_gb = SESSION_GB * (before + self.logons as f64);
        if needed_gb <= there_gb {
            return Ok(());
        }
        // At most a few million: it fits.
        let most = (there_gb / SESSION_GB - before).max(0.0) as usize;
        Err(FarmFault::Memory { logons: self.logons, needed_gb, there_gb, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FARM: OwnFarm = OwnFarm {
        hosts: 10,
        logons: 200,
        within: Duration::from_secs(120),
        report_interval: Duration::from_secs(5),
        mixed: false,
    };

    #[test]
    fn what_cannot_be_is_refused_before_any_work_with_what_is_allowed() {
        let second = Duration::from_secs(1);
        let cases = [
            (OwnFarm { hosts: 0, ..FARM }, "hosts = 0: allowed are 1..=20000"),
            (OwnFarm { hosts: 20_001, ..FARM }, "hosts = 20001"),
            (OwnFarm { logons: 0, ..FARM }, "logons = 0: at least 1"),
            (OwnFarm { logons: 2000, ..FARM }, "at most 334 fit"),
            (OwnFarm { within: Duration::ZERO, ..FARM }, "in = 0ns: allowed is longer than 0 s"),
            (OwnFarm { within: 100_000 * second, ..FARM }, "in = 100000s"),
            (
                OwnFarm { report_interval: Duration::ZERO, ..FARM },
                "report interval = 0ns: allowed are 100ms..=1h",
            ),
        ];
        for (farm, expected) in cases {
            let fault = farm.scene().unwrap_err().to_string();
            assert!(fault.contains(expected), "{fault}");
        }
        assert!(OwnFarm { logons: 334, ..FARM }.scene().is_ok());
        assert!(OwnFarm { logons: 700, mixed: true, ..FARM }.scene().is_ok(), "larger hosts hold more");
    }
}
