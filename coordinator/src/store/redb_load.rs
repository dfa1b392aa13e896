//! How the rows of the redb file become what is known, and where the unreadable ones go.

use std::collections::BTreeMap;

use redb::{ReadTransaction, ReadableTable, TableError, WriteTransaction};
use usher_placement::farm::LearnedRecord;
use usher_types::{HostId, PoolName};

use super::{
    Aside, DrainRecord, HostMarksRecord, LastKnown, Meta, PoolRecord, Quarantined, ReplicaMarkRecord, Stored,
    pool_record::history_key,
    record::{Parsed, binding_from_row, copied_from_row, learned_from_row, owed_from_row},
    redb_apply::put,
    redb_store::{
        BINDINGS, COPIED, DRAINS, HOST_MARKS, LAST_KNOWN, LEARNED, OWED, POOL_HISTORY, POOLS, QUARANTINE,
        QUARANTINE_NOTES, REPLICA_MARKS, Rows,
    },
};

/// What a load found that the file should have otherwise.
#[derive(Default)]
pub(super) struct Mending {
    bad: Vec<BadRow>,
    /// Versions that the history lacks, and pools whose own rows are lost.
    versions: Vec<(PoolName, PoolRecord)>,
    pools: Vec<(PoolName, PoolRecord)>,
}

/// A row that is not used, and why.
struct BadRow {
    table: &'static str,
    definition: Rows,
    key: Vec<u8>,
    value: Vec<u8>,
    why: String,
}

/// Everything, and what is to be mended in the file. Nothing is written: a disk that is full keeps nobody from reading.
pub(super) fn load(transaction: &ReadTransaction, meta: Meta) -> Result<(Stored, Mending), redb::Error> {
    let mut loading = Loading { transaction, mending: Mending::default() };
    let pools = loading.table(("pools", POOLS), PoolRecord::from_row)?;
    let versions = loading.table(("pool_history", POOL_HISTORY), PoolRecord::from_history_row)?;
    let drains = loading.table(("drains", DRAINS), DrainRecord::from_row)?;
    let host_marks = loading.table(("host_marks", HOST_MARKS), HostMarksRecord::from_row)?;
    let replica_marks = loading.table(("replica_marks", REPLICA_MARKS), ReplicaMarkRecord::from_row)?;
    let bindings = loading.table(("bindings", BINDINGS), binding_from_row)?;
    let last_known = loading.last_known()?;
    let learned = loading.table(("learned", LEARNED), learned_from_row)?;
    let owed = loading.table(("owed", OWED), owed_from_row)?;
    let copied = loading.table(("copied", COPIED), copied_from_row)?;
    let mut mending = loading.mending;
    let (pools, history) = with_history(pools.into_iter().collect(), versions, &mut mending);
    let aside = |row: &BadRow| Quarantined {
        table: row.table,
        key: String::from_utf8_lossy(&row.key).into_owned(),
        why: row.why.clone(),
    };
    let stored = Stored {
        meta,
        pools,
        history,
        drains: drains.into_iter().collect(),
        host_marks: host_marks.into_iter().collect(),
        replica_marks: replica_marks.into_iter().collect(),
        bindings: bindings.into_iter().collect(),
        last_known,
        learned: learned.into_iter().map(|(pool, anchors)| LearnedRecord { pool, anchors }).collect(),
        owed: owed.into_iter().collect(),
        copied: copied.into_iter().map(|(_, copied)| copied).next(),
        quarantined: mending.bad.iter().map(aside).collect(),
    };
    Ok((stored, mending))
}

struct Loading<'a> {
    transaction: &'a ReadTransaction,
    mending: Mending,
}

