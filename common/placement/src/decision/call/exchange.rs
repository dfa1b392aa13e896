//! What a call wants of the world, what it tells hosts, and what it comes to.

use std::{fmt, sync::Arc, time::Duration};

use usher_types::{
    BootTime, DecisionId, EndReason, Endpoint, FailureCause, HostId, HostName, Outcome, PendingLimit,
    PendingPlace, RefusalReason, Token, UserLimit,
};

use crate::{
    decision::{DecisionRecord, Flags, PlacementReason, Redirect, Refusal},
    farm::{PoolView, Snapshot},
    reservation::{Grant, Ledger},
};

/// What a call reads at each step. Made anew for each, so that nothing of it is held while the call waits.
#[derive(Copy, Clone)]
pub struct Desk<'a> {
    /// Gives the newest snapshot.
    pub snapshot: &'a (dyn Fn() -> Arc<Snapshot> + 'a),
    /// The places that this coordinator knows.
    pub ledger: &'a Ledger,
    /// Whether the endpoints of a host took a connection when that was tried last. Absent: not tried in the last 10 s.
    pub doors: &'a (dyn Fn(&HostId) -> Option<bool> + 'a),
    /// The coordinator has not ticked for so long that what it knows is old.
    pub is_frozen: bool,
}

impl fmt::Debug for Desk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("is_frozen", &self.is_frozen).finish_non_exhaustive()
    }
}

/// What a call waits for before its next step.
#[derive(Debug)]
pub enum Step {
    /// Ask a host for a place; answered by [`Call::consent`](super::Call::consent).
    Ask(Ask),
    /// Ask a host whether a session still exists; answered by [`Call::confirmed`](super::Call::confirmed).
    Confirm(AskedSession),
    /// Try whether these hosts take connections. The next step looks for the results at the desk; a host without one is
    /// taken for shut.
    TryDoors {
        /// The hosts.
        doors: Vec<Door>,
        /// Time for all of them together.
        within: Duration,
    },
    /// Nothing but this much time.
    Wait(Duration),
    /// It is over.
    Done(Box<Answer>),
}

/// A host is asked for a place, which counts already.
#[derive(Clone, PartialEq, Debug)]
pub struct Ask {
    /// The host.
    pub host_id: HostId,
    /// The place.
    pub place: PendingPlace,
    /// The limit of users that it must hold.
    pub max_users: UserLimit,
    /// The limit of logons in progress that it must hold.
    pub max_pending: PendingLimit,
    /// No answer within this time is silence.
    pub within: Duration,
}

/// A host is asked whether a session still exists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AskedSession {
    /// The host.
    pub host_id: HostId,
    /// As the host named it.
    pub session_id: Arc<str>,
    /// Login name as the host spelled it.
    pub user: String,
    /// No answer within this time is silence.
    pub within: Duration,
}

/// A host whose agent is lost, and where its clients would knock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Door {
    /// The host.
    pub host_id: HostId,
    /// As it advertised them; one that takes a connection is enough.
    pub endpoints: Arc<[Endpoint]>,
}

/// What a host said when it was asked for a place.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Consent {
    /// It gave the place.
    Admitted,
    /// It did not.
    Refused(RefusalReason),
    /// It did not answer in time.
    Silent,
}

/// One host that was asked within a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsentAsked {
    /// Its name.
    pub host_name: HostName,
    /// What it said.
    pub said: Consent,
}

/// What a host must be told. Whoever has no stream to it loses nothing by dropping it: a host that connects is told all
/// its places.
#[derive(Clone, PartialEq, Debug)]
pub struct ToHost {
    /// The host.
    pub host_id: HostId,
    /// What.
    pub message: HostMessage,
}

/// One message to a host. They must arrive in the order in which they were given.
#[derive(Clone, PartialEq, Debug)]
pub enum HostMessage {
    /// It owes this place.
    Expect(PendingPlace),
    /// A place is over.
    End {
        /// The place.
        token: Token,
        /// Over if it was given under this attempt or a lower one.
        attempt: u32,
        /// Why.
        reason: EndReason,
    },
    /// What a gateway said of a login.
    Outcome {
        /// The login.
        token: Token,
        /// What became of it.
        outcome: Outcome,
        /// Of one that failed: why, if the gateway said.
        cause: Option<FailureCause>,
        /// The same gateway had a success on another host of the pool in the last 60 s.
        succeeded_elsewhere: bool,
    },
}

/// What a call came to.
#[derive(Debug)]
pub struct Answer {
    /// The host, or why there is none.
    pub result: Result<Placed, Denied>,
    /// How it was decided. Absent where nothing was: an answer that is given again, a call that came too late.
    pub record: Option<DecisionRecord>,
}

/// The login has a host.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The pool as it was decided on.
    pub pool: Arc<PoolView>,
    /// The host's position in it.
    pub position: u32,
    /// Why.
    pub reason: PlacementReason,
    /// What qualifies the answer.
    pub flags: Flags,
    /// The place that counts for this login. Absent: none was taken (own session, dry run).
    pub grant: Option<Arc<Grant>>,
    /// The decision that chose the host; of an answer that is given again, the first one.
    pub decision_id: Option<DecisionId>,
    /// The number that the host was ranked by, low is good. Absent: it was not ranked, or none could be computed.
    pub score: Option<f64>,
    /// The next best, best first: their positions, and the numbers that they were ranked by.
    pub alternatives: Vec<(u32, Option<f64>)>,
    /// The host that was passed over.
    pub redirect: Option<Redirect>,
    /// The answer was given before.
    pub is_repeat: bool,
}

/// The login has no host.
#[derive(Clone, PartialEq, Debug)]
pub enum Denied {
    /// Nobody can be chosen.
    Refused(Refusal),
    /// There is no such pool.
    UnknownPool,
    /// Another request came under the same id.
    Reused,
    /// The answer would come too late; nothing was granted.
    DeadlinePassed,
}

/// Times of a call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Times {
    /// When its answer is no longer of use.
    pub deadline: Option<BootTime>,
    /// When it began to ask hosts.
    pub asking_since: Option<BootTime>,
}

impl Times {
    /// Whether nothing may be granted any more.
    pub(super) fn is_over(&self, now: BootTime) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// Time left for something that may take `limit`.
    pub(super) fn left(&self, limit: Duration, now: BootTime) -> Duration {
        self.deadline.map_or(limit, |deadline| limit.min(deadline.since(now)))
    }
}
