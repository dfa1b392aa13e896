//! Which folders are ours alone, and how do their files get there?
//!
//! Files are replaced as [`crate::disk`] says: this machine's own, whole at every moment.

use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub(crate) use crate::disk::{Outlives, is_in_memory, make_folder, replace};

/// Says that this process alone uses a folder, for as long as it lives: the kernel takes the mark away with the
/// process, however that ends.
#[derive(Debug)]
pub(crate) struct FolderLock(#[expect(dead_code, reason = "held open, never read")] fs::File);

impl FolderLock {
    /// Marks `folder`, which is made if it is not there, by the file `name` in it. Blocks.
    ///
    /// # Errors
    /// When another process has marked it, or the file cannot be made.
    pub(crate) fn take(folder: &Path, name: &str) -> io::Result<Self> {
        make_folder(folder)?;
        let path = folder.join(name);
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(
                |error| io::Error::new(error.kind(), format!("cannot open {}: {error}", path.display())),
            )?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => {
                let message = format!("another agent uses the folder {}", folder.display());
                Err(io::Error::new(io::ErrorKind::ResourceBusy, message))
            }
            Err(TryLockError::Error(error)) => {
                Err(io::Error::new(error.kind(), format!("cannot lock {}: {error}", path.display())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_in_use_is_refused_until_it_is_let_go() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("deep");
        let lock = FolderLock::take(&folder, "x.lock").unwrap();
        let error = FolderLock::take(&folder, "x.lock").unwrap_err().to_string();
        assert!(error.contains("another agent") && error.contains("deep"), "{error}");
        drop(lock);
        FolderLock::take(&folder, "x.lock").unwrap();
    }
}
