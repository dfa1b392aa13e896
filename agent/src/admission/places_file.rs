//! The book of places on disk: which file, of which boot, and what if it is broken?
//!
//! A file of another boot is void. One that cannot be understood is moved aside for whoever wants to know why, and the
//! host starts with an empty book: not starting at all would cost every login. One that cannot be *read* is an error:
//! it may be whole, and only the operator can tell.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use usher_placement::host::HostRecord;
use usher_types::BootId;

use crate::host::files::{self, Outlives};

/// The book of places cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum PlacesError {
    /// The system refused.
    #[error("cannot {operation} the book of places {}", path.display())]
    Io {
        /// `read`, `write` or `move aside`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The book has no form on disk.
    #[error("cannot encode the book of places")]
    Encode(#[from] serde_json::Error),
}

#[derive(Serialize, Deserialize)]
struct Content {
    boot_id: String,
    #[serde(flatten)]
    kept: HostRecord,
}

/// The file `places.json` of one host.
#[derive(Debug, Clone)]
pub struct PlacesFile {
    path: PathBuf,
    boot_id: BootId,
    is_in_memory: bool,
}

impl PlacesFile {
    /// The file in `folder`, for the boot `boot_id`.
    #[must_use]
    pub fn new(folder: &Path, boot_id: BootId) -> Self {
        let is_in_memory = files::is_in_memory(folder);
        Self { path: folder.join("places.json"), boot_id, is_in_memory }
    }

    /// Whether a write waits for no disk, as in `/run`: then it takes less time than to hand it to another thread.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }

    /// What an earlier run in this boot kept; nothing if there is none. Makes the folder. Blocks.
    ///
    /// # Errors
    /// When the file is there and cannot be read, or is broken and cannot be moved aside.
    pub fn load(&self) -> Result<HostRecord, PlacesError> {
        if let Some(folder) = self.path.parent() {
            files::make_folder(folder).map_err(|source| self.io("make the folder of", source))?;
        }
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HostRecord::default()),
            Err(source) => return Err(self.io("read", source)),
        };
        match serde_json::from_slice::<Content>(&bytes) {
            Ok(content) if content.boot_id == self.boot_id.as_str() => Ok(content.kept),
            Ok(_) => {
                tracing::info!(path = %self.path.display(), "the book of places is of an earlier boot: void");
                Ok(HostRecord::default())
            }
            Err(error) => {
                let aside = self.path.with_extension("json.broken");
                std::fs::rename(&self.path, &aside).map_err(|source| self.io("move aside", source))?;
                tracing::warn!(
                    path = %self.path.display(), aside = %aside.display(), %error,
                    "the book of places cannot be understood: moved aside, starting with an empty one"
                );
                Ok(HostRecord::default())
            }
        }
    }

    /// Keeps what must outlive the agent. Blocks.
    ///
    /// # Errors
    /// When it cannot be written; the file of before is untouched then.
    pub fn save(&self, kept: HostRecord) -> Result<(), PlacesError> {
        let content = Content { boot_id: self.boot_id.to_string(), kept };
        let mut json = serde_json::to_vec(&content)?;
        json.push(b'\n');
        files::replace(&self.path, &json, Outlives::Process).map_err(|source| self.io("write", source))
    }

    fn io(&self, operation: &'static str, source: io::Error) -> PlacesError {
        PlacesError::Io { operation, path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use usher_placement::host::{HeldBack, HostBook, Limits};
    use usher_types::{BootTime, Endpoint, GatewayId, PendingPlace, PoolName, RequestId, Token};

    use super::*;

    fn book() -> HostBook {
        let mut book = HostBook::new();
        let place = PendingPlace {
            token: Token { gateway: GatewayId::new("g").unwrap(), request_id: RequestId::new("R1").unwrap() },
            attempt: 1,
            content_hash: 7,
            pool: PoolName::new("desk").unwrap(),
            endpoint: Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 },
            user: Some("alice".into()),
            cost: 1,
            counted_users: 1,
            left: Duration::from_secs(120),
            connected: false,
            admitted: true,
        };
        book.expect(&place, false, Limits::default(), HeldBack::default(), true, BootTime::from_millis(9))
            .unwrap();
        book
    }

    fn file(folder: &Path, boot: &str) -> PlacesFile {
        PlacesFile::new(folder, BootId::new(boot).unwrap())
    }

    #[test]
    fn a_book_in_memory_is_told_from_one_on_a_disk_before_its_folder_is_made() {
        assert!(file(Path::new("/dev/shm/usher-none/none"), "b1").is_in_memory());
        assert!(!file(Path::new("/proc/none"), "b1").is_in_memory());
    }

    #[test]
    fn the_book_is_kept_within_a_boot_and_void_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let kept = serde_json::json!({ "book": book().record(), "latched": ["cpu"] });
        let kept: HostRecord = serde_json::from_value(kept).unwrap();
        assert_eq!(file(folder.path(), "b1").load().unwrap(), HostRecord::default());
        file(folder.path(), "b1").save(kept.clone()).unwrap();
        assert_eq!(file(folder.path(), "b1").load().unwrap(), kept);
        assert_eq!(file(folder.path(), "b2").load().unwrap(), HostRecord::default());
    }

    #[test]
    fn a_broken_book_is_moved_aside_and_one_that_cannot_be_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("places.json");
        for broken in [
            "",
            "{",
            "[]",
            "{\"boot_id\":\"b1\",\"availability_latched\":false,\"book\":{\"places\":[7],\"ended\":[]}}",
        ] {
            std::fs::write(&path, broken).unwrap();
            assert_eq!(file(folder.path(), "b1").load().unwrap(), HostRecord::default());
            assert_eq!(std::fs::read_to_string(folder.path().join("places.json.broken")).unwrap(), broken);
            assert!(!path.exists());
        }
        std::fs::create_dir(&path).unwrap();
        let error = file(folder.path(), "b1").load().unwrap_err().to_string();
        assert!(error.starts_with("cannot read the book of places"), "{error}");
    }

    #[test]
    fn a_book_of_0_1_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let book = serde_json::to_value(book().record()).unwrap();
        let (places, ended) = (&book["places"], &book["ended"]);
        let old = serde_json::json!({
            "boot_id": "b1", "availability_latched": true, "book": { "places": places, "ended": ended },
        });
        std::fs::write(folder.path().join("places.json"), old.to_string()).unwrap();
        assert_eq!(file(folder.path(), "b1").load().unwrap().book.len(), 1);
    }
}
