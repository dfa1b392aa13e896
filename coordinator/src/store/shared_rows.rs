//! What do coordinators share, and in which form does it lie in a shared store?
//!
//! What people decided: pools with their history, drains, marks, and which host a certificate belongs to. A row's key is its
//! table and its key in the table, `pools/desk`; its value is the same JSON as in the local file, so that a row can be read
//! with the store's own tools and moved from one kind to the other.

use std::collections::BTreeMap;

use usher_types::{HostId, PoolName, ResourceId};

use super::{
    DrainRecord, HostMarksRecord, PoolRecord, ReplicaMarkRecord,
    mark_record::replica_key,
    pool_record::history_key,
    record::{Parsed, binding_from_row},
};

/// A row that is larger is not ours, and is not read: the settings of a pool take some kilobytes.
pub const MAX_VALUE_BYTES: usize = 256 * 1024;

/// All that is shared.
#[derive(Clone, PartialEq, Debug, Default)]
#[expect(missing_docs, reason = "fields named as in Stored have their meaning")]
pub struct SharedRows {
    pub pools: BTreeMap<PoolName, PoolRecord>,
    pub history: BTreeMap<PoolName, Vec<PoolRecord>>,
    pub drains: BTreeMap<HostId, DrainRecord>,
    pub host_marks: BTreeMap<HostId, HostMarksRecord>,
    pub replica_marks: BTreeMap<(HostId, ResourceId), ReplicaMarkRecord>,
    pub bindings: BTreeMap<String, HostId>,
}

/// What has become different. Absent values: the row is gone.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// A pool's settings.
    Pool(PoolName, Option<PoolRecord>),
    /// One earlier version of a pool's settings.
    Version(PoolName, u64, Option<PoolRecord>),
    /// An admin's drain of a host.
    Drain(HostId, Option<DrainRecord>),
    /// An admin's settings of a host.
    HostMarks(HostId, Option<HostMarksRecord>),
    /// An admin's word on a replica.
    ReplicaMark(HostId, ResourceId, Option<ReplicaMarkRecord>),
    /// The host that a certificate's name belongs to.
    Binding(String, Option<HostId>),
}

/// Names of the tables that are shared, as keys begin with them.
pub(super) mod table {
    pub(in crate::store) const POOLS: &str = "pools";
    pub(in crate::store) const POOL_HISTORY: &str = "pool_history";
    pub(in crate::store) const DRAINS: &str = "drains";
    pub(in crate::store) const HOST_MARKS: &str = "host_marks";
    pub(in crate::store) const REPLICA_MARKS: &str = "replica_marks";
    pub(in crate::store) const BINDINGS: &str = "bindings";
}

impl Change {
    /// The table of its row, and the key in it.
    pub(crate) fn place(&self) -> (&'static str, String) {
        match self {
            Self::Pool(name, _) => (table::POOLS, name.to_string()),
            Self::Version(name, version, _) => (table::POOL_HISTORY, history_key(name, *version)),
            Self::Drain(host, _) => (table::DRAINS, host.to_string()),
            Self::HostMarks(host, _) => (table::HOST_MARKS, host.to_string()),
            Self::ReplicaMark(host, resource, _) => (table::REPLICA_MARKS, replica_key(host, resource)),
            Self::Binding(certificate, _) => (table::BINDINGS, certificate.clone()),
        }
    }

    /// The key of its row in the shared store.
    pub(super) fn key(&self) -> String {
        let (table, key) = self.place();
        format!("{table}/{key}")
    }

    /// The value of its row. Absent: the row is gone.
    pub(crate) fn value(&self) -> Option<serde_json::Result<Vec<u8>>> {
        match self {
            Self::Pool(_, record) | Self::Version(_, _, record) => record.as_ref().map(PoolRecord::to_row),
            Self::Drain(_, record) => record.as_ref().map(serde_json::to_vec),
            Self::HostMarks(_, record) => record.as_ref().map(serde_json::to_vec),
            Self::ReplicaMark(_, _, record) => record.as_ref().map(serde_json::to_vec),
            Self::Binding(_, host) => host.as_ref().map(serde_json::to_vec),
        }
    }

