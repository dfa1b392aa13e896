//! One who watches the farm.
//!
//! A reader is where it stands: the revision up to which it was told. It takes the next message from the ring when its
//! connection takes one, so what it does not read lies nowhere. What it has been sent may still lie unread on its own side,
//! where it fills a window that all calls of its connection share; so a stream is sent so much without a word from its
//! reader and no more, then it ends, and the reader asks to go on from its last revision. Where windows are smaller than
//! that, the connection takes nothing any more, and nobody asks the stream for anything; so a task of its own carries the
//! messages, and gives up when one is not taken in time. A reader that reads loses nothing by either. One that does not
//! read has stopped to matter.

use std::{collections::HashMap, pin::Pin, sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use prost::Message;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, timeout},
};
use tonic::{Code, Status};
use usher_proto::{
    error::{self, reason},
    fault::id,
    v1::{self, WatchResync, watch_farm_response::Event as WireEvent},
};
use usher_types::{FieldFault, PoolName};

use crate::{
    publish::{self, Copy, Event, Next, Seat},
    shared::Shared,
    stored::millis,
};

/// Between two bookmarks: a reader that hears none for some of them knows that the coordinator is gone.
const BOOKMARK_EVERY: Duration = Duration::from_secs(2);
/// What a stream is sent beyond the first copy of the farm, before its reader must ask anew: five streams that nobody reads
/// stay below the 4 to 5 MB that common libraries take for a connection.
const UNASKED_BYTES: usize = 512 * 1024;
/// How long a message waits for being taken: of the largest ones that is a line of 17 KB/s.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// Pools that a request may name.
const MOST_POOLS: usize = 64;
/// The field of `WatchFarmResponse` that is added for each reader.
const HELD_MS: u32 = 5;

/// What readers of our own language get.
pub(crate) type Messages = Pin<Box<dyn Stream<Item = Result<v1::WatchFarmResponse, Status>> + Send>>;
/// Encoded messages.
pub(super) type Frames = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

/// What a request of `who` is told, encoded.
///
/// # Errors
/// A request that asks for what cannot be, and too many readers.
pub(super) fn frames(
    shared: &Arc<Shared>,
    who: &str,
    request: v1::WatchFarmRequest,
) -> Result<Frames, Status> {
    let pools = wanted(&request)?;
    let (seat, stream) = shared.feed.seat(who).ok_or_else(too_many)?;
    let resume = request.resume_revision.map(|revision| (revision, request.resume_instance));
    let reader = Reader {
        newest: shared.feed.newest(),
        shared: shared.clone(),
        pools,
        phase: Phase::Arriving(resume),
        told: 0,
        sent: 0,
        may_send: UNASKED_BYTES,
        bookmark_at: Instant::now(),
        _seat: seat,
    };
    let (to, frames) = mpsc::channel(1);
    let (end, ended) = oneshot::channel();
    tokio::spawn(async move {
        let why = reader.carry(&to).await;
        // First the reason, then the end of the messages that makes the other side look for it.
        drop(why.map(|why| end.send(why)));
        drop(to);
    });
    let carried = Carried { frames, ended: Some(ended), _stream: stream };
    let next = async |mut carried: Carried| Some((carried.next().await?, carried));
    Ok(Box::pin(stream::unfold(carried, next)))
}

/// What was carried to the connection and is not taken yet.
struct Carried {
    frames: mpsc::Receiver<Bytes>,
    ended: Option<oneshot::Receiver<Status>>,
    _stream: publish::Stream,
}

impl Carried {
    async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        match self.frames.recv().await {
            Some(frame) => Some(Ok(frame)),
            None => self.ended.take()?.await.ok().map(Err),
        }
    }
}

/// The same as messages.
pub(super) fn messages(frames: Frames) -> Messages {
    let message =
        |bytes| v1::WatchFarmResponse::decode(bytes).map_err(|error| Status::internal(error.to_string()));
    Box::pin(frames.map(move |frame| frame.and_then(message)))
}

