//! Who is logged in, as the utmp file tells it?
//!
//! The fallback of hosts without logind. The file is an array of C structs without any mark of its layout, and there
//! are two: 384 bytes (x86-64, i386, riscv64), and 400 bytes where session and time are 64 bits wide (arm64). A file
//! read in the wrong one yields no users, which would make the host look idle. So the layout is proved by the content:
//! the length must divide by it and every record must be believable in it. When neither or both fit, the file is
//! refused.
//!
//! Records are written by whoever lets a user in, and stay behind when that program is killed, so the process of a
//! record must be alive, and it must not be younger than the record: then its number was given to another. A record from
//! before the boot is not of this system's life. Many records say the same person: each terminal tab and tmux pane
//! writes one.
//!
//! Times are of the wall clock, which can have been set since; the file's own record of the boot and the kernel's word
//! for it then differ. The earlier of the two is believed: a ghost more is a smaller harm than a user less.
//!
//! A file without any record (not even that of the boot) is one that nobody writes, as on musl systems: it says
//! nothing about users, so it is an error, like a file that is not there.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::error::SampleError;
use super::pids::{self, Life};
use super::source::read_bytes;

/// The second is a link to the first on all but very old systems.
const FILES: [&str; 2] = ["run/utmp", "var/run/utmp"];

const SUBJECT: &str = "utmp";

const EMPTY: i16 = 0;
const BOOT_TIME: i16 = 2;
const USER_PROCESS: i16 = 7;
/// `ACCOUNTING`, the highest type that was ever defined.
const HIGHEST_TYPE: i16 = 9;

/// How far two clocks, or the steps of one login, may lie apart: a login waits for passwords, a clock is set at boot.
const SLACK: Duration = Duration::from_secs(60);

/// One login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UtmpSession {
    /// Login name.
    pub user: String,
    /// Terminal, such as `pts/3`: one session per line.
    pub line: String,
    /// Begin, since 1970 UTC on the host's wall clock.
    pub since_unix: Duration,
}

/// How the records lie in the file. All offsets but these are the same in both.
struct Layout {
    record_bytes: usize,
    /// Width of `tv_sec` and `tv_usec`.
    time_bytes: usize,
    seconds_at: usize,
    micros_at: usize,
}

const LAYOUTS: [Layout; 2] = [
    Layout { record_bytes: 384, time_bytes: 4, seconds_at: 340, micros_at: 344 },
    Layout { record_bytes: 400, time_bytes: 8, seconds_at: 344, micros_at: 352 },
];

#[derive(Debug, PartialEq, Eq)]
struct Record {
    kind: i16,
    pid: i32,
    line: String,
    user: String,
    since_unix: Duration,
}

/// The logins in a utmp file that still go on. `booted_unix` is when the system came up as its kernel says, `life` what
/// became of a process.
///
/// # Errors
/// When the file has no record, or its layout cannot be told with certainty.
pub fn parse(
    bytes: &[u8],
    booted_unix: Option<Duration>,
    life: impl Fn(i32) -> Life,
) -> Result<Vec<UtmpSession>, SampleError> {
    let records = certain_records(bytes)?;
    let recorded_boot = records.iter().filter(|r| r.kind == BOOT_TIME).map(|r| r.since_unix).max();
    let booted_unix = recorded_boot.into_iter().chain(booted_unix).min().unwrap_or_default();
    let mut by_line = BTreeMap::new();
    for record in records {
        if record.kind == USER_PROCESS && goes_on(&record, booted_unix, life(record.pid)) {
            // The later record of a terminal is the one that holds it now.
            let Record { line, user, since_unix, .. } = record;
            by_line.insert(line.clone(), UtmpSession { user, line, since_unix });
        }
    }
    Ok(by_line.into_values().collect())
}

