//! How does a coordinator follow what the others write?
//!
//! It lists everything at one revision, and watches from there on. A watch that breaks is begun again where it ended; if the
//! store does not keep that any more, or is another one than before, or one that was set back, everything is listed again and
//! only what differs is followed. A watch that tells nothing is not believed: the store is asked now and then how far it is,
//! which also tells that most of its members still agree.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    LinkState, Sharing, WRITERS,
    owed::{Settled, Settling},
    take::Waiting,
};
use crate::store::{
    Aside, Copied, SharedRows, StoreError, Stored, Write,
    shared_rows::Change,
    shared_store::{Listing, Newest, SharedError, SharedRow, Watched},
};

/// How often the store is asked how far it is, and told that this coordinator is there. Three misses and it is listed no more.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// Checks in a row that may find changes which the watch has not told.
const CHECKS_BEHIND: u32 = 2;
/// Waits before a lost store is tried again, doubling.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Changes that are in the shared store, and are to be put in force.
#[derive(Clone, PartialEq, Debug)]
pub struct Followed {
    /// What has become different, in order.
    pub changes: Vec<Change>,
    /// Up to which revision that is all.
    pub revision: u64,
}

/// Follows the shared store.
#[derive(Debug)]
pub struct Follower {
    sharing: Arc<Sharing>,
}

/// Why a watch ended.
pub(super) enum Broken {
    /// What is known is not to be relied on: list.
    ListAgain(String),
    Error(SharedError),
}

impl From<SharedError> for Broken {
    fn from(error: SharedError) -> Self {
        Self::Error(error)
    }
}

pub(super) fn broken_by(error: StoreError) -> Broken {
    match error {
        StoreError::Refused { why, .. } => SharedError::Refused(why).into(),
        other => SharedError::Away(other.to_string()).into(),
    }
}

impl Follower {
    pub(super) fn new(sharing: Arc<Sharing>) -> Self {
        Self { sharing }
    }

    /// Brings the local copy up to date before it is loaded, if the store answers in time. What differs is told to nobody.
    ///
    /// # Errors
    /// Why the copy may be old.
    pub async fn catch_up(&self, within: Duration) -> Result<(), StoreError> {
        let kind = self.sharing.store.kind();
        let caught_up = async {
            self.sharing.list(None).await?;
            if self.sharing.settled().await?.told { self.sharing.list(None).await } else { Ok(()) }
        };
        match timeout(within, caught_up).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                let (link, why) = error.state();
                self.sharing.set_link(link, Some(&why));
                Err(self.sharing.obstacle().unwrap_or(StoreError::Refused { kind, why }))
            }
            Err(_elapsed) => {
                let why = format!("no answer within {} s", within.as_secs_f64());
                self.sharing.set_link(LinkState::Away, Some(&why));
                Err(StoreError::Away { kind, since_unix_ms: self.sharing.clock.wall_unix_ms(), why })
            }
        }
    }

    /// The farm begins with what `stored` says: what differs from that is told to it.
    pub fn begin_from(&self, stored: &Stored) {
        let mut state = self.sharing.state();
        let rows = stored.shared();
        if state.told != rows {
            state.told = rows;
            state.cluster = None;
        }
    }

    /// Follows until `shutdown`, and tells `out` what is to be put in force.
    pub async fn run(self, out: mpsc::Sender<Followed>, shutdown: CancellationToken) {
        let mut wait = FIRST_WAIT;
        let mut must_list = self.sharing.state().cluster.is_none();
        loop {
            let (begun, answers) = (Instant::now(), self.sharing.state().answers);
            let broken = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                broken = self.sharing.follow(&out, must_list) => broken,
            };
            if out.is_closed() {
                return;
            }
            must_list = !matches!(broken, Broken::Error(SharedError::Away(_) | SharedError::Unreached(_)))
                || self.sharing.state().cluster.is_none();
            // Time alone says nothing: a cluster without a majority lets every call wait for its whole time.
            if begun.elapsed() > LONGEST_WAIT && self.sharing.state().answers != answers {
                wait = FIRST_WAIT;
            }
            let (link, why) = broken.state();
            let is_first = wait == FIRST_WAIT && self.sharing.state().link == LinkState::Connected;
            match &broken {
                Broken::ListAgain(why) => {
                    tracing::warn!(why, "everything is read from the shared store again");
                }
                // One member of several has gone, perhaps: the store is away if the next ones do not answer either.
                Broken::Error(SharedError::Away(_)) if is_first => {
                    tracing::info!(why, "trying another member")
                }
                Broken::Error(_) => self.sharing.set_link(link, Some(&why)),
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = sleep(wait) => {}
            }
            wait = wait.saturating_mul(2).min(LONGEST_WAIT);
        }
    }
}