    /// From a row. Absent: a row of a table that is not shared, or of a later version.
    pub(crate) fn from_row(key: &str, value: Option<&[u8]>) -> Result<Option<Self>, String> {
        let Some((table, key)) = key.split_once('/') else { return Ok(None) };
        if let Some(value) = value.filter(|value| value.len() > MAX_VALUE_BYTES) {
            return Err(format!("has {} bytes, more than {MAX_VALUE_BYTES}", value.len()));
        }
        let change = match table {
            table::POOLS => {
                let name = PoolName::new(key).map_err(|fault| fault.to_string())?;
                Self::Pool(name, read(key, value, PoolRecord::from_row)?)
            }
            table::POOL_HISTORY => {
                let (name, version) = history_of(key)?;
                Self::Version(name, version, read(key, value, PoolRecord::from_history_row)?)
            }
            table::DRAINS => Self::Drain(host_of(key)?, read(key, value, DrainRecord::from_row)?),
            table::HOST_MARKS => Self::HostMarks(host_of(key)?, read(key, value, HostMarksRecord::from_row)?),
            table::REPLICA_MARKS => {
                let (host, resource) = key.split_once('/').ok_or("the key names no resource")?;
                let resource = ResourceId::new(resource).map_err(|fault| fault.to_string())?;
                Self::ReplicaMark(host_of(host)?, resource, read(key, value, ReplicaMarkRecord::from_row)?)
            }
            table::BINDINGS => Self::Binding(key.to_owned(), read(key, value, binding_from_row)?),
            _ => return Ok(None),
        };
        Ok(Some(change))
    }
}

fn read<K, V>(
    key: &str,
    value: Option<&[u8]>,
    parse: impl Fn(&str, &[u8]) -> Parsed<K, V>,
) -> Result<Option<V>, String> {
    value.map(|value| parse(key, value).map(|(_, record)| record)).transpose()
}

fn host_of(key: &str) -> Result<HostId, String> {
    HostId::new(key).map_err(|fault| fault.to_string())
}

fn history_of(key: &str) -> Result<(PoolName, u64), String> {
    let (name, version) = key.rsplit_once('/').ok_or("the key names no version")?;
    let name = PoolName::new(name).map_err(|fault| fault.to_string())?;
    Ok((name, version.parse().map_err(|_| "the key names no version")?))
}

impl SharedRows {
    /// Whether there is nothing at all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Follows a change.
    pub(crate) fn follow(&mut self, change: Change) {
        fn set<K: Ord, V>(rows: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
            match value {
                Some(value) => drop(rows.insert(key, value)),
                None => drop(rows.remove(&key)),
            }
        }
        match change {
            Change::Pool(name, record) => set(&mut self.pools, name, record),
            Change::Version(name, version, record) => {
                let versions = self.history.entry(name.clone()).or_default();
                versions.retain(|kept| kept.version != version);
                versions.extend(record);
                versions.sort_by_key(|kept| kept.version);
                if versions.is_empty() {
                    self.history.remove(&name);
                }
            }
            Change::Drain(host, record) => set(&mut self.drains, host, record),
            Change::HostMarks(host, record) => set(&mut self.host_marks, host, record),
            Change::ReplicaMark(host, resource, record) => {
                set(&mut self.replica_marks, (host, resource), record);
            }
            Change::Binding(certificate, host) => set(&mut self.bindings, certificate, host),
        }
    }

    /// Every row, as a change from nothing: versions before the settings in force that they lead to.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let versions = self.history.iter().flat_map(|(name, versions)| {
            versions.iter().map(|record| Change::Version(name.clone(), record.version, Some(record.clone())))
        });
        let mut all: Vec<Change> = versions.collect();
        all.extend(self.pools.iter().map(|(name, record)| Change::Pool(name.clone(), Some(record.clone()))));
        all.extend(self.drains.iter().map(|(host, of)| Change::Drain(host.clone(), Some(of.clone()))));
        all.extend(
            self.host_marks.iter().map(|(host, of)| Change::HostMarks(host.clone(), Some(of.clone()))),
        );
        all.extend(self.replica_marks.iter().map(|((host, resource), of)| {
            Change::ReplicaMark(host.clone(), resource.clone(), Some(of.clone()))
        }));
        all.extend(
            self.bindings.iter().map(|(name, host)| Change::Binding(name.clone(), Some(host.clone()))),
        );
        all
    }

    /// What must change to make these rows the `wanted` ones.
    pub(super) fn changes_to(&self, wanted: &Self) -> Vec<Change> {
        let here: BTreeMap<String, Change> =
            self.changes().into_iter().map(|change| (change.key(), change)).collect();
        let there = wanted.changes();
        let keys: std::collections::BTreeSet<String> = there.iter().map(Change::key).collect();
        let mut changes: Vec<Change> =
            here.iter().filter(|(key, _)| !keys.contains(*key)).map(|(_, change)| change.gone()).collect();
        changes.extend(there.into_iter().filter(|change| here.get(&change.key()) != Some(change)));
        changes
    }
}

impl Change {
    /// That this row is gone.
    fn gone(&self) -> Self {
        match self {
            Self::Pool(name, _) => Self::Pool(name.clone(), None),
            Self::Version(name, version, _) => Self::Version(name.clone(), *version, None),
            Self::Drain(host, _) => Self::Drain(host.clone(), None),
            Self::HostMarks(host, _) => Self::HostMarks(host.clone(), None),
            Self::ReplicaMark(host, resource, _) => Self::ReplicaMark(host.clone(), resource.clone(), None),
            Self::Binding(certificate, _) => Self::Binding(certificate.clone(), None),
        }
    }
}
