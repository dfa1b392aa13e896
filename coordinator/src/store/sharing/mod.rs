//! How do several coordinators keep one set of what people decided?
//!
//! All of it lies in a shared store. Each coordinator writes there first, in transactions that happen only if nobody was faster,
//! and follows what the others write through a watch. What it follows it puts in force, and keeps as its own copy, so that it
//! starts and serves while the shared store is away; then nothing can be changed, except for what hosts have done already, which
//! is owed to the shared store until it is back.
//!
//! A write whose answer is lost is never just repeated. Every transaction also changes the row `writers/ID` of its coordinator,
//! and demands that this row is as the coordinator knows it. To find out what became of a lost one, the coordinator changes
//! that row with the same demand: either this succeeds, and the lost one can never happen any more, or the row tells that the
//! lost one has happened.

mod filling;
mod follow;
#[cfg(test)]
mod meanwhile_tests;
#[cfg(test)]
mod outage_tests;
mod owed;
mod plan;
mod replace;
mod take;
#[cfg(test)]
mod tests;
mod write;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use usher_runtime::clock::Clock;
use usher_types::HostId;

pub use self::follow::{Followed, Follower};
use super::{
    DrainRecord, LinkState, Owed, Presence, SharedRows, SharedStatus, StoreError, StoreStatus, Stored,
    shared_rows::Change,
    shared_store::{SharedError, SharedRow, SharedStore},
    writer::LocalHandle,
};
use crate::metrics::Metrics;

/// Says that the store has been filled, and by which version: without it an empty store is not believed.
const MARKER: &str = "meta/format";
/// Who is filling an empty store.
const SEEDING: &str = "meta/seeding";
/// Version of the rows that this build reads.
const FORMAT: u32 = 1;
const WRITERS: &str = "writers";
const COORDINATORS: &str = "coordinators";
/// How long a coordinator is listed that is not heard any more.
const LISTED_FOR: Duration = Duration::from_secs(10);

/// A coordinator that stops waits so long for a store that has just gone.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// How to share.
#[derive(Clone, Debug)]
pub struct SharingOptions {
    /// The shared store.
    pub store: Arc<dyn SharedStore>,
    /// For times that people are shown.
    pub clock: Arc<dyn Clock>,
    /// Names this run in the store: two runs must not have the same.
    pub instance_id: String,
    /// Whether an empty store is filled with what this coordinator has.
    pub seed: bool,
    /// Longest time for a write, its retries included.
    pub write_within: Duration,
}

/// What shares.
#[derive(Debug)]
pub(super) struct Sharing {
    store: Arc<dyn SharedStore>,
    local: LocalHandle,
    metrics: Metrics,
    clock: Arc<dyn Clock>,
    coordinator_id: String,
    instance_id: String,
    seed: bool,
    write_within: Duration,
    transactions: AtomicU64,
    state: Mutex<State>,
    /// One transaction after the other: each says which one was before it.
    writing: tokio::sync::Mutex<()>,
    /// Whoever writes shared rows to the local copy decides under it whether they are still new.
    copying: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    /// Every row of the shared store, as far as it is known.
    rows: BTreeMap<String, SharedRow>,
    /// What was told to the farm.
    told: SharedRows,
    /// Which store it is. Absent: it was not listed yet in this run.
    cluster: Option<u64>,
    /// Up to where it is followed.
    revision: u64,
    link: LinkState,
    since_unix_ms: u64,
    last_error: Option<String>,
    /// How often it was seen to answer.
    answers: u64,
    /// Rows that cannot be read, by the revision in which that was said.
    unreadable: BTreeMap<String, u64>,
    owed: BTreeMap<u64, Owed>,
    /// The local file refused to follow: it is to be written as a whole.
    copy_is_behind: bool,
    /// The local file was a store of its own until now, and no copy.
    had_its_own: bool,
    presence: Option<Presence>,
}

