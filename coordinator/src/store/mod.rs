//! What must a coordinator still know after `kill -9`?
//!
//! Live state is not among it: agents tell all of it again within one report. What only people decided must last (pool
//! settings and their history, drains, marks), so must the bond between a certificate and the host that first used it, and the last-known values
//! of each host, so that a restarted coordinator lists a silent host as UNKNOWN with its numbers instead of forgetting it.
//!
//! One thread owns the file. Writers queue to it and are answered after the commit is on disk; whatever has queued up
//! meanwhile shares the next commit, since a commit costs milliseconds however few rows it has. A row that cannot be
//! read is moved aside, counted and warned of: one damaged row must not keep the whole farm from its coordinator.

mod last_known;
mod mark_record;
mod pool_record;
mod record;
mod redb_store;
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

pub use last_known::LastKnown;
pub use mark_record::{DrainRecord, HostMarksRecord, ReplicaMarkRecord};
pub use pool_record::{PoolRecord, VERSIONS_KEPT};
pub use record::{Meta, Quarantined, Stored, Write};
pub use redb_store::RedbStore;
pub use writer::StoreHandle;

/// Name of the store's file in the data directory.
pub const STORE_FILE: &str = "coordinator.redb";

/// Where lasting records lie. Blocking: it runs on the writer thread only.
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
}

/// Why the store could not do something. Each names its file.
#[derive(Debug, Clone, Error)]
pub enum StoreError {
    /// Another process has the file open.
    #[error("{} is in use by another coordinator", path.display())]
    InUse {
        /// The store's file.
        path: PathBuf,
    },
    /// The file holds something else than a coordinator's store.
    #[error(
        "{path:?} is not the store of an usher coordinator: {why}; move it away to start with an empty store"
    )]
    Foreign {
        /// The store's file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// The file was a store once and is damaged beyond single rows.
    #[error(
        "{} is damaged: {why}; restore it from a backup, or move it away to start with an empty store", path.display()
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
