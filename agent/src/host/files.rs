//! How is a small file replaced so that nobody ever reads half of it?
//!
//! A new file beside it, then a rename. What must also survive a loss of power is flushed first; what lies below
//! `/run` is gone with the power anyway and saves the wait.

use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What must a file outlive?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlives {
    /// The death of this process.
    Process,
    /// A loss of power too.
    Power,
}

/// Replaces the file at `path`. Readable by its owner only: it may name users. Blocks.
///
/// # Errors
/// Names the path; the old file is untouched then.
pub(crate) fn replace(path: &Path, content: &[u8], outlives: Outlives) -> io::Result<()> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()));
    write_aside(path, content, outlives)
        .and_then(|aside| fs::rename(&aside, path))
        .and_then(|()| if outlives == Outlives::Power { flush_folder(path) } else { Ok(()) })
        .map_err(named)
}

fn write_aside(path: &Path, content: &[u8], outlives: Outlives) -> io::Result<PathBuf> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let aside = PathBuf::from(aside);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
    file.write_all(content)?;
    if outlives == Outlives::Power {
        file.sync_all()?;
    }
    Ok(aside)
}

/// The new name itself lies in the folder.
fn flush_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Makes a folder and those above it.
///
/// # Errors
/// Names the path.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot make the folder {}: {error}", path.display()))
    })
}

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
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for (content, outlives) in [("first, longer", Outlives::Process), ("second", Outlives::Power)] {
            replace(&path, content.as_bytes(), outlives).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

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

    #[test]
    fn a_failure_names_the_file() {
        let error = replace(Path::new("/proc/none/a"), b"x", Outlives::Process).unwrap_err().to_string();
        assert!(error.contains("/proc/none/a"), "{error}");
    }
}
