//! Which coordinators does this host have a stream to, and what keeps it from the others?
//!
//! Each coordinator is waited for, called, attached to, or known to refuse the host, which only a person can mend. That
//! it is not attached counts from the loss of the stream, however often it was called since, and the last error stays
//! until the next stream is greeted: so whoever asks sees for how long and why, between two calls as well.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use usher_types::BootTime;

/// What is done about a stream to a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StreamPhase {
    /// The next call is waited for.
    #[default]
    Waiting,
    /// It is called, and has not greeted us yet.
    Connecting,
    /// It has greeted us.
    Attached,
    /// It said no, and only a person can mend that; it is asked again slowly.
    Refused,
}

impl StreamPhase {
    /// As a status writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Connecting => "connecting",
            Self::Attached => "attached",
            Self::Refused => "refused",
        }
    }
}

/// How the stream to one coordinator fares.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StreamStatus {
    /// What is done now.
    pub phase: StreamPhase,
    /// Since when it is attached, or is not. Absent: it was not called yet.
    pub since: Option<BootTime>,
    /// When it is called next. Absent: it is attached, or being called.
    pub next_call: Option<BootTime>,
    /// Calls that failed since it last greeted us.
    pub failures: u32,
    /// Why it is not attached, and when that was seen. Absent while it is.
    pub last_error: Option<(String, BootTime)>,
    /// Its newest tick.
    pub heard: Option<BootTime>,
}

/// The streams of one host, by the number of their coordinator. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct StreamsHeld(Arc<Mutex<BTreeMap<usize, Held>>>);

#[derive(Debug, Default)]
struct Held {
    count: u32,
    status: StreamStatus,
}

/// One counted stream; dropping it counts it off.
#[derive(Debug)]
pub struct HeldStream {
    held: StreamsHeld,
    coordinator: usize,
}

impl StreamsHeld {
    /// Counts a stream to the coordinator of this number for as long as the result lives.
    #[must_use]
    pub fn hold(&self, coordinator: usize) -> HeldStream {
        self.by_coordinator().entry(coordinator).or_default().count += 1;
        HeldStream { held: self.clone(), coordinator }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.by_coordinator().values().map(|held| held.count).sum()
    }

    /// How many there are to the coordinator of this number.
    #[must_use]
    pub fn to(&self, coordinator: usize) -> u32 {
        self.by_coordinator().get(&coordinator).map(|held| held.count).unwrap_or_default()
    }

    /// How the stream to the coordinator of this number fares.
    #[must_use]
    pub fn status(&self, coordinator: usize) -> StreamStatus {
        self.by_coordinator().get(&coordinator).map(|held| held.status.clone()).unwrap_or_default()
    }

    /// It is called at `next_call`.
    pub(super) fn waits(&self, coordinator: usize, refused: bool, now: BootTime, next_call: BootTime) {
        self.change(coordinator, |status| {
            status.phase = if refused { StreamPhase::Refused } else { StreamPhase::Waiting };
            status.since.get_or_insert(now);
            status.next_call = Some(next_call);
        });
    }

    /// It is called. One that has refused us is still known to, until it greets us.
    pub(super) fn connects(&self, coordinator: usize) {
        self.change(coordinator, |status| {
            if status.phase != StreamPhase::Refused {
                status.phase = StreamPhase::Connecting;
            }
            status.next_call = None;
        });
    }

    /// It has greeted us.
    pub(super) fn attached(&self, coordinator: usize, now: BootTime) {
        self.change(coordinator, |status| {
            let (phase, heard) = (StreamPhase::Attached, status.heard);
            *status = StreamStatus { phase, since: Some(now), heard, ..StreamStatus::default() };
        });
    }

    /// Its newest tick has come.
    pub(super) fn heard(&self, coordinator: usize, now: BootTime) {
        self.change(coordinator, |status| status.heard = Some(now));
    }

    /// The stream is over, or was never opened.
    pub(super) fn ended(&self, coordinator: usize, why: String, now: BootTime) {
        self.change(coordinator, |status| {
            if status.phase == StreamPhase::Attached {
                (status.phase, status.since) = (StreamPhase::Waiting, Some(now));
            }
            status.failures = status.failures.saturating_add(1);
            status.last_error = Some((why, now));
        });
    }

    fn change(&self, coordinator: usize, change: impl FnOnce(&mut StreamStatus)) {
        change(&mut self.by_coordinator().entry(coordinator).or_default().status);
    }

    fn by_coordinator(&self) -> MutexGuard<'_, BTreeMap<usize, Held>> {
        // No change here can break off half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HeldStream {
    fn drop(&mut self) {
        if let Some(held) = self.held.by_coordinator().get_mut(&self.coordinator) {
            held.count = held.count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime::from_millis(seconds * 1000)
    }

    #[test]
    fn the_time_without_a_stream_counts_from_its_loss_and_the_reason_stays_between_two_calls() {
        let streams = StreamsHeld::default();
        assert_eq!(streams.status(0), StreamStatus::default());
        streams.waits(0, false, at(1), at(2));
        streams.connects(0);
        assert_eq!((streams.status(0).phase, streams.status(0).next_call), (StreamPhase::Connecting, None));
        streams.attached(0, at(3));
        streams.heard(0, at(9));
        streams.ended(0, "the coordinator ended the stream".into(), at(10));
        for call in [11, 21] {
            streams.waits(0, false, at(call), at(call + 5));
            streams.connects(0);
            streams.ended(0, "connection refused".into(), at(call + 6));
        }
        let status = streams.status(0);
        assert_eq!(
            (status.phase, status.since, status.heard),
            (StreamPhase::Connecting, Some(at(10)), Some(at(9)))
        );
        assert_eq!((status.failures, status.last_error), (3, Some(("connection refused".into(), at(27)))));
        streams.attached(0, at(30));
        let status = streams.status(0);
        assert_eq!((status.since, status.failures, status.last_error), (Some(at(30)), 0, None));
    }

    #[test]
    fn one_that_refuses_us_is_said_to_until_it_greets_us() {
        let streams = StreamsHeld::default();
        streams.ended(1, "AlreadyExists: the id is in use".into(), at(1));
        streams.waits(1, true, at(1), at(20));
        streams.connects(1);
        assert_eq!(streams.status(1).phase, StreamPhase::Refused);
        streams.waits(1, false, at(20), at(21));
        assert_eq!(streams.status(1).phase, StreamPhase::Waiting, "now it is only gone");
    }

    #[test]
    fn streams_are_counted_for_as_long_as_they_are_held() {
        let streams = StreamsHeld::default();
        let (first, second) = (streams.hold(0), streams.hold(0));
        assert_eq!((streams.count(), streams.to(0), streams.to(1)), (2, 2, 0));
        drop((first, second));
        assert_eq!((streams.count(), streams.status(0)), (0, StreamStatus::default()));
    }
}
