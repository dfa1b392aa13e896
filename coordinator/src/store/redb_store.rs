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
    Database, DatabaseError, ReadableTable, StorageError, TableDefinition, TableHandle, WriteTransaction,
};

use super::{
    DrainRecord, LastKnown, Meta, PoolRecord, Quarantined, Store, StoreError, Stored, Write,
    record::{Parsed, binding_from_row},
};

type Rows = TableDefinition<'static, &'static [u8], &'static [u8]>;

const META: Rows = TableDefinition::new("meta");
const POOLS: Rows = TableDefinition::new("pools");
const DRAINS: Rows = TableDefinition::new("drains");
const BINDINGS: Rows = TableDefinition::new("bindings");
const LAST_KNOWN: Rows = TableDefinition::new("last_known");
/// Rows that could not be read: key `table/key`, value as it was.
const QUARANTINE: Rows = TableDefinition::new("quarantine");

/// Version of the tables as a whole.
const FORMAT: u32 = 1;
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
}

impl RedbStore {
    /// Opens the file, or makes it (readable by its owner only) with its folder.
    ///
    /// # Errors
    /// [`StoreError`]: in use, foreign, damaged, newer, or the disk refused.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let database = open_database(path)?;
        let meta = enter(&database, path)?;
        Ok(Self { path: path.to_owned(), database: Some(database), meta })
    }

    /// Runs `work` in one durable transaction.
    fn transact<T>(
        &mut self,
        operation: &'static str,
        work: impl FnOnce(&WriteTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let database = match self.database.take() {
            Some(database) => database,
            None => open_database(&self.path)?,
        };
        let outcome = in_transaction(&database, work);
        match outcome {
            Ok(value) => {
                self.database = Some(database);
                Ok(value)
            }
            // The database is dropped here: the library refuses all further work on it after a disk error.
            Err(source) => Err(StoreError::failed(operation, &self.path, source)),
        }
    }
}

impl Store for RedbStore {
    fn load(&mut self) -> Result<Stored, StoreError> {
        let meta = self.meta.clone();
        self.transact("load", move |transaction| {
            let mut quarantined = Vec::new();
            let pools = load_table(transaction, ("pools", POOLS), PoolRecord::from_row, &mut quarantined)?;
            let drains =
                load_table(transaction, ("drains", DRAINS), DrainRecord::from_row, &mut quarantined)?;
            let bindings =
                load_table(transaction, ("bindings", BINDINGS), binding_from_row, &mut quarantined)?;
            let last_known =
                load_table(transaction, ("last_known", LAST_KNOWN), LastKnown::from_row, &mut quarantined)?;
            Ok(Stored {
                meta,
                pools: pools.into_iter().collect(),
                drains: drains.into_iter().collect(),
                bindings: bindings.into_iter().collect(),
                last_known: last_known.into_iter().map(|(_, host)| host).collect(),
                quarantined,
            })
        })
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        self.transact("write to", |transaction| writes.iter().try_for_each(|write| apply(transaction, write)))
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

fn apply(transaction: &WriteTransaction, write: &Write) -> Result<(), redb::Error> {
    match write {
        Write::PutPool(name, record) => put(transaction, POOLS, name.as_str(), record.to_row()),
        Write::PutDrain(host, record) => put(transaction, DRAINS, host.as_str(), serde_json::to_vec(record)),
        Write::DeleteDrain(host) => {
            transaction.open_table(DRAINS)?.remove(host.as_str().as_bytes())?;
            Ok(())
        }
        Write::PutBinding(certificate, host) => {
            put(transaction, BINDINGS, certificate, serde_json::to_vec(host))
        }
        Write::PutLastKnown(hosts) => {
            transaction.delete_table(LAST_KNOWN)?;
            transaction.open_table(LAST_KNOWN)?;
            hosts
                .iter()
                .try_for_each(|host| put(transaction, LAST_KNOWN, host.host_id.as_str(), host.to_row()))
        }
    }
}

fn put(
    transaction: &WriteTransaction,
    table: Rows,
    key: &str,
    row: serde_json::Result<Vec<u8>>,
) -> Result<(), redb::Error> {
    let row = row.map_err(|error| redb::Error::Io(error.into()))?;
    transaction.open_table(table)?.insert(key.as_bytes(), row.as_slice())?;
    Ok(())
}

/// The readable rows of a table; the others go to quarantine.
fn load_table<K, V>(
    transaction: &WriteTransaction,
    (name, definition): (&'static str, Rows),
    parse: impl Fn(&str, &[u8]) -> Parsed<K, V>,
    quarantined: &mut Vec<Quarantined>,
) -> Result<Vec<(K, V)>, redb::Error> {
    let mut table = transaction.open_table(definition)?;
    let mut rows = Vec::new();
    let mut bad = Vec::new();
    for row in table.iter()? {
        let (key, value) = row?;
        let parsed = std::str::from_utf8(key.value())
            .map_err(|_| "the key is no text".to_owned())
            .and_then(|text| parse(text, value.value()));
        match parsed {
            Ok(row) => rows.push(row),
            Err(why) => bad.push((key.value().to_vec(), value.value().to_vec(), why)),
        }
    }
    let mut quarantine = transaction.open_table(QUARANTINE)?;
    for (key, value, why) in bad {
        let aside = [name.as_bytes(), b"/", &key].concat();
        quarantine.insert(aside.as_slice(), value.as_slice())?;
        table.remove(key.as_slice())?;
        let key = String::from_utf8_lossy(&key).into_owned();
        quarantined.push(Quarantined { table: name, key, why });
    }
    Ok(rows)
}

fn open_database(path: &Path) -> Result<Database, StoreError> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(folder)
            .map_err(|error| StoreError::failed("make the folder of", path, error))?;
    }
    // Made by us rather than by the library, so that nobody but the owner can ever read it.
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|error| StoreError::failed("open", path, error))?;
    Database::create(path).map_err(|error| match error {
        DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path: path.to_owned() },
        DatabaseError::Storage(StorageError::Io(error)) if error.kind() == ErrorKind::InvalidData => {
            StoreError::Foreign { path: path.to_owned(), why: error.to_string() }
        }
        DatabaseError::Storage(StorageError::Corrupted(why)) => {
            StoreError::Damaged { path: path.to_owned(), why }
        }
        other => StoreError::failed("open", path, other),
    })
}

/// Checks that the file is ours, and counts this start.
fn enter(database: &Database, path: &Path) -> Result<Meta, StoreError> {
    let failed = |error: redb::Error| StoreError::failed("read", path, error);
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
            .unwrap_or_else(uuid::Uuid::new_v4)
            .to_string(),
        instance: instance
            .map_err(failed)?
            .and_then(|text| text.parse::<u64>().ok())
            .unwrap_or(0)
            .saturating_add(1),
    };
    write_meta(&transaction, &meta).map_err(failed)?;
    transaction.commit().map_err(|error| failed(error.into()))?;
    Ok(meta)
}

fn check_format(format: Option<String>, has_tables: bool, path: &Path) -> Result<(), StoreError> {
    let path = path.to_owned();
    match format {
        None if !has_tables => Ok(()),
        None => Err(StoreError::Foreign { path, why: "it names no format".to_owned() }),
        Some(text) => match text.parse::<u32>() {
            Ok(FORMAT) => Ok(()),
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
