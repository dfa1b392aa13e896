//! The rows, and how each is checked when it comes back.
//!
//! Rows are JSON, so that an operator can read a damaged store with common tools. A row is taken only if all of it is
//! valid by today's rules: a policy that this version would refuse is not half used.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use usher_types::{
    BootId, Drain, Endpoint, HostId, HostName, Percent, Policy, PolicyChange, PoolName, SessionCounts, Zone,
};

/// Version of the rows of [`LastKnown`] that this build writes.
const LAST_KNOWN_FORMAT: u32 = 1;

/// Settings of a pool, as an operator applied them.
#[derive(Clone, PartialEq, Debug)]
pub struct PoolRecord {
    /// Grows by one with every apply, >= 1.
    pub version: u64,
    /// Every setting.
    pub policy: Policy,
    /// Who applied it.
    pub author: String,
    /// When; wall clock, ms since 1970 UTC.
    pub applied_unix_ms: u64,
}

/// [`PoolRecord`] as it is written: a change that sets every field, so that a field added by a later version gets its
/// default when an older row is read.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolRow {
    version: u64,
    policy: PolicyChange,
    author: String,
    applied_unix_ms: u64,
}

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

/// What a host was like when last stored: enough to list it as UNKNOWN with its numbers after a restart.
///
/// Absent values were not known; fields unknown to this version are ignored.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fields named as in Hello and Load have their meaning")]
pub struct LastKnown {
    pub host_id: HostId,
    pub host_name: HostName,
    pub pool: PoolName,
    pub boot_id: BootId,
    pub endpoints: Vec<Endpoint>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    pub agent_version: String,
    pub is_virtual: bool,
    /// ms, 100..=3600000.
    pub report_interval_ms: u64,
    /// Relative to a normal host, > 0.
    pub capacity: f64,
    /// It was OFFLINE when stored: it does not count among those to be waited for after a start.
    pub was_offline: bool,
    /// It went OFFLINE by a goodbye: it counts in no share of lost hosts.
    pub said_goodbye: bool,
    /// When this was stored; wall clock, ms since 1970 UTC.
    pub stored_unix_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub zone: Option<Zone>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cores: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu_model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu_percent: Option<Percent>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_used_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_total_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub users: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub processes: Option<u32>,
    /// Sessions by state.
    #[serde(skip_serializing_if = "Option::is_none", default, with = "session_counts")]
    pub sessions: Option<SessionCounts>,
}

/// A row of last-known values with the version of its form.
#[derive(Serialize, Deserialize)]
struct LastKnownRow {
    format: u32,
    #[serde(flatten)]
    host: LastKnown,
}

mod session_counts {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use usher_types::SessionCounts;

    #[derive(Serialize, Deserialize)]
    struct Counts {
        active: u32,
        disconnected: u32,
        lingering: u32,
    }

    #[expect(clippy::ref_option, reason = "the signature that serde calls")]
    pub(super) fn serialize<S: Serializer>(counts: &Option<SessionCounts>, to: S) -> Result<S::Ok, S::Error> {
        counts
            .map(|SessionCounts { active, disconnected, lingering }| Counts {
                active,
                disconnected,
                lingering,
            })
            .serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SessionCounts>, D::Error> {
        let counts = Option::<Counts>::deserialize(from)?;
        Ok(counts.map(|Counts { active, disconnected, lingering }| SessionCounts {
            active,
            disconnected,
            lingering,
        }))
    }
}

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
    /// `pools`, `drains`, `bindings`, `last_known`.
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
    /// Settings by pool.
    pub pools: BTreeMap<PoolName, PoolRecord>,
    /// Admins' drains by host.
    pub drains: BTreeMap<HostId, DrainRecord>,
    /// The host that each agent certificate is bound to, by the certificate's name.
    pub bindings: BTreeMap<String, HostId>,
    /// Last-known values of every host.
    pub last_known: Vec<LastKnown>,
    /// Rows that this load moved aside.
    pub quarantined: Vec<Quarantined>,
}

/// One change of the store.
#[derive(Clone, PartialEq, Debug)]
pub enum Write {
    /// Sets a pool's settings.
    PutPool(PoolName, PoolRecord),
    /// Sets a host's drain.
    PutDrain(HostId, DrainRecord),
    /// Ends a host's drain; nothing happens without one.
    DeleteDrain(HostId),
    /// Binds a certificate's name to a host.
    PutBinding(String, HostId),
    /// Replaces the last-known values of all hosts.
    PutLastKnown(Vec<LastKnown>),
}

/// The text of a row, from its key, or why it is none of ours.
pub(super) type Parsed<K, V> = Result<(K, V), String>;

impl PoolRecord {
    pub(super) fn to_row(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&PoolRow {
            version: self.version,
            policy: PolicyChange::of(&self.policy),
            author: self.author.clone(),
            applied_unix_ms: self.applied_unix_ms,
        })
    }

    pub(super) fn from_row(key: &str, value: &[u8]) -> Parsed<PoolName, Self> {
        let name = PoolName::new(key).map_err(|fault| fault.to_string())?;
        let row: PoolRow = parse(value)?;
        let policy = row
            .policy
            .apply_to(&Policy::default())
            .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        let PoolRow { version, author, applied_unix_ms, .. } = row;
        Ok((name, Self { version, policy, author, applied_unix_ms }))
    }
}

impl DrainRecord {
    pub(super) fn from_row(key: &str, value: &[u8]) -> Parsed<HostId, Self> {
        Ok((HostId::new(key).map_err(|fault| fault.to_string())?, parse(value)?))
    }
}

impl LastKnown {
    pub(super) fn to_row(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&LastKnownRow { format: LAST_KNOWN_FORMAT, host: self.clone() })
    }

    pub(super) fn from_row(key: &str, value: &[u8]) -> Parsed<HostId, Self> {
        let LastKnownRow { format, host } = parse(value)?;
        if format != LAST_KNOWN_FORMAT {
            return Err(format!("format {format}, this version reads {LAST_KNOWN_FORMAT}"));
        }
        if host.host_id.as_str() != key {
            return Err(format!("is of host {}", host.host_id));
        }
        // Divided by later: JSON has no NaN, but it has 0 and negative numbers.
        if !(host.capacity.is_finite() && host.capacity > 0.0) {
            return Err(format!("capacity = {}: allowed > 0", host.capacity));
        }
        Ok((host.host_id.clone(), host))
    }
}

/// A binding's row is the host id as a JSON text.
pub(super) fn binding_from_row(key: &str, value: &[u8]) -> Parsed<String, HostId> {
    Ok((key.to_owned(), parse(value)?))
}

fn parse<T: serde::de::DeserializeOwned>(value: &[u8]) -> Result<T, String> {
    serde_json::from_slice(value).map_err(|error| error.to_string())
}
