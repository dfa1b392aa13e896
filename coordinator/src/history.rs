//! The decisions of the last minutes, kept so that each can be explained to the last term.
//!
//! A record holds what the decision was made from, not what it came to: the explanation is computed when somebody asks,
//! by the same functions. Records share the snapshots they were made on, so a record costs little more than the cells
//! it read. One task owns them; placements hand theirs over without waiting.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};
use usher_placement::{
    decision::{Excluded, Request},
    farm::{CellWord, PoolView},
};
use usher_types::{BootTime, DecisionId, HostId};

/// Whichever limit is reached first ends a record.
const KEEP: Duration = Duration::from_secs(600);
const MAX_RECORDS: usize = 10_000;
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Records on their way to the task.
const QUEUE: usize = 4096;

/// What was said to a host within a decision, and what it answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Consent {
    pub host_name: String,
    pub answer: &'static str,
}

/// One decision and everything that it depended on.
#[derive(Debug)]
pub(crate) struct DecisionRecord {
    pub id: DecisionId,
    pub sequence: u64,
    pub decided_at: BootTime,
    pub decided_unix_ms: u64,
    pub pool: Arc<PoolView>,
    pub words: Vec<CellWord>,
    pub request: Request,
    pub own_places: Vec<HostId>,
    pub unwilling: Vec<(HostId, Excluded)>,
    pub seed: u64,
    pub consents: Vec<Consent>,
    /// What the gateway was told: the host, or the reason of the refusal.
    pub answered: Result<HostId, &'static str>,
}

impl DecisionRecord {
    /// Roughly what it holds in memory by itself.
    fn bytes(&self, shares_pool: bool) -> usize {
        let own = size_of::<Self>() + self.words.len() * size_of::<CellWord>() + 512;
        // A snapshot is a row of pointers; the hosts behind it are mostly shared with the snapshots around it.
        let pool = if shares_pool { 0 } else { size_of::<PoolView>() + self.pool.hosts.len() * 64 };
        own + pool
    }
}

enum Command {
    Keep(Box<DecisionRecord>),
    Find(u64, oneshot::Sender<Option<Arc<DecisionRecord>>>),
}

/// Hands records to the task that keeps them.
#[derive(Clone, Debug)]
pub(crate) struct History {
    commands: mpsc::Sender<Command>,
    kept: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Keep(_) => "Keep",
            Self::Find(..) => "Find",
        })
    }
}

impl History {
    /// The handle, and the task to be run.
    pub(crate) fn new() -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (commands, queue) = mpsc::channel(QUEUE);
        let kept = Arc::new(AtomicUsize::new(0));
        (Self { commands, kept: kept.clone() }, keep(queue, kept))
    }

    /// Keeps a record. False: the queue was full, the decision cannot be explained.
    pub(crate) fn keep(&self, record: DecisionRecord) -> bool {
        self.commands.try_send(Command::Keep(Box::new(record))).is_ok()
    }

    /// The record of a decision, if it is still kept.
    pub(crate) async fn find(&self, sequence: u64) -> Option<Arc<DecisionRecord>> {
        let (answer, found) = oneshot::channel();
        self.commands.send(Command::Find(sequence, answer)).await.ok()?;
        found.await.ok()?
    }

    /// Records kept now.
    pub(crate) fn len(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }
}

/// How long a decision can be explained, for people.
pub(crate) fn retention() -> String {
    format!("{} min or {MAX_RECORDS} decisions, whichever ends first", KEEP.as_secs() / 60)
}

#[derive(Default)]
struct Kept {
    records: VecDeque<(Arc<DecisionRecord>, usize)>,
    bytes: usize,
}

impl Kept {
    fn push(&mut self, record: DecisionRecord) {
        let shares_pool = self.records.back().is_some_and(|(last, _)| Arc::ptr_eq(&last.pool, &record.pool));
        let bytes = record.bytes(shares_pool);
        let now = record.decided_at;
        self.bytes += bytes;
        self.records.push_back((Arc::new(record), bytes));
        let over = |kept: &Self| {
            kept.records.len() > MAX_RECORDS
                || kept.bytes > MAX_BYTES
                || kept.records.front().is_some_and(|(first, _)| now.since(first.decided_at) > KEEP)
        };
        while over(self) {
            let Some((_, bytes)) = self.records.pop_front() else { break };
            self.bytes -= bytes;
        }
    }

    fn find(&self, sequence: u64) -> Option<Arc<DecisionRecord>> {
        // Decisions made at the same time may arrive out of order, so they are only nearly sorted.
        self.records
            .iter()
            .rev()
            .find(|(record, _)| record.sequence == sequence)
            .map(|(record, _)| record.clone())
    }
}

async fn keep(mut queue: mpsc::Receiver<Command>, count: Arc<AtomicUsize>) {
    let mut kept = Kept::default();
    while let Some(command) = queue.recv().await {
        match command {
            Command::Keep(record) => {
                kept.push(*record);
                count.store(kept.records.len(), Ordering::Relaxed);
            }
            // Whoever asked may be gone.
            Command::Find(sequence, answer) => drop(answer.send(kept.find(sequence))),
        }
    }
}
