//! A shared store in memory, for tests and simulations: several coordinators of one process hold clones of it.
//!
//! It runs on no thread and reads no clock but tokio's, so that a simulation of it is repeatable. It can be cut off from one
//! coordinator, lose the answer to a transaction after carrying it out, carry it out long after it was given up, tell in pieces,
//! and forget its history as a compaction does. A transaction may be as large as one of etcd.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use super::shared_store::{
    Listing, Newest, RowChange, SharedError, SharedRow, SharedStore, Transacted, Transaction, Watch, Watched,
};

/// A shared store in memory, as one coordinator reaches it.
#[derive(Clone, Debug)]
pub struct MemoryShared {
    store: Arc<Mutex<Rows>>,
    /// The revision, for those that wait for it.
    revision: watch::Sender<u64>,
    /// How this coordinator reaches it; clones share it.
    link: Arc<Mutex<Link>>,
    link_changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Rows {
    cluster: u64,
    revision: u64,
    rows: BTreeMap<String, SharedRow>,
    /// Every change that is kept, in their order.
    changes: Vec<RowChange>,
    /// Changes up to this revision are forgotten.
    compacted: u64,
    /// Rows that go by themselves.
    ends: BTreeMap<String, Instant>,
}

#[derive(Debug, Default)]
struct Link {
    is_cut: bool,
    answers_to_lose: u32,
    /// Transactions that nobody answers, and that are carried out later. Absent: they are carried out at once.
    held_up: Option<Vec<Transaction>>,
    /// Changes that a watch tells at once. Absent: all that there are.
    told_at_once: Option<usize>,
    listings: u64,
}

/// What etcd takes by default, as its client here counts.
const MOST_EXPECTED: usize = 127;
const MOST_CHANGES: usize = 3600;
const MOST_BYTES: usize = 1_400_000;

impl Default for MemoryShared {
    fn default() -> Self {
        Self {
            store: Arc::new(Mutex::new(Rows { cluster: 1, ..Rows::default() })),
            revision: watch::Sender::new(0),
            link: Arc::default(),
            link_changed: watch::Sender::new(0),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is done under these locks that could fail half way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryShared {
    /// The same store, as another coordinator reaches it.
    pub fn for_another(&self) -> Self {
        Self { link: Arc::default(), link_changed: watch::Sender::new(0), ..self.clone() }
    }

    /// Cuts this coordinator off, or lets it back: calls fail and watches break while it is cut.
    pub fn cut(&self, is_cut: bool) {
        lock(&self.link).is_cut = is_cut;
        self.link_changed.send_modify(|changes| *changes += 1);
    }

    /// Carries out the next `count` transactions of this coordinator, and loses the answers.
    pub fn lose_answers(&self, count: u32) {
        lock(&self.link).answers_to_lose = count;
    }

    /// Holds up the transactions of this coordinator from now on, as a cluster does that has lost most of its members: nobody
    /// answers, and one of the others may have them in its log.
    pub fn hold_up(&self) {
        lock(&self.link).held_up = Some(Vec::new());
    }

    /// Carries out what was held up, in its order.
    pub fn let_through(&self) {
        let held_up = lock(&self.link).held_up.take().unwrap_or_default();
        let mut rows = lock(&self.store);
        for transaction in held_up {
            // Nobody waits for the answer any more.
            let _ = rows.transact(&transaction);
        }
        self.revision.send_replace(rows.revision);
    }

    /// Forgets how the rows came to be what they are.
    pub fn compact(&self) {
        let mut rows = lock(&self.store);
        rows.compacted = rows.revision;
        rows.changes.clear();
    }

    /// Lets watches that this coordinator begins from now on tell so many changes at once, of all that happened together.
    pub fn tell_in_pieces(&self, of: usize) {
        lock(&self.link).told_at_once = Some(of.max(1));
    }

    /// How often this coordinator has listed everything.
    pub fn listings(&self) -> u64 {
        lock(&self.link).listings
    }

    /// Deletes everything at once.
    pub fn clear(&self) {
        let mut rows = lock(&self.store);
        let all = rows.rows.keys().map(|key| (key.clone(), None)).collect();
        rows.change(&all);
        self.revision.send_replace(rows.revision);
    }

    /// Sets a row by hand, as an operator with the store's own tools would. Absent: deletes it.
    pub fn set(&self, key: &str, value: Option<&[u8]>) {
        let mut rows = lock(&self.store);
        rows.change(&BTreeMap::from([(key.to_owned(), value.map(<[u8]>::to_vec))]));
        self.revision.send_replace(rows.revision);
    }

    /// A row, as it is.
    pub fn get(&self, key: &str) -> Option<SharedRow> {
        lock(&self.store).rows.get(key).cloned()
    }

    fn reach(&self) -> Result<MutexGuard<'_, Rows>, SharedError> {
        if lock(&self.link).is_cut {
            return Err(SharedError::Unreached("the link is cut".to_owned()));
        }
        let mut rows = lock(&self.store);
        let before = rows.revision;
        rows.expire(Instant::now());
        if rows.revision != before {
            self.revision.send_replace(rows.revision);
        }
        Ok(rows)
    }
}

impl Rows {
    /// One revision for all of `changes`.
    fn change(&mut self, changes: &BTreeMap<String, Option<Vec<u8>>>) {
        self.revision += 1;
        let revision = self.revision;
        for (key, value) in changes {
            match value {
                Some(value) => {
                    let row = SharedRow { key: key.clone(), value: value.clone(), revision };
                    self.rows.insert(key.clone(), row);
                }
                None if self.rows.remove(key).is_none() => continue,
                None => {}
            }
            self.changes.push(RowChange { key: key.clone(), value: value.clone(), revision });
        }
    }

    fn transact(&mut self, transaction: &Transaction) -> Transacted {
        let newest = self.rows.values().map(|row| row.revision).max().unwrap_or(0);
        let is_unchanged = transaction.unchanged_since.is_none_or(|since| newest <= since);
        let revision_of = |key: &String| self.rows.get(key).map_or(0, |row| row.revision);
        if is_unchanged && transaction.expected.iter().all(|(key, at)| revision_of(key) == *at) {
            self.change(&transaction.changes);
            return Transacted::Done(self.revision);
        }
        let as_it_is = |key: &String| (key.clone(), self.rows.get(key).cloned());
        Transacted::Conflict(transaction.expected.keys().map(as_it_is).collect())
    }

    fn expire(&mut self, now: Instant) {
        let over: Vec<String> = self.ends.extract_if(.., |_, at| *at <= now).map(|(key, _)| key).collect();
        if !over.is_empty() {
            self.change(&over.into_iter().map(|key| (key, None)).collect());
        }
    }
}

#[tonic::async_trait]
impl SharedStore for MemoryShared {
    async fn list(&self) -> Result<Listing, SharedError> {
        let rows = self.reach()?;
        lock(&self.link).listings += 1;
        let all = rows.rows.values().cloned().collect();
        Ok(Listing { cluster: rows.cluster, revision: rows.revision, rows: all })
    }

    async fn transact(&self, transaction: &Transaction) -> Result<Transacted, SharedError> {
        let mut rows = self.reach()?;
        let bytes: usize = transaction.changes.values().flatten().map(Vec::len).sum();
        let (expected, changes) = (transaction.expected.len(), transaction.changes.len());
        if expected > MOST_EXPECTED || changes > MOST_CHANGES || bytes > MOST_BYTES {
            let why = format!("{expected} comparisons and {changes} changes of {bytes} bytes are too many");
            return Err(SharedError::Refused(why));
        }
        let mut link = lock(&self.link);
        if let Some(held_up) = &mut link.held_up {
            held_up.push(transaction.clone());
            return Err(SharedError::Away("nobody answers".to_owned()));
        }
        let outcome = rows.transact(transaction);
        self.revision.send_replace(rows.revision);
        if let Some(left) = link.answers_to_lose.checked_sub(1) {
            link.answers_to_lose = left;
            return Err(SharedError::Away("the answer was lost".to_owned()));
        }
        Ok(outcome)
    }

    async fn watch(&self, revision: u64) -> Result<Box<dyn Watch>, SharedError> {
        drop(self.reach()?);
        Ok(Box::new(MemoryWatch {
            store: self.clone(),
            told: revision,
            told_at_once: lock(&self.link).told_at_once.unwrap_or(usize::MAX),
            pieces: VecDeque::new(),
            revision: self.revision.subscribe(),
            link: self.link_changed.subscribe(),
        }))
    }

    async fn newest(&self, below: &str) -> Result<Newest, SharedError> {
        let rows = self.reach()?;
        let asked = rows.rows.values().filter(|row| row.key.starts_with(below));
        let row_revision = asked.map(|row| row.revision).max().unwrap_or(0);
        Ok(Newest { cluster: rows.cluster, revision: rows.revision, row_revision })
    }

    async fn announce(&self, key: &str, value: &[u8], lives_for: Duration) -> Result<(), SharedError> {
        let mut rows = self.reach()?;
        rows.ends.insert(key.to_owned(), Instant::now() + lives_for);
        if rows.rows.get(key).is_none_or(|row| row.value != value) {
            rows.change(&BTreeMap::from([(key.to_owned(), Some(value.to_vec()))]));
            self.revision.send_replace(rows.revision);
        }
        Ok(())
    }

    async fn withdraw(&self) {}

    fn kind(&self) -> &'static str {
        "memory"
    }
}

struct MemoryWatch {
    store: MemoryShared,
    told: u64,
    told_at_once: usize,
    /// The rest of what is told, the last of it up to `told`.
    pieces: VecDeque<Vec<RowChange>>,
    revision: watch::Receiver<u64>,
    link: watch::Receiver<u64>,
}

#[tonic::async_trait]
impl Watch for MemoryWatch {
    async fn next(&mut self) -> Result<Watched, SharedError> {
        loop {
            self.revision.borrow_and_update();
            self.link.borrow_and_update();
            {
                let rows = self.store.reach()?;
                if let Some(changes) = self.pieces.pop_front() {
                    let complete_to = self.pieces.is_empty().then_some(self.told);
                    return Ok(Watched::Changes { changes, complete_to });
                }
                if rows.compacted > self.told {
                    return Ok(Watched::Compacted);
                }
                let news = rows.changes.iter().filter(|change| change.revision > self.told);
                let changes: Vec<RowChange> = news.cloned().collect();
                if !changes.is_empty() {
                    self.told = rows.revision;
                    self.pieces = changes.chunks(self.told_at_once).map(<[_]>::to_vec).collect();
                    continue;
                }
            }
            let gone = || SharedError::Away("the store is gone".to_owned());
            tokio::select! {
                biased;
                changed = self.link.changed() => changed.map_err(|_| gone())?,
                changed = self.revision.changed() => changed.map_err(|_| gone())?,
            }
        }
    }
}
