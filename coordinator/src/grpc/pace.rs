//! How fast may a host report?
//!
//! An agent reports at most ten times a second. One that reports as fast as the network carries it would keep the farm's
//! one writer busy with nothing else, and everybody's placements would wait for its news. So a stream is read no faster
//! than five times that, after a burst that a busy moment may need; what the host says beyond that waits on its own side of
//! the connection, where HTTP/2 holds it. Answers are not counted: as many are asked for.

use std::time::Duration;

use tokio::time::Instant;

/// A report takes so long, of the host's time.
const EACH: Duration = Duration::from_millis(20);
/// So much may be spoken for.
const BURST: Duration = Duration::from_secs(4);

/// The reports of one stream.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Up to when its reports have used its time. Absent: it has not reported.
    used: Option<Instant>,
}

impl Pace {
    /// A report came.
    pub(super) fn reported(&mut self, now: Instant) {
        self.used = Some(self.used.map_or(now, |used| used.max(now)) + EACH);
    }

    /// When the stream may be read again; a moment in the past: now.
    pub(super) fn reads_at(&self) -> Instant {
        let now = Instant::now();
        self.used.and_then(|used| used.checked_sub(BURST)).unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_host_may_report_two_hundred_times_at_once_and_then_fifty_times_a_second() {
        let mut pace = Pace::default();
        let begun = Instant::now();
        let mut reports = 0;
        while begun.elapsed() < Duration::from_secs(10) {
            tokio::time::sleep_until(pace.reads_at()).await;
            pace.reported(Instant::now());
            reports += 1;
        }
        assert!((690..=710).contains(&reports), "{reports}");
        // Ten a second never wait.
        tokio::time::sleep(Duration::from_secs(10)).await;
        for _ in 0..1000 {
            assert!(pace.reads_at() <= Instant::now());
            pace.reported(Instant::now());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
