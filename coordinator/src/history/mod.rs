//! The decisions of the last day, kept so that they can be looked up and explained.
//!
//! A record holds what the decision was made from, not what it came to: the explanation is computed when somebody asks,
//! by the same functions. Records share the snapshots they were made on, and snapshots share what did not change from one
//! to the next; what a record keeps alive by itself is counted against the bound on memory. Login names are not kept, only
//! hashes under a key that dies with the process. One task owns all; placements hand theirs over without waiting, and
//! without waking it for each.

mod bytes;
mod entry;
mod kept;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};

pub(crate) use self::entry::{Detail, Headline, KeptDecision, ListFilter, Listed, NewDecision};
use self::kept::{KEEP_FULL, KEEP_REDUCED, Kept, MOST_BYTES, MOST_FULL, MOST_REDUCED};

/// Decisions on their way to the task: more than are made while it waits.
const QUEUE: usize = 8192;
/// Questions on their way to the task.
const QUESTIONS: usize = 64;
/// How long decisions wait for others, unless somebody asks: it is woken once for them all.
const HOLD: Duration = Duration::from_millis(20);

enum Question {
    Find(u64, oneshot::Sender<Option<KeptDecision>>),
    List(Box<ListFilter>, oneshot::Sender<Listed>),
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Find(..) => "Find",
            Self::List(..) => "List",
        })
    }
}

/// Hands decisions to the task that keeps them.
#[derive(Clone, Debug)]
pub(crate) struct History {
    decisions: mpsc::Sender<NewDecision>,
    questions: mpsc::Sender<Question>,
    kept: Arc<AtomicUsize>,
}

impl History {
    /// The handle, and the task to be run.
    pub(crate) fn new() -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (decisions, queue) = mpsc::channel(QUEUE);
        let (questions, asked) = mpsc::channel(QUESTIONS);
        let kept = Arc::new(AtomicUsize::new(0));
        let keeper = Keeper { queue, kept: Kept::default(), count: kept.clone() };
        (Self { decisions, questions, kept }, keeper.run(asked))
    }

    /// Keeps a decision. False: the queue was full, it cannot be explained.
    pub(crate) fn keep(&self, new: NewDecision) -> bool {
        self.decisions.try_send(new).is_ok()
    }

    /// A decision by its number, if it is still kept.
    pub(crate) async fn find(&self, sequence: u64) -> Option<KeptDecision> {
        let (answer, found) = oneshot::channel();
        self.questions.send(Question::Find(sequence, answer)).await.ok()?;
        found.await.ok()?
    }

    /// Decisions that a filter lets through, newest first.
    pub(crate) async fn list(&self, filter: ListFilter) -> Listed {
        let (answer, found) = oneshot::channel();
        if self.questions.send(Question::List(Box::new(filter), answer)).await.is_err() {
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

/// The task's own.
struct Keeper {
    queue: mpsc::Receiver<NewDecision>,
    kept: Kept,
    count: Arc<AtomicUsize>,
}

impl Keeper {
    async fn run(mut self, mut asked: mpsc::Receiver<Question>) {
        let mut take_at = None;
        loop {
            tokio::select! {
                question = asked.recv() => match question {
                    Some(question) => {
                        // What was decided before somebody asked is known to whoever asks.
                        self.take_waiting();
                        self.answer(question);
                    }
                    None => return,
                },
                Some(first) = self.queue.recv(), if take_at.is_none() => {
                    self.take(first);
                    take_at = Some(Instant::now() + HOLD);
                }
                () = sleep_until(take_at.unwrap_or_else(Instant::now)), if take_at.is_some() => {
                    self.take_waiting();
                    take_at = None;
                }
            }
        }
    }

    fn take_waiting(&mut self) {
        // Not more than waited: those that decide on meanwhile must not hold up whoever asks.
        for _ in 0..self.queue.len() {
            if let Ok(new) = self.queue.try_recv() {
                self.take(new);
            }
        }
    }

    fn take(&mut self, new: NewDecision) {
        self.kept.push(new);
        self.count.store(self.kept.len(), Ordering::Relaxed);
    }

    fn answer(&self, question: Question) {
        match question {
            // Whoever asked may be gone.
            Question::Find(sequence, answer) => drop(answer.send(self.kept.find(sequence))),
            Question::List(filter, answer) => drop(answer.send(self.kept.list(&filter))),
        }
    }
}
