//! What is in the store as a whole, and how it changes.
//!
//! Rows are JSON, so that an operator can read a damaged store with common tools. A row is taken only if all of it is
//! valid by today's rules: a policy that this version would refuse is not half used.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use usher_placement::{farm::LearnedRecord, load::Anchors};
use usher_types::{FieldFault, HostId, PoolName, ResourceId};

use super::{
    DrainRecord, HostMarksRecord, LastKnown, PoolRecord, ReplicaMarkRecord, SharedRows, shared_rows::Change,
};

/// What the store says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meta {
    /// Made once per store: identity of the coordinator, whatever its address.
    pub coordinator_id: String,
    /// How often the store has been opened, this time included, >= 1.
    pub instance: u64,
}

/// A row that was moved aside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quarantined {
    /// `pools`, `pool_history`, `drains`, `host_marks`, `replica_marks`, `bindings`, `last_known`, `learned`.
    pub table: &'static str,
    /// Its key, as far as it is text.
    pub key: String,
    /// Why it could not be read.
    pub why: String,
}

/// Everything that was stored.
#[derive(Clone, PartialEq, Debug)]
pub struct Stored {
    /// Of the store itself.
    pub meta: Meta,
    /// Settings in force by pool.
    pub pools: BTreeMap<PoolName, PoolRecord>,
    /// Versions of each pool's settings, oldest first, the one in force among them; at most
    /// [`VERSIONS_KEPT`](super::VERSIONS_KEPT) of each.
    pub history: BTreeMap<PoolName, Vec<PoolRecord>>,
    /// Admins' drains by host.
    pub drains: BTreeMap<HostId, DrainRecord>,
    /// Admins' settings of hosts.
    pub host_marks: BTreeMap<HostId, HostMarksRecord>,
    /// Admins' words on replicas.
    pub replica_marks: BTreeMap<(HostId, ResourceId), ReplicaMarkRecord>,
    /// The host that each agent certificate is bound to, by the certificate's name.
    pub bindings: BTreeMap<String, HostId>,
    /// Last-known values of every host.
    pub last_known: Vec<LastKnown>,
    /// What pools have learned of the cost of their sessions.
    pub learned: Vec<LearnedRecord>,
    /// What was decided here and the shared store does not have yet, in its order. Empty without a shared store.
    pub owed: BTreeMap<u64, Owed>,
    /// Up to where the rows are a copy of the shared store's. Absent: they are not.
    pub copied: Option<Copied>,
    /// Rows that this load moved aside.
    pub quarantined: Vec<Quarantined>,
}

impl Stored {
    /// What people decided: what coordinators share if they have a shared store.
    pub fn shared(&self) -> SharedRows {
        SharedRows {
            pools: self.pools.clone(),
            history: self.history.clone(),
            drains: self.drains.clone(),
            host_marks: self.host_marks.clone(),
            replica_marks: self.replica_marks.clone(),
            bindings: self.bindings.clone(),
        }
    }
}

/// A row in quarantine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Aside {
    /// The table that it was in, as in [`Quarantined`].
    pub table: String,
    /// Its key, as far as it is text.
    pub key: String,
    /// What it held.
    pub value: Vec<u8>,
    /// Why it could not be read; empty: an earlier build did not say.
    pub why: String,
    /// Since when; wall clock, ms since 1970 UTC.
    pub since_unix_ms: Option<u64>,
    /// It is in the shared store still, and is known there by this revision.
    pub revision: Option<u64>,
}

/// Which state of the shared store the local rows are a copy of.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Copied {
    /// Which store it is.
    pub cluster: u64,
    /// Its revision.
    pub revision: u64,
    /// When it was copied; wall clock, ms since 1970 UTC.
    pub copied_unix_ms: u64,
}

