//! A pool's settings, as they were applied: those in force, and every version before them that is kept.

use serde::{Deserialize, Serialize};
use usher_types::{Policy, PolicyChange, PoolName};

use super::record::{Parsed, join, parse};

/// Versions of a pool's settings that are kept: what one answer to an operator may hold. A pool that a script changes each
/// minute keeps those of most of a day.
pub const VERSIONS_KEPT: u64 = 1000;

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
        let policy = row.policy.apply_to(&Policy::default()).map_err(|faults| join(&faults))?;
        let PoolRow { version, author, applied_unix_ms, .. } = row;
        Ok((name, Self { version, policy, author, applied_unix_ms }))
    }

    /// From a row of the history, whose key says whose and which version it is.
    pub(super) fn from_history_row(key: &str, value: &[u8]) -> Parsed<(PoolName, u64), Self> {
        let (name, version) = key.rsplit_once('/').ok_or("the key names no version")?;
        let (name, record) = Self::from_row(name, value)?;
        if version.parse() != Ok(record.version) {
            return Err(format!("is of version {}", record.version));
        }
        Ok(((name, record.version), record))
    }
}

/// Key of a version: pools apart, and of each the versions in order.
pub(super) fn history_key(name: &PoolName, version: u64) -> String {
    format!("{name}/{version:020}")
}
