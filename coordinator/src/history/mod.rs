//! The decisions of the last day, kept so that they can be looked up and explained.
//!
//! A record holds what the decision was made from, not what it came to: the explanation is computed when somebody asks,
//! by the same functions. Records share the snapshots they were made on, and snapshots share what did not change from one
//! to the next; what a record keeps alive by itself is counted against the bound on memory. Login names are not kept, only
//! hashes under a key that dies with the process. One task owns all; placements hand theirs over without waiting.

mod bytes;
mod entry;
mod kept;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::{mpsc, oneshot};

pub(crate) use self::entry::{Detail, Headline, KeptDecision, ListFilter, Listed, NewDecision};
use self::kept::{KEEP_FULL, KEEP_REDUCED, Kept, MOST_BYTES, MOST_FULL, MOST_REDUCED};

/// Decisions on their way to the task.
const QUEUE: usize = 4096;

enum Command {
    Keep(Box<NewDecision>),
    Find(u64, oneshot::Sender<Option<KeptDecision>>),
    List(Box<ListFilter>, oneshot::Sender<Listed>),
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keep(_) => "Keep",
            Self::Find(..) => "Find",
            Self::List(..) => "List",
        })
    }
}

/// Hands decisions to the task that keeps them.
#[derive(Clone, Debug)]
pub(crate) struct History {
    commands: mpsc::Sender<Command>,
    kept: Arc<AtomicUsize>,
}

impl History {
    /// The handle, and the task to be run.
    pub(crate) fn new() -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (commands, queue) = mpsc::channel(QUEUE);
        let kept = Arc::new(AtomicUsize::new(0));
        (Self { commands, kept: kept.clone() }, keep(queue, kept))
    }

    /// Keeps a decision. False: the queue was full, it cannot be explained.
    pub(crate) fn keep(&self, new: NewDecision) -> bool {
        self.commands.try_send(Command::Keep(Box::new(new))).is_ok()
    }

    /// A decision by its number, if it is still kept.
    pub(crate) async fn find(&self, sequence: u64) -> Option<KeptDecision> {
        let (answer, found) = oneshot::channel();
        self.commands.send(Command::Find(sequence, answer)).await.ok()?;
        found.await.ok()?
    }

    /// Decisions that a filter lets through, newest first.
    pub(crate) async fn list(&self, filter: ListFilter) -> Listed {
        let (answer, found) = oneshot::channel();
        if self.commands.send(Command::List(Box::new(filter), answer)).await.is_err() {
            return Listed::default();
        }
        found.await.unwrap_or_default()
    }

    /// Decisions kept now, in full or reduced.
    pub(crate) fn len(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }
}

/// How long decisions are kept, for people.
pub(crate) fn retention() -> String {
    format!(
        "in full {} min or {MOST_FULL} decisions, reduced {} h or {MOST_REDUCED}, and {} MiB in all, whichever ends first",
        KEEP_FULL.as_secs() / 60,
        KEEP_REDUCED.as_secs() / 3600,
        MOST_BYTES >> 20
    )
}

async fn keep(mut queue: mpsc::Receiver<Command>, count: Arc<AtomicUsize>) {
    let mut kept = Kept::default();
    while let Some(command) = queue.recv().await {
        match command {
            Command::Keep(new) => {
                kept.push(*new);
                count.store(kept.len(), Ordering::Relaxed);
            }
            // Whoever asked may be gone.
            Command::Find(sequence, answer) => drop(answer.send(kept.find(sequence))),
            Command::List(filter, answer) => drop(answer.send(kept.list(&filter))),
        }
    }
}
