//! Is this host drained by a command given on it?
//!
//! The answer must outlive the agent, and a persistent drain a reboot, so it lies in the state folder. A drain until
//! the restart names the boot in which it was given and is void in every other. A file that cannot be read or
//! understood counts as a drain: whoever wrote it wanted nobody to come, and somebody is there to take it back, while
//! users who are sent to a machine that is taken apart are not asked.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use usher_types::{BootId, Drain, DrainMode};

use crate::disk::{self, Outlives};
use crate::printable::printable;

/// Longest reason that is kept, in characters: a sentence or two in a list of hosts.
pub const MAX_REASON_CHARS: usize = 200;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    boot_id: String,
    drain: Drain,
}

/// The file `drain.json` of the state folder.
#[derive(Debug, Clone)]
pub struct DrainFile {
    path: PathBuf,
    boot_id: BootId,
}

impl DrainFile {
    /// The file in `folder`, in the boot `boot_id`.
    #[must_use]
    pub fn new(folder: &Path, boot_id: BootId) -> Self {
        Self { path: folder.join("drain.json"), boot_id }
    }

    /// The drain that holds. Blocks.
    #[must_use]
    pub fn load(&self) -> Option<Drain> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => return Some(self.unreadable(&error.to_string())),
        };
        match serde_json::from_slice::<Content>(&bytes) {
            Ok(Content { boot_id, drain }) => {
                let holds = drain.mode == DrainMode::Persistent || boot_id == self.boot_id.as_str();
                holds.then(|| as_could_be_said(drain))
            }
            Err(error) => Some(self.unreadable(&error.to_string())),
        }
    }

    fn unreadable(&self, why: &str) -> Drain {
        let path = self.path.display();
        tracing::error!(%path, why, "the drain file cannot be understood: the host stays drained");
        let reason = format!("{path} cannot be understood: {why}; undrain the host to go on");
        let reason = printable(&reason, MAX_REASON_CHARS);
        Drain { mode: DrainMode::Persistent, reason, author: "usher-agent".into(), no_reconnect: false }
    }

    /// Keeps `drain`, or that there is none. On the disk when this returns. Blocks.
    ///
    /// # Errors
    /// When the disk refuses; what was kept before still is.
    pub fn save(&self, drain: Option<&Drain>) -> io::Result<()> {
        let Some(drain) = drain else {
            return disk::remove(&self.path);
        };
        let content = Content { boot_id: self.boot_id.to_string(), drain: drain.clone() };
        let mut json = serde_json::to_vec_pretty(&content)?;
        json.push(b'\n');
        disk::replace(&self.path, &json, Outlives::Power)
    }
}

/// A file that was written by hand is bound by what a command could have said: the reason travels in every report.
fn as_could_be_said(drain: Drain) -> Drain {
    let [reason, author] = [&drain.reason, &drain.author].map(|text| printable(text, MAX_REASON_CHARS));
    Drain { reason, author, ..drain }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path, boot: &str) -> DrainFile {
        DrainFile::new(folder, BootId::new(boot).unwrap())
    }

    fn drain(mode: DrainMode) -> Drain {
        Drain { mode, reason: "new disks".into(), author: "root".into(), no_reconnect: true }
    }

    #[test]
    fn a_drain_until_the_restart_ends_with_the_boot_and_a_persistent_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(file(folder.path(), "b1").load(), None);
        for (mode, after_boot) in
            [(DrainMode::UntilRestart, None), (DrainMode::Persistent, Some(drain(DrainMode::Persistent)))]
        {
            file(folder.path(), "b1").save(Some(&drain(mode))).unwrap();
            assert_eq!(file(folder.path(), "b1").load(), Some(drain(mode)));
            assert_eq!(file(folder.path(), "b2").load(), after_boot);
        }
        file(folder.path(), "b2").save(None).unwrap();
        file(folder.path(), "b2").save(None).unwrap();
        assert_eq!(file(folder.path(), "b1").load(), None);
    }

    #[test]
    fn a_reason_written_by_hand_is_cut_to_what_a_command_may_say() {
        let folder = tempfile::tempdir().unwrap();
        let reason = format!("\u{1b}[31m{}", "x".repeat(9999));
        let by_hand = Drain { reason, ..drain(DrainMode::Persistent) };
        file(folder.path(), "b1").save(Some(&by_hand)).unwrap();
        let held = file(folder.path(), "b1").load().unwrap().reason;
        assert_eq!((held.chars().count(), held.starts_with("[31mxx")), (MAX_REASON_CHARS, true));
    }

    #[test]
    fn a_file_that_cannot_be_understood_keeps_the_host_drained_until_it_is_undrained() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drain.json");
        for broken in ["", "{", "[]", "{\"boot_id\":\"b1\"}"] {
            std::fs::write(&path, broken).unwrap();
            let held = file(folder.path(), "b1").load().unwrap();
            assert_eq!((held.mode, held.no_reconnect), (DrainMode::Persistent, false));
            assert!(held.reason.contains("drain.json"), "{}", held.reason);
        }
        file(folder.path(), "b1").save(None).unwrap();
        assert_eq!(file(folder.path(), "b1").load(), None);
    }
}
