//! The thread that owns the store, and the handle that everyone else holds.
//!
//! The queue is bounded: when the disk is slower than the writers, they wait instead of filling memory.

use std::{path::Path, path::PathBuf, thread, time::Instant};

use tokio::sync::{mpsc, oneshot};
use tracing::{error, warn};
use usher_types::{HostId, PoolName};

use super::{DrainRecord, LastKnown, PoolRecord, RedbStore, Store, StoreError, Stored, Write};
use crate::metrics::Metrics;

/// Requests that may wait for the writer. Each holds a few hundred bytes, or the last-known values of all hosts.
const QUEUE: usize = 256;
/// Requests that share one commit at most: more would only delay the answer to the first of them.
const BATCH: usize = 128;

type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

enum Request {
    Load(Answer<Stored>),
    Write(Vec<Write>, Answer<()>),
    Close(oneshot::Sender<()>),
}

/// Asks the store's thread. Clones share the thread; the file is closed when the last one is gone, or by [`close`].
///
/// [`close`]: Self::close
#[derive(Clone, Debug)]
pub struct StoreHandle {
    queue: mpsc::Sender<Request>,
    path: PathBuf,
}

impl StoreHandle {
    /// Opens the redb file at `path` on a thread of its own.
    ///
    /// # Errors
    /// [`StoreError`] if the file cannot be opened: in use, foreign, damaged, newer, or the disk refused.
    pub async fn open(path: &Path, metrics: Metrics) -> Result<Self, StoreError> {
        let file = path.to_owned();
        Self::start(path, metrics, move || RedbStore::open(&file)).await
    }

    /// Runs any store on a thread of its own; `open` is called there. `path` names it in errors.
    ///
    /// # Errors
    /// What `open` answers, or [`StoreError::Failed`] if no thread could be started.
    pub async fn start<S: Store + 'static>(
        path: &Path,
        metrics: Metrics,
        open: impl FnOnce() -> Result<S, StoreError> + Send + 'static,
    ) -> Result<Self, StoreError> {
        let (queue, requests) = mpsc::channel(QUEUE);
        let (opened, is_open) = oneshot::channel();
        thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || match open() {
                Ok(store) => {
                    if opened.send(Ok(())).is_ok() {
                        run(store, requests, &metrics);
                    }
                }
                Err(error) => drop(opened.send(Err(error))),
            })
            .map_err(|error| StoreError::failed("start the thread of", path, error))?;
        // The library may panic on a file damaged in a way that it does not expect; its thread ends then.
        is_open.await.unwrap_or_else(|_| {
            Err(StoreError::Damaged {
                path: path.to_owned(),
                why: "the store library gave up on it".to_owned(),
            })
        })?;
        Ok(Self { queue, path: path.to_owned() })
    }

    /// Everything that is stored. Rows that cannot be read are moved to quarantine, counted and warned of.
    ///
    /// # Errors
    /// [`StoreError`] if the file as a whole cannot be read.
    pub async fn load(&self) -> Result<Stored, StoreError> {
        self.ask(Request::Load).await
    }

    /// Writes all of `writes` in order, or none. Answers once they are on disk.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if the disk refused; nothing of `writes` is stored then. [`StoreError::Closed`] after
    /// [`close`](Self::close).
    pub async fn write(&self, writes: Vec<Write>) -> Result<(), StoreError> {
        self.ask(|answer| Request::Write(writes, answer)).await
    }

    /// Sets a pool's settings.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn put_pool(&self, name: PoolName, record: PoolRecord) -> Result<(), StoreError> {
        self.write(vec![Write::PutPool(name, record)]).await
    }

    /// Sets a host's drain.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn put_drain(&self, host: HostId, record: DrainRecord) -> Result<(), StoreError> {
        self.write(vec![Write::PutDrain(host, record)]).await
    }

    /// Ends a host's drain; nothing happens without one.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn delete_drain(&self, host: HostId) -> Result<(), StoreError> {
        self.write(vec![Write::DeleteDrain(host)]).await
    }

    /// Replaces the last-known values of all hosts.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn put_last_known(&self, hosts: Vec<LastKnown>) -> Result<(), StoreError> {
        self.write(vec![Write::PutLastKnown(hosts)]).await
    }

    /// Finishes what is queued and closes the file. Later requests get [`StoreError::Closed`].
    pub async fn close(&self) {
        let (answer, closed) = oneshot::channel();
        if self.queue.send(Request::Close(answer)).await.is_ok() {
            // An error means that the thread has ended already, which is what was asked for.
            let _ = closed.await;
        }
    }

    async fn ask<T>(&self, request: impl FnOnce(Answer<T>) -> Request) -> Result<T, StoreError> {
        let closed = || StoreError::Closed { path: self.path.clone() };
        let (answer, answered) = oneshot::channel();
        self.queue.send(request(answer)).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }
}

/// Serves requests in order until the last handle is gone, or one closes the store.
fn run(mut store: impl Store, mut requests: mpsc::Receiver<Request>, metrics: &Metrics) {
    let mut next = None;
    while let Some(request) = next.take().or_else(|| requests.blocking_recv()) {
        match request {
            Request::Load(answer) => drop(answer.send(load(&mut store, metrics))),
            Request::Write(writes, answer) => {
                next = commit_batch(&mut store, writes, answer, &mut requests, metrics);
            }
            Request::Close(answer) => {
                drop(store);
                drop(requests);
                let _ = answer.send(());
                return;
            }
        }
    }
}

fn load(store: &mut impl Store, metrics: &Metrics) -> Result<Stored, StoreError> {
    let stored = store.load()?;
    for row in &stored.quarantined {
        warn!(table = row.table, key = row.key, why = row.why, "moved an unreadable row of the store aside");
        metrics.store_row_quarantined();
    }
    Ok(stored)
}

/// Commits these writes together with those that have queued up behind them, and answers all. Returns the request
/// that ended the batch.
fn commit_batch(
    store: &mut impl Store,
    mut writes: Vec<Write>,
    answer: Answer<()>,
    requests: &mut mpsc::Receiver<Request>,
    metrics: &Metrics,
) -> Option<Request> {
    let mut answers = vec![answer];
    let mut next = None;
    while answers.len() < BATCH {
        match requests.try_recv() {
            Ok(Request::Write(more, answer)) => {
                writes.extend(more);
                answers.push(answer);
            }
            Ok(other) => {
                next = Some(other);
                break;
            }
            Err(_) => break,
        }
    }
    let begun = Instant::now();
    let outcome = store.commit(&writes);
    metrics.store_committed(begun.elapsed(), outcome.is_ok());
    if let Err(error) = &outcome {
        let source = std::error::Error::source(error).map(ToString::to_string);
        error!(%error, source, writes = writes.len(), "lost a commit of the store");
    }
    for answer in answers {
        // Nobody may be waiting any more.
        let _ = answer.send(outcome.clone());
    }
    next
}
