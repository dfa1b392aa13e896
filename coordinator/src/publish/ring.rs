//! What was told last, for those who read on from a revision.

use std::collections::VecDeque;

use bytes::Bytes;
use usher_types::{BootTime, PoolName};

/// Messages kept: at ten a second and pool, the last minute and more of a small farm.
const MOST_EVENTS: usize = 1000;
/// Bytes kept. A farm of ten thousand hosts writes about half a megabyte a second.
const MOST_BYTES: usize = 32 * 1024 * 1024;

/// One message, as every reader of its pool gets it.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// The farm is known up to here with it.
    pub(crate) revision: u64,
    /// When it was written: ages in it are of then.
    pub(crate) written_at: BootTime,
    /// The pool that it is of.
    pub(crate) pool: PoolName,
    /// A `WatchFarmResponse`.
    pub(crate) bytes: Bytes,
}

/// What comes after a revision.
#[derive(Debug)]
pub(crate) enum Next {
    /// This.
    Event(Event),
    /// Nothing yet.
    Nothing,
    /// It is not kept any more, or was never given.
    Trimmed,
}

/// The last messages, their revisions without a gap.
#[derive(Debug, Default)]
pub(super) struct Ring {
    events: VecDeque<Event>,
    bytes: usize,
    newest: u64,
}

impl Ring {
    pub(super) fn push(&mut self, event: Event) {
        debug_assert_eq!(event.revision, self.newest + 1, "revisions have no gap");
        self.newest = event.revision;
        self.bytes += event.bytes.len();
        self.events.push_back(event);
        while self.events.len() > MOST_EVENTS || (self.bytes > MOST_BYTES && self.events.len() > 1) {
            self.bytes -= self.events.pop_front().map_or(0, |event| event.bytes.len());
        }
    }

    pub(super) fn after(&self, revision: u64) -> Next {
        if revision == self.newest {
            return Next::Nothing;
        }
        let Some(first) = self.events.front().map(|event| event.revision) else { return Next::Trimmed };
        let at = revision
            .checked_add(1)
            .and_then(|next| next.checked_sub(first))
            .and_then(|at| usize::try_from(at).ok());
        match at.and_then(|at| self.events.get(at)) {
            Some(event) => Next::Event(event.clone()),
            None => Next::Trimmed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(revision: u64, bytes: usize) -> Event {
        Event {
            revision,
            written_at: BootTime::ZERO,
            pool: PoolName::new("desk").unwrap(),
            bytes: Bytes::from(vec![0; bytes]),
        }
    }

    fn kept(ring: &Ring) -> (u64, u64) {
        (ring.events.front().unwrap().revision, ring.newest)
    }

    #[test]
    fn case_138_what_was_trimmed_is_said_to_be_so_and_the_rest_is_read_without_a_gap() {
        let mut ring = Ring::default();
        (1..=1900).for_each(|revision| ring.push(event(revision, 1)));
        assert_eq!(kept(&ring), (901, 1900));
        assert!(matches!(ring.after(100), Next::Trimmed));
        assert!(matches!(ring.after(899), Next::Trimmed));
        assert!(matches!(ring.after(900), Next::Event(event) if event.revision == 901));
        assert!(matches!(ring.after(1899), Next::Event(event) if event.revision == 1900));
        assert!(matches!(ring.after(1900), Next::Nothing));
        for never_given in [1901, u64::MAX] {
            assert!(matches!(ring.after(never_given), Next::Trimmed));
        }
    }

    #[test]
    fn large_messages_are_kept_for_less_long() {
        let mut ring = Ring::default();
        (1..=100).for_each(|revision| ring.push(event(revision, 1024 * 1024)));
        assert_eq!(kept(&ring), (69, 100));
        ring.push(event(101, 2 * MOST_BYTES));
        assert_eq!(kept(&ring), (101, 101), "the last one stays, however large");
    }
}
