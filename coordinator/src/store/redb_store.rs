//! The store in one redb file.
//!
//! Keys and values are bytes, not text: redb trusts a table's declared types, and a damaged text would panic inside it,
//! where bytes come back to be checked. After a failed commit redb wants the file reopened; that is done before the
//! next commit, so that a disk that was full for a while needs no restart of the coordinator.

use std::{
    fs::{self, OpenOptions},
    io::ErrorKind,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use redb::{
    Database, DatabaseError, ReadTransaction, ReadableDatabase, ReadableTable, StorageError, TableDefinition,
    TableError, TableHandle, WriteTransaction,
};
use usher_runtime::clock::{Clock, SystemClock};

use super::{
    Aside, Meta, Store, StoreError, Stored, Write, redb_apply,
    redb_copy::{self, CopyPlan},
    redb_load,
};

pub(super) type Rows = TableDefinition<'static, &'static [u8], &'static [u8]>;

const META: Rows = TableDefinition::new("meta");
pub(super) const POOLS: Rows = TableDefinition::new("pools");
pub(super) const POOL_HISTORY: Rows = TableDefinition::new("pool_history");
pub(super) const DRAINS: Rows = TableDefinition::new("drains");
pub(super) const HOST_MARKS: Rows = TableDefinition::new("host_marks");
pub(super) const REPLICA_MARKS: Rows = TableDefinition::new("replica_marks");
pub(super) const BINDINGS: Rows = TableDefinition::new("bindings");
pub(super) const LAST_KNOWN: Rows = TableDefinition::new("last_known");
pub(super) const LEARNED: Rows = TableDefinition::new("learned");
/// Rows that could not be read: key `table/key`, value as it was.
pub(super) const QUARANTINE: Rows = TableDefinition::new("quarantine");
/// Why each of them could not be read, and since when; same keys.
pub(super) const QUARANTINE_NOTES: Rows = TableDefinition::new("quarantine_notes");
/// What was decided here and the shared store does not have yet.
pub(super) const OWED: Rows = TableDefinition::new("owed");
/// Up to where the rows are a copy of the shared store's.
pub(super) const COPIED: Rows = TableDefinition::new("copied");
/// Every table.
pub(super) const ALL: [Rows; 13] = [
    META,
    POOLS,
    POOL_HISTORY,
    DRAINS,
    HOST_MARKS,
    REPLICA_MARKS,
    BINDINGS,
    LAST_KNOWN,
    LEARNED,
    QUARANTINE,
    QUARANTINE_NOTES,
    OWED,
    COPIED,
];

/// Version of the tables as a whole. A store of format 1 has no history and no marks, and its settings lack fields; it
/// becomes one of format 2 when it is opened, so that a build that would take those rows for damaged refuses it instead.
const FORMAT: u32 = 2;
const OLDEST_FORMAT: u32 = 1;
const FORMAT_KEY: &[u8] = b"format";
const COORDINATOR_ID_KEY: &[u8] = b"coordinator_id";
const INSTANCE_KEY: &[u8] = b"instance";

/// A store in a redb file.
#[derive(Debug)]
pub struct RedbStore {
    path: PathBuf,
    /// Absent after a failed commit, until the next one reopens the file.
    database: Option<Database>,
    meta: Meta,
    clock: SystemClock,
    copy: CopyPlan,
}

impl RedbStore {
    /// Opens the file, or makes it (readable by its owner only) with its folder.
    ///
    /// # Errors
    /// [`StoreError`]: in use, foreign, damaged, newer, or the disk refused.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let database = open_database(path)?;
        let (meta, is_stored) = enter(&database, path)?;
        keep_id(path, &meta.coordinator_id);
        let (path, copy) = (path.to_owned(), CopyPlan::new(path));
        let database = is_stored.then_some(database);
        Ok(Self { path, database, meta, clock: SystemClock, copy })
    }

    /// Reads every row once.
    pub(super) fn check(&mut self) -> Result<(), StoreError> {
        self.read("read", |transaction| {
            for definition in ALL {
                match transaction.open_table(definition) {
                    Ok(table) => table.iter()?.try_for_each(|row| row.map(drop))?,
                    Err(TableError::TableDoesNotExist(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        })
    }

    fn database(&mut self) -> Result<Database, StoreError> {
        self.database.take().map_or_else(|| open_database(&self.path), Ok)
    }

    /// Reads of one state, and leaves the disk alone.
    fn read<T>(
        &mut self,
        operation: &'static str,
        work: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let database = self.database()?;
        let read = database.begin_read().map_err(redb::Error::from).and_then(|reading| work(&reading));
        self.database = Some(database);
        read.map_err(|error| failed(operation, &self.path, error))
    }

    /// Runs `work` in one durable transaction.
    fn transact<T>(
        &mut self,
        operation: &'static str,
        work: impl FnOnce(&WriteTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let database = self.database()?;
        let outcome = in_transaction(&database, work);
        match outcome {
            Ok(value) => {
                self.database = Some(database);
                Ok(value)
            }
            // The database is dropped here: the library refuses all further work on it after a disk error.
            Err(source) => Err(failed(operation, &self.path, source)),
        }
    }
}

/// What the library says of a file that it cannot make sense of is damage; all else may pass.
fn failed(operation: &'static str, path: &Path, error: redb::Error) -> StoreError {
    match error {
        redb::Error::Corrupted(why) => StoreError::Damaged { path: path.to_owned(), why },
        redb::Error::TableTypeMismatch { .. } | redb::Error::TypeDefinitionChanged { .. } => {
            StoreError::Damaged { path: path.to_owned(), why: error.to_string() }
        }
        other => StoreError::failed(operation, path, other),
    }
}

impl Store for RedbStore {
    fn load(&mut self) -> Result<Stored, StoreError> {
        let meta = self.meta.clone();
        let (stored, mending) = self.read("load", move |transaction| redb_load::load(transaction, meta))?;
        if !mending.is_empty() {
            let now_unix_ms = self.clock.wall_unix_ms();
            let mended = self.transact("mend", |transaction| mending.apply(transaction, now_unix_ms));
            if let Err(error) = mended {
                tracing::warn!(%error, "unreadable rows of the store stay where they are for now");
            }
        }
        Ok(stored)
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        self.transact("write to", |transaction| {
            writes.iter().try_for_each(|write| redb_apply::apply(transaction, write))
        })?;
        if writes.iter().any(is_decided) {
            self.copy.changed();
        }
        Ok(())
    }

    fn tidy(&mut self, is_last: bool) {
        if let Some(database) = &self.database {
            self.copy.follow(database, &self.path, is_last);
        }
    }

    fn quarantine(&mut self) -> Result<Vec<Aside>, StoreError> {
        self.read("read the quarantine of", redb_load::quarantine)
    }

    fn set_aside(&mut self, rows: &[Aside]) -> Result<(), StoreError> {
        self.transact("write to the quarantine of", |transaction| {
            redb_load::set_shared_aside(transaction, rows)
        })
    }

    fn drop_aside(&mut self, table: &str, key: &str) -> Result<bool, StoreError> {
        self.transact("write to the quarantine of", |transaction| {
            redb_load::drop_aside(transaction, table, key)
        })
    }
}

fn in_transaction<T>(
    database: &Database,
    work: impl FnOnce(&WriteTransaction) -> Result<T, redb::Error>,
) -> Result<T, redb::Error> {
    let transaction = database.begin_write()?;
    let value = work(&transaction)?;
    transaction.commit()?;
    Ok(value)
}

fn open_database(path: &Path) -> Result<Database, StoreError> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(folder)
            .map_err(|error| StoreError::failed("make the folder of", path, error))?;
    }
    create_private(path).map_err(|error| StoreError::failed("open", path, error))?;
    Database::create(path).map_err(|error| match error {
        DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path: path.to_owned() },
        DatabaseError::Storage(StorageError::Io(error)) if begins_as_ours(path) && is_damage(&error) => {
            StoreError::Damaged { path: path.to_owned(), why: error.to_string() }
        }
        DatabaseError::Storage(StorageError::Io(error)) if error.kind() == ErrorKind::InvalidData => {
            StoreError::Foreign { path: path.to_owned(), why: error.to_string() }
        }
        DatabaseError::Storage(StorageError::Corrupted(why)) => {
            StoreError::Damaged { path: path.to_owned(), why }
        }
        other => StoreError::failed("open", path, other),
    })
}

/// Made by us rather than by the library, so that nobody but the owner can ever read it.
pub(super) fn create_private(path: &Path) -> std::io::Result<()> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map(drop)
}

/// Whether the file begins as one of the library's does.
fn begins_as_ours(path: &Path) -> bool {
    let mut first = [0; 4];
    let read = fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut first));
    read.is_ok() && first == *b"redb"
}

