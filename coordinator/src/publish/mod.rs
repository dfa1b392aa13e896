//! What has changed in the farm, for those who watch it?
//!
//! One task looks at the newest snapshot ten times a second, compares it with the one that it told of last, chunk by chunk
//! and word by word, and writes what is new into a ring: once, as bytes that every reader shares. A reader is a revision and
//! nothing more: it reads on from there at its own pace, and whoever is slower than the ring is long has to begin anew. So
//! readers cost the farm task and placements nothing, none is ever waited for, and what they cost together is bounded:
//! one ring, and one copy of the whole farm in words, made for those who begin and kept for a second.
//!
//! Nobody is compared for while nobody watches.

mod ring;
mod seats;
#[cfg(test)]
mod tests;
mod words;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use prost::Message;
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use usher_placement::farm::{CellWord, PoolView, Snapshot};
use usher_proto::v1::{self, watch_farm_response::Event as WireEvent};
use usher_types::{BootTime, PoolName};

use self::{ring::Ring, seats::Seats};
pub(crate) use self::{
    ring::{Event, Next},
    seats::{Seat, Stream},
};
use crate::shared::Shared;

/// How often is looked for what has changed: so often a host is told of at most. A decision without a coordinator can wait
/// for a tenth of a second; twice as often would cost twice as much for reports that come every five seconds.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A message stays below this, far below what gRPC libraries take.
const MESSAGE_BYTES: usize = 512 * 1024;
/// What an entry of a list takes beside itself: its tag and its length.
const IN_A_LIST_BYTES: usize = 5;
/// A copy of the whole farm serves those who begin for so long.
const COPY_LASTS: Duration = Duration::from_secs(1);
/// What those who watch the farm are told.
#[derive(Debug)]
pub(crate) struct Feed {
    ring: Mutex<Ring>,
    published: Mutex<Published>,
    newest: watch::Sender<u64>,
    seats: Seats,
    copy: tokio::sync::Mutex<Option<(Instant, Arc<Copy>)>>,
    closed: CancellationToken,
}

/// What was told up to a revision.
#[derive(Clone, Debug, Default)]
struct Published {
    revision: u64,
    /// When the farm was compared last. Absent: never.
    looked_at: Option<Instant>,
    snapshot: Arc<Snapshot>,
    words: BTreeMap<PoolName, Arc<[Counts]>>,
}

/// What placements change of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    users: Option<u32>,
    pending_users: u32,
    places: u32,
}

impl From<CellWord> for Counts {
    fn from(word: CellWord) -> Self {
        Self { users: word.users(), pending_users: word.pending_users(), places: word.places() }
    }
}

/// The whole farm in words, as of a revision.
#[derive(Debug)]
pub(crate) struct Copy {
    /// The revision.
    pub(crate) revision: u64,
    /// All of it, pool by pool; under no revision, because a part of it is known up to nowhere.
    pub(crate) parts: Vec<Event>,
}

impl Default for Feed {
    fn default() -> Self {
        Self {
            ring: Mutex::default(),
            published: Mutex::default(),
            newest: watch::channel(0).0,
            seats: Seats::default(),
            copy: tokio::sync::Mutex::default(),
            closed: CancellationToken::new(),
        }
    }
}

impl Feed {
    /// A place among the readers, and one among the streams of `who`. Absent: there are too many.
    pub(crate) fn seat(&self, who: &str) -> Option<(Seat, Stream)> {
        self.seats.take(who)
    }

    /// Readers now.
    pub(crate) fn readers(&self) -> usize {
        self.seats.readers()
    }

