//! On which ports does this coordinator really listen?
//!
//! With port 0 the system chooses, and whoever started the coordinator must learn what it chose. A file in the data
//! directory says so: written whole or not at all, once both ports are open, and gone when they are closed.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Name of the file in the data directory.
pub const FILE_NAME: &str = "listening.json";

/// The file could not be written or removed.
#[derive(Debug, Error)]
#[error("failed to {operation} {}", path.display())]
pub struct ListeningError {
    operation: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// What the file says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listening {
    /// Where gRPC listens.
    pub grpc: SocketAddr,
    /// Where HTTP listens; null if it is off.
    pub http: Option<SocketAddr>,
    /// The coordinator's process.
    pub pid: u32,
}

/// The file while it is there; dropping it removes the file.
#[derive(Debug)]
pub struct ListeningFile {
    path: PathBuf,
}

impl ListeningFile {
    /// Removes what an earlier process may have left. To be called at the start, before any port is open: a reader
    /// that finds a file then may believe it. The folder need not exist.
    ///
    /// # Errors
    /// [`ListeningError`] if a file is there and cannot be removed.
    pub fn clear(data_dir: &Path) -> Result<(), ListeningError> {
        let path = data_dir.join(FILE_NAME);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(ListeningError { operation: "remove", path, source })
            }
            _ => Ok(()),
        }
    }

    /// Says where this process listens.
    ///
    /// # Errors
    /// [`ListeningError`] if the folder cannot be written to.
    pub fn write(
        data_dir: &Path,
        grpc: SocketAddr,
        http: Option<SocketAddr>,
    ) -> Result<Self, ListeningError> {
        let path = data_dir.join(FILE_NAME);
        let said = Listening { grpc, http, pid: std::process::id() };
        let fresh = data_dir.join(format!("{FILE_NAME}.new"));
        serde_json::to_vec(&said)
            .map_err(io::Error::from)
            .and_then(|text| fs::write(&fresh, text))
            .and_then(|()| fs::rename(&fresh, &path))
            .map_err(|source| ListeningError { operation: "write", path: path.clone(), source })?;
        Ok(Self { path })
    }
}

impl Drop for ListeningFile {
    fn drop(&mut self) {
        // A coordinator that was started meanwhile in the same folder has written its own; that stays.
        let ours = fs::read(&self.path)
            .ok()
            .and_then(|text| serde_json::from_slice::<Listening>(&text).ok())
            .is_some_and(|said| said.pid == std::process::id());
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(folder: &Path) -> Option<Listening> {
        let text = fs::read(folder.join(FILE_NAME)).ok()?;
        Some(serde_json::from_slice(&text).unwrap())
    }

    #[test]
    fn it_says_where_while_it_is_so() {
        let folder = tempfile::tempdir().unwrap();
        let grpc = "127.0.0.1:7443".parse().unwrap();
        let file = ListeningFile::write(folder.path(), grpc, None).unwrap();
        let expected = Listening { grpc, http: None, pid: std::process::id() };
        assert_eq!(said(folder.path()), Some(expected));
        drop(file);
        assert_eq!(said(folder.path()), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing else is left");
    }

    #[test]
    fn what_a_killed_process_left_is_removed_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE_NAME), "{}").unwrap();
        ListeningFile::clear(folder.path()).unwrap();
        ListeningFile::clear(folder.path()).unwrap();
        assert_eq!(said(folder.path()), None);
        ListeningFile::clear(&folder.path().join("missing")).unwrap();
    }

    #[test]
    fn a_successors_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let grpc = "127.0.0.1:7443".parse().unwrap();
        let file = ListeningFile::write(folder.path(), grpc, None).unwrap();
        let successor = Listening { grpc, http: None, pid: 1 };
        fs::write(folder.path().join(FILE_NAME), serde_json::to_vec(&successor).unwrap()).unwrap();
        drop(file);
        assert_eq!(said(folder.path()), Some(successor));
    }
}
