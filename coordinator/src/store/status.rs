//! How is the store, and who else is there?

use serde::{Deserialize, Serialize};

/// How the store is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreStatus {
    /// `redb`, or the kind of the shared store: `etcd`.
    pub kind: &'static str,
    /// Of the shared store. Absent: there is none.
    pub shared: Option<SharedStatus>,
}

/// How the shared store is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedStatus {
    /// Whether it can be read and written.
    pub link: LinkState,
    /// Since when; wall clock, ms since 1970 UTC.
    pub since_unix_ms: u64,
    /// The revision up to which this coordinator follows it; 0: none yet.
    pub revision: u64,
    /// What went wrong last, even if it is well now.
    pub last_error: Option<String>,
    /// Changes that were made while it was away, and that it must be told yet.
    pub owed: usize,
}

/// Whether a shared store can be read and written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LinkState {
    /// It can.
    Connected,
    /// It does not answer.
    Away,
    /// It answers, and holds nothing, or nothing that can be used; this coordinator serves from its copy.
    Unusable,
}

impl LinkState {
    /// In a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Away => "away",
            Self::Unusable => "unusable",
        }
    }
}

impl StoreStatus {
    /// Of a coordinator that shares nothing.
    pub(super) fn alone() -> Self {
        Self { kind: "redb", shared: None }
    }
}

/// A coordinator that is there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Presence {
    /// Made once per store: who it is, whatever its address.
    pub coordinator_id: String,
    /// Of this run.
    pub instance_id: String,
    /// Where it serves gRPC, `host:port`.
    pub address: String,
    /// Its build.
    pub version: String,
    /// When it started; wall clock, ms since 1970 UTC.
    pub started_unix_ms: u64,
}
