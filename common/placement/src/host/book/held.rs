//! How are places written in the book, and on the disk?
//!
//! Times are microseconds of the boot-time clock of one boot; after another they mean nothing, and neither does the
//! book.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use usher_types::{BootTime, EndReason, EndedPlace, Endpoint, GatewayId, PendingPlace, PoolName, Token};

/// A place in the book.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) token: Token,
    pub(super) attempt: u32,
    pub(super) content_hash: u64,
    pool: PoolName,
    endpoint: Endpoint,
    pub(super) user: Option<String>,
    pub(super) cost: u32,
    pub(super) connected: bool,
    pub(super) admitted: bool,
    pub(super) came_us: u64,
    pub(super) ends_us: u64,
    /// When its coordinator gave it, by the time that it had left when it came. Absent in a book of 0.1.
    #[serde(default)]
    given_us: Option<u64>,
}

impl Held {
    pub(super) fn new(place: &PendingPlace, asked: bool, time_to_live: Duration, now: BootTime) -> Self {
        let age = time_to_live.saturating_sub(place.left);
        Self {
            given_us: Some(now.before(age).as_micros()),
            token: place.token.clone(),
            attempt: place.attempt,
            content_hash: place.content_hash,
            pool: place.pool.clone(),
            endpoint: place.endpoint.clone(),
            user: place.user.clone(),
            cost: place.cost,
            connected: place.connected,
            admitted: asked || place.admitted,
            came_us: now.as_micros(),
            ends_us: (now + place.left).as_micros(),
        }
    }

    /// When it was given.
    pub(super) fn given(&self) -> BootTime {
        BootTime::from_micros(self.given_us.unwrap_or(self.came_us))
    }

    pub(super) fn report(&self, user: Option<String>, counted_users: u32, now: BootTime) -> PendingPlace {
        PendingPlace {
            token: self.token.clone(),
            attempt: self.attempt,
            content_hash: self.content_hash,
            pool: self.pool.clone(),
            endpoint: self.endpoint.clone(),
            user,
            cost: self.cost,
            counted_users,
            left: BootTime::from_micros(self.ends_us).since(now),
            connected: self.connected,
            admitted: self.admitted,
        }
    }
}

/// A place that ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Ended {
    pub(super) token: Token,
    pub(super) attempt: u32,
    pub(super) content_hash: u64,
    pool: PoolName,
    endpoint: Endpoint,
    pub(super) reason: EndReason,
    pub(super) at_us: u64,
}

impl Ended {
    pub(super) fn new(held: Held, reason: EndReason, now: BootTime) -> Self {
        Self {
            token: held.token,
            attempt: held.attempt,
            content_hash: held.content_hash,
            pool: held.pool,
            endpoint: held.endpoint,
            reason,
            at_us: now.as_micros(),
        }
    }

    pub(super) fn report(&self, now: BootTime) -> EndedPlace {
        EndedPlace {
            token: self.token.clone(),
            attempt: self.attempt,
            reason: self.reason,
            ended_ago: now.since(BootTime::from_micros(self.at_us)),
            content_hash: self.content_hash,
            pool: self.pool.clone(),
            endpoint: self.endpoint.clone(),
        }
    }
}

/// How a place ended, for whoever judges the host by it.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::host) struct Finished {
    /// Through whom the login came.
    pub(in crate::host) gateway: GatewayId,
    /// Why the place ended.
    pub(in crate::host) reason: EndReason,
    /// When the host heard of the place.
    pub(in crate::host) came: BootTime,
    /// The gateway had said that the login connected; or, of a place whose time has passed, its user is here.
    pub(in crate::host) connected: bool,
    /// The session that ended it, and when that began.
    pub(in crate::host) session: Option<(String, BootTime)>,
}

impl Finished {
    pub(super) fn new(held: &Held, reason: EndReason, session: Option<(String, BootTime)>) -> Self {
        Self {
            gateway: held.token.gateway.clone(),
            reason,
            came: BootTime::from_micros(held.came_us),
            connected: held.connected,
            session,
        }
    }
}

/// The book as it is kept over a restart of the agent. Its times are of one boot and mean nothing after another.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BookRecord {
    pub(super) places: Vec<Held>,
    pub(super) ended: Vec<Ended>,
    /// Sessions that end no place any more, and when they began, microseconds.
    #[serde(default)]
    pub(super) sessions: Vec<(String, u64)>,
}

impl BookRecord {
    /// Places in it.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether it holds no live place.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}
