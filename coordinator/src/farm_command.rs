//! What the farm is told or asked: every change of it goes through one queue of these.

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use usher_placement::farm::{ApplyRefused, AttachRefused, Attached, DrainMark, PoolRecord};
use usher_proto::v1;
use usher_types::{
    BootTime, Drain, FieldFault, Goodbye, Hello, HostId, Latency, Load, PolicyChange, PoolName, Replica,
    Session,
};

/// What the farm is told or asked.
#[derive(Debug)]
pub(crate) enum FarmCommand {
    Attach {
        hello: Box<Hello>,
        certificate_name: Option<String>,
        old_is_dead: bool,
        answer: oneshot::Sender<Result<Admitted, AttachRefused>>,
    },
    /// The bond of a certificate's name could not be stored.
    Unbind {
        certificate: String,
    },
    Detach {
        host_id: HostId,
        stream_epoch: u64,
        goodbye: Option<Goodbye>,
    },
    Load {
        from: Source,
        load: Box<Load>,
        faults: Vec<FieldFault>,
    },
    Latency {
        from: Source,
        latency: Latency,
        faults: usize,
    },
    Replicas {
        from: Source,
        replicas: Vec<Replica>,
    },
    Sessions {
        from: Source,
        sessions: Vec<Session>,
    },
    PreparePool {
        name: PoolName,
        expected: Option<u64>,
        change: Box<PolicyChange>,
        dry_run: bool,
        answer: oneshot::Sender<Result<(PoolRecord, Option<PoolRecord>), ApplyRefused>>,
    },
    CommitPool {
        record: Box<PoolRecord>,
        answer: oneshot::Sender<()>,
    },
    AbandonPool(PoolName),
    ListPools(oneshot::Sender<Vec<(PoolRecord, usize)>>),
    DrainMark {
        host_id: HostId,
        drain: Drain,
        answer: oneshot::Sender<Option<DrainMark>>,
    },
    SetDrain {
        host_id: HostId,
        mark: Option<DrainMark>,
        answer: oneshot::Sender<bool>,
    },
}

/// A host that was let in, and what it must know.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub attached: Attached,
    pub settings: Option<v1::PoolSettings>,
    pub drain: Option<DrainMark>,
}

/// Which stream a message came through, and when it was measured.
#[derive(Debug)]
pub(crate) struct Source {
    pub host_id: HostId,
    pub stream_epoch: u64,
    pub measured_at: BootTime,
    /// Given back when the message was taken in: each stream has only a few.
    #[expect(dead_code, reason = "acts when it is dropped")]
    pub turn: OwnedSemaphorePermit,
}
