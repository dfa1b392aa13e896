//! What the farm is told or asked: every change of it goes through one queue of these.

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use usher_placement::farm::{ApplyRefused, AttachRefused, Attached, DrainMark, PoolApply, PoolRecord};
use usher_proto::v1;
use usher_types::{
    BootTime, Drain, FieldFault, Goodbye, Hello, HostId, HostMarks, Latency, Load, PoolName, Replica,
    ReplicaMark, ResourceId, Session,
};

use crate::store::Followed;

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
        apply: Box<PoolApply>,
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
        /// And the one that is there. Absent: there is no such host.
        answer: oneshot::Sender<Option<(DrainMark, Option<DrainMark>)>>,
    },
    SetDrain {
        host_id: HostId,
        mark: DrainMark,
        /// In which revision of the shared store it was stored, here and below.
        revision: Option<u64>,
        answer: oneshot::Sender<()>,
    },
    /// The mark of a host has ended, if it is still this one. What marks it now.
    EndDrain {
        host_id: HostId,
        mark: Box<DrainMark>,
        revision: Option<u64>,
        answer: oneshot::Sender<Option<DrainMark>>,
    },
    DrainsOf {
        host_id: HostId,
        answer: oneshot::Sender<Drains>,
    },
    /// A host has kept a drain, or has ended it: this is what holds now.
    DrainKept {
        host_id: HostId,
        holds: Option<Box<Drain>>,
        /// The mark that the host has taken over and that is not stored any more.
        instead_of: Option<Box<DrainMark>>,
    },
    /// Absent: there is no such host.
    MarksOf {
        host_id: HostId,
        answer: oneshot::Sender<Option<HostMarks>>,
    },
    SetMarks {
        host_id: HostId,
        marks: HostMarks,
        revision: Option<u64>,
        answer: oneshot::Sender<()>,
    },
    /// What it was marked as before.
    MarkReplica {
        host_id: HostId,
        resource_id: ResourceId,
        mark: Option<ReplicaMark>,
        revision: Option<u64>,
        answer: oneshot::Sender<Option<ReplicaMark>>,
    },
    /// What is in the shared store now.
    Follow(Followed),
}

/// What holds a host drained.
#[derive(Debug, Default)]
pub(crate) struct Drains {
    /// An admin's mark.
    pub mark: Option<DrainMark>,
    /// What it keeps itself, as it said last.
    pub own: Option<Drain>,
    /// It may keep one that it has not said here.
    pub may_be_unheard: bool,
}

/// A host that was let in, and what it must know.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub attached: Attached,
    /// An admin's drain that waits for it.
    pub drain: Option<DrainMark>,
    pub settings: Option<v1::PoolSettings>,
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
