//! What does the operator say about the host's resources, and can it mean anything?

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use usher_runtime::config::{Faults, HumanDuration, Validate};
use usher_types::ResourceId;

use super::walk::Pattern;
use crate::probe::config::within;
use crate::sample::describe;

/// Intervals of the program: replicas come and go by hand or by a nightly copy.
const INTERVAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));
/// Deadlines of the program: a database may take long to list what it holds.
const DEADLINE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(300));

/// The table `[inventory]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InventoryConfig {
    /// Resources named one by one. Default none.
    pub replicas: Vec<ReplicaEntry>,
    /// Resources found by patterns. Default none.
    pub globs: Vec<GlobEntry>,
    /// A program that knows more of them. Default none.
    pub program: Option<ProgramEntry>,
}

/// One named resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaEntry {
    /// Its id, the same on every host, 1..=1024 bytes without control characters.
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
    /// How the id of what is found is made: `{path}` below the pattern's root (the default), `{name}`, `{stem}` (the
    /// name without its last extension), `{parent}` (the folder's name), `{1}`..`{9}` (the first..ninth name of the
    /// path below the root), and text around them.
    #[serde(default = "default_id")]
    pub id: String,
    /// For people; given to every resource that is found.
    pub title: Option<String>,
}

fn default_id() -> String {
    "{path}".to_owned()
}

/// A program that lists resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramEntry {
    /// The program and its arguments. There is no shell.
    pub command: Vec<String>,
    /// How often it is run, 1s..=1h. Shorter sees a new replica sooner, and costs what the program costs.
    #[serde(default = "default_interval")]
    pub interval: HumanDuration,
    /// How long it may take before it is killed, 10ms..=5m.
    #[serde(default = "default_deadline")]
    pub deadline: HumanDuration,
}

fn default_interval() -> HumanDuration {
    HumanDuration::from_secs(60)
}

fn default_deadline() -> HumanDuration {
    HumanDuration::from_secs(10)
}

impl InventoryConfig {
    /// Whether anything is to be looked for on disks.
    #[must_use]
    pub fn has_files(&self) -> bool {
        !self.replicas.is_empty() || !self.globs.is_empty()
    }
}

impl Validate for InventoryConfig {
    fn validate(&self, faults: &mut Faults) {
        for (index, entry) in self.replicas.iter().enumerate() {
            if let Err(error) = ResourceId::new(&entry.resource) {
                faults.refuse(&format!("replicas[{index}].resource"), error.fault);
            }
        }
        for (index, entry) in self.globs.iter().enumerate() {
            if let Err(error) = Pattern::new(entry) {
                let key = if error.is_of_the_rule() { "id" } else { "pattern" };
                faults
                    .refuse(&format!("globs[{index}].{key}"), format!("is not valid: {}", describe(&error)));
            }
        }
        if let Some(program) = &self.program {
            faults.nested("program", program);
        }
    }
}

impl Validate for ProgramEntry {
    fn validate(&self, faults: &mut Faults) {
        if self.command.first().is_none_or(String::is_empty) {
            faults.refuse("command", "names no program");
        }
        within(faults, "interval", self.interval, INTERVAL);
        within(faults, "deadline", self.deadline, DEADLINE);
    }
}
