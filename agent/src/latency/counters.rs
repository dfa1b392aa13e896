//! What became of the timings that were sent to us?
//!
//! Whoever sends StatsD gets no answer, so these counts are the only place where a wrong client shows. They only
//! grow; many readers may look while the listener counts.

use std::sync::atomic::{AtomicU64, Ordering};

use super::statsd::{DatagramCounts, RejectReason};

/// Counts since the agent's start, shared between the listener and whoever shows them.
#[derive(Debug, Default)]
pub struct IngestCounters {
    accepted: AtomicU64,
    below_resolution: AtomicU64,
    rejected: [AtomicU64; RejectReason::ALL.len()],
    truncated_datagrams: AtomicU64,
    dropped: AtomicU64,
    receive_errors: AtomicU64,
}

/// [`IngestCounters`] at one moment. A line is in exactly one of `accepted`, `below_resolution` and `rejected`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IngestCounts {
    /// Lines that told something.
    pub accepted: u64,
    /// Lines with a time of 0: shorter than the sender's timer can tell. They enter neither mean nor minimum.
    pub below_resolution: u64,
    /// Lines that gave nothing, by reason, in the order of [`RejectReason::ALL`].
    pub rejected: [u64; RejectReason::ALL.len()],
    /// Datagrams longer than the buffer, whose last line was thrown away.
    pub truncated_datagrams: u64,
    /// Accepted lines that were lost because their reader was too slow.
    pub dropped: u64,
    /// Failures of the sockets.
    pub receive_errors: u64,
}

impl IngestCounts {
    /// Lines that gave nothing, of all reasons.
    #[must_use]
    pub fn rejected_lines(&self) -> u64 {
        self.rejected.iter().sum()
    }

    /// The lines rejected for one reason.
    #[must_use]
    pub fn rejected_for(&self, reason: RejectReason) -> u64 {
        self.rejected[reason as usize]
    }
}

impl IngestCounters {
    /// The counts now. Each is exact; they are not of one instant.
    #[must_use]
    pub fn snapshot(&self) -> IngestCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        IngestCounts {
            accepted: load(&self.accepted),
            below_resolution: load(&self.below_resolution),
            rejected: self.rejected.each_ref().map(load),
            truncated_datagrams: load(&self.truncated_datagrams),
            dropped: load(&self.dropped),
            receive_errors: load(&self.receive_errors),
        }
    }

    pub(crate) fn add(&self, datagram: &DatagramCounts) {
        let add = |counter: &AtomicU64, count: u64| counter.fetch_add(count, Ordering::Relaxed);
        add(&self.accepted, datagram.accepted);
        add(&self.below_resolution, datagram.below_resolution);
        for (counter, count) in self.rejected.iter().zip(datagram.rejected) {
            add(counter, count);
        }
        add(&self.truncated_datagrams, u64::from(datagram.truncated));
    }

    pub(crate) fn add_dropped(&self, timings: usize) {
        self.dropped.fetch_add(timings as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_receive_error(&self) {
        self.receive_errors.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_every_datagram_is_counted_once() {
        let counters = IngestCounters::default();
        let mut datagram =
            DatagramCounts { accepted: 3, below_resolution: 1, truncated: true, ..Default::default() };
        datagram.rejected[RejectReason::Value as usize] = 2;
        counters.add(&datagram);
        counters.add(&datagram);
        counters.add_dropped(5);
        let counts = counters.snapshot();
        assert_eq!((counts.accepted, counts.below_resolution, counts.rejected_lines()), (6, 2, 4));
        assert_eq!(
            (counts.rejected_for(RejectReason::Value), counts.rejected_for(RejectReason::Name)),
            (4, 0)
        );
        assert_eq!((counts.truncated_datagrams, counts.dropped), (2, 5));
    }
}
