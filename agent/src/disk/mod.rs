//! How is a small file replaced so that a cut at any moment leaves the old one or the new one?
//!
//! The new content goes into a file beside, and takes the place of the old one by a rename. What must survive a loss of
//! power too is on the disk before the rename, and the rename itself before anybody is told that it is done: a disk may
//! keep a new name without the content, and later names without earlier ones. What lies below `/run` is gone with the
//! power anyway and saves the wait.
//!
//! Of a file that takes hours to learn, the one before is kept as well. It is replaced last, when the new one is on the
//! disk for certain: should the present file have been spoilt in its place, there is a whole one at every moment.
//!
//! Every step goes through [`Disk`], so that a test can let it fail, or cut the power after it. This module does not know
//! what the files hold, and repairs nothing.

mod local;
#[cfg(test)]
pub(crate) mod model;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use local::{LocalDisk, is_in_memory, make_folder};

/// What must a file outlive?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlives {
    /// The death of this process.
    Process,
    /// A loss of power too.
    Power,
}

/// The steps that files are kept by. All block.
pub(crate) trait Disk {
    /// At most this many bytes of a file.
    fn read(&self, path: &Path, most_bytes: u64) -> io::Result<Vec<u8>>;
    /// A file that was not there before, readable by its owner only: it may name users.
    fn create(&self, path: &Path, content: &[u8], outlives: Outlives) -> io::Result<()>;
    /// A second name of a file.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Another name in the place of this one, whatever had it before.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// The end of a name.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The names in a folder are on the disk.
    fn flush_folder(&self, folder: &Path) -> io::Result<()>;
}

/// A step that failed. What was kept before still is, as a whole.
#[derive(Debug)]
pub(crate) struct FailedStep {
    /// What was done.
    pub(crate) step: &'static str,
    /// What the system said.
    pub(crate) source: io::Error,
}

fn failed(step: &'static str) -> impl Fn(io::Error) -> FailedStep {
    move |source| FailedStep { step, source }
}

/// Replaces the file at `path`. Readable by its owner only. Blocks.
///
/// # Errors
/// Names the path and the step; the old file, or the new one, is there then.
pub(crate) fn replace(path: &Path, content: &[u8], outlives: Outlives) -> io::Result<()> {
    replace_on(&LocalDisk, path, content, outlives).map_err(|FailedStep { step, source }| {
        let message = format!("cannot {step} {}: {source}", path.display());
        io::Error::new(source.kind(), message)
    })
}

/// [`replace`] on this disk.
pub(crate) fn replace_on(
    disk: &impl Disk,
    path: &Path,
    content: &[u8],
    outlives: Outlives,
) -> Result<(), FailedStep> {
    let new = beside(path, ".new");
    write_aside(disk, &new, content, outlives)?;
    disk.rename(&new, path).map_err(failed("replace"))?;
    match outlives {
        Outlives::Process => Ok(()),
        Outlives::Power => disk.flush_folder(folder_of(path)).map_err(failed("flush the folder of")),
    }
}

/// As [`replace_on`], for good, and keeps the file before under the name that ends with `kept`.
pub(crate) fn replace_keeping(
    disk: &impl Disk,
    path: &Path,
    kept: &OsStr,
    content: &[u8],
) -> Result<(), FailedStep> {
    let (new, kept) = (beside(path, ".new"), beside(path, kept));
    write_aside(disk, &new, content, Outlives::Power)?;
    let before =
        hold_before(disk, path, &beside(&kept, ".new")).map_err(failed("keep the copy before of"))?;
    disk.rename(&new, path).map_err(failed("replace"))?;
    disk.flush_folder(folder_of(path)).map_err(failed("flush the folder of"))?;
    let Some(before) = before else { return Ok(()) };
    disk.rename(&before, &kept)
        .and_then(|()| disk.flush_folder(folder_of(path)))
        .map_err(failed("keep the copy before of"))
}

/// Ends the file at `path`, for good. One that is not there has ended. Blocks.
///
/// # Errors
/// Names the path.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    remove_on(&LocalDisk, path).map_err(|FailedStep { step, source }| {
        io::Error::new(source.kind(), format!("cannot {step} {}: {source}", path.display()))
    })
}

/// [`remove`] on this disk.
pub(crate) fn remove_on(disk: &impl Disk, path: &Path) -> Result<(), FailedStep> {
    remove_if_there(disk, path).map_err(failed("remove"))?;
    match disk.flush_folder(folder_of(path)) {
        // Without the folder there is no file in it.
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("flush the folder of")(error)),
        _ => Ok(()),
    }
}

/// `path` with something behind its name.
pub(crate) fn beside(path: &Path, suffix: impl AsRef<OsStr>) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn write_aside(disk: &impl Disk, new: &Path, content: &[u8], outlives: Outlives) -> Result<(), FailedStep> {
    // What a cut left there may be another name of the present file: it is not written over.
    let written = remove_if_there(disk, new).and_then(|()| disk.create(new, content, outlives));
    written.map_err(|source| {
        // Half a file on a full disk helps nobody; if it cannot be removed now, the next write tries again.
        let _ = disk.remove(new);
        failed("write")(source)
    })
}

/// Gives the present file a second name, or a copy where there can be none. Absent: there is no file yet.
fn hold_before(disk: &impl Disk, path: &Path, held: &Path) -> io::Result<Option<PathBuf>> {
    remove_if_there(disk, held)?;
    match disk.link(path, held) {
        Ok(()) => Ok(Some(held.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // Some file systems have no second names, and the kernel refuses them for a file of another's.
        Err(error)
            if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) =>
        {
            let content = disk.read(path, u64::MAX)?;
            disk.create(held, &content, Outlives::Power)?;
            Ok(Some(held.to_owned()))
        }
        Err(error) => Err(error),
    }
}

fn remove_if_there(disk: &impl Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests;