impl Loading<'_> {
    /// The readable rows of a table; the others are to be set aside.
    fn table<K, V>(
        &mut self,
        (table, definition): (&'static str, Rows),
        parse: impl Fn(&str, &[u8]) -> Parsed<K, V>,
    ) -> Result<Vec<(K, V)>, redb::Error> {
        let mut rows = Vec::new();
        let Some(all) = table_if_any(self.transaction, definition)? else { return Ok(rows) };
        for row in all.iter()? {
            let (key, value) = row?;
            match parse_text(key.value(), value.value(), &parse) {
                Ok(row) => rows.push(row),
                Err(why) => {
                    let (key, value) = (key.value().to_vec(), value.value().to_vec());
                    self.mending.bad.push(BadRow { table, definition, key, value, why });
                }
            }
        }
        Ok(rows)
    }

    /// The last-known values: of two rows of one host the newer one counts.
    fn last_known(&mut self) -> Result<Vec<LastKnown>, redb::Error> {
        let mut hosts: BTreeMap<HostId, (String, LastKnown)> = BTreeMap::new();
        let with_key = |key: &str, value: &[u8]| {
            LastKnown::from_row(key, value).map(|(host_id, host)| (host_id, (key.to_owned(), host)))
        };
        for (host_id, row) in self.table(("last_known", LAST_KNOWN), with_key)? {
            let Some(other) = hosts.remove(&host_id) else {
                hosts.insert(host_id, row);
                continue;
            };
            let is_newer = row.1.stored_unix_ms > other.1.stored_unix_ms;
            let (newer, older) = if is_newer { (row, other) } else { (other, row) };
            self.mending.bad.push(BadRow {
                table: "last_known",
                definition: LAST_KNOWN,
                key: older.0.into_bytes(),
                value: older.1.to_row().unwrap_or_default(),
                why: format!("there is a newer row of host {host_id}"),
            });
            hosts.insert(host_id, newer);
        }
        Ok(hosts.into_values().map(|(_, host)| host).collect())
    }
}

impl Mending {
    pub(super) fn is_empty(&self) -> bool {
        self.bad.is_empty() && self.versions.is_empty() && self.pools.is_empty()
    }

    /// Moves the unreadable aside, and writes what was lost and is known.
    pub(super) fn apply(&self, transaction: &WriteTransaction, now_unix_ms: u64) -> Result<(), redb::Error> {
        for row in &self.bad {
            transaction.open_table(row.definition)?.remove(row.key.as_slice())?;
            let aside = [row.table.as_bytes(), b"/", &row.key].concat();
            let note = Note { why: row.why.clone(), since_unix_ms: now_unix_ms, revision: None };
            put_aside(transaction, &aside, &row.value, &note)?;
        }
        for (name, record) in &self.versions {
            put(transaction, POOL_HISTORY, &history_key(name, record.version), record.to_row())?;
        }
        for (name, record) in &self.pools {
            put(transaction, POOLS, name.as_str(), record.to_row())?;
        }
        Ok(())
    }
}

fn parse_text<K, V>(key: &[u8], value: &[u8], parse: &impl Fn(&str, &[u8]) -> Parsed<K, V>) -> Parsed<K, V> {
    let text = std::str::from_utf8(key).map_err(|_| "the key is no text".to_owned())?;
    parse(text, value)
}

/// What is known of a row in quarantine. An earlier build wrote none.
#[derive(serde::Serialize, serde::Deserialize)]
struct Note {
    why: String,
    since_unix_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    revision: Option<u64>,
}

fn put_aside(
    transaction: &WriteTransaction,
    key: &[u8],
    value: &[u8],
    note: &Note,
) -> Result<(), redb::Error> {
    transaction.open_table(QUARANTINE)?.insert(key, value)?;
    let note = serde_json::to_vec(note).map_err(|error| redb::Error::Io(error.into()))?;
    transaction.open_table(QUARANTINE_NOTES)?.insert(key, note.as_slice())?;
    Ok(())
}

