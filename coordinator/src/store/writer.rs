//! Who owns a coordinator's own store: a thread, since a disk blocks, or a task for a store in memory; and how it is asked.
//!
//! The queue is bounded: when the disk is slower than the writers, they wait instead of filling memory.

use std::{path::Path, path::PathBuf, thread, time::Instant};

use tokio::sync::{mpsc, oneshot};
use tracing::{error, warn};

use super::{Aside, Store, StoreError, Stored, Write};
use crate::metrics::Metrics;

/// Requests that may wait for the writer. Each holds a few hundred bytes, or the last-known values of all hosts.
const QUEUE: usize = 256;
/// Requests that share one commit at most: more would only delay the answer to the first of them.
const BATCH: usize = 128;

type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// What else the store's owner is to do, with its answer.
type Work = Box<dyn FnOnce(&mut dyn Store) + Send>;

enum Request {
    Load(Answer<Stored>),
    Write(Vec<Write>, Answer<()>),
    Other(Work),
    Close(oneshot::Sender<()>),
}

/// Asks the owner. Clones share it; the file is closed when the last one is gone, or by [`close`].
///
/// [`close`]: Self::close
#[derive(Clone, Debug)]
pub(super) struct LocalHandle {
    queue: mpsc::Sender<Request>,
    path: PathBuf,
}

impl LocalHandle {
    /// Runs any store on a thread of its own; `open` is called there. `path` names it in errors.
    ///
    /// # Errors
    /// What `open` answers, or [`StoreError::Failed`] if no thread could be started.
    pub(super) async fn start<S: Store + 'static>(
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

    /// Runs a store that never blocks on a task of the runtime.
    pub(super) fn inline(path: &Path, metrics: Metrics, mut store: impl Store + 'static) -> Self {
        let (queue, mut requests) = mpsc::channel(QUEUE);
        tokio::spawn(async move {
            let mut next = None;
            loop {
                let request = match next.take() {
                    Some(request) => request,
                    None => match requests.recv().await {
                        Some(request) => request,
                        None => return,
                    },
                };
                match serve(&mut store, request, &mut requests, &metrics) {
                    Served::On(request) => next = request,
                    Served::Close(answer) => {
                        drop(store);
                        drop(requests);
                        let _ = answer.send(());
                        return;
                    }
                }
            }
        });
        Self { queue, path: path.to_owned() }
    }

    pub(super) async fn load(&self) -> Result<Stored, StoreError> {
        self.ask(Request::Load).await
    }

    /// Writes all of `writes` in order, or none.
    pub(super) async fn write(&self, writes: Vec<Write>) -> Result<(), StoreError> {
        self.ask(|answer| Request::Write(writes, answer)).await
    }

    pub(super) async fn quarantine(&self) -> Result<Vec<Aside>, StoreError> {
        self.other(|store| store.quarantine()).await
    }

    pub(super) async fn set_aside(&self, rows: Vec<Aside>) -> Result<(), StoreError> {
        self.other(move |store| store.set_aside(&rows)).await
    }

    pub(super) async fn drop_aside(&self, table: String, key: String) -> Result<bool, StoreError> {
        self.other(move |store| store.drop_aside(&table, &key)).await
    }

    async fn other<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask(|answer| Request::Other(Box::new(move |store| drop(answer.send(work(store)))))).await
    }

    /// Finishes what is queued and closes the file.
    pub(super) async fn close(&self) {
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
        match serve(&mut store, request, &mut requests, metrics) {
            Served::On(request) => {
                next = request;
                store.tidy(false);
            }
            Served::Close(answer) => {
                store.tidy(true);
                drop(store);
                drop(requests);
                let _ = answer.send(());
                return;
            }
        }
    }
    store.tidy(true);
}

enum Served {
    /// Perhaps with a request that was taken already.
    On(Option<Request>),
    Close(oneshot::Sender<()>),
}

fn serve(
    store: &mut impl Store,
    request: Request,
    requests: &mut mpsc::Receiver<Request>,
    metrics: &Metrics,
) -> Served {
    match request {
        Request::Load(answer) => drop(answer.send(load(store, metrics))),
        Request::Write(writes, answer) => {
            return Served::On(commit_batch(store, writes, answer, requests, metrics));
        }
        Request::Other(work) => work(store),
        Request::Close(answer) => return Served::Close(answer),
    }
    Served::On(None)
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
    match &outcome {
        // Every ten seconds there is a commit at least: one line for all that fail in a row.
        Err(error) if metrics.store_fails(true) => {
            let source = std::error::Error::source(error).map(ToString::to_string);
            error!(%error, source, "the store takes nothing: what is changed is not stored, and is refused");
        }
        Ok(()) if metrics.store_fails(false) => warn!("the store takes changes again"),
        _ => {}
    }
    for answer in answers {
        // Nobody may be waiting any more.
        let _ = answer.send(outcome.clone());
    }
    next
}