impl Broken {
    fn state(&self) -> (LinkState, String) {
        match self {
            Self::ListAgain(why) | Self::Error(SharedError::Away(why) | SharedError::Unreached(why)) => {
                (LinkState::Away, why.clone())
            }
            Self::Error(SharedError::Refused(why)) => (LinkState::Unusable, why.clone()),
        }
    }
}

impl Sharing {
    /// Follows as long as it works.
    async fn follow(&self, out: &mpsc::Sender<Followed>, must_list: bool) -> Broken {
        match self.try_to_follow(out, must_list).await {
            Ok(never) => match never {},
            Err(broken) => broken,
        }
    }

    async fn try_to_follow(
        &self,
        out: &mpsc::Sender<Followed>,
        must_list: bool,
    ) -> Result<std::convert::Infallible, Broken> {
        let newest = self.store.newest(WRITERS).await?;
        if must_list || self.is_another(newest) {
            self.list(Some(out)).await?;
        }
        let from = self.state().revision;
        let mut watch = self.store.watch(from).await?;
        let mut settling = Settling::default();
        self.announced().await?;
        self.set_link(LinkState::Connected, None);
        self.settle_and_list(out, &mut settling).await?;
        let mut checks = interval(CHECK_EVERY);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut behind, mut waiting) = (0, Waiting::default());
        loop {
            tokio::select! {
                biased;
                watched = watch.next() => match watched? {
                    Watched::Changes { changes, complete_to } => {
                        if let Some((changes, complete_to)) = waiting.add(changes, complete_to)? {
                            self.take(changes, complete_to, out).await?;
                        }
                    }
                    Watched::Compacted => {
                        return Err(Broken::ListAgain("its history was compacted".to_owned()));
                    }
                },
                _ = checks.tick() => {
                    let newest = self.store.newest(WRITERS).await?;
                    if self.is_another(newest) {
                        return Err(Broken::ListAgain("it is another store, or an older state of it".to_owned()));
                    }
                    behind = if newest.row_revision > self.state().revision { behind + 1 } else { 0 };
                    if behind > CHECKS_BEHIND {
                        return Err(SharedError::Away("its watch tells nothing".to_owned()).into());
                    }
                    self.announced().await?;
                    self.set_link(LinkState::Connected, None);
                    self.settle_and_list(out, &mut settling).await?;
                    self.copy_again().await;
                }
            }
        }
    }

    /// Whether what is known is of another store than this one, or of a later state of it.
    fn is_another(&self, newest: Newest) -> bool {
        let state = self.state();
        state.cluster.is_some_and(|known| known != newest.cluster) || newest.revision < state.revision
    }

    /// Tells what is owed. Where the shared store knew better nothing has changed in it, and no watch would tell: all is listed.
    async fn settle_and_list(
        &self,
        out: &mpsc::Sender<Followed>,
        settling: &mut Settling,
    ) -> Result<(), Broken> {
        if self.state().owed.is_empty() || !settling.is_due() {
            return Ok(());
        }
        // What it is compared with must be as it is now, and not as the watch will have told it.
        self.list(Some(out)).await?;
        let settled = self.settled().await?;
        settling.has(settled.is_whole);
        if settled.told { self.list(Some(out)).await } else { Ok(()) }
    }

    /// Tells what is owed. A store that takes nothing for now, as one without space, is still followed.
    async fn settled(&self) -> Result<Settled, Broken> {
        self.settle().await.map_err(broken_by)
    }

    /// Says that this coordinator is there, if the store takes it.
    async fn announced(&self) -> Result<(), Broken> {
        match self.announce().await {
            Err(SharedError::Refused(why)) => {
                self.note(why);
                Ok(())
            }
            announced => Ok(announced?),
        }
    }

    pub(super) fn note(&self, why: String) {
        tracing::debug!(why, "the shared store takes nothing");
        self.state().last_error = Some(why);
    }

    /// Reads everything, and follows what differs. Without `out` only the local copy does.
    async fn list(&self, out: Option<&mpsc::Sender<Followed>>) -> Result<(), Broken> {
        let (cluster, revision, wanted, unreadable) = loop {
            let listing = self.store.list().await?;
            let (cluster, revision) = (listing.cluster, listing.revision);
            let (wanted, unreadable) = self.read(&listing);
            self.state().rows = listing.rows.into_iter().map(|row| (row.key.clone(), row)).collect();
            if self.is_marked()? {
                break (cluster, revision, wanted, unreadable);
            }
            self.may_fill(&wanted)?;
            self.fill(&wanted).await?;
        };
        if self.state().cluster.is_some_and(|known| known != cluster) {
            tracing::warn!(cluster, "the shared store is another one than before");
        }
        self.set_aside(unreadable).await;
        let changes = {
            let mut state = self.state();
            let changes = state.told.changes_to(&wanted);
            state.told.clone_from(&wanted);
            (state.cluster, state.revision) = (Some(cluster), revision);
            changes
        };
        if std::mem::take(&mut self.state().had_its_own) && !changes.is_empty() {
            tracing::warn!(
                rows = changes.len(),
                "what this coordinator had of its own is replaced by what the shared store has"
            );
        }
        if let Some(out) = out.filter(|_| !changes.is_empty()) {
            self.tell(out, changes.clone(), revision).await?;
        }
        let mut writes = vec![Write::PutCopied(self.copied())];
        if !changes.is_empty() {
            writes.insert(0, Write::ReplaceShared(Box::new(wanted)));
        }
        self.copy_followed(writes).await;
        Ok(())
    }

    /// What a listing says; of a row that cannot be read, what is in force stays.
    fn read(&self, listing: &Listing) -> (SharedRows, Vec<Aside>) {
        let (mut wanted, mut unreadable) = (SharedRows::default(), Vec::new());
        let told = self.state().told.clone();
        let in_force = |key: &str| told.changes().into_iter().find(|change| change.key() == key);
        for row in &listing.rows {
            match Change::from_row(&row.key, Some(&row.value)) {
                Ok(Some(change)) => wanted.follow(change),
                Ok(None) => {}
                Err(why) => {
                    in_force(&row.key).into_iter().for_each(|change| wanted.follow(change));
                    unreadable.push(self.unreadable(row, why));
                }
            }
        }
        for row in &unreadable {
            if row.table == "pools" {
                restore_from_history(&mut wanted, &row.key);
            }
        }
        (wanted, unreadable)
    }

    pub(super) fn unreadable(&self, row: &SharedRow, why: String) -> Aside {
        let (table, key) = row.key.split_once('/').unwrap_or(("", &row.key));
        Aside {
            table: table.to_owned(),
            key: key.to_owned(),
            value: row.value.clone(),
            why,
            since_unix_ms: Some(self.clock.wall_unix_ms()),
            revision: Some(row.revision),
        }
    }

    /// Puts rows in quarantine that are not there yet, and says so once.
    pub(super) async fn set_aside(&self, rows: Vec<Aside>) {
        let mut news = Vec::new();
        for row in rows {
            let key = format!("{}/{}", row.table, row.key);
            let revision = row.revision.unwrap_or(0);
            if self.state().unreadable.insert(key, revision) != Some(revision) {
                news.push(row);
            }
        }
        if news.is_empty() {
            return;
        }
        let known = self.local.quarantine().await.unwrap_or_default();
        news.retain(|row| {
            let same = |of: &Aside| (&of.table, &of.key, of.revision) == (&row.table, &row.key, row.revision);
            !known.iter().any(same)
        });
        for row in &news {
            tracing::warn!(
                table = row.table,
                key = row.key,
                why = row.why,
                revision = row.revision,
                "a row of the shared store cannot be read: what was in force before stays"
            );
            self.metrics.store_row_quarantined();
        }
        if let Err(error) = self.local.set_aside(news).await {
            tracing::warn!(%error, "cannot keep an unreadable row of the shared store in quarantine");
        }
    }

    pub(super) async fn tell(
        &self,
        out: &mpsc::Sender<Followed>,
        changes: Vec<Change>,
        revision: u64,
    ) -> Result<(), Broken> {
        let gone = |_| Broken::from(SharedError::Away("this coordinator stops".to_owned()));
        out.send(Followed { changes, revision }).await.map_err(gone)
    }

    pub(super) fn copied(&self) -> Copied {
        let state = self.state();
        let copied_unix_ms = self.clock.wall_unix_ms();
        Copied { cluster: state.cluster.unwrap_or(0), revision: state.revision, copied_unix_ms }
    }
}

/// Settings whose own row cannot be read are still in the history, as they were applied last.
fn restore_from_history(rows: &mut SharedRows, pool: &str) {
    let newest = rows.history.iter().find(|(name, _)| name.as_str() == pool);
    let newest = newest.and_then(|(name, versions)| Some((name.clone(), versions.last()?.clone())));
    if let Some((name, record)) = newest {
        let is_newer = rows.pools.get(&name).is_none_or(|known| known.version < record.version);
        if is_newer {
            rows.pools.insert(name, record);
        }
    }
}
