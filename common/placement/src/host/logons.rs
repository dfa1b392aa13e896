//! How many logons are in progress, now and on average?
//!
//! Every place in the book is a logon on its way. The number jumps with each of them, so its mean weighs each value
//! with the time for which it held: two logons of half an interval each are a mean of one, whenever the samples fall.

use usher_types::{BootTime, LogonsInProgress};

/// The number of logons over the current interval, and the mean of the interval before it.
#[derive(Debug, Clone, Default)]
pub(super) struct Logons {
    now: u32,
    interval_began: Option<BootTime>,
    counted_until: BootTime,
    /// Logons x microseconds since the interval began.
    area: f64,
    mean: Option<f64>,
}

impl Logons {
    /// From `now` on there are `count`.
    pub(super) fn set(&mut self, count: u32, now: BootTime) {
        self.add_area(now);
        self.now = count;
    }

    /// An interval ends: its mean is shown until the next one ends.
    pub(super) fn end_interval(&mut self, now: BootTime) {
        self.add_area(now);
        let took_us = self.interval_began.map(|began| now.since(began).as_micros()).filter(|us| *us > 0);
        if let Some(took_us) = took_us {
            self.mean = Some(self.area / took_us as f64);
        }
        if took_us.is_some() || self.interval_began.is_none() {
            self.interval_began = Some(now);
            self.area = 0.0;
        }
    }

    fn add_area(&mut self, now: BootTime) {
        if self.interval_began.is_some() {
            self.area += f64::from(self.now) * now.since(self.counted_until).as_micros() as f64;
        }
        self.counted_until = self.counted_until.max(now);
    }

    /// As a report says it. Before the first whole interval the number of now stands for the mean.
    pub(super) fn report(&self) -> LogonsInProgress {
        LogonsInProgress { now: self.now, mean: self.mean.unwrap_or(f64::from(self.now)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> BootTime {
        BootTime::from_millis(100_000 + millis)
    }

    #[test]
    fn the_mean_weighs_each_number_with_its_time() {
        let mut logons = Logons::default();
        logons.set(3, at(0));
        assert_eq!(logons.report(), LogonsInProgress { now: 3, mean: 3.0 });
        logons.end_interval(at(0));
        logons.set(1, at(1_000));
        logons.set(2, at(3_000));
        logons.end_interval(at(5_000));
        // 3 x 1 s, 1 x 2 s, 2 x 2 s over 5 s.
        assert_eq!(logons.report(), LogonsInProgress { now: 2, mean: 9.0 / 5.0 });
        logons.end_interval(at(6_000));
        assert_eq!(logons.report().mean, 2.0);
    }

    #[test]
    fn two_ends_at_one_instant_and_a_clock_that_stands_still_change_nothing() {
        let mut logons = Logons::default();
        logons.set(1, at(0));
        logons.end_interval(at(0));
        logons.end_interval(at(10));
        logons.end_interval(at(10));
        logons.set(1, at(5));
        logons.end_interval(at(20));
        assert_eq!(logons.report(), LogonsInProgress { now: 1, mean: 1.0 });
    }
}