fn is_damage(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
}

/// What a copy should have soon: what people decided, and not what hosts say of themselves every few seconds.
fn is_decided(write: &Write) -> bool {
    !matches!(
        write,
        Write::PutLastKnown(_) | Write::PutLearned(_) | Write::AmendReplicaMarks(_) | Write::PutCopied(_)
    )
}

/// Beside the store: who this coordinator is.
fn id_path(path: &Path) -> PathBuf {
    path.with_file_name("coordinator.id")
}

/// Who this coordinator was, if its store is a new one.
fn kept_id(path: &Path) -> Option<uuid::Uuid> {
    let text = fs::read_to_string(id_path(path)).ok()?;
    uuid::Uuid::parse_str(text.trim()).ok()
}

/// Writes down who this coordinator is, in case its store is lost. Without it, it would be a new one then: no more.
fn keep_id(path: &Path, id: &str) {
    if kept_id(path).is_some_and(|kept| kept.to_string() == id) {
        return;
    }
    let (making, file) = (path.with_file_name("coordinator.id.new"), id_path(path));
    let written =
        fs::write(&making, format!("{id}\n")).and_then(|()| redb_copy::put_in_place(&making, &file));
    if let Err(error) = written {
        tracing::warn!(%error, path = %file.display(), "cannot write down this coordinator's id");
    }
}

