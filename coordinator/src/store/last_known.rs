//! What a host was like: enough to list it as UNKNOWN with its numbers after a restart, and to hold its limits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use usher_types::{
    BootId, Drain, Endpoint, HostId, HostName, Percent, PoolName, SessionCounts, UserLimit, Zone,
};

use super::record::{Parsed, parse};

/// Version of the rows that this build writes. Fields that were added since are absent in older rows.
const FORMAT: u32 = 1;

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
    /// Its agent said goodbye, though the host itself may live on.
    #[serde(default)]
    pub agent_said_goodbye: bool,
    /// It had not reported yet: only who it is was known.
    #[serde(default)]
    pub never_heard: bool,
    /// It only reports: nobody can ask it.
    #[serde(default)]
    pub is_reporter: bool,
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
    /// ms, 100..=300000.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_period_ms: Option<u64>,
    /// Coordinators that it said it reports to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub streams_held: Option<u32>,
    /// Users of the places that it listed.
    #[serde(default)]
    pub listed_pending_users: u32,
    /// Places that it listed.
    #[serde(default)]
    pub listed_places: u32,
    /// Coordinators that it said it is configured to report to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub coordinators: Option<u32>,
    /// Users that it kept free for those that had no stream to it.
    #[serde(default)]
    pub held_back_users: u32,
    /// Logons that it kept free for them.
    #[serde(default)]
    pub held_back_places: u32,
    /// It had replicas.
    #[serde(default)]
    pub listed_replicas: bool,
    /// Users and logons that this coordinator had given on it, if it gave no more: it was stored as it stopped.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub given: Option<(u32, u32)>,
    /// Why it was not ready, as it said. Absent: it was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub not_ready: Option<String>,
    /// Drained on the host itself. One of a kind that this version does not know is not known: the host will say it again.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "if_known")]
    pub drain: Option<Drain>,
    /// The limit of users of its own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_users: Option<UserLimit>,
    /// The threshold of its own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub threshold: Option<Percent>,
    /// The range of its own, 1..=30.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub range: Option<f64>,
}

fn if_known<'de, D: serde::Deserializer<'de>, T: serde::de::DeserializeOwned>(
    from: D,
) -> Result<Option<T>, D::Error> {
    serde_json::Value::deserialize(from).map(|value| serde_json::from_value(value).ok())
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

impl LastKnown {
    pub(super) fn to_row(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&LastKnownRow { format: FORMAT, host: self.clone() })
    }

    /// By the host that it is of, whatever the key says: of two rows of one host the newer one counts.
    pub(super) fn from_row(_key: &str, value: &[u8]) -> Parsed<HostId, Self> {
        let LastKnownRow { format, host } = parse(value)?;
        if format != FORMAT {
            return Err(format!("format {format}, this version reads {FORMAT}"));
        }
        // Divided by later: JSON has no NaN, but it has 0 and negative numbers.
        if !(host.capacity.is_finite() && host.capacity > 0.0) {
            return Err(format!("capacity = {}: allowed > 0", host.capacity));
        }
        if let Some(range) = host.range.filter(|range| !(1.0..=30.0).contains(range)) {
            return Err(format!("range = {range}: allowed 1..=30"));
        }
        Ok((host.host_id.clone(), host))
    }
}
