//! Does another login fit, as far as this coordinator may say?
//!
//! Room is the host's own affair where it can be asked: then it admits its places itself, but for what it keeps free for
//! coordinators that have lost it. One that cannot be asked gives each of the K coordinators that it reports to its share,
//! the K-th part of what was free when it spoke last, without what it keeps for coordinators that had lost it before: they
//! have their shares already. What was given here and it had not listed yet comes out of the own share. Together they
//! cannot pass a limit, whoever of them is cut off.
//!
//! It refuses to give out of the share again what may have been used: places that have ended only because their host was
//! silent count until it is heard.

use std::time::Duration;

use usher_types::{HostId, PendingLimit, PendingMode, PendingPlace, Policy, UserLimit};

use super::{Assessment, Excluded, blind, call::Ask};
use crate::farm::{HostCell, HostView};

/// The limits that a host keeps itself, and under which it must be asked for each place.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Users and users of places, at most.
    pub max_users: Option<u32>,
    /// Logons in progress, at most; only where that limit is a hard one.
    pub max_pending: Option<u32>,
}

impl Limits {
    /// The limits of a host of a pool.
    pub fn of(host: &HostView, policy: &Policy) -> Self {
        let hard = policy.max_pending_mode == PendingMode::Hard;
        Self {
            max_users: host.max_users(policy).finite(),
            max_pending: policy.max_pending.finite().filter(|_| hard),
        }
    }

    /// The question for a place under these limits.
    pub(super) fn ask(self, host_id: HostId, place: PendingPlace, within: Duration) -> Ask {
        let max_users = self.max_users.map_or(UserLimit::Unlimited, UserLimit::Users);
        let max_pending = self.max_pending.map_or(PendingLimit::Unlimited, PendingLimit::Logons);
        Ask { host_id, place, max_users, max_pending, within }
    }

    /// Whether there is one.
    pub fn any(self) -> bool {
        self != Self::default()
    }
}

/// What is free of one limit of a host that cannot be asked, and what was taken of this coordinator's share.
struct Share {
    /// As the host said last: without what it had listed, and what it keeps for others.
    free: u32,
    coordinators: u32,
    /// Given here, and not listed by the host.
    own: u32,
}

impl Share {
    fn holds(&self, adds: u32) -> bool {
        u64::from(self.own) + u64::from(adds) <= u64::from(self.free / self.coordinators.max(1))
    }
}

impl Assessment<'_> {
    /// Whether another place fits on the host at `position`, as far as this coordinator may say.
    pub(super) fn check_room(&self, position: usize) -> Result<(), Excluded> {
        let (inputs, word) = (self.inputs(), self.inputs().words[position]);
        let host = &inputs.pool.hosts[position];
        let adds = self.adds_users(position);
        if !HostCell::has_room(word, adds) {
            return Err(Excluded::CellFull);
        }
        let limits = Limits::of(host, &inputs.pool.policy);
        if limits.max_pending.is_some_and(|limit| self.logons_in_progress(position) >= limit) {
            return Err(Excluded::MaxPending);
        }
        if !limits.any() {
            return Ok(());
        }
        if self.can_be_asked(position) {
            return self.check_kept(position, limits);
        }
        if limits.max_users.is_some_and(|limit| !self.share_of_users(position, limit).holds(adds)) {
            return Err(Excluded::OutOfShare);
        }
        if limits.max_pending.is_some_and(|limit| !self.share_of_places(position, limit).holds(1)) {
            return Err(Excluded::MaxPending);
        }
        Ok(())
    }

    /// A host that can be asked gives nothing of what it keeps for others: it need not be asked.
    fn check_kept(&self, position: usize, limits: Limits) -> Result<(), Excluded> {
        let (word, adds) = (self.inputs().words[position], self.adds_users(position));
        let Some(reading) = self.inputs().pool.hosts[position].reading.as_deref() else { return Ok(()) };
        let is_above =
            |used: [u32; 4], limit: u32| used.into_iter().map(u64::from).sum::<u64>() > u64::from(limit);
        let users = [word.users().unwrap_or_default(), word.pending_users(), reading.held_back_users, adds];
        if adds > 0 && limits.max_users.is_some_and(|limit| is_above(users, limit)) {
            return Err(Excluded::KeptForOthers);
        }
        let places = [0, word.places(), reading.held_back_places, 1];
        if limits.max_pending.is_some_and(|limit| is_above(places, limit)) {
            return Err(Excluded::MaxPending);
        }
        Ok(())
    }

    fn share_of_users(&self, position: usize, limit: u32) -> Share {
        let (host, word) = (&self.inputs().pool.hosts[position], self.inputs().words[position]);
        let reading = host.reading.as_deref();
        let listed = reading.map_or(0, |reading| reading.listed_pending_users);
        let held_back = reading.map_or(0, |reading| reading.held_back_users);
        // What was listed and has ended here since gives nothing back: the host may have given it to another.
        let listed_still = self.inputs().pool.members.cells[position].listed().users;
        // Users that are not known leave nothing free.
        let used = word.users().unwrap_or(limit).saturating_add(listed);
        Share {
            free: limit.saturating_sub(used).saturating_sub(held_back),
            coordinators: reading.map_or(1, |reading| reading.coordinators),
            own: word.pending_users().saturating_add(host.unheard_users).saturating_sub(listed_still),
        }
    }

    fn share_of_places(&self, position: usize, limit: u32) -> Share {
        let (host, word) = (&self.inputs().pool.hosts[position], self.inputs().words[position]);
        let reading = host.reading.as_deref();
        let listed = reading.map_or(0, |reading| reading.listed_places);
        let held_back = reading.map_or(0, |reading| reading.held_back_places);
        let listed_still = self.inputs().pool.members.cells[position].listed().places;
        Share {
            free: limit.saturating_sub(listed).saturating_sub(held_back),
            coordinators: reading.map_or(1, |reading| reading.coordinators),
            own: word.places().saturating_add(host.unheard_places).saturating_sub(listed_still),
        }
    }

    /// Whether the host at `position` can be asked for a place.
    pub(super) fn can_be_asked(&self, position: usize) -> bool {
        self.inputs().pool.hosts[position].can_be_asked() && !blind::is_lost(self, position)
    }
}