/// Puts rows of the shared store in quarantine, which stay where they are too.
pub(super) fn set_shared_aside(transaction: &WriteTransaction, rows: &[Aside]) -> Result<(), redb::Error> {
    rows.iter().try_for_each(|row| {
        let note = Note {
            why: row.why.clone(),
            since_unix_ms: row.since_unix_ms.unwrap_or(0),
            revision: row.revision,
        };
        put_aside(transaction, format!("{}/{}", row.table, row.key).as_bytes(), &row.value, &note)
    })
}

/// Every row in quarantine.
pub(super) fn quarantine(transaction: &ReadTransaction) -> Result<Vec<Aside>, redb::Error> {
    let Some(aside) = table_if_any(transaction, QUARANTINE)? else { return Ok(Vec::new()) };
    let notes = table_if_any(transaction, QUARANTINE_NOTES)?;
    let mut rows = Vec::new();
    for row in aside.iter()? {
        let (key, value) = row?;
        let note = notes.as_ref().map(|notes| notes.get(key.value())).transpose()?.flatten();
        let note = note.and_then(|note| serde_json::from_slice::<Note>(note.value()).ok());
        let text = String::from_utf8_lossy(key.value()).into_owned();
        let (table, rest) = text.split_once('/').unwrap_or(("", &text));
        rows.push(Aside {
            table: table.to_owned(),
            key: rest.to_owned(),
            value: value.value().to_vec(),
            why: note.as_ref().map(|note| note.why.clone()).unwrap_or_default(),
            since_unix_ms: note.as_ref().map(|note| note.since_unix_ms),
            revision: note.and_then(|note| note.revision),
        });
    }
    Ok(rows)
}

type ReadTable = redb::ReadOnlyTable<&'static [u8], &'static [u8]>;

/// A table, unless a store of an earlier build has none.
fn table_if_any(transaction: &ReadTransaction, table: Rows) -> Result<Option<ReadTable>, redb::Error> {
    match transaction.open_table(table) {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Forgets a row in quarantine for good. Whether there was one.
pub(super) fn drop_aside(
    transaction: &WriteTransaction,
    table: &str,
    key: &str,
) -> Result<bool, redb::Error> {
    let mut aside = transaction.open_table(QUARANTINE)?;
    // As it is shown: what is no text is shown with its replacement characters.
    let wanted = format!("{table}/{key}");
    let mut found = Vec::new();
    for row in aside.iter()? {
        let row = row?.0.value().to_vec();
        if String::from_utf8_lossy(&row) == wanted {
            found.push(row);
        }
    }
    let mut notes = transaction.open_table(QUARANTINE_NOTES)?;
    for row in &found {
        aside.remove(row.as_slice())?;
        notes.remove(row.as_slice())?;
    }
    Ok(!found.is_empty())
}

/// Settings in force by pool.
type Pools = BTreeMap<PoolName, PoolRecord>;
/// Versions by pool, oldest first.
type Versions = BTreeMap<PoolName, Vec<PoolRecord>>;

/// Brings pools and their history together. What is in force belongs to the history: a store of an earlier build has none.
/// And settings whose own row was damaged are still in the history as they were applied last.
fn with_history(
    mut pools: Pools,
    versions: Vec<((PoolName, u64), PoolRecord)>,
    mending: &mut Mending,
) -> (Pools, Versions) {
    let mut history = Versions::new();
    // In the order of their keys, which is the order of the versions.
    for ((name, _), record) in versions {
        history.entry(name).or_default().push(record);
    }
    for (name, record) in &pools {
        let versions = history.entry(name.clone()).or_default();
        if versions.last().is_none_or(|newest| newest.version < record.version) {
            mending.versions.push((name.clone(), record.clone()));
            versions.push(record.clone());
        }
    }
    for (name, versions) in &history {
        if let Some(newest) = versions.last().filter(|_| !pools.contains_key(name)) {
            tracing::warn!(pool = %name, version = newest.version, "took the settings of a pool from its history");
            mending.pools.push((name.clone(), newest.clone()));
            pools.insert(name.clone(), newest.clone());
        }
    }
    (pools, history)
}
