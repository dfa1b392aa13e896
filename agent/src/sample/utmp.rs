//! Who is logged in, as the utmp file tells it?
//!
//! The fallback of hosts without logind. The file is an array of C structs without any mark of its layout, and there
//! are two: 384 bytes (x86-64, i386, riscv64), and 400 bytes where session and time are 64 bits wide (arm64). A file
//! read in the wrong one yields no users, which would make the host look idle. So the layout is proved by the content:
//! the length must divide by it and every record must be believable in it. When neither or both fit, the file is
//! refused.
//!
//! Records are written by whoever lets a user in, and stay behind when that program is killed, so the process of a
//! record must be alive. Many say the same person: each terminal tab and tmux pane writes one.
//!
//! A file without any record (not even that of the boot) is one that nobody writes, as on musl systems: it says
//! nothing about users, so it is an error, like a file that is not there.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};

use super::error::SampleError;
use super::source::read_bytes;

/// The second is a link to the first on all but very old systems.
const FILES: [&str; 2] = ["run/utmp", "var/run/utmp"];

const SUBJECT: &str = "utmp";

const EMPTY: i16 = 0;
const USER_PROCESS: i16 = 7;
/// `ACCOUNTING`, the highest type that was ever defined.
const HIGHEST_TYPE: i16 = 9;

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

/// The logins in a utmp file whose process `is_alive`.
///
/// # Errors
/// When the file has no record, or its layout cannot be told with certainty.
pub fn parse(bytes: &[u8], is_alive: impl Fn(i32) -> bool) -> Result<Vec<UtmpSession>, SampleError> {
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
    let mut by_line = BTreeMap::new();
    for record in records {
        if record.kind == USER_PROCESS && is_alive(record.pid) {
            // The later record of a terminal is the one that holds it now.
            let Record { line, user, since_unix, .. } = record;
            by_line.insert(line.clone(), UtmpSession { user, line, since_unix });
        }
    }
    Ok(by_line.into_values().collect())
}

/// [`parse`] of the first of `/run/utmp` and `/var/run/utmp` below `root` that exists, with the processes of this
/// machine.
///
/// # Errors
/// As there, and when no file can be read: a missing file says nothing about users.
pub fn read(root: &Path) -> Result<Vec<UtmpSession>, SampleError> {
    let bytes = read_bytes(root, FILES[0]).or_else(|first| match &first {
        SampleError::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            read_bytes(root, FILES[1]).map_err(|_| first)
        }
        _ => Err(first),
    })?;
    parse(&bytes, is_alive)
}

/// Whether a process of this machine runs. One that we may not signal does.
#[must_use]
pub fn is_alive(pid: i32) -> bool {
    // `from_raw` takes 0 as none; below it `kill` would mean groups.
    let Some(pid) = (pid > 0).then(|| Pid::from_raw(pid)).flatten() else {
        return false;
    };
    !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH))
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
mod tests {
    use super::*;
    use std::fs;

    const U1: &[u8] = include_bytes!("fixtures/utmp-384.bin");
    const U2: &[u8] = include_bytes!("fixtures/utmp-400.bin");

    fn alive(pid: i32) -> bool {
        [2001, 2002, 4_194_303].contains(&pid)
    }

    fn users(sessions: &[UtmpSession]) -> Vec<&str> {
        let mut users: Vec<&str> = sessions.iter().map(|session| session.user.as_str()).collect();
        users.dedup();
        users
    }

    #[test]
    fn case_028_029_030_036_only_living_logins_count_in_the_layout_of_384_bytes() {
        let sessions = parse(U1, alive).expect("readable");
        assert_eq!(users(&sessions), ["alice", "carol"]);
        let lines: Vec<&str> = sessions.iter().map(|session| session.line.as_str()).collect();
        assert_eq!(lines, ["pts/0", "pts/1", "pts/3"]);
        assert!(sessions.iter().all(|session| session.since_unix.as_secs() >= 1_767_225_600));
    }

    #[test]
    fn case_032_the_layout_of_400_bytes_gives_the_same() {
        assert_eq!(parse(U2, alive).expect("readable"), parse(U1, alive).expect("readable"));
    }

    #[test]
    fn case_032_a_length_that_fits_both_layouts_is_told_apart_by_content() {
        // 9600 = 25 x 384 = 24 x 400.
        let wide = U2.repeat(3);
        assert_eq!(users(&parse(&wide, alive).expect("readable")), ["alice", "carol"]);
        let mut narrow = U1.repeat(3);
        narrow.extend_from_slice(&U1[..384]);
        assert_eq!(users(&parse(&narrow, alive).expect("readable")), ["alice", "carol"]);
    }

    #[test]
    fn a_cut_or_foreign_file_is_refused() {
        for bad in [&U1[..3071], &U2[..399], &[0xff; 384][..], &b"text".repeat(96)[..]] {
            assert!(parse(bad, alive).is_err(), "{} bytes", bad.len());
        }
    }

    #[test]
    fn a_file_without_records_is_unknown_not_zero() {
        for bytes in [0, 384, 9600] {
            let error = parse(&vec![0; bytes], alive).expect_err("unknown");
            assert!(error.to_string().contains("nothing on this host writes it"), "{error}");
        }
    }

    #[test]
    fn a_boot_record_alone_means_nobody_is_logged_in() {
        assert_eq!(parse(&U1[..384], alive).expect("readable"), []);
    }

    #[test]
    fn case_034_a_missing_file_is_an_error() {
        let root = tempfile::tempdir().expect("a folder");
        let error = read(root.path()).expect_err("unknown");
        assert!(super::super::error::describe(&error).contains("run/utmp"), "{error}");
    }

    #[test]
    fn the_old_place_is_read_when_the_new_one_is_missing() {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(root.path().join("var/run")).expect("made");
        fs::write(root.path().join("var/run/utmp"), &U1[..384]).expect("written");
        assert_eq!(read(root.path()).expect("readable"), []);
    }

    #[test]
    fn case_030_a_process_we_may_not_signal_is_alive() {
        assert!(is_alive(i32::try_from(std::process::id()).expect("a pid")));
        assert!(is_alive(1));
        for none in [0, -1, i32::MIN, i32::MAX] {
            assert!(!is_alive(none), "{none}");
        }
    }
}
