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

use super::{
    RedbStore, StoreError,
    redb_copy::{beside, copy_path, put_in_place},
    redb_store::create_private,
};

/// Opens the store, or what can be had instead of a damaged one.
///
/// # Errors
/// As [`RedbStore::open`], but not for damage, unless the file cannot be moved aside.
pub(super) fn open_or_recover(path: &Path) -> Result<RedbStore, StoreError> {
    let why = match open_readable(path) {
        Err(StoreError::Damaged { why, .. }) => why,
        other => return other,
    };
    set_aside(path, &why)?;
    let copy = copy_path(path);
    if copy.exists() {
        let restored = restore(&copy, path).map_err(|error| StoreError::failed("restore", path, error));
        match restored.and_then(|()| open_readable(path)) {
            Ok(store) => {
                error!(
                    path = %path.display(), why,
                    "the store was damaged and was moved aside; starting with its last copy: what was decided in the minute \
                     before may be missing"
                );
                return Ok(store);
            }
            Err(StoreError::Damaged { why, .. }) => {
                set_aside(path, &why)?;
                warn!(path = %copy.display(), why, "the copy of the store is damaged too");
                fs::rename(&copy, beside(&copy, &format!(".damaged-{}", now())))
                    .map_err(|error| StoreError::failed("move aside", &copy, error))?;
            }
            Err(other) => return Err(other),
        }
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

fn set_aside(path: &Path, why: &str) -> Result<(), StoreError> {
    let aside = beside(path, &format!(".damaged-{}", now()));
    fs::rename(path, &aside).map_err(|error| StoreError::failed("move aside", path, error))?;
    warn!(path = %path.display(), aside = %aside.display(), why, "moved a damaged file of the store aside");
    Ok(())
}

/// As part of a file's name.
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%.3fZ").to_string()
}

fn restore(copy: &Path, path: &Path) -> io::Result<()> {
    let making = beside(path, ".new");
    create_private(&making)?;
    fs::copy(copy, &making)?;
    put_in_place(&making, path)
}