impl Sharing {
    pub(super) fn new(
        options: SharingOptions,
        local: LocalHandle,
        metrics: Metrics,
        stored: &Stored,
    ) -> (Arc<Self>, Follower) {
        let state = State {
            rows: BTreeMap::new(),
            told: stored.shared(),
            cluster: None,
            revision: 0,
            link: LinkState::Away,
            since_unix_ms: options.clock.wall_unix_ms(),
            last_error: None,
            answers: 0,
            unreadable: BTreeMap::new(),
            owed: stored.owed.clone(),
            copy_is_behind: false,
            had_its_own: stored.copied.is_none() && !stored.shared().is_empty(),
            presence: None,
        };
        let sharing = Arc::new(Self {
            store: options.store,
            local,
            metrics,
            clock: options.clock,
            coordinator_id: stored.meta.coordinator_id.clone(),
            instance_id: options.instance_id,
            seed: options.seed,
            write_within: options.write_within,
            transactions: AtomicU64::new(0),
            state: Mutex::new(state),
            writing: tokio::sync::Mutex::default(),
            copying: tokio::sync::Mutex::default(),
        });
        (sharing.clone(), Follower::new(sharing))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing is done under the lock that could fail half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The row that each transaction of this coordinator changes.
    fn writer_key(&self) -> String {
        format!("{WRITERS}/{}", self.coordinator_id)
    }

    /// A word that no other transaction has.
    fn transaction_id(&self) -> Vec<u8> {
        let number = self.transactions.fetch_add(1, Ordering::Relaxed);
        format!("{}.{number}", self.instance_id).into_bytes()
    }

    pub(super) fn status(&self) -> StoreStatus {
        let state = self.state();
        let shared = SharedStatus {
            link: state.link,
            since_unix_ms: state.since_unix_ms,
            revision: state.revision,
            last_error: state.last_error.clone(),
            owed: state.owed.len(),
        };
        StoreStatus { kind: self.store.kind(), shared: Some(shared) }
    }

    pub(super) fn set_presence(&self, presence: Presence) {
        self.state().presence = Some(presence);
    }

    pub(super) fn coordinators(&self) -> Vec<Presence> {
        let state = self.state();
        let prefix = format!("{COORDINATORS}/");
        let rows = state.rows.iter().filter(|(key, _)| key.starts_with(&prefix));
        rows.filter_map(|(_, row)| serde_json::from_slice(&row.value).ok()).collect()
    }

    /// The drain of a host, as the shared store has it, or as it was last known to have it. Absent: the local copy says it.
    pub(super) fn drain_of(&self, host: &HostId) -> Option<Option<DrainRecord>> {
        let state = self.state();
        let key = Change::Drain(host.clone(), None).key();
        let row = state.rows.get(&key);
        let read = row.and_then(|row| Change::from_row(&key, Some(&row.value)).ok().flatten());
        let known = match read {
            Some(Change::Drain(_, drain)) => drain,
            // What cannot be read leaves in force what was.
            _ => state.told.drains.get(host).cloned(),
        };
        if state.link == LinkState::Connected && state.cluster.is_some() {
            return Some(known.filter(|_| row.is_some()));
        }
        // Its disk may be full, and the copy without it. What hosts have done since is in the copy and not here.
        let is_owed = |drain: &DrainRecord| {
            let ended = Owed::EndDrain { host: host.clone(), set_unix_ms: drain.set_unix_ms };
            state.owed.values().any(|owed| *owed == ended)
        };
        known.filter(|drain| !is_owed(drain)).map(Some)
    }

    /// Says goodbye to the others.
    pub(super) async fn leave(&self) {
        if self.state().link == LinkState::Connected {
            // If it does not answer at once, the others will notice by themselves.
            let _ = tokio::time::timeout(LEAVE_WITHIN, self.store.withdraw()).await;
        }
    }

    /// Says presence to the others, if this coordinator has one.
    async fn announce(&self) -> Result<(), SharedError> {
        let presence = self.state().presence.clone();
        let Some(presence) = presence else { return Ok(()) };
        let key = format!("{COORDINATORS}/{}", self.coordinator_id);
        match serde_json::to_vec(&presence) {
            Ok(value) => self.store.announce(&key, &value, LISTED_FOR).await,
            Err(error) => Err(SharedError::Refused(error.to_string())),
        }
    }

    /// Notes how the store is, and tells people what is new of it.
    fn set_link(&self, link: LinkState, why: Option<&str>) {
        let now_unix_ms = self.clock.wall_unix_ms();
        let mut state = self.state();
        let before = state.link;
        state.answers += u64::from(link == LinkState::Connected);
        let is_news = before != link || (why.is_some() && state.last_error.is_none());
        if before != link {
            (state.link, state.since_unix_ms) = (link, now_unix_ms);
        }
        if let Some(why) = why {
            state.last_error = Some(why.to_owned());
        }
        let (revision, owed) = (state.revision, state.owed.len());
        drop(state);
        self.metrics.store_link(link == LinkState::Connected, revision, owed);
        if !is_news {
            return;
        }
        let (kind, why) = (self.store.kind(), why.unwrap_or_default());
        match link {
            LinkState::Connected => tracing::info!(kind, revision, owed, "the shared store answers"),
            LinkState::Away => tracing::error!(
                kind,
                why,
                "the shared store does not answer: this coordinator serves from its copy, and nothing can be changed"
            ),
            LinkState::Unusable => tracing::error!(
                kind,
                why,
                "the shared store cannot be used: this coordinator serves from its copy, and nothing can be changed"
            ),
        }
    }

    /// Why nothing can be written now. Absent: it can.
    fn obstacle(&self) -> Option<StoreError> {
        let state = self.state();
        let since_unix_ms = state.since_unix_ms;
        let why = state.last_error.clone().unwrap_or_else(|| "it has not answered yet".to_owned());
        match state.link {
            LinkState::Connected => None,
            LinkState::Away => Some(StoreError::Away { kind: self.store.kind(), since_unix_ms, why }),
            LinkState::Unusable => Some(StoreError::Refused { kind: self.store.kind(), why }),
        }
    }
}