/// The records, in the only layout in which they can be believed.
fn certain_records(bytes: &[u8]) -> Result<Vec<Record>, SampleError> {
    if bytes.is_empty() {
        return Err(SampleError::malformed(SUBJECT, "has no record: nothing on this host writes it"));
    }
    let mut readings: Vec<Vec<Record>> = LAYOUTS.iter().filter_map(|layout| records(bytes, layout)).collect();
    readings.dedup();
    let records = match (readings.pop(), readings.pop()) {
        (Some(records), None) => records,
        (None, _) => {
            let problem = format!("{} bytes that are no records of 384 or 400 bytes", bytes.len());
            return Err(SampleError::malformed(SUBJECT, problem));
        }
        (Some(_), Some(_)) => {
            return Err(SampleError::malformed(SUBJECT, "could be records of 384 or of 400 bytes"));
        }
    };
    if records.is_empty() {
        return Err(SampleError::malformed(
            SUBJECT,
            "has only empty records: nothing on this host writes it",
        ));
    }
    Ok(records)
}

/// Whether the login of a record is of this boot, and its process still the one that was written down.
fn goes_on(record: &Record, booted_unix: Duration, life: Life) -> bool {
    let Life::Alive { since_boot } = life else { return false };
    let Some(into_boot) = record.since_unix.saturating_add(SLACK).checked_sub(booted_unix) else {
        return false;
    };
    // Without a boot to count from, the age of the process says nothing.
    booted_unix.is_zero() || since_boot.is_none_or(|since_boot| since_boot <= into_boot)
}

/// [`parse`] of the first of `/run/utmp` and `/var/run/utmp` below `root` that exists, with the processes there.
///
/// # Errors
/// As there, and when no file can be read: a missing file says nothing about users.
pub fn read(root: &Path, booted_unix: Option<Duration>) -> Result<Vec<UtmpSession>, SampleError> {
    let bytes = read_bytes(root, FILES[0]).or_else(|first| match &first {
        SampleError::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            read_bytes(root, FILES[1]).map_err(|_| first)
        }
        _ => Err(first),
    })?;
    parse(&bytes, booted_unix, |pid| pids::look(root, pid))
}

/// All records that are not empty, if every one is believable in this layout.
fn records(bytes: &[u8], layout: &Layout) -> Option<Vec<Record>> {
    if !bytes.len().is_multiple_of(layout.record_bytes) {
        return None;
    }
    bytes
        .chunks_exact(layout.record_bytes)
        .map(|chunk| record(chunk, layout))
        .filter(|record| !is_empty(record))
        .collect()
}

fn is_empty(record: &Option<Record>) -> bool {
    record.as_ref().is_some_and(|record| record.kind == EMPTY)
}

fn record(chunk: &[u8], layout: &Layout) -> Option<Record> {
    let kind = i16::from_ne_bytes(chunk.get(0..2)?.try_into().ok()?);
    let pid = i32::from_ne_bytes(chunk.get(4..8)?.try_into().ok()?);
    let seconds = u64::try_from(integer(chunk, layout.seconds_at, layout.time_bytes)?).ok()?;
    let micros = u32::try_from(integer(chunk, layout.micros_at, layout.time_bytes)?).ok()?;
    if !(EMPTY..=HIGHEST_TYPE).contains(&kind) || pid < 0 || micros >= 1_000_000 {
        return None;
    }
    // A record read at a wrong offset mostly looks empty, with other bytes further on.
    if kind == EMPTY && chunk.iter().any(|&byte| byte != 0) {
        return None;
    }
    let (line, user) = (word(chunk.get(8..40)?)?, word(chunk.get(44..76)?)?);
    if kind == USER_PROCESS && (line.is_empty() || user.is_empty() || pid == 0 || seconds == 0) {
        return None;
    }
    Some(Record { kind, pid, line, user, since_unix: Duration::new(seconds, micros * 1000) })
}

fn integer(chunk: &[u8], at: usize, width: usize) -> Option<i64> {
    let bytes = chunk.get(at..at + width)?;
    match width {
        4 => Some(i64::from(i32::from_ne_bytes(bytes.try_into().ok()?))),
        _ => Some(i64::from_ne_bytes(bytes.try_into().ok()?)),
    }
}

/// A name that ends with NUL or fills its field; `None` if it is not one that a system would give.
fn word(field: &[u8]) -> Option<String> {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    let text = std::str::from_utf8(field.get(..end)?).ok()?;
    (!text.chars().any(char::is_control)).then(|| text.to_owned())
}

#[cfg(test)]
#[path = "utmp_tests.rs"]
mod tests;
