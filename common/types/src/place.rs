//! A place given out: one login that is on its way to a host.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Endpoint, GatewayId, PoolName, RequestId};

/// Names one place: the gateway and its id of the login.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Token {
    /// Who asked.
    pub gateway: GatewayId,
    /// The gateway's id of the login.
    pub request_id: RequestId,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.gateway, self.request_id)
    }
}

/// A live place, as a host lists it.
#[derive(Clone, PartialEq, Debug)]
pub struct PendingPlace {
    /// Its name.
    pub token: Token,
    /// Of the attempts at one login, the highest counts. >= 1.
    pub attempt: u32,
    /// Tells a retry from a reuse of the id.
    pub content_hash: u64,
    /// The pool it was asked in.
    pub pool: PoolName,
    /// The endpoint that was answered first.
    pub endpoint: Endpoint,
    /// Login name as the gateway spells it. Absent if it did not say.
    pub user: Option<String>,
    /// As asked, 1..=100.
    pub cost: u32,
    /// What it adds to the host's users: 0 if its user is counted already, else the cost.
    pub counted_users: u32,
    /// Until its time to live has passed, at the time of the message.
    pub left: Duration,
    /// The gateway said that the login connected.
    pub connected: bool,
    /// Given by the host's consent.
    pub admitted: bool,
}

/// Why a place ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EndReason {
    /// The session came.
    Session,
    /// The gateway gave it up.
    Cancelled,
    /// The gateway reported a failure.
    Failed,
    /// No session came in time.
    Expired,
    /// The host went offline, or booted again.
    HostLost,
    /// Another host holds the same token under a higher attempt.
    Superseded,
}

/// A place that ended in the last 60 s, as a host lists it.
#[derive(Clone, PartialEq, Debug)]
pub struct EndedPlace {
    /// Its name.
    pub token: Token,
    /// The attempt that ended.
    pub attempt: u32,
    /// Why.
    pub reason: EndReason,
    /// Since then, at the time of the message.
    pub ended_ago: Duration,
    /// As in [`PendingPlace`].
    pub content_hash: u64,
    /// As in [`PendingPlace`].
    pub pool: PoolName,
    /// As in [`PendingPlace`].
    pub endpoint: Endpoint,
}

/// What became of a login, as its gateway says.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It reached the host; its place counts until its session is seen.
    Connected,
    /// It did not succeed; its place ends.
    Failed,
    /// It was given up; its place ends.
    Cancelled,
    /// The session that came of it is over.
    Ended,
}

/// Why a login failed.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    /// The host says that it is busy.
    Busy,
    /// No connection could be made.
    Unreachable,
    /// It refused the session.
    Refused,
    /// The user could not be authenticated.
    Auth,
    /// Anything else.
    Other,
}

impl FailureCause {
    /// Whether it speaks against the host. A busy host says so itself, and a wrong password is not its fault.
    pub const fn blames_host(self) -> bool {
        !matches!(self, Self::Busy | Self::Auth)
    }
}

/// What a gateway said of a login, as its host was told.
#[derive(Clone, PartialEq, Debug)]
pub struct ToldOutcome {
    /// The login.
    pub token: Token,
    /// What became of it.
    pub outcome: Outcome,
    /// Of one that failed: why, if the gateway said.
    pub cause: Option<FailureCause>,
    /// Since then, at the time of the message.
    pub age: Duration,
    /// The same gateway had a success on another host of the pool in the 60 s before: its failure is the host's fault.
    pub succeeded_elsewhere: bool,
}

/// Why a host is penalised.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PenaltyCause {
    /// Logins failed on it.
    Failed,
    /// Places on it never became sessions, or sessions that did not last, while those on other hosts did.
    Unconfirmed,
}

/// What holds against a host: it comes last until the time is over, and then takes one logon at a time until one
/// succeeds.
#[derive(Clone, PartialEq, Debug)]
pub struct Penalty {
    /// For this gateway's logins only. Absent: for everyone's.
    pub gateway: Option<GatewayId>,
    /// Why.
    pub cause: PenaltyCause,
    /// For how long it still comes last; zero: it takes one logon at a time.
    pub left: Duration,
    /// How often it was imposed without a success in between, >= 1.
    pub times: u32,
}

/// Why a host did not admit a place.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RefusalReason {
    /// Its users and places have reached the limit.
    MaxUsers,
    /// It cannot take sessions.
    NotReady,
    /// The place had ended before it was asked for.
    Ended,
    /// It keeps as many places as it can.
    ListFull,
    /// As many logons are in progress as it may have.
    MaxPending,
    /// It owes a place under this token for a request of other content.
    Reused,
}