/// The pools that are asked for; empty: all.
fn wanted(request: &v1::WatchFarmRequest) -> Result<Vec<PoolName>, Status> {
    let mut faults = Vec::new();
    if request.pools.len() > MOST_POOLS {
        let count = format!("{} pools", request.pools.len());
        faults.push(FieldFault::new("pools", count, format!("at most {MOST_POOLS}")));
    }
    let pools = request.pools.iter().take(MOST_POOLS);
    let pools =
        pools.filter_map(|pool| id::<PoolName>("pools", pool).map_err(|fault| faults.push(fault)).ok());
    let pools = pools.collect();
    if faults.is_empty() { Ok(pools) } else { Err(error::invalid_fields(&faults)) }
}

fn too_many() -> Status {
    let what = "more clients watch the farm than this coordinator serves";
    error::status(Code::Unavailable, reason::OVERLOADED, what, HashMap::new(), Some(Duration::from_secs(5)))
}

/// Ends a stream whose reader was told up to `told`; zero: it does not know the whole farm yet.
fn resync(told: u64, why: &str) -> Status {
    let (what, metadata) = if told == 0 {
        (format!("{why}: ask again, without a revision"), HashMap::new())
    } else {
        let metadata = HashMap::from([("revision".to_owned(), told.to_string())]);
        (format!("{why}: ask again with resume_revision = {told}"), metadata)
    };
    error::status(Code::Aborted, reason::RESYNC, what, metadata, None)
}

fn going_down() -> Status {
    Status::unavailable("the coordinator is shutting down")
}

enum Phase {
    /// Nothing was said yet.
    Arriving(Option<(u64, String)>),
    /// In the middle of the whole farm.
    Copying(Arc<Copy>, usize),
    /// Told of everything up to a revision, and of what comes.
    Following,
    Over,
}

struct Reader {
    shared: Arc<Shared>,
    newest: watch::Receiver<u64>,
    pools: Vec<PoolName>,
    phase: Phase,
    /// The revision up to which it was told.
    told: u64,
    sent: usize,
    may_send: usize,
    bookmark_at: Instant,
    _seat: Seat,
}

impl Reader {
    /// Carries messages until there are no more of them, or nobody takes them: then why. Seat and copy are free with it,
    /// even if the connection keeps what lies in it.
    async fn carry(mut self, to: &mpsc::Sender<Bytes>) -> Option<Status> {
        let closed = self.shared.feed.closed().clone();
        loop {
            let told = self.told;
            let frame = tokio::select! {
                () = to.closed() => return None,
                frame = self.next() => frame?,
            };
            let taken = match frame {
                Ok(frame) => timeout(TAKEN_WITHIN, to.send(frame)),
                Err(end) => return Some(end),
            };
            tokio::select! {
                taken = taken => match taken {
                    Ok(Ok(())) => {}
                    Ok(Err(_gone)) => return None,
                    // What was not taken was not told.
                    Err(_late) => return Some(resync(told, "the reader takes nothing")),
                },
                () = closed.cancelled() => return Some(going_down()),
            }
        }
    }

