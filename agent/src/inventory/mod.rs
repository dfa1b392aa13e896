//! Which resources does this host hold?
//!
//! Resources are named one by one in the configuration, or found by a pattern of paths. A resource found by a pattern
//! is named by its path below the pattern's root, the longest folder without a wildcard, so that copies on different
//! hosts have one name wherever their disks are mounted.
//!
//! What is listed is what users are sent here for, so a replica that cannot be seen is not listed: neither one whose
//! file is missing, nor those of a folder that cannot be read. Each is reported, and the others go on.

mod walk;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use walk::{MAX_FOUND, Pattern};

/// Bound of a resource's id.
pub const MAX_RESOURCE_ID_BYTES: usize = 1024;

/// What the operator says about the host's resources.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InventoryConfig {
    /// Resources named one by one. Default none.
    pub replicas: Vec<ReplicaEntry>,
    /// Resources found by patterns. Default none.
    pub globs: Vec<GlobEntry>,
}

/// One named resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaEntry {
    /// Its id, the same on every host, 1..=1024 bytes.
    pub resource: String,
    /// Where it lies on this host. When given, the resource is listed only while something is there.
    pub path: Option<PathBuf>,
    /// For people.
    pub title: Option<String>,
}

/// One pattern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GlobEntry {
    /// An absolute path with wildcards: `*` and `?` within one name, `**` across folders, `[ab]`, `{a,b}`. Files
    /// match; with a `/` at the end, folders do.
    pub pattern: String,
    /// For people; given to every resource that is found.
    pub title: Option<String>,
}

/// A resource that this host holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaFound {
    /// 1..=1024 bytes.
    pub resource_id: String,
    /// Where it lies. Absent if the operator did not say.
    pub path: Option<String>,
    /// For people.
    pub title: Option<String>,
}

/// The configuration cannot mean anything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InventoryError {
    /// The pattern cannot be understood.
    #[error("inventory pattern `{pattern}` is not valid")]
    Pattern {
        /// As configured.
        pattern: String,
        /// What is wrong.
        source: globset::Error,
    },
    /// The pattern does not begin with `/`, or climbs with `..`.
    #[error("inventory pattern `{pattern}` is not an absolute path without `..`")]
    NotAbsolute {
        /// As configured.
        pattern: String,
    },
    /// The id of a named resource has no byte, or too many.
    #[error("inventory resource `{resource}` must have 1 to {MAX_RESOURCE_ID_BYTES} bytes")]
    ResourceId {
        /// As configured.
        resource: String,
    },
}

/// What a scan found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scan {
    /// Sorted by id, each once.
    pub replicas: Vec<ReplicaFound>,
    /// What could not be read, one line each: the list may lack something.
    pub errors: Vec<String>,
    /// What is odd though the list is whole.
    pub warnings: Vec<String>,
}

/// Looks for all configured resources below `root` (`/` in production). Blocks for as long as the disks take.
///
/// # Errors
/// When the configuration itself is wrong. What the disk refuses is in [`Scan::errors`].
pub fn scan(config: &InventoryConfig, root: &Path) -> Result<Scan, InventoryError> {
    let mut collected = Collected::default();
    for entry in &config.replicas {
        check_id(&entry.resource)?;
        collected.add_named(entry, root);
    }
    for entry in &config.globs {
        let pattern = Pattern::new(&entry.pattern)?;
        let found = walk::walk(&pattern, root);
        collected.scan.errors.extend(found.errors);
        for (resource_id, path) in found.files {
            collected.add(ReplicaFound { resource_id, path: Some(path), title: entry.title.clone() });
        }
    }
    Ok(collected.into_scan())
}

/// Checks a configuration without looking at any disk.
///
/// # Errors
/// As [`scan`].
pub fn check(config: &InventoryConfig) -> Result<(), InventoryError> {
    config.replicas.iter().try_for_each(|entry| check_id(&entry.resource))?;
    config.globs.iter().try_for_each(|entry| Pattern::new(&entry.pattern).map(drop))
}

fn check_id(resource: &str) -> Result<(), InventoryError> {
    if (1..=MAX_RESOURCE_ID_BYTES).contains(&resource.len()) {
        Ok(())
    } else {
        Err(InventoryError::ResourceId { resource: resource.to_owned() })
    }
}

/// What was found so far, by id.
#[derive(Debug, Default)]
struct Collected {
    by_id: BTreeMap<String, ReplicaFound>,
    left_out: usize,
    scan: Scan,
}

impl Collected {
    fn add_named(&mut self, entry: &ReplicaEntry, root: &Path) {
        if let Some(path) = &entry.path
            && let Err(error) = std::fs::metadata(walk::below(root, path))
        {
            let line = format!("replica `{}`: cannot see {}: {error}", entry.resource, path.display());
            self.scan.errors.push(line);
            return;
        }
        self.add(ReplicaFound {
            resource_id: entry.resource.clone(),
            path: entry.path.as_ref().map(|path| path.to_string_lossy().into_owned()),
            title: entry.title.clone(),
        });
    }

    fn add(&mut self, replica: ReplicaFound) {
        if self.by_id.len() >= MAX_FOUND && !self.by_id.contains_key(&replica.resource_id) {
            self.left_out += 1;
            return;
        }
        match self.by_id.entry(replica.resource_id.clone()) {
            Entry::Vacant(free) => {
                free.insert(replica);
            }
            Entry::Occupied(taken) => {
                let place =
                    |path: &Option<String>| path.clone().unwrap_or_else(|| "the configuration".to_owned());
                self.scan.warnings.push(format!(
                    "resource `{}` is there twice: {} is listed, {} is not",
                    replica.resource_id,
                    place(&taken.get().path),
                    place(&replica.path),
                ));
            }
        }
    }

    fn into_scan(mut self) -> Scan {
        if self.left_out > 0 {
            let line = format!("more than {MAX_FOUND} resources: {} are left out", self.left_out);
            self.scan.errors.push(line);
        }
        self.scan.replicas = self.by_id.into_values().collect();
        self.scan
    }
}

#[cfg(test)]
mod tests;