/// Checks that the file is ours, and counts this start. Whether that was stored: if not, the file is to be opened again.
fn enter(database: &Database, path: &Path) -> Result<(Meta, bool), StoreError> {
    let failed = |error: redb::Error| failed("read", path, error);
    let foreign = |why: &str| StoreError::Foreign { path: path.to_owned(), why: why.to_owned() };
    let transaction = database.begin_write().map_err(|error| failed(error.into()))?;
    let tables: Vec<String> = transaction
        .list_tables()
        .map_err(|error| failed(error.into()))?
        .map(|table| table.name().to_owned())
        .collect();
    if !tables.is_empty() && !tables.iter().any(|name| name == META.name()) {
        return Err(foreign("it is a redb file of another program"));
    }
    let stored = {
        let table = transaction.open_table(META).map_err(|error| foreign(&error.to_string()))?;
        let text = |key: &[u8]| -> Result<Option<String>, redb::Error> {
            Ok(table.get(key)?.map(|value| String::from_utf8_lossy(value.value()).into_owned()))
        };
        [text(FORMAT_KEY), text(COORDINATOR_ID_KEY), text(INSTANCE_KEY)]
    };
    let [format, coordinator_id, instance] = stored;
    check_format(format.map_err(failed)?, !tables.is_empty(), path)?;
    let meta = Meta {
        coordinator_id: coordinator_id
            .map_err(failed)?
            .and_then(|text| uuid::Uuid::parse_str(&text).ok())
            .or_else(|| kept_id(path))
            .unwrap_or_else(uuid::Uuid::new_v4)
            .to_string(),
        instance: instance
            .map_err(failed)?
            .and_then(|text| text.parse::<u64>().ok())
            .unwrap_or(0)
            .saturating_add(1),
    };
    let written =
        write_meta(&transaction, &meta).and_then(|()| transaction.commit().map_err(redb::Error::from));
    match written {
        Ok(()) => Ok((meta, true)),
        // What is known of the farm is worth more than the number of this start.
        Err(redb::Error::Io(error)) if error.kind() == ErrorKind::StorageFull && !tables.is_empty() => {
            tracing::error!(path = %path.display(), "the disk is full: nothing can be stored, and changes will be refused");
            Ok((meta, false))
        }
        Err(error) => Err(failed(error)),
    }
}

fn check_format(format: Option<String>, has_tables: bool, path: &Path) -> Result<(), StoreError> {
    let path = path.to_owned();
    match format {
        None if !has_tables => Ok(()),
        None => Err(StoreError::Foreign { path, why: "it names no format".to_owned() }),
        Some(text) => match text.parse::<u32>() {
            Ok(OLDEST_FORMAT..=FORMAT) => Ok(()),
            Ok(found) if found > FORMAT => Err(StoreError::Newer { path, found, read: FORMAT }),
            _ => Err(StoreError::Damaged { path, why: format!("its format is {text:?}") }),
        },
    }
}

fn write_meta(transaction: &WriteTransaction, meta: &Meta) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(META)?;
    table.insert(FORMAT_KEY, FORMAT.to_string().as_bytes())?;
    table.insert(COORDINATOR_ID_KEY, meta.coordinator_id.as_bytes())?;
    table.insert(INSTANCE_KEY, meta.instance.to_string().as_bytes())?;
    Ok(())
}
