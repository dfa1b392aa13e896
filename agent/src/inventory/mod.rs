//! Which resources does this host hold?
//!
//! Resources are named one by one in the configuration, found by a pattern of paths, or listed by a program. One found by
//! a pattern is named by its path below the pattern's root, the longest folder without a wildcard, so that copies on
//! different hosts have one name wherever their disks are mounted; a rule may make another name of it.
//!
//! What is listed is what users are sent here for, so a replica that cannot be seen is not listed: neither one whose
//! file is missing, nor those of a folder that cannot be read. Each is reported, and the others go on. A source that
//! tells nothing at all (a program that fails, a disk that hangs) takes nothing away: its last list stays.

mod config;
mod id_rule;
mod listing_program;
mod looks;
mod notes;
mod walk;
mod watch;

use std::path::Path;

use usher_types::{Replica, ResourceId};

pub use config::{GlobEntry, InventoryConfig, ProgramEntry, ReplicaEntry};
#[cfg(test)]
pub(crate) use listing_program::understood;
pub use looks::InventoryLooks;
use notes::Notes;
use walk::Pattern;
use watch::Watches;

/// Resources of one host. At twice as many the list would still fit, but nobody could look through it.
const MAX_FOUND: usize = 100_000;
/// Longest path and title: as coordinators take them.
const MAX_TEXT_BYTES: usize = 1024;

/// The configuration cannot mean anything.
#[derive(Debug, thiserror::Error)]
enum InventoryError {
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
    /// The rule that makes ids is none.
    #[error("the id rule `{rule}`: {problem}")]
    Rule {
        /// As configured.
        rule: String,
        /// What is wrong.
        problem: String,
    },
}

impl InventoryError {
    /// It is about how ids are made, not about the pattern.
    fn is_of_the_rule(&self) -> bool {
        matches!(self, Self::Rule { .. })
    }
}

/// What a scan found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Scan {
    /// Sorted by id, each once.
    replicas: Vec<Replica>,
    /// What could not be read: the list may lack something.
    errors: Notes,
    /// What is odd though the list is whole.
    warnings: Notes,
}

/// Looks on the disks for all configured resources below `root` (`/` in production), and has the folders watched that it
/// looks into. Blocks for as long as the disks take.
///
/// # Errors
/// When the configuration itself is wrong. What the disk refuses is in [`Scan::errors`].
fn scan(config: &InventoryConfig, root: &Path, watches: &mut Watches) -> Result<Scan, InventoryError> {
    let mut found = Vec::new();
    let mut errors = Notes::default();
    let mut left_out = 0;
    watches.begin();
    for entry in &config.replicas {
        match named(entry, root, watches) {
            Ok(replica) => found.push(replica),
            Err(problem) => errors.add(|| problem),
        }
    }
    for entry in &config.globs {
        let of_pattern = walk::walk(&Pattern::new(entry)?, root, watches);
        errors.extend(of_pattern.errors);
        left_out += of_pattern.left_out;
        found.extend(of_pattern.replicas);
    }
    let mut scan = Scan { replicas: found, errors, warnings: Notes::default() };
    scan.put_in_order(left_out);
    if let Some(unwatched) = watches.finish() {
        scan.warnings.add(|| unwatched);
    }
    Ok(scan)
}

/// A resource that the operator names, if it is there.
fn named(entry: &ReplicaEntry, root: &Path, watches: &mut Watches) -> Result<Replica, String> {
    if let Some(path) = &entry.path {
        let path_seen = walk::below(root, path);
        if let Some(folder) = path_seen.parent() {
            watches.add(folder);
        }
        std::fs::metadata(&path_seen).map_err(|error| {
            format!("replica `{}`: cannot see {}: {error}", entry.resource, path.display())
        })?;
    }
    let path = entry.path.as_ref().map(|path| path.to_string_lossy().into_owned());
    found(&entry.resource, path, entry.title.clone())
}

/// A resource, if its id is one.
fn found(resource_id: &str, path: Option<String>, title: Option<String>) -> Result<Replica, String> {
    let resource_id = ResourceId::new(resource_id).map_err(|error| error.to_string())?;
    Ok(Replica { resource_id, path, title })
}

impl Scan {
    /// Sorts, keeps the first of those with one id, and no more than the bound; `left_out` were left out before.
    fn put_in_order(&mut self, left_out: usize) {
        let Self { replicas, errors, warnings } = self;
        // In their order where ids are equal.
        replicas.sort_by(|a, b| a.resource_id.cmp(&b.resource_id));
        replicas.dedup_by(|next, kept| {
            let is_double = next.resource_id == kept.resource_id;
            if is_double {
                warnings.add(|| there_twice(kept, next));
            }
            is_double
        });
        let left_out = left_out + replicas.len().saturating_sub(MAX_FOUND);
        replicas.truncate(MAX_FOUND);
        replicas.shrink_to_fit();
        if left_out > 0 {
            errors.add(|| format!("more than {MAX_FOUND} resources: {left_out} are left out"));
        }
    }
}

fn there_twice(listed: &Replica, other: &Replica) -> String {
    let place = |replica: &Replica| replica.path.clone().unwrap_or_else(|| "one without a path".to_owned());
    format!(
        "resource `{}` is there twice: {} is listed, {} is not",
        listed.resource_id,
        place(listed),
        place(other),
    )
}

#[cfg(test)]
mod tests;
