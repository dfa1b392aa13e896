//! Who may take the path of a unix socket, and who removes it?
//!
//! A socket's file outlives a program that was killed, and then blocks the next start. So a file to which nobody
//! listens is replaced; one with a listener, or one that is no socket, is not ours to remove. At the end only the
//! file that we made is removed: a newer agent may have replaced it.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram as StdUnixDatagram, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};

use tokio::net::{UnixDatagram, UnixListener};

/// Owns the file of a bound socket; removes it when dropped.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

/// Binds a datagram socket at `path`, replacing a stale file; `mode` says who may write to it.
pub(crate) fn bind_datagram(path: &Path, mode: u32) -> io::Result<(UnixDatagram, SocketFile)> {
    let try_it = || StdUnixDatagram::unbound()?.connect(path);
    bind(path, mode, try_it, || UnixDatagram::bind(path))
}

/// Binds a stream socket at `path`, replacing a stale file; `mode` says who may connect.
pub(crate) fn bind_stream(path: &Path, mode: u32) -> io::Result<(UnixListener, SocketFile)> {
    bind(path, mode, || StdUnixStream::connect(path).map(drop), || UnixListener::bind(path))
}

fn bind<S>(
    path: &Path,
    mode: u32,
    try_it: impl FnOnce() -> io::Result<()>,
    bind: impl FnOnce() -> io::Result<S>,
) -> io::Result<(S, SocketFile)> {
    remove_stale(path, try_it)?;
    let socket = bind()?;
    let metadata = fs::symlink_metadata(path)?;
    let file = SocketFile { path: path.to_owned(), device_and_inode: (metadata.dev(), metadata.ino()) };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok((socket, file))
}

fn remove_stale(path: &Path, try_it: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is in the way"));
    }
    match try_it() {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(()) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another program listens on it")),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.device_and_inode);
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket file");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODE: u32 = 0o666;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_all_may_write_to_the_new_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("statsd.sock");
        drop(StdUnixDatagram::bind(&path).expect("bound"));
        assert!(path.exists());
        let (_socket, file) = bind_datagram(&path, MODE).expect("bound");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, MODE);
        drop(file);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_in_use_and_a_foreign_file_are_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let used = folder.path().join("used");
        let _listener = StdUnixDatagram::bind(&used).expect("bound");
        assert_eq!(bind_datagram(&used, MODE).expect_err("in use").kind(), io::ErrorKind::AddrInUse);
        assert!(used.exists());
        let foreign = folder.path().join("letter");
        fs::write(&foreign, "dear diary").expect("written");
        assert_eq!(bind_datagram(&foreign, MODE).expect_err("foreign").kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&foreign).expect("there"), "dear diary");
    }

    #[tokio::test]
    async fn the_file_of_a_successor_is_not_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("statsd.sock");
        let (old_socket, old_file) = bind_datagram(&path, MODE).expect("bound");
        // Keeps the old inode in use, so that the new file cannot get its number.
        fs::rename(&path, folder.path().join("kept")).expect("moved");
        let (_socket, _file) = bind_datagram(&path, MODE).expect("bound");
        drop((old_socket, old_file));
        assert!(path.exists());
    }

    #[tokio::test]
    async fn a_stream_socket_is_replaced_when_nobody_listens_and_left_alone_when_somebody_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("agent.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
        let (_listener, file) = bind_stream(&path, 0o660).expect("bound");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o660);
        assert_eq!(bind_stream(&path, 0o660).expect_err("in use").kind(), io::ErrorKind::AddrInUse);
        drop(file);
        assert!(!path.exists());
    }
}
