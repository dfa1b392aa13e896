//! What did this client give out itself, and what did not work out?
//!
//! Whoever reports takes this lock, on the caller's thread: nothing under it may take longer the more places there are. So
//! places are found by their login and by the instant at which they are forgotten, and are moved to a newer farm some at a
//! time.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use usher_placement::reservation::Grant;
use usher_types::{BootTime, EndReason, RequestId};

/// How long a host comes last on which a login failed.
const FAILED_FOR: Duration = Duration::from_secs(60);
/// Logins given out here that are counted at most; beyond that those are forgotten whose time is over first.
const MOST_PLACES: usize = 100_000;
/// So many that have ended are worth a walk over all.
const MANY_ENDED: usize = 1000;
/// Places that are moved under one lock.
const AT_ONCE: usize = 256;

/// When a place is forgotten, and of which login.
pub(super) type Key = (BootTime, RequestId);

/// What this client gave out itself, and what did not work out.
#[derive(Debug, Default)]
pub(super) struct Given {
    places: HashMap<RequestId, (BootTime, Arc<Grant>)>,
    by_end: BTreeSet<Key>,
    /// Places that have ended since what remembers them was last tidied up.
    ended: usize,
    /// Hosts, with the instant at which that is forgotten.
    failed: HashMap<String, BootTime>,
}

impl Given {
    /// A place counts until that instant.
    pub(super) fn count(&mut self, grant: Arc<Grant>, until: BootTime, now: BootTime) {
        let request_id = grant.token.request_id.clone();
        let before = self.places.insert(request_id.clone(), (until, grant));
        if let Some((before, _)) = before {
            self.by_end.remove(&(before, request_id.clone()));
        }
        self.by_end.insert((until, request_id));
        if self.places.len() > MOST_PLACES {
            self.end_first(now);
        }
    }

    /// The place of a login is over.
    pub(super) fn end(&mut self, request_id: &str, reason: EndReason, now: BootTime) {
        let Ok(request_id) = RequestId::new(request_id) else { return };
        if let Some((until, grant)) = self.places.remove(&request_id) {
            grant.end(reason, now);
            self.by_end.remove(&(until, request_id));
            self.ended += 1;
        }
    }

    /// Places whose time is over at `now` end, at `then` of the farm's clock.
    pub(super) fn expire(&mut self, now: BootTime, then: BootTime) {
        while self.by_end.first().is_some_and(|(until, _)| *until <= now) {
            self.end_first(then);
        }
    }

    fn end_first(&mut self, then: BootTime) {
        let first = self.by_end.pop_first().and_then(|(_, request_id)| self.places.remove(&request_id));
        if let Some((_, grant)) = first {
            grant.end(EndReason::Expired, then);
            self.ended += 1;
        }
    }

    /// Whether so many have ended that those are to be forgotten. It is said once.
    pub(super) fn is_littered(&mut self) -> bool {
        let is_littered = self.ended > self.places.len().max(MANY_ENDED);
        if is_littered {
            self.ended = 0;
        }
        is_littered
    }

    /// Moves some of the places after `from`. After which the next are; absent: there are no more.
    pub(super) fn move_some(
        &mut self,
        from: Option<&Key>,
        moved: impl Fn(&Grant) -> Option<Arc<Grant>>,
    ) -> Option<Key> {
        let after = from.map_or(Bound::Unbounded, Bound::Excluded);
        let mut last = None;
        for key in self.by_end.range((after, Bound::Unbounded)).take(AT_ONCE) {
            last = Some(key.clone());
            if let Some((_, grant)) = self.places.get_mut(&key.1)
                && grant.counts()
                && let Some(moved) = moved(grant)
            {
                *grant = moved;
            }
        }
        last
    }

    /// A login did not work out on a host.
    pub(super) fn failed_on(&mut self, host_id: &str, now: BootTime) {
        self.failed.insert(host_id.to_owned(), now + FAILED_FOR);
    }

    /// Hosts that logins failed on, and whether that still counts; then it is forgotten.
    pub(super) fn failures(&mut self, now: BootTime) -> Vec<(String, bool)> {
        let failures = self.failed.iter().map(|(host_id, until)| (host_id.clone(), *until > now)).collect();
        self.failed.retain(|_, until| *until > now);
        failures
    }
}
