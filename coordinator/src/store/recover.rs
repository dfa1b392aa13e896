//! What if the store's file cannot be read?
//!
//! A power cut, or a disk that lies, leaves files of no bytes, of zeros, or cut at half. A coordinator that refused to start then
//! would take the farm's logins with it, again and again. So the damaged file is moved aside under a name with the time, and the
//! copy takes its place; without a copy the coordinator starts with an empty store, and says so loudly. Who it is lies in a small
//! file of its own, and stays.
//!
//! A file that was never a store is nobody's to move: the operator has named the wrong folder.

use std::{
    fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use tracing::{error, warn};
use usher_runtime::aside::move_aside;

use super::{
    RedbStore, StoreError,
    redb_copy::{beside, copy_path, put_in_place},
    redb_store::create_private,
};

/// What is to become the store's file.
const MAKING: &str = ".new";

/// Opens the store, or what can be had instead of a damaged one, or of one that is gone and has a copy.
///
/// # Errors
/// As [`RedbStore::open`], but not for damage, unless the file cannot be moved aside.
pub(super) fn open_or_recover(path: &Path) -> Result<RedbStore, StoreError> {
    let making = beside(path, MAKING);
    let is_there = |of: &Path| of.try_exists().map_err(|error| StoreError::failed("look for", of, error));
    if is_there(path)? {
        return match open_readable(path) {
            Err(StoreError::Damaged { why, .. }) => open_copy(path, &why),
            Ok(store) => {
                // Nothing that was begun once is to be finished when this file is gone one day.
                let _ = fs::remove_file(&making);
                Ok(store)
            }
            other => other,
        };
    }
    // The last step was missing: a file that is being made is whole before the damaged one is moved.
    if is_there(&making)? {
        put_in_place(&making, path).map_err(|error| StoreError::failed("restore", path, error))?;
        return match open_readable(path) {
            Err(StoreError::Damaged { why, .. }) => open_copy(path, &why),
            Ok(store) => {
                warn!(path = %path.display(), "a start that broke off had begun to use the last copy of the store: it is used");
                Ok(store)
            }
            other => other,
        };
    }
    if is_there(&copy_path(path))? { open_copy(path, "it is missing") } else { RedbStore::open(path) }
}

/// Puts the copy of the store in its place, or starts with an empty one if there is none. Until the copy is there, the damaged file
/// or the copy under its own name is: whenever this breaks off, the next start finds one of them.
fn open_copy(path: &Path, why: &str) -> Result<RedbStore, StoreError> {
    let copy = copy_path(path);
    if copy.exists() {
        put_copy(&copy, path, why).map_err(|error| StoreError::failed("restore", path, error))?;
        match open_readable(path) {
            Ok(store) => {
                error!(
                    path = %path.display(), why,
                    "the store was damaged or missing; starting with its last copy: what was decided in the minute before may \
                     be missing"
                );
                return Ok(store);
            }
            Err(StoreError::Damaged { why, .. }) => {
                warn!(path = %copy.display(), why, "the copy of the store is damaged too");
                set_aside(path, &why).map_err(|error| StoreError::failed("move aside", path, error))?;
                if copy.exists() {
                    set_aside(&copy, &why).map_err(|error| StoreError::failed("move aside", &copy, error))?;
                }
            }
            Err(other) => return Err(other),
        }
    } else {
        set_aside(path, why).map_err(|error| StoreError::failed("move aside", path, error))?;
    }
    error!(
        path = %path.display(), why,
        "the store was damaged and was moved aside, and there is no copy of it; starting with an empty one: restore a backup"
    );
    RedbStore::open(path)
}

/// Opens the store and reads it once: damage may be anywhere in it, and the library may give up on it in its own way.
fn open_readable(path: &Path) -> Result<RedbStore, StoreError> {
    if is_hollow(path).map_err(|error| StoreError::failed("read", path, error))? {
        return Err(StoreError::Damaged {
            path: path.to_owned(),
            why: "it is empty, or begins with zeros".to_owned(),
        });
    }
    let opened = catch_unwind(AssertUnwindSafe(|| {
        let mut store = RedbStore::open(path)?;
        store.check()?;
        Ok(store)
    }));
    opened.unwrap_or_else(|_| {
        let why = "the store library gave up on it".to_owned();
        Err(StoreError::Damaged { path: path.to_owned(), why })
    })
}

/// Whether the file is there and nothing is in it: no program wrote that.
fn is_hollow(path: &Path) -> io::Result<bool> {
    let mut first = [0; 64];
    let read = match fs::File::open(path) {
        Ok(mut file) => io::Read::read(&mut file, &mut first)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    Ok(first[..read].iter().all(|byte| *byte == 0))
}

/// Moves a file aside, if it is there.
fn set_aside(path: &Path, why: &str) -> io::Result<()> {
    let aside = match move_aside(path, &format!("damaged-{}", now())) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        moved => moved?,
    };
    warn!(path = %path.display(), aside = %aside.display(), why, "moved a damaged file of the store aside");
    Ok(())
}

/// As part of a file's name.
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%.3fZ").to_string()
}

/// Puts the copy in the place of the store's file, which is moved aside only when the new one is whole and on the disk.
fn put_copy(copy: &Path, path: &Path, why: &str) -> io::Result<()> {
    let making = beside(path, MAKING);
    let from = match make(copy, &making) {
        Ok(()) => making,
        Err(error) => {
            // A full disk, most likely, which keeps nobody from starting.
            warn!(%error, copy = %copy.display(), "cannot keep a second copy of the store: the copy itself is used");
            let _ = fs::remove_file(&making);
            copy.to_owned()
        }
    };
    set_aside(path, why)?;
    put_in_place(&from, path)
}

fn make(copy: &Path, making: &Path) -> io::Result<()> {
    create_private(making)?;
    fs::copy(copy, making)?;
    fs::File::open(making)?.sync_all()
}
