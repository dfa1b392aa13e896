//! The disk of this machine.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{Disk, Outlives, folder_of};

/// The file systems of this machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalDisk;

impl Disk for LocalDisk {
    fn read(&self, path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(most_bytes).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn create(&self, path: &Path, content: &[u8], outlives: Outlives) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(content)?;
        match outlives {
            Outlives::Process => Ok(()),
            Outlives::Power => file.sync_all(),
        }
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn flush_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}

/// The kernel's number of the file system that keeps its files in memory.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// Whether a write below `folder` waits for no disk, as in `/run`: then it takes less time than to hand it to another thread.
/// A folder that is not there yet will be where the one above it is.
pub(crate) fn is_in_memory(folder: &Path) -> bool {
    let system = folder.ancestors().find_map(|folder| rustix::fs::statfs(folder).ok());
    system.is_some_and(|system| system.f_type == TMPFS)
}

/// Makes a folder and those above it, for good: a file in a folder whose own name was lost is lost too.
///
/// # Errors
/// Names the path.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    let new: Vec<&Path> = path.ancestors().take_while(|folder| !folder.exists()).collect();
    let make = || {
        fs::create_dir_all(path)?;
        new.iter().try_for_each(|folder| match LocalDisk.flush_folder(folder_of(folder)) {
            // A folder that we may not look into cannot be flushed by us.
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Err(error),
            _ => Ok(()),
        })
    };
    make().map_err(|error| {
        io::Error::new(error.kind(), format!("cannot make the folder {}: {error}", path.display()))
    })
}
