//! The store in one redb file.
//!
//! Keys and values are bytes, not text: redb trusts a table's declared types, and a damaged text would panic inside it,
//! where bytes come back to be checked. After a failed commit redb wants the file reopened; that is done before the
//! next commit, so that a disk that was full for a while needs no restart of the coordinator.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::ErrorKind,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use redb::{
    Database, DatabaseError, ReadableTable, StorageError, TableDefinition, TableHandle, WriteTransaction,
};

use usher_placement::farm::LearnedRecord;
use usher_types::{HostId, PoolName, ResourceId};

use super::{
    DrainRecord, HostMarksRecord, LastKnown, Meta, PoolRecord, Quarantined, ReplicaMarkRecord, Store,
    StoreError, Stored, VERSIONS_KEPT, Write,
    mark_record::replica_key,
    pool_record::history_key,
    record::{Parsed, binding_from_row, learned_from_row},
};

type Rows = TableDefinition<'static, &'static [u8], &'static [u8]>;

const META: Rows = TableDefinition::new("meta");
const POOLS: Rows = TableDefinition::new("pools");
const POOL_HISTORY: Rows = TableDefinition::new("pool_history");
const DRAINS: Rows = TableDefinition::new("drains");
const HOST_MARKS: Rows = TableDefinition::new("host_marks");
const REPLICA_MARKS: Rows = TableDefinition::new("replica_marks");
const BINDINGS: Rows = TableDefinition::new("bindings");
const LAST_KNOWN: Rows = TableDefinition::new("last_known");
const LEARNED: Rows = TableDefinition::new("learned");
/// Rows that could not be read: key `table/key`, value as it was.
const QUARANTINE: Rows = TableDefinition::new("quarantine");

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
            let mut aside = Vec::new();
            let pools = load_table(transaction, ("pools", POOLS), PoolRecord::from_row, &mut aside)?;
            let versions = load_table(
                transaction,
                ("pool_history", POOL_HISTORY),
                PoolRecord::from_history_row,
                &mut aside,
            )?;
            let drains = load_table(transaction, ("drains", DRAINS), DrainRecord::from_row, &mut aside)?;
            let host_marks =
                load_table(transaction, ("host_marks", HOST_MARKS), HostMarksRecord::from_row, &mut aside)?;
            let replica_marks = load_table(
                transaction,
                ("replica_marks", REPLICA_MARKS),
                ReplicaMarkRecord::from_row,
                &mut aside,
            )?;
            let bindings = load_table(transaction, ("bindings", BINDINGS), binding_from_row, &mut aside)?;
            let last_known =
                load_table(transaction, ("last_known", LAST_KNOWN), LastKnown::from_row, &mut aside)?;
            let learned = load_table(transaction, ("learned", LEARNED), learned_from_row, &mut aside)?;
            let (pools, history) = with_history(transaction, pools.into_iter().collect(), versions)?;
            Ok(Stored {
                meta,
                pools,
                history,
                drains: drains.into_iter().collect(),
                host_marks: host_marks.into_iter().collect(),
                replica_marks: replica_marks.into_iter().collect(),
                bindings: bindings.into_iter().collect(),
                last_known: last_known.into_iter().map(|(_, host)| host).collect(),
                learned: learned.into_iter().map(|(pool, anchors)| LearnedRecord { pool, anchors }).collect(),
                quarantined: aside,
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
        Write::PutPool(name, record) => put_pool(transaction, name, record),
        Write::PutDrain(host, record) => put(transaction, DRAINS, host.as_str(), serde_json::to_vec(record)),
        Write::DeleteDrain(host) => delete(transaction, DRAINS, host.as_str()),
        Write::PutHostMarks(host, record) => {
            put(transaction, HOST_MARKS, host.as_str(), serde_json::to_vec(record))
        }
        Write::DeleteHostMarks(host) => delete(transaction, HOST_MARKS, host.as_str()),
        Write::PutReplicaMark(host, resource, record) => {
            put(transaction, REPLICA_MARKS, &replica_key(host, resource), serde_json::to_vec(record))
        }
        Write::DeleteReplicaMark(host, resource) => {
            delete(transaction, REPLICA_MARKS, &replica_key(host, resource))
        }
        Write::AmendReplicaMarks(all) => {
            all.iter().try_for_each(|(host, resource, gone)| amend(transaction, host, resource, *gone))
        }
        Write::MoveMarks(from, to) => move_marks(transaction, from, to),
        Write::PutBinding(certificate, host) => {
            put(transaction, BINDINGS, certificate, serde_json::to_vec(host))
        }
        Write::PutLearned(all) => all
            .iter()
            .try_for_each(|of| put(transaction, LEARNED, of.pool.as_str(), serde_json::to_vec(&of.anchors))),
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

fn delete(transaction: &WriteTransaction, table: Rows, key: &str) -> Result<(), redb::Error> {
    transaction.open_table(table)?.remove(key.as_bytes())?;
    Ok(())
}

fn put_pool(transaction: &WriteTransaction, name: &PoolName, record: &PoolRecord) -> Result<(), redb::Error> {
    put(transaction, POOLS, name.as_str(), record.to_row())?;
    put(transaction, POOL_HISTORY, &history_key(name, record.version), record.to_row())?;
    match record.version.checked_sub(VERSIONS_KEPT) {
        Some(outdated) => delete(transaction, POOL_HISTORY, &history_key(name, outdated)),
        None => Ok(()),
    }
}

/// Notes since when a marked replica is gone, if that is news.
fn amend(
    transaction: &WriteTransaction,
    host: &HostId,
    resource: &ResourceId,
    gone_unix_ms: Option<u64>,
) -> Result<(), redb::Error> {
    let key = replica_key(host, resource);
    let row = transaction.open_table(REPLICA_MARKS)?.get(key.as_bytes())?.map(|row| row.value().to_vec());
    let parsed = row.and_then(|row| ReplicaMarkRecord::from_row(&key, &row).ok());
    match parsed {
        Some((_, record)) if record.gone_unix_ms.is_some() != gone_unix_ms.is_some() => {
            let record = ReplicaMarkRecord { gone_unix_ms, ..record };
            put(transaction, REPLICA_MARKS, &key, serde_json::to_vec(&record))
        }
        _ => Ok(()),
    }
}

fn move_marks(transaction: &WriteTransaction, from: &HostId, to: &HostId) -> Result<(), redb::Error> {
    for table in [DRAINS, HOST_MARKS] {
        move_row(transaction, table, from.as_str(), to.as_str())?;
    }
    // No host id holds a slash, and '0' is the character after it: these are the keys that begin with the id and a slash.
    let (first, end) = (format!("{from}/"), format!("{from}0"));
    let mut keys = Vec::new();
    for row in transaction.open_table(REPLICA_MARKS)?.range(first.as_bytes()..end.as_bytes())? {
        keys.push(row?.0.value().to_vec());
    }
    for key in keys.iter().filter_map(|key| std::str::from_utf8(key).ok()) {
        if let Some(resource) = key.strip_prefix(&first) {
            move_row(transaction, REPLICA_MARKS, key, &format!("{to}/{resource}"))?;
        }
    }
    Ok(())
}

fn move_row(transaction: &WriteTransaction, table: Rows, from: &str, to: &str) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(table)?;
    let Some(row) = table.remove(from.as_bytes())?.map(|row| row.value().to_vec()) else { return Ok(()) };
    if table.get(to.as_bytes())?.is_none() {
        table.insert(to.as_bytes(), row.as_slice())?;
    }
    Ok(())
}

/// Settings in force by pool.
type Pools = BTreeMap<PoolName, PoolRecord>;
/// Versions by pool, oldest first.
type Versions = BTreeMap<PoolName, Vec<PoolRecord>>;

/// Brings pools and their history together. What is in force belongs to the history: a store of an earlier build has none.
/// And settings whose own row was damaged are still in the history as they were applied last.
fn with_history(
    transaction: &WriteTransaction,
    mut pools: Pools,
    versions: Vec<((PoolName, u64), PoolRecord)>,
) -> Result<(Pools, Versions), redb::Error> {
    let mut history = Versions::new();
    // In the order of their keys, which is the order of the versions.
    for ((name, _), record) in versions {
        history.entry(name).or_default().push(record);
    }
    for (name, record) in &pools {
        let versions = history.entry(name.clone()).or_default();
        if versions.last().is_none_or(|newest| newest.version < record.version) {
            put(transaction, POOL_HISTORY, &history_key(name, record.version), record.to_row())?;
            versions.push(record.clone());
        }
    }
    for (name, versions) in &history {
        if let Some(newest) = versions.last().filter(|_| !pools.contains_key(name)) {
            tracing::warn!(pool = %name, version = newest.version, "took the settings of a pool from its history");
            put(transaction, POOLS, name.as_str(), newest.to_row())?;
            pools.insert(name.clone(), newest.clone());
        }
    }
    Ok((pools, history))
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
