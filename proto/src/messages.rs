//! Which messages are more than one of the project's types, and hold only checked values?
//!
//! Pages, questions and answers of the stream between an agent and a coordinator.

use std::time::Duration;

use usher_types::{
    Drain, EndReason, FailureCause, HostMarks, OperationName, Outcome, PendingLimit, PendingPlace, Policy,
    PoolName, RefusalReason, Replica, Session, SettingsHash, Token, UserLimit,
};

/// A part of the list of what a host serves. Page 0 begins a new list; the last page makes it valid.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InventoryPage {
    /// One number for all pages of a list.
    pub generation: u64,
    /// Position of the page, from 0.
    pub page: u32,
    /// No page follows.
    pub last: bool,
    /// The page's entries.
    pub replicas: Vec<Replica>,
}

/// A part of the list of a host's sessions, in pages like [`InventoryPage`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SessionsPage {
    /// One number for all pages of a list.
    pub generation: u64,
    /// Position of the page, from 0.
    pub page: u32,
    /// No page follows.
    pub last: bool,
    /// The page's entries.
    pub sessions: Vec<Session>,
    /// Sessions left out to keep the list short.
    pub unlisted_sessions: u32,
}

/// A host's answer to a place that it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlaceAnswer {
    /// The place.
    pub token: Token,
    /// The attempt under which it was asked for, >= 1.
    pub attempt: u32,
    /// Admitted, or why not.
    pub answer: Result<(), RefusalReason>,
}

/// A place was given on the host, or is asked for.
#[derive(Clone, PartialEq, Debug)]
pub struct ExpectSession {
    /// The place.
    pub place: PendingPlace,
    /// The host is asked; otherwise it is told.
    pub ask: bool,
    /// The limit of users to hold when asked.
    pub max_users: UserLimit,
    /// The limit of logons in progress to hold when asked.
    pub max_pending: PendingLimit,
}

/// A place ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndPlace {
    /// The place.
    pub token: Token,
    /// It ends if it was given under this attempt or a lower one, >= 1.
    pub attempt: u32,
    /// Why.
    pub reason: EndReason,
}

/// What a gateway said of a login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutcomeNotice {
    /// Its place.
    pub token: Token,
    /// What it said.
    pub outcome: Outcome,
    /// Of one that failed: why, if it said.
    pub cause: Option<FailureCause>,
    /// The same gateway had a success on another host of the pool in the last 60 s: its failure is the host's fault.
    pub succeeded_elsewhere: bool,
}

/// The beat of a stream, every second.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Tick {
    /// Grows by one per stream.
    pub tick: u64,
    /// Upper bound of the random wait before a reconnect. Absent: as told before.
    pub reconnect_spread: Option<Duration>,
    /// Since a place on another host of the pool last became a session. Absent: not seen.
    pub confirmed_elsewhere: Option<Duration>,
}

/// A host is to forget what it learned of how fast its operations are without load.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResetBaselines {
    /// Absent: of every operation.
    pub operation: Option<OperationName>,
}

/// Does this user still have this session?
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionCheck {
    /// Comes back with the answer.
    pub check_id: u64,
    /// As the host named it.
    pub session_id: String,
    /// Login name as the host spelled it.
    pub user: String,
}

/// The settings of a host's pool, as an agent gets them.
#[derive(Clone, PartialEq, Debug)]
pub struct PoolSettings {
    /// The pool.
    pub pool: PoolName,
    /// Grows with every change.
    pub version: u64,
    /// The settings.
    pub policy: Policy,
    /// The admin's drain of this host.
    pub drain: Option<Drain>,
    /// The admin's settings of this host.
    pub marks: Option<HostMarks>,
    /// Of the policy, as its coordinator has it. Absent: it does not say (0.1).
    pub hash: Option<SettingsHash>,
}

/// A host is to keep this drain, over a restart of its agent too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetDrain {
    /// Of the answer too.
    pub nonce: u64,
    /// Absent: it ends, whoever set it.
    pub drain: Option<Drain>,
}

/// What a host has done about a drain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetDrainAnswer {
    /// Of the question.
    pub nonce: u64,
    /// What it has kept, or why it could not.
    pub outcome: Result<DrainKept, String>,
}

/// A drain that a host has kept, or has given up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DrainKept {
    /// The drain that was replaced or ended.
    pub before: Option<Drain>,
    /// What drains the host now, the word of a readiness hook among it.
    pub holds: Option<Drain>,
}