    /// The next message. Absent: the stream is over.
    async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        loop {
            match std::mem::replace(&mut self.phase, Phase::Over) {
                Phase::Over => return None,
                Phase::Arriving(resume) => {
                    if let Some(start) = self.arrive(resume).await {
                        return Some(start);
                    }
                }
                Phase::Copying(copy, at) => {
                    let Some(part) = copy.parts.get(at) else {
                        self.told = copy.revision;
                        self.phase = Phase::Following;
                        return Some(Ok(self.bookmark()));
                    };
                    let frame = self.wants(part).then(|| self.frame(part));
                    self.phase = Phase::Copying(copy, at + 1);
                    if let Some(frame) = frame {
                        self.may_send += frame.len();
                        self.sent += frame.len();
                        return Some(Ok(frame));
                    }
                }
                Phase::Following => {
                    let told = self.follow().await;
                    if told.is_ok() {
                        self.phase = Phase::Following;
                    }
                    return Some(told);
                }
            }
        }
    }

    /// Goes on where an earlier stream was, or begins with the whole farm: then with the message that says so.
    async fn arrive(&mut self, resume: Option<(u64, String)>) -> Option<Result<Bytes, Status>> {
        self.shared.feed.catch_up(&self.shared).await;
        let resync = match resume {
            None => WatchResync::Unspecified,
            Some((_, instance)) if instance != self.shared.instance_id => WatchResync::OtherInstance,
            Some((revision, _)) if matches!(self.shared.feed.after(revision), Next::Trimmed) => {
                WatchResync::Trimmed
            }
            Some((revision, _)) => {
                self.told = revision;
                self.phase = Phase::Following;
                return None;
            }
        };
        let Some(copy) = self.shared.feed.copy(&self.shared).await else { return Some(Err(going_down())) };
        let start = v1::FarmStart {
            farm: self.shared.config.farm.clone(),
            coordinator_id: self.shared.coordinator_id.clone(),
            instance_id: self.shared.instance_id.clone(),
            resync: resync.into(),
        };
        self.phase = Phase::Copying(copy, 0);
        // Not known up to there before the whole of it was said.
        Some(Ok(encoded(0, WireEvent::Start(start))))
    }

    /// The next change, or a bookmark when it is time for one.
    async fn follow(&mut self) -> Result<Bytes, Status> {
        let closed = self.shared.feed.closed().clone();
        loop {
            if closed.is_cancelled() {
                return Err(going_down());
            }
            if self.sent > self.may_send {
                return Err(resync(self.told, "so much is sent to a stream and no more"));
            }
            self.newest.borrow_and_update();
            match self.shared.feed.after(self.told) {
                Next::Trimmed => return Err(resync(self.told, "the reader is too far behind")),
                Next::Event(event) => {
                    self.told = event.revision;
                    if self.wants(&event) {
                        let frame = self.frame(&event);
                        self.sent += frame.len();
                        return Ok(frame);
                    }
                }
                Next::Nothing => {
                    tokio::select! {
                        () = closed.cancelled() => {}
                        () = tokio::time::sleep_until(self.bookmark_at) => {
                            let bookmark = self.bookmark();
                            self.sent += bookmark.len();
                            return Ok(bookmark);
                        }
                        changed = self.newest.changed() => if changed.is_err() { closed.cancel() },
                    }
                }
            }
        }
    }

    fn wants(&self, event: &Event) -> bool {
        self.pools.is_empty() || self.pools.contains(&event.pool)
    }

    /// The bytes that all readers share, and for how long they had been kept.
    fn frame(&self, event: &Event) -> Bytes {
        let held_ms = millis(self.shared.now().since(event.written_at));
        if held_ms == 0 {
            return event.bytes.clone();
        }
        let mut frame = BytesMut::with_capacity(event.bytes.len() + 12);
        frame.put_slice(&event.bytes);
        // A field at the end of a message is as good as one in its middle.
        prost::encoding::uint64::encode(HELD_MS, &held_ms, &mut frame);
        frame.freeze()
    }

    fn bookmark(&mut self) -> Bytes {
        self.bookmark_at = Instant::now() + BOOKMARK_EVERY;
        let (snapshot, now) = (self.shared.snapshot.load(), self.shared.now());
        let pools = || {
            snapshot.pools.values().filter(|pool| self.pools.is_empty() || self.pools.contains(&pool.name))
        };
        let (heard, registered) =
            pools().next().map_or((0, 0), |pool| (pool.hosts_heard, pool.hosts_registered));
        let stale = self.shared.is_frozen(now) || pools().any(|pool| pool.is_stale(now));
        let bookmark = v1::FarmBookmark { hosts_heard: heard, hosts_registered: registered, stale };
        encoded(self.told, WireEvent::Bookmark(bookmark))
    }
}

fn encoded(revision: u64, event: WireEvent) -> Bytes {
    v1::WatchFarmResponse { revision, event: Some(event), held_ms: 0 }.encode_to_vec().into()
}

#[cfg(test)]
mod tests;
