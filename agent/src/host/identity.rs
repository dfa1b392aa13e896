//! Who is this host, and which of its streams is the living one?
//!
//! The identity is made once, when the agent first starts, and kept for good: a host that changes its name or address
//! stays the same host. An identity file that is there but cannot be read is an error, never a reason to make another:
//! the farm would see a second host and lose what it knew of the first.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use usher_types::{BootTime, HostId};

use super::files::{self, Outlives};

/// The identity file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostIdError {
    /// It cannot be read or written.
    #[error("cannot use the host's identity in {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It holds something else.
    #[error(
        "{} does not hold a host id (a UUID); restore it, or remove it if this shall become a new host",
        path.display()
    )]
    NotAnId {
        /// The file.
        path: PathBuf,
    },
}

/// The host's id from `host_id` in `folder`, made there if the file does not exist. Blocks.
///
/// # Errors
/// When the file cannot be read or written, or holds no id.
pub fn load_or_make(folder: &Path) -> Result<HostId, HostIdError> {
    let path = folder.join("host_id");
    let io_error = |source| HostIdError::Io { path: path.clone(), source };
    let not_an_id = || HostIdError::NotAnId { path: path.clone() };
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let uuid = uuid::Uuid::try_parse(text.trim()).map_err(|_| not_an_id())?;
            HostId::new(uuid.to_string()).map_err(|_| not_an_id())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            files::make_folder(folder).map_err(io_error)?;
            let id = HostId::new(uuid::Uuid::new_v4().to_string()).map_err(|_| not_an_id())?;
            files::replace(&path, format!("{id}\n").as_bytes(), Outlives::Power).map_err(io_error)?;
            tracing::info!(host_id = %id, path = %path.display(), "made this host's identity");
            Ok(id)
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(not_an_id()),
        Err(error) => Err(io_error(error)),
    }
}

/// Numbers streams so that a later one always has the higher number, over restarts of the agent too: the boot-time
/// clock in microseconds, which only starts again with another boot id.
#[derive(Debug, Default)]
pub struct StreamEpochs {
    last: AtomicU64,
}

impl StreamEpochs {
    /// The number of a stream that is opened at `now`; higher than all before.
    pub fn next(&self, now: BootTime) -> u64 {
        let after = |last: u64| now.as_micros().max(last.saturating_add(1));
        let last = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(after(last)))
            .unwrap_or_default();
        after(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("deep/state");
        let made = load_or_make(&folder).unwrap();
        assert_eq!(load_or_make(&folder).unwrap(), made);
    }

    #[test]
    fn an_identity_that_cannot_be_read_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host_id");
        for broken in [&b""[..], b"app1", b"\xff\xfe", b"../../etc"] {
            std::fs::write(&path, broken).unwrap();
            let error = load_or_make(folder.path()).unwrap_err();
            assert!(matches!(error, HostIdError::NotAnId { .. }), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), broken);
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(matches!(load_or_make(folder.path()).unwrap_err(), HostIdError::Io { .. }));
    }

    #[test]
    fn case_081_a_later_stream_has_the_higher_epoch() {
        let epochs = StreamEpochs::default();
        let first = epochs.next(BootTime::from_millis(5));
        let second = epochs.next(BootTime::from_millis(5));
        assert!(second > first);
        // After a restart of the agent only the clock is left.
        assert!(StreamEpochs::default().next(BootTime::from_millis(6)) > second);
    }
}