/// What was decided while the shared store was away, because a host could not wait: to be told as soon as it is back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Owed {
    /// As [`Write::Bind`].
    Bind {
        /// The certificate's name.
        certificate: String,
        /// The host that came with it.
        host: HostId,
        /// The host that it took the place of.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        replaces: Option<HostId>,
    },
    /// As [`Write::MoveMarks`].
    MoveMarks {
        /// The host that is gone.
        from: HostId,
        /// The one in its place.
        to: HostId,
    },
    /// The host has booted again, which ended the drain that was set then: no later one.
    EndDrain {
        /// The host.
        host: HostId,
        /// When the drain was set that has ended.
        set_unix_ms: u64,
    },
}

/// One change of the store.
#[derive(Clone, PartialEq, Debug)]
pub enum Write {
    /// Sets a pool's settings, and adds them to its history.
    PutPool(PoolName, PoolRecord),
    /// Sets a host's drain.
    PutDrain(HostId, DrainRecord),
    /// Ends the drain of a host that was set then (wall clock, ms since 1970 UTC); one that was set since stays. There is no
    /// other way to end one: whoever ends a drain has seen it, and may have been overtaken by who set the next one.
    DeleteDrainSetAt(HostId, u64),
    /// Sets an admin's settings of a host.
    PutHostMarks(HostId, HostMarksRecord),
    /// Forgets them; nothing happens without any.
    DeleteHostMarks(HostId),
    /// Sets an admin's word on a replica.
    PutReplicaMark(HostId, ResourceId, ReplicaMarkRecord),
    /// Forgets it; nothing happens without one.
    DeleteReplicaMark(HostId, ResourceId),
    /// Since when each of these hosts has not listed this resource (wall clock, ms since 1970 UTC; absent: it lists it).
    /// Only marks that are stored are amended.
    AmendReplicaMarks(Vec<(HostId, ResourceId, Option<u64>)>),
    /// Gives what admins have said of the first host to the second, which has taken its place; what they have said of the
    /// second one itself stays.
    MoveMarks(HostId, HostId),
    /// Binds a certificate's name to a host, whatever it was bound to before.
    PutBinding(String, HostId),
    /// Binds a certificate's name to a host that came with it, unless it is bound to another one already.
    Bind {
        /// The name in the certificate, as names are compared.
        certificate: String,
        /// The host.
        host: HostId,
        /// The host that is gone and that gives way, if it was bound to one.
        replaces: Option<HostId>,
    },
    /// Follows changes that are in force already, in their order.
    Follow(Vec<Change>),
    /// Replaces everything that people decided.
    ReplaceShared(Box<SharedRows>),
    /// Keeps what the shared store must be told.
    PutOwed(u64, Owed),
    /// It was told.
    DeleteOwed(u64),
    /// Says what the rows are a copy of.
    PutCopied(Copied),
    /// Replaces the last-known values of all hosts.
    PutLastKnown(Vec<LastKnown>),
    /// Sets what each of these pools has learned of the cost of its sessions.
    PutLearned(Vec<LearnedRecord>),
}

/// The text of a row, from its key, or why it is none of ours.
pub(super) type Parsed<K, V> = Result<(K, V), String>;

/// A binding's row is the host id as a JSON text.
pub(super) fn binding_from_row(key: &str, value: &[u8]) -> Parsed<String, HostId> {
    Ok((key.to_owned(), parse(value)?))
}

/// What a pool has learned, by its name.
pub(super) fn learned_from_row(key: &str, value: &[u8]) -> Parsed<PoolName, Anchors> {
    Ok((PoolName::new(key).map_err(|fault| fault.to_string())?, parse(value)?))
}

pub(super) fn owed_from_row(key: &str, value: &[u8]) -> Parsed<u64, Owed> {
    Ok((key.parse().map_err(|_| "the key is no number")?, parse(value)?))
}

pub(super) fn copied_from_row(_: &str, value: &[u8]) -> Parsed<(), Copied> {
    Ok(((), parse(value)?))
}

/// Every fault in one line.
pub(super) fn join(faults: &[FieldFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

pub(super) fn parse<T: serde::de::DeserializeOwned>(value: &[u8]) -> Result<T, String> {
    serde_json::from_slice(value).map_err(|error| error.to_string())
}
