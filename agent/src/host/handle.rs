//! How do a host and its streams speak with each other?
//!
//! State goes out by watches: whoever is slow sees the newest, never a queue of old ones. Commands come in and answers
//! go out by bounded queues. An answer that finds its queue full is dropped: the coordinator takes silence for a
//! refusal and asks elsewhere, which is right for a coordinator that does not read.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use usher_placement::host::{Limits, Report, VersionedSettings};
use usher_proto::SetDrainAnswer;
use usher_types::{
    DoorKind, EndReason, Hello, Latency, OperationName, PendingPlace, PoolName, RefusalReason, Replica,
    Session, Token, ToldOutcome,
};

use super::identity::StreamEpochs;
use super::listing::Listing;
use super::status::HostStatus;
use crate::drain::DrainKeeper;
use crate::report::StreamsHeld;

/// Commands that wait for the host: above the places of a burst from several coordinators.
pub(crate) const COMMANDS: usize = 1024;
/// Answers that wait for one coordinator to read them.
pub(crate) const ANSWERS: usize = 1024;

/// What a stream sends back beside the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To a place that was asked for.
    Place {
        /// Which place.
        token: Token,
        /// Under which attempt.
        attempt: u32,
        /// Absent: admitted.
        refused: Option<RefusalReason>,
    },
    /// To a session check.
    Session {
        /// The check's number.
        check_id: u64,
        /// Absent: the host cannot tell.
        exists: Option<bool>,
    },
    /// To a drain that was to be kept.
    Drain(SetDrainAnswer),
    /// To a ping.
    Pong {
        /// As in the ping.
        nonce: u64,
    },
}

/// What coordinators want of a host.
#[derive(Debug)]
pub enum HostCommand {
    /// The list of coordinators has changed, or one of them turned out to be another name of another: as
    /// [`StreamsHeld::counted`] says when this is taken.
    Coordinators,
    /// A stream is open: the state should go out with the ages of now.
    Attached {
        /// The number of the coordinator.
        from: usize,
    },
    /// A tick came on a stream.
    Ticked {
        /// The number of the coordinator.
        from: usize,
    },
    /// A stream has ended.
    Detached {
        /// The number of the coordinator.
        from: usize,
    },
    /// A place was given, or is asked for.
    Expect {
        /// The number of the coordinator.
        from: usize,
        /// The place.
        place: PendingPlace,
        /// Whether an answer is waited for.
        ask: bool,
        /// What to keep within when asked.
        limits: Limits,
        /// Where the answer goes.
        reply: mpsc::Sender<Answer>,
    },
    /// A place has ended.
    End {
        /// Which.
        token: Token,
        /// Given under this attempt or a lower one.
        attempt: u32,
        /// Why.
        reason: EndReason,
    },
    /// What became of a login.
    Outcome(ToldOutcome),
    /// A place on another host of the pool became a session.
    ConfirmedElsewhere {
        /// Since then.
        age: Duration,
    },
    /// What was learned of how fast operations are without load is to be forgotten.
    ResetBaselines {
        /// Absent: of all.
        operation: Option<OperationName>,
    },
    /// Somebody on the machine asks how the host fares.
    Status {
        /// Where the answer goes.
        reply: oneshot::Sender<Box<HostStatus>>,
    },
    /// A drain was to be kept: the host says so in its reports before anybody is answered.
    DrainKept {
        /// What became of it.
        answer: SetDrainAnswer,
        /// Where the answer goes.
        reply: mpsc::Sender<Answer>,
    },
    /// The settings of a pool.
    Settings {
        /// The number of the coordinator that says so.
        from: usize,
        /// Which pool.
        pool: PoolName,
        /// Its settings.
        settings: Box<VersionedSettings>,
    },
    /// Does the user still have the session?
    CheckSession {
        /// The check's number.
        check_id: u64,
        /// As the host named it.
        session_id: String,
        /// Login name.
        user: String,
        /// Where the answer goes.
        reply: mpsc::Sender<Answer>,
    },
}

/// The host as its streams see it.
#[derive(Debug, Clone)]
pub struct HostHandle {
    /// Who it is. The stream's number is not filled in.
    pub hello: Arc<Hello>,
    /// Numbers its streams.
    pub epochs: Arc<StreamEpochs>,
    /// Coordinators that it has a stream to.
    pub streams_held: StreamsHeld,
    /// Keeps its drain.
    pub drains: DrainKeeper,
    /// Takes commands.
    pub commands: mpsc::Sender<HostCommand>,
    /// Its newest state. Absent before the first measurement.
    pub load: watch::Receiver<Option<Arc<Report>>>,
    /// Reports that it has made: one that a stream did not take in time is replaced by the next.
    pub reports: Arc<AtomicU64>,
    /// Its newest window. Absent before the first period.
    pub latency: watch::Receiver<Option<Arc<Latency>>>,
    /// Its resources. Absent before the first look.
    pub inventory: watch::Receiver<Option<Arc<Listing<Replica>>>>,
    /// Its sessions. Absent while they were never known one by one.
    pub sessions: watch::Receiver<Option<Arc<Listing<Session>>>>,
    /// What its pool says that its door speaks.
    pub door: watch::Receiver<DoorKind>,
}

/// What happened to the places of a host, for a model whose users come by themselves.
#[derive(Debug, Clone, PartialEq)]
pub enum PlaceNews {
    /// A place is on the host's list. It may be told again.
    Given {
        /// The number of the host in its process.
        host: usize,
        /// The place.
        token: Token,
        /// Login name. Absent if the gateway did not say.
        user: Option<String>,
    },
    /// A place was given up.
    Withdrawn {
        /// The number of the host in its process.
        host: usize,
        /// The place.
        token: Token,
    },
}

impl PlaceNews {
    /// The number of the host in its process.
    #[must_use]
    pub fn host(&self) -> usize {
        match self {
            Self::Given { host, .. } | Self::Withdrawn { host, .. } => *host,
        }
    }
}
