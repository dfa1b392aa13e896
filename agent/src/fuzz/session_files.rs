//! Files, and the output of a program, that say who is logged in.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Seen, Target, fixture, text};
use crate::sample::pids::Life;
use crate::sample::{SessionConfig, SessionSeen, accounts, logind, logind_files, session_program, utmp};

const NOW: Duration = Duration::from_secs(1_767_225_700);
const BOOTED: Duration = Duration::from_secs(1_767_000_000);
/// No record is of an earlier boot.
const FROM_THE_BEGINNING: Option<Duration> = Some(Duration::ZERO);
const MOST_BYTES: usize = 1024 * 1024;

/// Names that may be given to people: something, and nothing that moves a terminal's cursor.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(char::is_control)
}

/// Some of the processes live, some are gone, some are younger than any record.
fn life(pid: i32) -> Life {
    match pid % 5 {
        0 => Life::Gone,
        1 => Life::Alive { since_boot: None },
        2 => Life::Alive { since_boot: Some(Duration::from_secs(1_000_000_000)) },
        _ => Life::Alive { since_boot: Some(Duration::from_secs(60)) },
    }
}

fn all_alive(_: i32) -> Life {
    Life::Alive { since_boot: None }
}

/// The layouts: bytes of a record, and where in it the seconds lie, and how many bytes they have.
const LAYOUTS: [(usize, usize, usize); 2] = [(384, 340, 4), (400, 344, 8)];

fn record(layout: (usize, usize, usize), kind: u8, pid: u16, line: &str, user: &str) -> Vec<u8> {
    let (size, seconds_at, _) = layout;
    let mut bytes = vec![0; size];
    bytes[0] = kind;
    bytes[4..6].copy_from_slice(&pid.to_le_bytes());
    bytes[8..8 + line.len()].copy_from_slice(line.as_bytes());
    bytes[44..44 + user.len()].copy_from_slice(user.as_bytes());
    bytes[seconds_at..seconds_at + 4].copy_from_slice(&1_767_225_600_u32.to_le_bytes());
    bytes
}

pub(super) fn utmp() -> Target {
    let two =
        |layout| [record(layout, 2, 0, "~", "reboot"), record(layout, 7, 2343, "pts/0", "alice")].concat();
    let mut corpus = vec![fixture("u1/run/utmp"), fixture("u2/run/utmp"), two(LAYOUTS[0]), two(LAYOUTS[1])];
    let long = record(LAYOUTS[0], 7, 2344, &"l".repeat(32), &"u".repeat(32));
    corpus.push([two(LAYOUTS[0]), long].concat());
    Target {
        name: "utmp",
        corpus,
        words: &[
            &[0; 16],
            &[0; 384],
            &[0; 400],
            &[7, 0, 0, 0],
            &[2, 0, 0, 0],
            &[8, 0, 0, 0],
            &[0xff, 0xff, 0xff, 0xff],
            b"alice\0",
            b"pts/1\0",
            b"reboot\0",
            &[0x40, 0x42, 0x0f, 0],
        ],
        most_bytes: 400 * 384 * 6,
        feed: Box::new(feed_utmp),
    }
}

fn feed_utmp(bytes: &[u8]) -> Seen {
    let sessions = match utmp::parse(bytes, Some(BOOTED), life) {
        Ok(sessions) => sessions,
        Err(error) => {
            assert!(
                utmp::parse(bytes, FROM_THE_BEGINNING, all_alive).is_err(),
                "only the bytes decide whether they are read"
            );
            return Seen::failed(&error);
        }
    };
    let fitting: Vec<_> = LAYOUTS.iter().filter(|layout| bytes.len().is_multiple_of(layout.0)).collect();
    assert!(!bytes.is_empty() && !fitting.is_empty(), "{} bytes", bytes.len());
    let everybody = utmp::parse(bytes, FROM_THE_BEGINNING, all_alive).unwrap();
    assert!(utmp::parse(bytes, Some(BOOTED), |_| Life::Gone).unwrap().is_empty());
    let lines: BTreeSet<&str> = everybody.iter().map(|session| session.line.as_str()).collect();
    assert_eq!(lines.len(), everybody.len(), "one login for each line");
    assert!(sessions.iter().all(|session| lines.contains(session.line.as_str())));
    // Everybody stands in a record of one and the same layout, where a record has the name, line and time.
    let stands_in = |layout: (usize, usize, usize)| {
        let stands = |session: &utmp::UtmpSession| {
            bytes.chunks_exact(layout.0).any(|record| {
                let seconds = &record[layout.1..layout.1 + layout.2];
                let ends = |at: usize, word: &str| record[at..at + 32].starts_with(word.as_bytes());
                record[0] == 7
                    && ends(8, &session.line)
                    && ends(44, &session.user)
                    && seconds == &session.since_unix.as_secs().to_le_bytes()[..layout.2]
            })
        };
        everybody.iter().all(stands)
    };
    assert!(fitting.iter().any(|layout| stands_in(**layout)), "{everybody:?}");
    assert!(everybody.iter().all(|session| is_name(&session.user) && is_name(&session.line)));
    Seen::taken((sessions.len().min(4), everybody.len().min(4), bytes.len().min(2000) / 384))
}