    /// What came after `revision`.
    pub(crate) fn after(&self, revision: u64) -> Next {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).after(revision)
    }

    /// Wakes up whenever there is something new.
    pub(crate) fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Cancelled when nothing will ever be new again.
    pub(crate) fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// Looks, if that was not done just now: nobody looks while nobody watches, and whoever comes then must not take what
    /// was true for the last reader for what is true now.
    pub(crate) async fn catch_up(&self, shared: &Arc<Shared>) {
        let looked_at = self.published.lock().unwrap_or_else(PoisonError::into_inner).looked_at;
        if looked_at.is_some_and(|at| at.elapsed() <= LOOK_EVERY) {
            return;
        }
        let watched = shared.clone();
        // Ten thousand hosts take some tens of milliseconds: no worker of the placements waits for that.
        let looking = tokio::task::spawn_blocking(move || watched.feed.look(&watched));
        // Cancelled: the runtime goes down, and nobody is told anything any more.
        drop(looking.await);
    }

    /// The whole farm, of now or of up to a second ago; what came after it is in the ring. Absent: the coordinator goes
    /// down.
    pub(crate) async fn copy(&self, shared: &Arc<Shared>) -> Option<Arc<Copy>> {
        let mut kept = self.copy.lock().await;
        if let Some((made_at, copy)) = kept.as_ref()
            && made_at.elapsed() < COPY_LASTS
            && !matches!(self.after(copy.revision), Next::Trimmed)
        {
            return Some(copy.clone());
        }
        let watched = shared.clone();
        let making = tokio::task::spawn_blocking(move || {
            watched.feed.look(&watched);
            watched.feed.write_copy(watched.now())
        });
        let copy = Arc::new(making.await.ok()?);
        *kept = Some((Instant::now(), copy.clone()));
        Some(copy)
    }

    fn write_copy(&self, now: BootTime) -> Copy {
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut parts = Vec::new();
        for pool in published.snapshot.pools.values() {
            let words = published.words.get(&pool.name).cloned().unwrap_or_default();
            let mut batch = Batch::new(&pool.name, now);
            batch.add_pool(words::pool(pool));
            for (position, host) in pool.hosts.iter().enumerate() {
                let counts = words.get(position).copied().unwrap_or(NOTHING);
                batch.add_host(words::host(pool, position, host, counts, words::Parts::ALL, now));
            }
            // Half a farm is not known up to anywhere: the bookmark after the last part says how far it is.
            parts.extend(batch.finish(|| 0));
        }
        Copy { revision: published.revision, parts }
    }

    /// Compares the newest snapshot with what was told, and tells what is new.
    pub(crate) fn look(&self, shared: &Shared) {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        // Behind the lock: who looked while we waited for it has told of a newer one than we saw before.
        let (snapshot, now) = shared.look();
        let mut next = Published {
            revision: published.revision,
            looked_at: Some(Instant::now()),
            snapshot,
            words: BTreeMap::new(),
        };
        // Who has left one pool may be in another one: that it is gone comes first.
        let mut batches = gone(&published.snapshot, &next.snapshot, now);
        for (name, pool) in &next.snapshot.pools {
            let before = published.snapshot.pools.get(name);
            let (counts, batch) = changes(pool, before, published.words.get(name), now);
            next.words.insert(name.clone(), counts);
            batches.push(batch);
        }
        let mut events = Vec::new();
        for batch in batches {
            events.extend(batch.finish(|| {
                next.revision += 1;
                next.revision
            }));
        }
        let revision = next.revision;
        *published = next;
        if events.is_empty() {
            return;
        }
        // Before anybody else compares: revisions come into the ring in their order.
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        events.into_iter().for_each(|event| ring.push(event));
        drop(ring);
        drop(published);
        self.newest.send_replace(revision);
    }
}

const NOTHING: Counts = Counts { users: None, pending_users: 0, places: 0 };

/// Tells of the farm until `shutdown`.
pub(crate) async fn run(shared: Arc<Shared>, shutdown: CancellationToken) {
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            _ = looks.tick() => if shared.feed.readers() > 0 {
                shared.feed.look(&shared);
            },
        }
    }
    shared.feed.closed.cancel();
}

/// Pools that are there no more, and hosts that are in their pool no more.
fn gone(before: &Snapshot, now: &Snapshot, at: BootTime) -> Vec<Batch> {
    let mut batches = Vec::new();
    for (name, old) in &before.pools {
        let mut batch = Batch::new(name, at);
        match now.pools.get(name) {
            None => batch.changes.gone_pools.push(name.to_string()),
            Some(new) if Arc::ptr_eq(&old.members, &new.members) => continue,
            Some(new) => {
                let ids = old.hosts.iter().map(|host| &host.facts.host_id);
                let left = ids.filter(|host_id| new.members.position(host_id).is_none());
                batch.changes.gone_hosts.extend(left.map(ToString::to_string));
            }
        }
        batches.push(batch);
    }
    batches
}

