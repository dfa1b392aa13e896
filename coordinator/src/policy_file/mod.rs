//! Where do the settings of pools come from if there is no store for several coordinators to share?
//!
//! From a file that the operator brings to each coordinator, by hand or by the tool that brings all others. The file is the
//! whole truth: a pool that it does not name has the defaults. It is read at the start and when somebody says so (SIGHUP),
//! not when it changes: a file that is being written is no settings.
//!
//! What it says is stored as if it had been applied, with its versions, so that `history` and `diff` tell what was in force
//! when. A file with a fault changes nothing, whether at a reload or at a start with settings from before: a slip of the
//! keyboard must not keep a farm from its logins. Whether all coordinators have the same file is not known here; their hosts
//! tell, by the hash that each carries.

mod reload;

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};
use usher_runtime::config::{ConfigErrors, Faults, Loader, Validate};
use usher_types::{Policy, PolicyChange, PoolName};

pub(crate) use self::reload::{pass_over_hang_ups, reload_on_hang_up};
use crate::{
    metrics::Metrics,
    store::{PoolRecord, StoreHandle, Stored, Write},
};

/// The settings of all pools, as in `pools.toml`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PolicyFile {
    /// What settings that are new get as their version, >= 1: the same on every coordinator. Absent: each coordinator counts
    /// on by itself.
    version: Option<u64>,
    /// The pools, by name: what differs from the defaults.
    pools: BTreeMap<PoolName, PolicyChange>,
}

impl Validate for PolicyFile {
    fn validate(&self, faults: &mut Faults) {
        if self.version == Some(0) {
            faults.refuse("version", "= 0 is not allowed, must be at least 1");
        }
        for (name, change) in &self.pools {
            for fault in change.apply_to(&Policy::default()).err().into_iter().flatten() {
                let (key, value) = (format!("pools.{name}.{}", fault.field), fault.value);
                faults.refuse(&key, format!("= {value} is not allowed, must be {}", fault.allowed));
            }
        }
    }
}

/// Why the file is not in force.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotTaken {
    /// Faults, each with its place.
    #[error(transparent)]
    File(#[from] ConfigErrors),
    /// Its version was used already, for other settings.
    #[error(
        "{file}: version = {version} is not allowed: pool {pool} has had version {stored} with other settings; raise it"
    )]
    Version {
        /// The file.
        file: String,
        /// Its version.
        version: u64,
        /// A pool with settings that are not the file's.
        pool: PoolName,
        /// Their version.
        stored: u64,
    },
    /// What it says could not be stored.
    #[error("what {file} says was not stored and is not in force: {why}")]
    NotStored {
        /// The file.
        file: String,
        /// Why.
        why: String,
    },
}

impl NotTaken {
    /// One line for each fault, as a check of the file prints them.
    fn log(&self) {
        for line in self.to_string().lines() {
            tracing::error!("{line}");
        }
    }
}

/// A pool that the file changes.
#[derive(Clone, PartialEq, Debug)]
struct Change {
    name: PoolName,
    record: PoolRecord,
}

impl PolicyFile {
    /// The file at `path`, without a fault.
    ///
    /// # Errors
    /// Every fault of it, with its place.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigErrors> {
        Loader::only(path).load().map(|loaded| loaded.value)
    }

    /// What the file changes in `stored`, which is in force: the next versions.
    fn changes(
        &self,
        path: &Path,
        stored: &BTreeMap<PoolName, (u64, Policy)>,
        now_unix_ms: u64,
    ) -> Result<Vec<Change>, NotTaken> {
        let file = path.display().to_string();
        let mut changes = Vec::new();
        let names = self.pools.keys().chain(stored.keys().filter(|name| !self.pools.contains_key(*name)));
        for name in names {
            let change = self.pools.get(name).cloned().unwrap_or_default();
            // It was checked when it was read.
            let Ok(policy) = change.apply_to(&Policy::default()) else { continue };
            let before = stored.get(name);
            let version = before.map_or(0, |(version, _)| *version);
            let is_same = before.is_some_and(|(_, before)| *before == policy);
            let next = match self.version {
                _ if is_same && version > 0 && self.version.is_none_or(|named| named <= version) => continue,
                Some(named) if named <= version => {
                    let (pool, stored) = (name.clone(), version);
                    return Err(NotTaken::Version { file, version: named, pool, stored });
                }
                Some(named) => named,
                None => version + 1,
            };
            if !self.pools.contains_key(name) && !is_same {
                tracing::warn!(pool = %name, %file, "the file does not name the pool: it has the defaults now");
            }
            let record =
                PoolRecord { version: next, policy, author: file.clone(), applied_unix_ms: now_unix_ms };
            changes.push(Change { name: name.clone(), record });
        }
        Ok(changes)
    }
}

/// Brings what was stored to what the file at `path` says, before anybody decides by it. With faults in the file what was
/// stored stays.
///
/// # Errors
/// What is wrong, if there are no settings of before to go on with.
pub(crate) async fn take_over(
    path: &Path,
    stored: &mut Stored,
    store: &StoreHandle,
    metrics: &Metrics,
    now_unix_ms: u64,
) -> anyhow::Result<()> {
    let taken = bring(path, stored, store, now_unix_ms).await;
    metrics.policy_file_read(taken.is_ok());
    match taken {
        Ok(()) => Ok(()),
        // As a fault of any settings file, with its place.
        Err(NotTaken::File(faults)) if stored.pools.is_empty() => Err(faults.into()),
        Err(why) if stored.pools.is_empty() => Err(why.into()),
        Err(why) => {
            let file = path.display();
            why.log();
            tracing::error!(%file, "the settings of pools are those of before the start: the file was not taken over");
            Ok(())
        }
    }
}

async fn bring(
    path: &Path,
    stored: &mut Stored,
    store: &StoreHandle,
    now_unix_ms: u64,
) -> Result<(), NotTaken> {
    let in_force = stored.pools.iter().map(|(name, record)| {
        let PoolRecord { version, policy, .. } = record.clone();
        (name.clone(), (version, policy))
    });
    let changes = PolicyFile::load(path)?.changes(path, &in_force.collect(), now_unix_ms)?;
    if changes.is_empty() {
        return Ok(());
    }
    let writes = changes.iter().map(|change| Write::PutPool(change.name.clone(), change.record.clone()));
    store
        .write(writes.collect())
        .await
        .map_err(|error| NotTaken::NotStored { file: path.display().to_string(), why: error.to_string() })?;
    for Change { name, record } in changes {
        tracing::info!(pool = %name, version = record.version, file = %path.display(), "settings of a pool read");
        stored.history.entry(name.clone()).or_default().push(record.clone());
        stored.pools.insert(name, record);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
