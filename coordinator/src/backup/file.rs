//! The file: how it is written, and what makes it none.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::store::{Change, SharedRows};

/// Version of the form of the file.
const FORMAT: u32 = 1;
/// Between a row's key and the row. No text before it can hold it: its quotes would be escaped.
const ROW: &str = ",\"row\":";
/// Much of a line that is wrong is not repeated.
const SHOWN_CHARS: usize = 60;

/// What a backup is of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    /// Version of the form of the file.
    pub usher_backup: u32,
    /// The farm.
    pub farm: String,
    /// The coordinator that made it.
    pub coordinator_id: String,
    /// When, RFC 3339.
    pub created: String,
    /// The build that made it.
    pub version: String,
    /// The kind of its store: `redb`, `etcd`.
    pub store: String,
    /// Rows of that store that could not be read: they are not in it.
    #[serde(default)]
    pub set_aside: usize,
}

impl Header {
    /// Of the present form.
    pub(crate) fn new(
        farm: &str,
        coordinator_id: &str,
        created: String,
        store: &str,
        set_aside: usize,
    ) -> Self {
        Self {
            usher_backup: FORMAT,
            farm: farm.to_owned(),
            coordinator_id: coordinator_id.to_owned(),
            created,
            version: crate::VERSION.to_owned(),
            store: store.to_owned(),
            set_aside,
        }
    }
}

/// A backup, whole and checked.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Backup {
    /// What it is of.
    pub header: Header,
    /// Everything that was decided.
    pub rows: SharedRows,
    /// How many rows that is.
    pub count: u64,
}

/// The last line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    end: Sum,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sum {
    rows: u64,
    sha256: String,
}

/// Where a row belongs.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    table: String,
    key: String,
}

/// Why a file is no backup that can be restored.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(crate) enum Wrong {
    /// It is something else.
    #[error("it is no backup of an usher coordinator: its first line is {0}")]
    Foreign(String),
    /// A later version made it.
    #[error(
        "it has format {found}, this version reads format {FORMAT}: restore it with the version that made it ({version})"
    )]
    Newer {
        /// Its format.
        found: u32,
        /// Who made it.
        version: String,
    },
    /// It has no last line.
    #[error("it was cut off: its last line, which says what it must hold, is missing")]
    Cut,
    /// It is not as it was made.
    #[error("it was changed or cut since it was made: its last line says {said}, but it holds {held}")]
    Changed {
        /// What its last line says.
        said: String,
        /// What is there.
        held: String,
    },
    /// A row that this version cannot use.
    #[error("line {line}: {why}")]
    Row {
        /// Which, from 1.
        line: usize,
        /// Why.
        why: String,
    },
}

/// The file of these rows.
///
/// # Errors
/// If a row cannot be written as JSON: a bug of ours.
pub(crate) fn write(header: &Header, rows: &SharedRows) -> serde_json::Result<Vec<u8>> {
    let mut file = serde_json::to_vec(header)?;
    file.push(b'\n');
    let mut count = 0;
    for change in rows.changes() {
        let (table, key) = change.place();
        // Nothing is gone among all rows.
        let Some(row) = change.value() else { continue };
        let place = serde_json::to_vec(&Place { table: table.to_owned(), key })?;
        // Without its closing brace, which comes after the row.
        file.extend_from_slice(&place[..place.len() - 1]);
        file.extend_from_slice(ROW.as_bytes());
        file.extend_from_slice(&row?);
        file.extend_from_slice(b"}\n");
        count += 1;
    }
    let end = End { end: Sum { rows: count, sha256: sha256(&file) } };
    file.extend_from_slice(&serde_json::to_vec(&end)?);
    file.push(b'\n');
    Ok(file)
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Backup {
    /// Reads a whole file.
    ///
    /// # Errors
    /// [`Wrong`]: nothing of it is to be used then.
    pub(crate) fn read(file: &[u8]) -> Result<Self, Wrong> {
        let first = file.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let header = header(first)?;
        let body = file.strip_suffix(b"\n").ok_or(Wrong::Cut)?;
        let (body, last) = match body.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => body.split_at(at + 1),
            None => return Err(Wrong::Cut),
        };
        let End { end: Sum { rows: said, sha256: sum } } =
            serde_json::from_slice(last).map_err(|_| Wrong::Cut)?;
        if sha256(body) != sum {
            let said = format!("{said} rows with SHA-256 {}", shown(sum.as_bytes()));
            return Err(Wrong::Changed { said, held: format!("something with {}", sha256(body)) });
        }
        let rows = rows(&body[first.len() + 1..])?;
        // The same key twice would be one row here.
        let count = rows.changes().len() as u64;
        if count != said {
            let (said, held) = (format!("{said} rows"), format!("{count} different ones"));
            return Err(Wrong::Changed { said, held });
        }
        Ok(Self { header, rows, count })
    }
}

/// What a file says of itself, once its form is known to be ours.
fn header(line: &[u8]) -> Result<Header, Wrong> {
    #[derive(Deserialize)]
    struct Form {
        usher_backup: u32,
        #[serde(default)]
        version: String,
    }
    let foreign = || Wrong::Foreign(shown(line));
    let form: Form = serde_json::from_slice(line).map_err(|_| foreign())?;
    if form.usher_backup != FORMAT {
        return Err(Wrong::Newer { found: form.usher_backup, version: shown(form.version.as_bytes()) });
    }
    serde_json::from_slice(line).map_err(|_| foreign())
}

fn rows(body: &[u8]) -> Result<SharedRows, Wrong> {
    let mut rows = SharedRows::default();
    for (number, line) in body.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
        let change = row(line).map_err(|why| Wrong::Row { line: number + 2, why })?;
        rows.follow(change);
    }
    Ok(rows)
}

fn row(line: &[u8]) -> Result<Change, String> {
    let text = std::str::from_utf8(line).map_err(|_| "it is no text".to_owned())?;
    let (place, row) = text.split_once(ROW).ok_or_else(|| format!("{} is no row", shown(line)))?;
    let row = row.strip_suffix('}').ok_or_else(|| format!("{} is no whole row", shown(line)))?;
    let place = format!("{place}}}");
    let Place { table, key } = serde_json::from_str(&place).map_err(|error| error.to_string())?;
    let change = Change::from_row(&format!("{table}/{key}"), Some(row.as_bytes()));
    let name = || format!("row {} of table {}", shown(key.as_bytes()), shown(table.as_bytes()));
    match change {
        Ok(Some(change)) => Ok(change),
        Ok(None) => Err(format!("{}: this version has no such table", name())),
        Err(why) => Err(format!("{}: {why}", name())),
    }
}

/// The beginning of what came from outside, fit for a terminal.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut shown: String = text.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push_str("...");
    }
    format!("\"{shown}\"")
}
