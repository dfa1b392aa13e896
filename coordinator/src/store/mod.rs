//! What must a coordinator still know after `kill -9`?
//!
//! Live state is not among it: agents tell all of it again within one report. What only people decided must last (pool
//! settings and their history, drains, marks), so must the bond between a certificate and the host that first used it, and the last-known values
//! of each host, so that a restarted coordinator lists a silent host as UNKNOWN with its numbers instead of forgetting it.
//!
//! One thread owns the file. Writers queue to it and are answered after the commit is on disk; whatever has queued up
//! meanwhile shares the next commit, since a commit costs milliseconds however few rows it has. A row that cannot be
//! read is moved aside, counted and warned of: one damaged row must not keep the whole farm from its coordinator.

mod etcd;
mod handle;
mod last_known;
mod mark_record;
mod memory;
mod memory_shared;
mod pool_record;
mod record;
mod recover;
#[cfg(test)]
mod recover_tests;
mod redb_apply;
mod redb_copy;
mod redb_load;
mod redb_store;
mod shared_rows;
mod shared_store;
mod sharing;
mod status;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod upgrade_tests;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use thiserror::Error;
use usher_types::{HostId, PoolName};

pub use etcd::{EtcdOptions, EtcdStore};
pub use handle::{Committed, StoreHandle};
pub use last_known::LastKnown;
pub use mark_record::{DrainRecord, HostMarksRecord, ReplicaMarkRecord};
pub use memory::MemoryStore;
pub use memory_shared::MemoryShared;
pub use pool_record::{PoolRecord, VERSIONS_KEPT};
pub use record::{Aside, Copied, Meta, Owed, Quarantined, Stored, Write};
pub use redb_store::RedbStore;
pub use shared_rows::{Change, MAX_VALUE_BYTES, SharedRows};
pub use shared_store::{
    Listing, Newest, RowChange, SharedError, SharedRow, SharedStore, Transacted, Transaction, Watch, Watched,
};
pub use sharing::{Followed, Follower, SharingOptions};
pub use status::{LinkState, Presence, SharedStatus, StoreStatus};

/// Name of the store's file in the data directory.
pub const STORE_FILE: &str = "coordinator.redb";

/// Where a coordinator's own records lie. It may block: it runs on the store's thread, unless it is known not to.
pub trait Store: Send {
    /// Everything that is stored. Unreadable rows are moved to quarantine.
    ///
    /// # Errors
    /// [`StoreError`] if the file as a whole cannot be read, or the quarantine cannot be written.
    fn load(&mut self) -> Result<Stored, StoreError>;

    /// Writes all of `writes` in order, or none of them. Durable when it returns.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if the disk refused; the next commit starts afresh.
    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError>;

    /// What need not be done before a commit is answered; `is_last`: the store is about to be closed.
    fn tidy(&mut self, _is_last: bool) {}

    /// The rows in quarantine.
    ///
    /// # Errors
    /// [`StoreError`] if the file cannot be read.
    fn quarantine(&mut self) -> Result<Vec<Aside>, StoreError> {
        Ok(Vec::new())
    }

    /// Puts rows of the shared store in quarantine.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if the disk refused.
    fn set_aside(&mut self, _rows: &[Aside]) -> Result<(), StoreError> {
        Ok(())
    }

    /// Forgets a row in quarantine. Whether there was one.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if the disk refused.
    fn drop_aside(&mut self, _table: &str, _key: &str) -> Result<bool, StoreError> {
        Ok(false)
    }
}

/// Why the store could not do something.
#[derive(Debug, Clone, Error)]
pub enum StoreError {
    /// Another process has the file open.
    #[error("{} is in use by another coordinator", path.display())]
    InUse {
        /// The store's file.
        path: PathBuf,
    },
    /// The file holds something else than a coordinator's store.
    #[error("{path:?} is not the store of an usher coordinator: {why}; move it away to start without it")]
    Foreign {
        /// The store's file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// The file was a store once and is damaged beyond single rows.
    #[error(
        "{} is damaged: {why}; restore it from a backup, or move it and its copy (.bak) away to start with an empty store", path.display()
    )]
    Damaged {
        /// The store's file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// The file was written by a later version.
    #[error("{} has format {found}, this version reads format {read}: run the version that wrote it", path.display())]
    Newer {
        /// The store's file.
        path: PathBuf,
        /// Format of the file.
        found: u32,
        /// Format that this build reads.
        read: u32,
    },
    /// An operation on the file failed.
    #[error("failed to {operation} {}", path.display())]
    Failed {
        /// What was attempted.
        operation: &'static str,
        /// The store's file.
        path: PathBuf,
        /// What the disk or the store library says; shared, since all writers of one batch get it.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The shared store does not answer. Nothing has changed.
    #[error("{kind} does not answer since {}: {why}", rfc3339(*since_unix_ms))]
    Away {
        /// What it is.
        kind: &'static str,
        /// Since when; wall clock, ms since 1970 UTC.
        since_unix_ms: u64,
        /// What went wrong last.
        why: String,
    },
    /// The shared store does not take it. Nothing has changed.
    #[error("{kind} cannot be used: {why}")]
    Refused {
        /// What it is.
        kind: &'static str,
        /// Why.
        why: String,
    },
    /// The answer of the shared store was lost, and it could not be asked again. The store may still carry out what it has
    /// received, as soon as most of its members are there; it is then followed as any other change.
    #[error(
        "{kind} does not answer: {why}; it is not known whether the change was stored, and it may still come into force when \
         {kind} is back: look at what is in force then, before you try again"
    )]
    Unknown {
        /// What it is.
        kind: &'static str,
        /// What went wrong.
        why: String,
    },
    /// Another coordinator has changed the pool.
    #[error("version {current} of pool {pool} exists")]
    Version {
        /// The pool.
        pool: PoolName,
        /// The version in the store.
        current: u64,
    },
    /// Another coordinator has bound the certificate to another host.
    #[error("certificate {certificate} belongs to host id {host}")]
    Bound {
        /// The certificate's name.
        certificate: String,
        /// The host.
        host: HostId,
    },
    /// Another coordinator has bound the host to another certificate.
    #[error("host id {host} belongs to certificate {certificate}")]
    Claimed {
        /// The host.
        host: HostId,
        /// The certificate's name, as names are compared.
        certificate: String,
    },
    /// The store has been closed, or its thread has ended.
    #[error("{} is closed, or its thread has ended", path.display())]
    Closed {
        /// The store's file.
        path: PathBuf,
    },
}

impl StoreError {
    pub(super) fn failed(
        operation: &'static str,
        path: &Path,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Failed { operation, path: path.to_owned(), source: Arc::new(source) }
    }
}

fn rfc3339(unix_ms: u64) -> String {
    let at = i64::try_from(unix_ms).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    at.map_or_else(|| format!("{unix_ms} ms after 1970"), |at| at.to_string())
}
