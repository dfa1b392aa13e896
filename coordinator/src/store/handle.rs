//! What everyone else holds of the store, whichever kind it is.
//!
//! Each coordinator has a store of its own on its disk. With a shared store besides, what people decide is written there first
//! and is in force once it is there; the local rows are a copy, so that a coordinator starts and serves without it.

use std::{path::Path, sync::Arc};

use usher_types::{HostId, PoolName};

use super::{
    Aside, DrainRecord, LastKnown, PoolRecord, Presence, SharedRows, Store, StoreError, StoreStatus, Stored,
    Write,
    recover::open_or_recover,
    shared_rows::Change,
    sharing::{Follower, Sharing, SharingOptions},
    writer::LocalHandle,
};
use crate::metrics::Metrics;

/// Asks the store. Clones share it; files are closed when the last one is gone, or by [`close`](Self::close).
#[derive(Clone, Debug)]
pub struct StoreHandle {
    local: LocalHandle,
    metrics: Metrics,
    sharing: Option<Arc<Sharing>>,
}

/// What was written lasts.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Committed {
    /// In which revision of the shared store. Absent: nothing of it is shared, or it is owed to the shared store.
    pub revision: Option<u64>,
}

impl StoreHandle {
    /// Opens the redb file at `path` on a thread of its own. A damaged one is moved aside, and its last copy used.
    ///
    /// # Errors
    /// [`StoreError`] if the file cannot be opened: in use, foreign, newer, or the disk refused.
    pub async fn open(path: &Path, metrics: Metrics) -> Result<Self, StoreError> {
        let file = path.to_owned();
        Self::start(path, metrics, move || open_or_recover(&file)).await
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
        let local = LocalHandle::start(path, metrics.clone(), open).await?;
        Ok(Self { local, metrics, sharing: None })
    }

    /// Runs a store that never blocks, as one in memory, on a task of the runtime. `path` names it in errors.
    pub fn inline(path: &Path, metrics: Metrics, store: impl Store + 'static) -> Self {
        Self { local: LocalHandle::inline(path, metrics.clone(), store), metrics, sharing: None }
    }

    /// Shares what people decide through `options.store`. `stored` is what [`load`](Self::load) answered. The follower has to
    /// be run; until then nothing is heard of the shared store, and nothing can be written to it.
    #[must_use]
    pub fn share(&self, options: SharingOptions, stored: &Stored) -> (Self, Follower) {
        let (sharing, follower) = Sharing::new(options, self.local.clone(), self.metrics.clone(), stored);
        let (local, metrics) = (self.local.clone(), self.metrics.clone());
        (Self { local, metrics, sharing: Some(sharing) }, follower)
    }

    /// Everything that is stored here: with a shared store, its copy. Rows that cannot be read are moved to quarantine, counted
    /// and warned of.
    ///
    /// # Errors
    /// [`StoreError`] if the file as a whole cannot be read.
    pub async fn load(&self) -> Result<Stored, StoreError> {
        self.local.load().await
    }

    /// Writes all of `writes` in order, or none; of a host with very many marked replicas they are moved in parts. Answers
    /// once they last.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if the disk refused; nothing of `writes` is stored then. [`StoreError::Closed`] after
    /// [`close`](Self::close). With a shared store: [`StoreError::Away`] and [`StoreError::Refused`], nothing is stored;
    /// [`StoreError::Version`], [`StoreError::Bound`] and [`StoreError::Claimed`],
    /// another coordinator was first; [`StoreError::Unknown`].
    pub async fn write(&self, writes: Vec<Write>) -> Result<Committed, StoreError> {
        match &self.sharing {
            Some(sharing) => sharing.write(writes).await,
            None => self.local.write(writes).await.map(|()| Committed::default()),
        }
    }

    /// As [`write`](Self::write), for what a host has done already and cannot be refused: while the shared store is away it is
    /// kept here, and told to it later. Only bonds, moved marks, and drains that have ended.
    ///
    /// # Errors
    /// As [`write`](Self::write), but never for want of the shared store.
    pub async fn write_or_owe(&self, writes: Vec<Write>) -> Result<Committed, StoreError> {
        match &self.sharing {
            Some(sharing) => sharing.write_or_owe(writes).await,
            None => self.write(writes).await,
        }
    }

