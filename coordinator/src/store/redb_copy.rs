//! A second file with what the store held a while ago, for the day on which the first one cannot be read.
//!
//! Made online, from one state, beside the first and in its place only when it is whole. It is made after what people decided
//! has changed, and seldom enough to cost little of the disk's time.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use redb::{Database, ReadableDatabase, ReadableTable};

use super::redb_store::{ALL, create_private};

/// At least this long between two copies.
const EVERY: Duration = Duration::from_secs(30);
/// A copy that takes long is made so much more seldom: one fiftieth of the disk's time at most.
const SHARE: u32 = 50;

/// The copy of the store at `path`.
pub(super) fn copy_path(path: &Path) -> PathBuf {
    beside(path, ".bak")
}

/// A name that begins as the store's.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// When the next copy is due.
#[derive(Debug)]
pub(super) struct CopyPlan {
    is_behind: bool,
    not_before: Option<Instant>,
}

impl CopyPlan {
    /// Of a store that was just opened: a copy that is missing is made soon.
    pub(super) fn new(path: &Path) -> Self {
        Self { is_behind: !copy_path(path).exists(), not_before: None }
    }

    /// What people decided has changed.
    pub(super) fn changed(&mut self) {
        self.is_behind = true;
    }

    /// Makes the copy if it is due, or if this is the last time.
    pub(super) fn follow(&mut self, database: &Database, path: &Path, is_last: bool) {
        let now = Instant::now();
        if !self.is_behind || (!is_last && self.not_before.is_some_and(|at| now < at)) {
            return;
        }
        match copy(database, path) {
            Ok(()) => self.is_behind = false,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, path = %copy_path(path).display(), "cannot make the copy of the store");
            }
        }
        self.not_before = Some(Instant::now() + EVERY.max(now.elapsed().saturating_mul(SHARE)));
    }
}

fn copy(database: &Database, path: &Path) -> Result<(), redb::Error> {
    let making = beside(path, ".bak.new");
    let made = fill(database, &making).and_then(|()| Ok(put_in_place(&making, &copy_path(path))?));
    if made.is_err() {
        // Half a copy on a full disk would keep it full.
        let _ = fs::remove_file(&making);
    }
    made
}

fn fill(database: &Database, to: &Path) -> Result<(), redb::Error> {
    if to.exists() {
        fs::remove_file(to)?;
    }
    create_private(to)?;
    let read = database.begin_read()?;
    let copy = Database::create(to)?;
    let write = copy.begin_write()?;
    for definition in ALL {
        let table = match read.open_table(definition) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => continue,
            Err(error) => return Err(error.into()),
        };
        let mut copied = write.open_table(definition)?;
        for row in table.iter()? {
            let (key, value) = row?;
            copied.insert(key.value(), value.value())?;
        }
    }
    write.commit()?;
    Ok(())
}

/// Whole or not at all, also after a power cut.
pub(super) fn put_in_place(from: &Path, to: &Path) -> io::Result<()> {
    File::open(from)?.sync_all()?;
    fs::rename(from, to)?;
    match to.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
