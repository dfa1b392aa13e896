//! What must a store be able to do that several coordinators share?
//!
//! Keys and values, each with the revision of the store that it was last changed in; transactions that happen only if rows are
//! still as they were seen; and a watch that tells every change after a revision, in their order. etcd is such a store, and so
//! is the one in memory that tests and simulations use. Nothing here knows what the rows mean.

use std::{collections::BTreeMap, fmt, time::Duration};

use thiserror::Error;

/// A row as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedRow {
    /// Its key, below the farm's prefix.
    pub key: String,
    /// What it holds.
    pub value: Vec<u8>,
    /// When it was changed last, >= 1.
    pub revision: u64,
}

/// Everything that is in the store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    /// Which store it is: another one may stand at the same address one day.
    pub cluster: u64,
    /// The revision of which this is everything.
    pub revision: u64,
    /// All rows, by key.
    pub rows: Vec<SharedRow>,
}

/// Changes that happen together, or not at all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transaction {
    /// The revision that each of these rows must have still; 0: there must be none.
    pub expected: BTreeMap<String, u64>,
    /// No row at all may be newer than this revision.
    pub unchanged_since: Option<u64>,
    /// What each of these rows shall hold; absent: it shall be gone.
    pub changes: BTreeMap<String, Option<Vec<u8>>>,
}

/// How a transaction ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transacted {
    /// It has happened, in this revision.
    Done(u64),
    /// It has not: a row was not as expected. All rows that were expected, as they are; absent: there is none.
    Conflict(BTreeMap<String, Option<SharedRow>>),
}

/// How far the store is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Newest {
    /// Which store it is.
    pub cluster: u64,
    /// Its revision.
    pub revision: u64,
    /// The revision of the row that was changed last, of those asked for. A row that is gone does not count.
    pub row_revision: u64,
}

/// A change that a watch tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowChange {
    /// The row's key, below the farm's prefix.
    pub key: String,
    /// What it holds now; absent: it is gone.
    pub value: Option<Vec<u8>>,
    /// The revision of the change.
    pub revision: u64,
}

/// What a watch tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Watched {
    /// Changes in their order. `complete_to`: everything up to this revision was told; absent: more of the last one comes.
    Changes {
        /// The changes.
        changes: Vec<RowChange>,
        /// Up to where all was told.
        complete_to: Option<u64>,
    },
    /// What was asked for is not kept any more: list again.
    Compacted,
}

/// Why a shared store did not do something.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SharedError {
    /// Nobody answered, or only that it does not work just now. A transaction may have happened.
    #[error("{0}")]
    Away(String),
    /// Nobody could be reached: a transaction has not left this machine, and has not happened.
    #[error("{0}")]
    Unreached(String),
    /// It said no: asking again does not help, and nothing has happened.
    #[error("{0}")]
    Refused(String),
}

/// A store that several coordinators share. Every call ends within a time of the store's own.
#[tonic::async_trait]
pub trait SharedStore: Send + Sync + fmt::Debug {
    /// Everything.
    ///
    /// # Errors
    /// [`SharedError`].
    async fn list(&self) -> Result<Listing, SharedError>;

    /// Changes rows, if the expected ones are as they were.
    ///
    /// # Errors
    /// [`SharedError`]. After [`Away`](SharedError::Away) it is not known whether it has happened, or will yet.
    async fn transact(&self, transaction: &Transaction) -> Result<Transacted, SharedError>;

    /// Every change after `revision`.
    ///
    /// # Errors
    /// [`SharedError`].
    async fn watch(&self, revision: u64) -> Result<Box<dyn Watch>, SharedError>;

    /// How far the store is, and the rows whose keys begin with `below`; most of its members must agree.
    ///
    /// # Errors
    /// [`SharedError`].
    async fn newest(&self, below: &str) -> Result<Newest, SharedError>;

    /// Keeps a row while this is called again within `lives_for`; after that the store lets it go by itself.
    ///
    /// # Errors
    /// [`SharedError`].
    async fn announce(&self, key: &str, value: &[u8], lives_for: Duration) -> Result<(), SharedError>;

    /// Takes back what was announced, as far as the store answers.
    async fn withdraw(&self);

    /// What it is, in a word for people: `etcd`.
    fn kind(&self) -> &'static str;
}

/// Changes, as they come.
#[tonic::async_trait]
pub trait Watch: Send {
    /// The next ones. Safe to be dropped while it waits.
    ///
    /// # Errors
    /// [`SharedError`]: the watch is over, and another one may begin where this one ended.
    async fn next(&mut self) -> Result<Watched, SharedError>;
}
