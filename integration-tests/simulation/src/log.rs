//! What happened, in order; and is it the same as last time?
//!
//! Every event is hashed with its time, so two runs of one seed that differ anywhere differ in one number. The last events
//! are kept for whoever must find out why an invariant broke.

use std::collections::VecDeque;
use std::fmt::Write;
use std::time::Duration;

/// Events kept for a failure: a few seconds of a busy run.
const KEPT: usize = 60;
/// FNV-1a: no seed of its own, the same on every machine.
const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// The events of one run.
#[derive(Debug)]
pub struct EventLog {
    last: VecDeque<String>,
    hash: u64,
    count: u64,
    is_shown: bool,
}

impl EventLog {
    /// An empty one; `is_shown` prints each event as it comes.
    pub fn new(is_shown: bool) -> Self {
        Self { last: VecDeque::with_capacity(KEPT), hash: FNV_START, count: 0, is_shown }
    }

    /// Something happened at `at`.
    pub fn add(&mut self, at: Duration, what: &str) {
        let mut line = String::with_capacity(what.len() + 12);
        // Writing to a string cannot fail.
        let _ = write!(line, "{:>10.6} {what}", at.as_secs_f64());
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
        self.count += 1;
        if self.is_shown {
            eprintln!("{line}");
        }
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    /// The newest events, oldest first.
    pub fn last(&self) -> Vec<String> {
        self.last.iter().cloned().collect()
    }

    /// Of all events.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_differs_in_one_moment_has_another_hash() {
        let hash = |at| {
            let mut log = EventLog::new(false);
            log.add(Duration::from_millis(1), "a");
            log.add(Duration::from_millis(at), "b");
            log.hash()
        };
        assert_eq!(hash(2), hash(2));
        assert_ne!(hash(2), hash(3));
    }
}
