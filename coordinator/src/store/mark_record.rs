//! What admins have said of hosts and replicas.

use serde::{Deserialize, Serialize};
use usher_types::{
    BootId, Change, Drain, HostId, HostMarks, HostMarksChange, Percent, ReplicaMark, ResourceId,
};

use super::record::{Parsed, join, parse};

/// An admin's drain of a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrainRecord {
    /// How, why and by whom.
    pub drain: Drain,
    /// The boot during which it was set: another one ends a drain `until_restart`. Absent: not known then.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub boot_id: Option<BootId>,
    /// When; wall clock, ms since 1970 UTC.
    pub set_unix_ms: u64,
}

/// An admin's settings of a host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostMarksRecord {
    /// What is set.
    pub marks: HostMarks,
    /// Who set it last.
    pub author: String,
    /// When; wall clock, ms since 1970 UTC.
    pub set_unix_ms: u64,
}

/// An admin's word on one host's copy of a resource.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaMarkRecord {
    /// What it is.
    pub mark: ReplicaMark,
    /// Who set it.
    pub author: String,
    /// When; wall clock, ms since 1970 UTC.
    pub set_unix_ms: u64,
    /// Since when the host has not listed the resource; wall clock, ms since 1970 UTC. Absent: it lists it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gone_unix_ms: Option<u64>,
}

impl DrainRecord {
    pub(super) fn from_row(key: &str, value: &[u8]) -> Parsed<HostId, Self> {
        Ok((HostId::new(key).map_err(|fault| fault.to_string())?, parse(value)?))
    }
}

impl HostMarksRecord {
    pub(super) fn from_row(key: &str, value: &[u8]) -> Parsed<HostId, Self> {
        let host_id = HostId::new(key).map_err(|fault| fault.to_string())?;
        let record: Self = parse(value)?;
        check(&record.marks)?;
        Ok((host_id, record))
    }
}

/// A mark is divided by and compared with: one that could not be set today is not half used.
fn check(marks: &HostMarks) -> Result<(), String> {
    fn set<T>(value: Option<T>) -> Change<T> {
        value.map_or(Change::Keep, Change::Set)
    }
    let change = HostMarksChange {
        capacity: set(marks.capacity),
        max_users: set(marks.max_users),
        threshold: set(marks.threshold.map(Percent::get)),
        range: set(marks.range),
        busy: Some(marks.busy),
    };
    change.apply_to(&HostMarks::default()).map(|_| ()).map_err(|faults| join(&faults))
}

impl ReplicaMarkRecord {
    pub(super) fn from_row(key: &str, value: &[u8]) -> Parsed<(HostId, ResourceId), Self> {
        let (host_id, resource) = key.split_once('/').ok_or("the key names no resource")?;
        let host_id = HostId::new(host_id).map_err(|fault| fault.to_string())?;
        let resource = ResourceId::new(resource).map_err(|fault| fault.to_string())?;
        Ok(((host_id, resource), parse(value)?))
    }
}

/// Key of a replica's mark. Host ids hold no slash, so that a resource may.
pub(super) fn replica_key(host_id: &HostId, resource: &ResourceId) -> String {
    format!("{host_id}/{resource}")
}
