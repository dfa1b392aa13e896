//! Whom did DNS name, for an agent that starts while it is away?
//!
//! A small file in the state directory. Its first line carries the SHA-256 of the rest, so half a file, or one that
//! somebody spoilt, is never believed: it is moved aside and nobody is remembered. What it names is checked like an
//! answer of DNS, and no more of it is used.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::roster::MAX_COORDINATORS;
use crate::disk::{self, Disk, LocalDisk, Outlives};

const MAGIC: &str = "usher-coordinators 1";
/// Sixteen names of services and as many targets of each are some 80 KiB; more is not ours.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    /// By service, whom DNS named for it.
    services: BTreeMap<String, Vec<String>>,
}

/// The file `coordinators.json` of an agent.
#[derive(Debug, Clone)]
pub struct RememberedFile {
    path: PathBuf,
}

impl RememberedFile {
    /// The file in `folder`.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { path: folder.join("coordinators.json") }
    }

    /// Whom an earlier run knew; nobody if there is no file that can be believed. Blocks.
    #[must_use]
    pub fn load(&self) -> BTreeMap<String, Vec<String>> {
        self.load_from(&LocalDisk)
    }

    fn load_from(&self, disk: &impl Disk) -> BTreeMap<String, Vec<String>> {
        let read = match disk.read(&self.path, MAX_FILE_BYTES + 1) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return BTreeMap::new(),
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "cannot read which coordinators were known");
                return BTreeMap::new();
            }
            Ok(read) => read,
        };
        match parse(&read) {
            Ok(services) => services,
            Err(reason) => {
                let aside = disk::beside(&self.path, ".broken");
                let moved = disk.rename(&self.path, &aside);
                tracing::warn!(
                    path = %self.path.display(), aside = %aside.display(), reason, is_moved = moved.is_ok(),
                    "which coordinators were known cannot be believed: moved aside"
                );
                BTreeMap::new()
            }
        }
    }

    /// Remembers whom DNS named. Blocks.
    ///
    /// # Errors
    /// When it cannot be written; the file of before is untouched then.
    pub fn save(&self, services: &BTreeMap<String, Vec<String>>) -> io::Result<()> {
        let body = serde_json::to_string_pretty(&Body { services: services.clone() })?;
        let content = format!("{MAGIC} {}\n{body}\n", checksum(body.as_bytes()));
        if let Some(folder) = self.path.parent() {
            disk::make_folder(folder)?;
        }
        disk::replace(&self.path, content.as_bytes(), Outlives::Power)
    }
}

fn checksum(body: &[u8]) -> String {
    Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse(content: &[u8]) -> Result<BTreeMap<String, Vec<String>>, String> {
    if content.len() as u64 > MAX_FILE_BYTES {
        return Err("it is too long".to_owned());
    }
    let text = std::str::from_utf8(content).map_err(|_| "it is not text".to_owned())?;
    let (head, body) = text.split_once('\n').ok_or("it is cut short")?;
    let sum = head.strip_prefix(MAGIC).ok_or_else(|| format!("it does not begin with {MAGIC:?}"))?;
    let body = body.trim_end();
    if sum.trim() != checksum(body.as_bytes()) {
        return Err("it does not match its checksum".to_owned());
    }
    let Body { mut services } = serde_json::from_str(body).map_err(|error| error.to_string())?;
    services.values_mut().for_each(|targets| targets.truncate(MAX_COORDINATORS));
    Ok(services)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> BTreeMap<String, Vec<String>> {
        [("_usher._tcp.example.org".to_owned(), vec!["c1:7443".to_owned(), "c2:7443".to_owned()])].into()
    }

    #[test]
    fn what_was_remembered_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let file = RememberedFile::new(&folder.path().join("deep"));
        assert!(file.load().is_empty());
        file.save(&known()).unwrap();
        assert_eq!(file.load(), known());
    }

    #[test]
    fn a_file_that_was_cut_or_spoilt_anywhere_is_moved_aside_and_believed_in_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = RememberedFile::new(folder.path());
        file.save(&known()).unwrap();
        let whole = std::fs::read(&file.path).unwrap();
        let cut = (0..whole.len() - 1).map(|length| whole[..length].to_vec());
        let spoilt = (0..whole.len() - 1).map(|at| {
            let mut spoilt = whole.clone();
            spoilt[at] ^= 1;
            spoilt
        });
        for content in cut.chain(spoilt).chain([vec![0; 4096], vec![b'x'; 2 << 20]]) {
            std::fs::write(&file.path, &content).unwrap();
            assert!(file.load().is_empty(), "{:?}", String::from_utf8_lossy(&content));
            assert!(!file.path.exists() && folder.path().join("coordinators.json.broken").exists());
        }
    }

    #[test]
    fn a_cut_of_power_during_a_save_leaves_the_old_or_the_new() {
        let folder = tempfile::tempdir().unwrap();
        let file = RememberedFile::new(folder.path());
        file.save(&known()).unwrap();
        // A writer that died half way leaves its file beside.
        std::fs::write(folder.path().join("coordinators.json.new"), "usher-coord").unwrap();
        assert_eq!(file.load(), known());
        file.save(&BTreeMap::new()).unwrap();
        assert!(file.load().is_empty());
    }
}
