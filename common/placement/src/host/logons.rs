//! How many logons are in progress, now and on average?
//!
//! A logon is a session that has begun and is not ready to work in yet. A place in the book is none: its login may still
//! be connecting, and whoever predicts counts places by themselves. A source that can tell says how many there are; where
//! none can, a session counts for as long as a logon takes before anybody has learned better.
//!
//! The number jumps with each of them, so its mean weighs each logon with the time that it took of the interval: two of
//! half an interval each are a mean of one, whenever the samples fall.

use std::time::Duration;

use usher_types::{BootTime, LogonsInProgress};

use crate::load::CostBounds;

/// What is known of logons beside the sessions themselves.
#[derive(Debug, Clone, Default)]
pub(super) struct Logons {
    measured_at: Option<BootTime>,
    /// What the source said last, and when.
    said: Option<(LogonsInProgress, BootTime)>,
    /// Mean of the interval that ended then.
    mean: Option<f64>,
}

impl Logons {
    /// An interval ends with a measurement in which the source `said` this; sessions began at `begun`. Its mean is shown
    /// until the next one ends.
    pub(super) fn end_interval(
        &mut self,
        said: Option<LogonsInProgress>,
        begun: impl Iterator<Item = BootTime>,
        now: BootTime,
    ) {
        let took = self.measured_at.map(|before| now.since(before)).filter(|took| !took.is_zero());
        if let Some((before, took)) = self.measured_at.zip(took) {
            let of_interval = |began: BootTime| (began + logon()).min(now).since(began.max(before));
            let logged_on: Duration = begun.map(of_interval).sum();
            self.mean = Some(logged_on.as_secs_f64() / took.as_secs_f64());
        }
        self.said = said.map(|said| (said, now));
        self.measured_at = self.measured_at.max(Some(now));
    }

    /// Between two measurements the source says that so many are in progress. One that said nothing in the last
    /// measurement is not heard: it knows no mean.
    pub(super) fn tell(&mut self, in_progress: u32, now: BootTime) {
        if let Some((said, said_at)) = &mut self.said {
            (said.now, *said_at) = (in_progress, now);
        }
    }

    /// As a report at `now` says it. Absent: neither the source nor the sessions tell. Before the first whole interval the
    /// number of now stands for the mean.
    pub(super) fn report(
        &self,
        begun: Option<impl Iterator<Item = BootTime>>,
        now: BootTime,
    ) -> Option<LogonsInProgress> {
        if let Some((said, said_at)) = self.said {
            // Those that came since are logging on.
            let since = begun.into_iter().flatten().filter(|began| *began > said_at);
            return Some(LogonsInProgress { now: said.now.saturating_add(count(since)), mean: said.mean });
        }
        let now = count(begun?.filter(|began| now.since(*began) < logon()));
        Some(LogonsInProgress { now, mean: self.mean.unwrap_or(f64::from(now)) })
    }
}

/// How long a logon takes before anybody has learned better.
fn logon() -> Duration {
    Duration::from_secs_f64(CostBounds::LOGON_SECONDS.prior)
}

fn count(begun: impl Iterator<Item = BootTime>) -> u32 {
    u32::try_from(begun.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime::from_millis(100_000 + seconds * 1000)
    }

    fn report(logons: &Logons, begun: &[u64], now: u64) -> LogonsInProgress {
        logons.report(Some(begun.iter().map(|began| at(*began))), at(now)).unwrap()
    }

    fn end(logons: &mut Logons, begun: &[u64], now: u64) {
        logons.end_interval(None, begun.iter().map(|began| at(*began)), at(now));
    }

    #[test]
    fn a_session_is_a_logon_for_as_long_as_one_takes_and_the_mean_weighs_it_with_its_time() {
        let mut logons = Logons::default();
        assert_eq!(report(&logons, &[0, 5], 6), LogonsInProgress { now: 2, mean: 2.0 });
        end(&mut logons, &[0, 5], 10);
        end(&mut logons, &[0, 5], 30);
        // The first was logging on for 10 s of these 20 s, the other for 15 s.
        assert_eq!(report(&logons, &[0, 5], 30), LogonsInProgress { now: 0, mean: 1.25 });
        assert_eq!(report(&logons, &[0, 5, 31], 31).now, 1, "one that came since");
    }

    #[test]
    fn what_the_source_says_wins_and_those_that_came_since_are_added() {
        let mut logons = Logons::default();
        let said = LogonsInProgress { now: 3, mean: 2.5 };
        logons.end_interval(Some(said), [at(1), at(9)].into_iter(), at(10));
        assert_eq!(report(&logons, &[1, 9], 12), said);
        assert_eq!(report(&logons, &[1, 9, 11], 12), LogonsInProgress { now: 4, mean: 2.5 });
        assert_eq!(logons.report(None::<std::iter::Empty<_>>, at(12)), Some(said));
        // A later word of the source has the one that came since.
        logons.tell(4, at(12));
        assert_eq!(report(&logons, &[1, 9, 11], 12), LogonsInProgress { now: 4, mean: 2.5 });
        logons.end_interval(None, std::iter::empty(), at(15));
        logons.tell(9, at(16));
        assert_eq!(report(&logons, &[], 16).now, 0, "a source without a mean is not heard");
    }

    #[test]
    fn unknown_sessions_are_no_zero_and_a_clock_that_stands_still_changes_no_mean() {
        let mut logons = Logons::default();
        assert_eq!(logons.report(None::<std::iter::Empty<_>>, at(0)), None);
        end(&mut logons, &[0], 0);
        end(&mut logons, &[0], 10);
        assert_eq!(report(&logons, &[0], 10).mean, 1.0);
        end(&mut logons, &[0], 10);
        end(&mut logons, &[0], 5);
        assert_eq!(report(&logons, &[0], 10).mean, 1.0);
    }
}
