//! Who is logged in, as logind's own files tell it?
//!
//! logind writes what it knows of each session into a file below `/run/systemd/sessions`, for the library that answers
//! programs which do not use D-Bus. They are read where the bus does not answer: in a container that sees the files and
//! not the bus, and in a copy of a machine's files.
//!
//! The folder is there on machines without logind, too. A running logind has at least one seat, so a folder without any
//! session says "nobody" only beside a seat. A file that lacks what decides makes the whole list unknown.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::error::SampleError;
use super::logind::LogindRow;
use super::source::read_optional_text;

const SESSIONS: &str = "run/systemd/sessions";
const SEATS: &str = "run/systemd/seats";
const SUBJECT: &str = "/run/systemd/sessions";
/// Far above any host's; below what a hostile folder could make the agent read each second.
const MAX_SESSIONS: usize = 100_000;

/// All sessions below `root`. Blocks.
///
/// # Errors
/// When the folder cannot be read, a file in it lacks what decides, or nothing says that logind runs there.
pub fn read(root: &Path) -> Result<Vec<LogindRow>, SampleError> {
    let folder = root.join(SESSIONS);
    let failed = |source: io::Error| SampleError::Read { path: folder.clone(), source };
    let mut rows = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(id) = entry.file_name().into_string() else { continue };
        // Beside a session lies its pipe, `16.ref`; a file that is being written begins with a dot.
        if id.contains('.') || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        if rows.len() >= MAX_SESSIONS {
            return Err(SampleError::malformed(SUBJECT, format!("more than {MAX_SESSIONS} sessions")));
        }
        // One that has ended since it was listed is no session any more.
        if let Some(text) = read_optional_text(root, &format!("{SESSIONS}/{id}"))? {
            rows.push(parse(&id, &text)?);
        }
    }
    let has_seat = || fs::read_dir(root.join(SEATS)).is_ok_and(|mut seats| seats.next().is_some());
    if rows.is_empty() && !has_seat() {
        return Err(SampleError::malformed(SUBJECT, "has no session, and no seat: logind does not run"));
    }
    // Folders list in an order of their own.
    rows.sort_by(|a, b| (a.id.len(), &a.id).cmp(&(b.id.len(), &b.id)));
    Ok(rows)
}

/// Reads the text of one session's file.
///
/// # Errors
/// When the user, the class or the state is missing, or a number is none.
pub fn parse(id: &str, text: &str) -> Result<LogindRow, SampleError> {
    let malformed = |problem: &str| SampleError::malformed(SUBJECT, format!("session `{id}` {problem}"));
    let value = |key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?.trim();
        Some(value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value))
    };
    let word = |key: &str| {
        let word = value(key).filter(|word| !word.is_empty() && !word.chars().any(char::is_control));
        word.map(str::to_owned).ok_or_else(|| malformed(&format!("has no {key}")))
    };
    let uid =
        value("UID").map(str::parse).transpose().map_err(|_| malformed("has a UID that is no number"))?;
    let since_us = value("MONOTONIC").and_then(|value| value.parse().ok()).filter(|&since_us| since_us > 0);
    Ok(LogindRow {
        id: id.to_owned(),
        uid,
        user: word("USER")?,
        class: word("CLASS")?,
        state: word("STATE")?,
        service: value("SERVICE").unwrap_or_default().to_owned(),
        scope: value("SCOPE").unwrap_or_default().to_owned(),
        remote: value("REMOTE") == Some("1"),
        since_monotonic: since_us.map(Duration::from_micros),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::test_tree::tree;
    use proptest::prelude::*;
    use rustix::fs::{CWD, FileType, mknodat};

    const CAROL: &str = "# This is private data. Do not parse.\nUID=1003\nUSER=carol\nACTIVE=1\nIS_DISPLAY=0\n\
                         STATE=online\nREMOTE=1\nLEADER_FD_SAVED=1\nTYPE=tty\nORIGINAL_TYPE=tty\nCLASS=user\n\
                         SCOPE=session-16.scope\nREMOTE_HOST=192.0.2.7\nSERVICE=sshd\nLEADER=2345\n\
                         REALTIME=1767225700000000\nMONOTONIC=100000000\n";

    #[test]
    fn a_file_says_what_the_bus_would() {
        let row = parse("16", CAROL).unwrap();
        let expected = LogindRow {
            id: "16".into(),
            uid: Some(1003),
            user: "carol".into(),
            class: "user".into(),
            state: "online".into(),
            service: "sshd".into(),
            scope: "session-16.scope".into(),
            remote: true,
            since_monotonic: Some(Duration::from_secs(100)),
        };
        assert_eq!(row, expected);
    }

    #[test]
    fn pipes_and_half_written_files_are_passed_over() {
        let root = tree(&[
            ("run/systemd/sessions/16", CAROL),
            ("run/systemd/sessions/.#17abc", "USER=x"),
            ("run/systemd/sessions/c2", CAROL),
            ("run/systemd/sessions/9", CAROL),
        ]);
        let pipe = root.path().join("run/systemd/sessions/16.ref");
        mknodat(CWD, &pipe, FileType::Fifo, 0o600.into(), 0).unwrap();
        let rows = read(root.path()).unwrap();
        assert_eq!(rows.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["9", "16", "c2"]);
    }

    #[test]
    fn case_034_an_empty_folder_says_nobody_only_where_logind_runs() {
        let empty = tree(&[("run/systemd/x", "")]);
        assert!(read(empty.path()).is_err(), "no folder");
        fs::create_dir(empty.path().join(SESSIONS)).unwrap();
        assert!(read(empty.path()).unwrap_err().to_string().contains("does not run"));
        fs::create_dir(empty.path().join(SEATS)).unwrap();
        fs::write(empty.path().join(SEATS).join("seat0"), "").unwrap();
        assert_eq!(read(empty.path()).unwrap(), []);
    }

    #[test]
    fn a_file_that_lacks_what_decides_makes_all_unknown() {
        for key in ["USER", "CLASS", "STATE"] {
            let cut: String =
                CAROL.lines().filter(|line| !line.starts_with(key)).map(|line| format!("{line}\n")).collect();
            let root = tree(&[("run/systemd/sessions/15", CAROL), ("run/systemd/sessions/16", &cut)]);
            let error = read(root.path()).unwrap_err().to_string();
            assert!(error.contains("session `16`") && error.contains(key), "{error}");
        }
        assert!(parse("1", "UID=x\nUSER=a\nCLASS=user\nSTATE=online").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "((USER|UID|CLASS|STATE|SCOPE|MONOTONIC|=|\"|[0-9]{1,21}|x|\n|.){0,30})") {
            if let Ok(row) = parse("1", &text) {
                prop_assert!(!row.user.is_empty() && !row.class.is_empty() && !row.state.is_empty());
            }
        }
    }
}