/// What is new in a pool, and what was counted of its hosts.
fn changes(
    pool: &Arc<PoolView>,
    before: Option<&Arc<PoolView>>,
    told: Option<&Arc<[Counts]>>,
    now: BootTime,
) -> (Arc<[Counts]>, Batch) {
    let counts: Arc<[Counts]> = pool.words().into_iter().map(Counts::from).collect();
    let mut batch = Batch::new(&pool.name, now);
    let is_same_view = before.is_some_and(|before| Arc::ptr_eq(before, pool));
    if is_same_view && told.is_some_and(|told| *told == counts) {
        return (told.cloned().unwrap_or(counts), batch);
    }
    let is_same_pool = |before: &Arc<PoolView>| {
        (before.version, before.costs, before.typical) == (pool.version, pool.costs, pool.typical)
            && Arc::ptr_eq(&before.policy, &pool.policy)
    };
    if !before.is_some_and(is_same_pool) {
        batch.add_pool(words::pool(pool));
    }
    let same_members = before.filter(|before| Arc::ptr_eq(&before.members, &pool.members));
    let old_position = |position: usize| match (same_members, before) {
        (Some(_), _) => Some(position),
        (None, Some(before)) => before.members.position(&pool.hosts[position].facts.host_id),
        (None, None) => None,
    };
    let same_marks = before.is_some_and(|before| before.marked == pool.marked);
    for (position, host) in pool.hosts.iter().enumerate() {
        let old = old_position(position);
        let old_host = old.and_then(|at| before?.hosts.get(at));
        let old_counts = old.and_then(|at| told?.get(at)).copied();
        let same_view = old_host.is_some_and(|old| Arc::ptr_eq(old, host));
        if same_view && same_marks && old_counts == Some(counts[position]) {
            continue;
        }
        let parts = words::Parts {
            facts: !old_host
                .is_some_and(|old| Arc::ptr_eq(&old.facts, &host.facts) || old.facts == host.facts),
            replicas: !same_marks || !old_host.is_some_and(|old| Arc::ptr_eq(&old.replicas, &host.replicas)),
        };
        batch.add_host(words::host(pool, position, host, counts[position], parts, now));
    }
    (counts, batch)
}

/// Changes of one pool on their way into messages.
struct Batch {
    pool: PoolName,
    now: BootTime,
    changes: v1::FarmChanges,
    bytes: usize,
    full: Vec<v1::FarmChanges>,
}

impl Batch {
    fn new(pool: &PoolName, now: BootTime) -> Self {
        Self { pool: pool.clone(), now, changes: v1::FarmChanges::default(), bytes: 0, full: Vec::new() }
    }

    fn add_pool(&mut self, pool: v1::WatchedPool) {
        self.bytes += pool.encoded_len();
        self.changes.pools.push(pool);
    }

    fn add_host(&mut self, host: v1::WatchedHost) {
        let bytes = host.encoded_len() + IN_A_LIST_BYTES;
        if self.bytes + bytes > MESSAGE_BYTES {
            self.full.push(std::mem::take(&mut self.changes));
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.changes.hosts.push(host);
    }

    /// The messages, each under the revision that `revision` gives it.
    fn finish(mut self, mut revision: impl FnMut() -> u64) -> Vec<Event> {
        if self.changes != v1::FarmChanges::default() {
            self.full.push(self.changes);
        }
        let event = |changes| {
            let revision = revision();
            let message =
                v1::WatchFarmResponse { revision, event: Some(WireEvent::Changes(changes)), held_ms: 0 };
            Event {
                revision,
                written_at: self.now,
                pool: self.pool.clone(),
                bytes: Bytes::from(message.encode_to_vec()),
            }
        };
        self.full.into_iter().map(event).collect()
    }
}