pub(super) fn logind() -> Target {
    let carol = "# This is private data. Do not parse.\nUID=1003\nUSER=carol\nACTIVE=1\nSTATE=online\nREMOTE=1\n\
                 TYPE=tty\nCLASS=user\nSCOPE=session-16.scope\nSERVICE=sshd\nLEADER=2345\nMONOTONIC=100000000\n";
    Target {
        name: "logind_files",
        corpus: vec![
            carol.into(),
            carol.replace("online", "closing").into(),
            carol.replace("CLASS=user", "CLASS=background").into(),
            b"USER=\"a\"\nCLASS=manager\nSTATE=active".to_vec(),
        ],
        words: &[
            b"USER=",
            b"CLASS=",
            b"STATE=",
            b"UID=",
            b"REMOTE=1",
            b"MONOTONIC=",
            b"SCOPE=",
            b"SERVICE=",
            b"\"",
            b"=",
            b"\n",
            b"user",
            b"greeter",
            b"opening",
            b"active",
        ],
        most_bytes: MOST_BYTES,
        feed: Box::new(|bytes| {
            let text = text(bytes);
            let row = match logind_files::parse("16", &text) {
                Ok(row) => row,
                Err(error) => return Seen::failed(&error),
            };
            for word in [&row.user, &row.class, &row.state] {
                assert!(is_name(word) && text.contains(word.as_str()), "{word:?}");
            }
            let rows = [row];
            let living = BTreeSet::from(["16".to_owned()]);
            let decided = logind::decide(&rows, &SessionConfig::default(), Some(NOW), &living);
            let begun = logind::begun(&rows, &SessionConfig::default(), NOW);
            let opening = begun.iter().filter(|begun| begun.is_opening).count();
            assert!(decided.sessions.len() + opening <= 1 && begun.len() <= 1);
            check_sessions(&decided.sessions);
            let [row] = &rows;
            let features = (row.uid.is_some(), row.since_monotonic.is_some(), row.remote);
            Seen::taken((features, decided.sessions.len(), opening, decided.warning.is_some()))
        }),
    }
}

fn check_sessions(sessions: &[SessionSeen]) {
    let ids: BTreeSet<&str> = sessions.iter().map(|session| session.id.as_str()).collect();
    assert_eq!(ids.len(), sessions.len(), "each session once");
    for SessionSeen { id, user, age, .. } in sessions {
        assert!(is_name(user) && is_name(id), "{user:?} {id:?}");
        assert!(age.is_none_or(|age| age <= NOW), "{age:?}");
    }
}

pub(super) fn program() -> Target {
    let corpus: [&[u8]; 4] = [
        br#"{"user":"alice","state":"active","id":"50","since":1767225600}
{"user":"bob","state":"disconnected","id":51,"since":"2026-01-01T00:01:00Z"}

{"user":"CN=Carol Doe/O=Acme","id":"x","since":1767225700.5}"#,
        br#"{"id":1,"user":"a"}"#,
        b"",
        b"\n  \r\n",
    ];
    Target {
        name: "session_program",
        corpus: corpus.map(<[u8]>::to_vec).to_vec(),
        words: &[
            b"{",
            b"}",
            b"[",
            b"\"user\":",
            b"\"id\":",
            b"\"state\":",
            b"\"since\":",
            b"\"lingering\"",
            b"null",
            b"true",
            b",",
            b"\"\"",
            b"\\u0000",
            b"\\u001b",
            b"\\ud800",
            b"\n",
            b"\"2026-01-01T00:01:00Z\"",
            b"-292277022657-01-01T00:00:00Z",
        ],
        most_bytes: MOST_BYTES,
        feed: Box::new(|bytes| {
            let sessions = match session_program::parse(bytes, Some(NOW)) {
                Ok(sessions) => sessions,
                Err(error) => return Seen::failed(&error),
            };
            let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
            assert_eq!(sessions.len(), lines.count(), "all lines or none");
            check_sessions(&sessions);
            assert!(sessions.iter().all(|session| session.user.len() <= 256 && session.id.len() <= 256));
            let ages = sessions.iter().filter(|session| session.age.is_some()).count();
            Seen::taken((
                sessions.len().min(8),
                ages.min(8),
                sessions.first().map(|session| session.state as u8),
            ))
        }),
    }
}

pub(super) fn passwd() -> Target {
    let whole =
        "root:x:0:0:root:/root:/bin/bash\n# x\n+::::::\ngit:x:998:998::/:/bin/sh\nbad:x:-1:0\nbad:x\n";
    Target {
        name: "passwd",
        corpus: vec![whole.into(), b"".to_vec()],
        words: &[b":", b"::", b"\n", b"x", b"root:x:0:"],
        most_bytes: MOST_BYTES,
        feed: Box::new(|bytes| {
            let text = text(bytes);
            let accounts = accounts::parse(&text);
            for (name, uid) in &accounts {
                let says_so = |line: &str| {
                    let fields: Vec<&str> = line.split(':').collect();
                    fields[0] == name && fields.get(2).is_some_and(|field| field.parse() == Ok(*uid))
                };
                assert!(text.lines().any(says_so), "{name} {uid}");
            }
            if accounts.is_empty() { Seen::taken("none") } else { Seen::taken(accounts.len().min(8)) }
        }),
    }
}
