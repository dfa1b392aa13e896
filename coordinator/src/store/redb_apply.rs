//! How a change becomes rows of the redb file.

use redb::{ReadableTable, TableHandle, WriteTransaction};
use usher_types::{HostId, PoolName, ResourceId};

use super::{
    DrainRecord, PoolRecord, ReplicaMarkRecord, VERSIONS_KEPT, Write,
    mark_record::replica_key,
    pool_record::history_key,
    redb_store::{
        BINDINGS, COPIED, DRAINS, HOST_MARKS, LAST_KNOWN, LEARNED, OWED, POOL_HISTORY, POOLS, REPLICA_MARKS,
        Rows,
    },
    shared_rows::Change,
};

pub(super) fn apply(transaction: &WriteTransaction, write: &Write) -> Result<(), redb::Error> {
    match write {
        Write::PutPool(name, record) => put_pool(transaction, name, record),
        Write::PutDrain(host, record) => put(transaction, DRAINS, host.as_str(), serde_json::to_vec(record)),
        Write::DeleteDrainSetAt(host, set_unix_ms) => end_drain(transaction, host, *set_unix_ms),
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
        Write::PutBinding(certificate, host) | Write::Bind { certificate, host, .. } => {
            put(transaction, BINDINGS, certificate, serde_json::to_vec(host))
        }
        Write::Follow(changes) => changes.iter().try_for_each(|change| follow(transaction, change)),
        Write::ReplaceShared(rows) => {
            SHARED.iter().try_for_each(|table| clear(transaction, *table))?;
            rows.changes().iter().try_for_each(|change| follow(transaction, change))
        }
        Write::PutOwed(number, owed) => put(transaction, OWED, &owed_key(*number), serde_json::to_vec(owed)),
        Write::DeleteOwed(number) => delete(transaction, OWED, &owed_key(*number)),
        Write::PutCopied(copied) => put(transaction, COPIED, COPIED_KEY, serde_json::to_vec(copied)),
        Write::PutLearned(all) => all
            .iter()
            .try_for_each(|of| put(transaction, LEARNED, of.pool.as_str(), serde_json::to_vec(&of.anchors))),
        Write::PutLastKnown(hosts) => {
            clear(transaction, LAST_KNOWN)?;
            hosts
                .iter()
                .try_for_each(|host| put(transaction, LAST_KNOWN, host.host_id.as_str(), host.to_row()))
        }
    }
}

/// The only row of its table.
const COPIED_KEY: &str = "copied";

/// In the order in which they are owed.
fn owed_key(number: u64) -> String {
    format!("{number:020}")
}

pub(super) fn put(
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

fn clear(transaction: &WriteTransaction, table: Rows) -> Result<(), redb::Error> {
    transaction.delete_table(table)?;
    transaction.open_table(table)?;
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

/// The tables of what coordinators share.
const SHARED: [Rows; 6] = [POOLS, POOL_HISTORY, DRAINS, HOST_MARKS, REPLICA_MARKS, BINDINGS];

fn follow(transaction: &WriteTransaction, change: &Change) -> Result<(), redb::Error> {
    let (table, key) = change.place();
    let Some(table) = SHARED.into_iter().find(|shared| shared.name() == table) else { return Ok(()) };
    match change.value() {
        Some(row) => put(transaction, table, &key, row),
        None => delete(transaction, table, &key),
    }
}

/// Ends a drain, if it is the one that was set then.
fn end_drain(transaction: &WriteTransaction, host: &HostId, set_unix_ms: u64) -> Result<(), redb::Error> {
    let key = host.as_str();
    let row = transaction.open_table(DRAINS)?.get(key.as_bytes())?.map(|row| row.value().to_vec());
    match row.and_then(|row| DrainRecord::from_row(key, &row).ok()) {
        Some((_, drain)) if drain.set_unix_ms == set_unix_ms => delete(transaction, DRAINS, key),
        _ => Ok(()),
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
    for key in keys_below(transaction, REPLICA_MARKS, from.as_str())? {
        if let Some(resource) = key.strip_prefix(from.as_str()) {
            move_row(transaction, REPLICA_MARKS, &key, &format!("{to}{resource}"))?;
        }
    }
    Ok(())
}

/// The keys that begin with `name` and a slash. Neither hosts' ids nor pools' names hold one.
fn keys_below(transaction: &WriteTransaction, table: Rows, name: &str) -> Result<Vec<String>, redb::Error> {
    // '0' is the character after the slash.
    let (first, end) = (format!("{name}/"), format!("{name}0"));
    let mut keys = Vec::new();
    for row in transaction.open_table(table)?.range(first.as_bytes()..end.as_bytes())? {
        keys.extend(String::from_utf8(row?.0.value().to_vec()));
    }
    Ok(keys)
}

fn move_row(transaction: &WriteTransaction, table: Rows, from: &str, to: &str) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(table)?;
    let Some(row) = table.remove(from.as_bytes())?.map(|row| row.value().to_vec()) else { return Ok(()) };
    if table.get(to.as_bytes())?.is_none() {
        table.insert(to.as_bytes(), row.as_slice())?;
    }
    Ok(())
}