    /// Replaces all that people decided, as of a backup, given what it was: what [`load`](Self::load) said. What has become
    /// different; it is not in force here yet. With a shared store nothing happens if it holds something else by now.
    ///
    /// Without a shared store it happens as a whole. With one, earlier versions of pools come first, in parts, and then all else
    /// as a whole.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn replace_shared(
        &self,
        based_on: &SharedRows,
        rows: SharedRows,
    ) -> Result<(Vec<Change>, Committed), StoreError> {
        if let Some(sharing) = &self.sharing {
            return sharing.replace(based_on, rows).await;
        }
        let changes = self.local.load().await?.shared().changes_to(&rows);
        self.local.write(vec![Write::ReplaceShared(Box::new(rows))]).await?;
        Ok((changes, Committed::default()))
    }

    /// Sets a pool's settings.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn put_pool(&self, name: PoolName, record: PoolRecord) -> Result<Committed, StoreError> {
        self.write(vec![Write::PutPool(name, record)]).await
    }

    /// Sets a host's drain.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn put_drain(&self, host: HostId, record: DrainRecord) -> Result<Committed, StoreError> {
        self.write(vec![Write::PutDrain(host, record)]).await
    }

    /// Ends the drain of a host that was set then (wall clock, ms since 1970 UTC), and none that was set since.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn delete_drain(&self, host: HostId, set_unix_ms: u64) -> Result<Committed, StoreError> {
        self.write(vec![Write::DeleteDrainSetAt(host, set_unix_ms)]).await
    }

    /// The drain of a host as it is stored: while the shared store answers, as that has it, which may be newer than what is in
    /// force here.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub async fn drain_of(&self, host: &HostId) -> Result<Option<DrainRecord>, StoreError> {
        match self.sharing.as_ref().and_then(|sharing| sharing.drain_of(host)) {
            Some(known) => Ok(known),
            None => Ok(self.local.load().await?.drains.remove(host)),
        }
    }

    /// Replaces the last-known values of all hosts.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn put_last_known(&self, hosts: Vec<LastKnown>) -> Result<Committed, StoreError> {
        self.write(vec![Write::PutLastKnown(hosts)]).await
    }

    /// The rows in quarantine: of this coordinator's own file, and of the shared store.
    ///
    /// # Errors
    /// [`StoreError`] if the file cannot be read.
    pub async fn quarantine(&self) -> Result<Vec<Aside>, StoreError> {
        self.local.quarantine().await
    }

    /// Forgets a row in quarantine for good. One of the shared store comes again while it is there. Whether there was one.
    ///
    /// # Errors
    /// [`StoreError`] if the disk refused.
    pub async fn drop_quarantined(&self, table: &str, key: &str) -> Result<bool, StoreError> {
        self.local.drop_aside(table.to_owned(), key.to_owned()).await
    }

    /// How the store is.
    pub fn status(&self) -> StoreStatus {
        self.sharing.as_ref().map_or_else(StoreStatus::alone, |sharing| sharing.status())
    }

    /// Says from now on that this coordinator is there.
    pub fn announce(&self, presence: Presence) {
        if let Some(sharing) = &self.sharing {
            sharing.set_presence(presence);
        }
    }

    /// The coordinators that are there, as far as the shared store has said, this one among them once it was announced.
    pub fn coordinators(&self) -> Vec<Presence> {
        self.sharing.as_ref().map(|sharing| sharing.coordinators()).unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn sharing(&self) -> Option<&Sharing> {
        self.sharing.as_deref()
    }

    /// Finishes what is queued and closes the file. Later requests get [`StoreError::Closed`].
    pub async fn close(&self) {
        if let Some(sharing) = &self.sharing {
            sharing.leave().await;
        }
        self.local.close().await;
    }
}
