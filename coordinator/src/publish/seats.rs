//! Who may watch the farm, and how many at once?
//!
//! Two things are bounded. **Readers** are those who are told: each takes a task and, while it begins, holds on to a copy of
//! the farm. A reader that takes nothing loses its seat. Its **stream** may outlive that for as long as its connection
//! lasts, because what was written for it lies there until somebody reads it; so streams are counted until they are gone,
//! for each caller on its own, and whoever lets them lie is the one who gets no more of them.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Readers at once. Each is a gateway, and a gateway needs one.
pub(super) const MOST_READERS: usize = 1024;
/// Streams of one caller at once: enough for gateways that share a certificate.
pub(super) const MOST_STREAMS: usize = 64;

/// The seats.
#[derive(Debug, Default)]
pub(super) struct Seats {
    readers: Arc<AtomicUsize>,
    streams: Arc<Mutex<HashMap<String, usize>>>,
}

impl Seats {
    pub(super) fn take(&self, who: &str) -> Option<(Seat, Stream)> {
        let stream = Stream::of(&self.streams, who)?;
        let taken = self.readers.fetch_add(1, Ordering::AcqRel);
        let seat = Seat(self.readers.clone());
        (taken < MOST_READERS).then_some((seat, stream))
    }

    pub(super) fn readers(&self) -> usize {
        self.readers.load(Ordering::Acquire)
    }
}

/// A place among the readers, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A place among the streams of a caller, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Stream {
    streams: Arc<Mutex<HashMap<String, usize>>>,
    who: String,
}

impl Stream {
    fn of(streams: &Arc<Mutex<HashMap<String, usize>>>, who: &str) -> Option<Self> {
        let mut counts = streams.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.get(who).copied().unwrap_or_default();
        if count >= MOST_STREAMS {
            return None;
        }
        counts.insert(who.to_owned(), count + 1);
        Some(Self { streams: streams.clone(), who: who.to_owned() })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut counts = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.who) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.who);
            }
        }
    }
}
