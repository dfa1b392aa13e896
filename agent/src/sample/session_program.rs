//! Who is logged in, as a program of the operator's tells it?
//!
//! Remote desktops, mail servers and databases know their users, and no file of the system does. A program prints them,
//! one JSON object a line: `{"user": "alice", "state": "active", "id": "50", "since": 1767225700}`. `state` is
//! `active` (default), `disconnected` or `lingering`; `since` is in seconds since 1970 or as RFC 3339 writes it, and may
//! be left out. Nothing printed and an exit code of 0 is nobody.
//!
//! All or nothing: a program that fails, is late, or prints one line that is not understood leaves the users unknown,
//! because a list that lacks some of them would draw logins to a full host.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use super::error::SampleError;
use super::sessions::{SessionSeen, SessionState};
use crate::program;

const SUBJECT: &str = "session program";
/// Bound of all that it prints: a hundred thousand sessions.
const MAX_OUTPUT_BYTES: usize = 16 * 1024 * 1024;
/// Bound of a name or an id.
const MAX_WORD_BYTES: usize = 256;

/// One line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    user: String,
    #[serde(default)]
    state: State,
    id: Id,
    since: Option<Since>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    #[default]
    Active,
    Disconnected,
    Lingering,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Id {
    Text(String),
    Number(u64),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Since {
    Seconds(f64),
    Text(String),
}

impl Since {
    /// Since 1970 UTC. Absent before that, or when it is no time.
    fn unix(&self) -> Option<Duration> {
        match self {
            Self::Seconds(seconds) => Duration::try_from_secs_f64(*seconds).ok(),
            Self::Text(time) => Duration::try_from(time.parse::<Timestamp>().ok()?.as_duration()).ok(),
        }
    }
}

/// Runs `command` for at most `deadline` and reads what it prints. `now_unix` is the wall clock.
///
/// # Errors
/// When it cannot be run, fails, is late, or prints what [`parse`] refuses.
pub async fn read(
    command: &[String],
    deadline: Duration,
    now_unix: Option<Duration>,
) -> Result<Vec<SessionSeen>, SampleError> {
    let finished = program::run(command, deadline, MAX_OUTPUT_BYTES + 1)
        .await
        .map_err(|error| SampleError::malformed(SUBJECT, error.to_string()))?;
    if !finished.status.success() {
        return Err(SampleError::malformed(SUBJECT, format!("failed: {}", finished.status)));
    }
    if finished.output.len() > MAX_OUTPUT_BYTES {
        return Err(SampleError::malformed(SUBJECT, format!("printed more than {MAX_OUTPUT_BYTES} bytes")));
    }
    parse(&finished.output, now_unix)
}

/// Reads what a program printed.
///
/// # Errors
/// When a line is no such object, names nobody, or names a session a second time.
pub fn parse(output: &[u8], now_unix: Option<Duration>) -> Result<Vec<SessionSeen>, SampleError> {
    let mut ids = BTreeSet::new();
    let mut sessions = Vec::new();
    for (index, line) in output.split(|&byte| byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let refused =
            |problem: String| SampleError::malformed(SUBJECT, format!("line {}: {problem}", index + 1));
        let line: Line = serde_json::from_slice(line).map_err(|error| refused(error.to_string()))?;
        let id = match line.id {
            Id::Text(id) => id,
            Id::Number(id) => id.to_string(),
        };
        for (name, word) in [("user", &line.user), ("id", &id)] {
            if word.is_empty() || word.len() > MAX_WORD_BYTES || word.chars().any(char::is_control) {
                return Err(refused(format!("`{name}` is empty, too long, or has control characters")));
            }
        }
        if !ids.insert(id.clone()) {
            return Err(refused(format!("session `{id}` a second time")));
        }
        let since_unix = match &line.since {
            Some(since) => Some(since.unix().ok_or_else(|| refused("`since` is no time".to_owned()))?),
            None => None,
        };
        let state = match line.state {
            State::Active => SessionState::Active,
            State::Disconnected => SessionState::Disconnected,
            State::Lingering => SessionState::Lingering,
        };
        // A begin in the future has no age.
        let age = since_unix.zip(now_unix).and_then(|(since, now)| now.checked_sub(since));
        sessions.push(SessionSeen { id, user: line.user, state, age });
    }
    Ok(sessions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Option<Duration> = Some(Duration::from_secs(1_767_225_700));
    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Vec<String> {
        ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
    }

    #[test]
    fn each_line_is_a_session() {
        let output = br#"{"user":"alice","state":"active","id":"50","since":1767225600}
            {"user":"bob","state":"disconnected","id":51,"since":"2026-01-01T00:01:00Z"}

            {"user":"CN=Carol Doe/O=Acme","id":"x","since":1767225700.5}"#;
        let sessions = parse(output, NOW).unwrap();
        let seen: Vec<_> =
            sessions.iter().map(|s| (s.id.as_str(), s.user.as_str(), s.state, s.age)).collect();
        let age = |seconds| Some(Duration::from_secs(seconds));
        let expected = [
            ("50", "alice", SessionState::Active, age(100)),
            ("51", "bob", SessionState::Disconnected, age(40)),
            ("x", "CN=Carol Doe/O=Acme", SessionState::Active, None),
        ];
        assert_eq!(seen, expected);
        assert_eq!(parse(b"", NOW).unwrap(), []);
    }

    #[test]
    fn one_bad_line_makes_all_unknown_and_is_named() {
        for bad in [
            r#"{"user":"a"}"#,
            r#"{"id":"1"}"#,
            r#"{"user":"","id":"1"}"#,
            r#"{"user":"a\u0000b","id":"1"}"#,
            r#"{"user":"a","id":"1","state":"gone"}"#,
            r#"{"user":"a","id":"1","sinze":1}"#,
            r#"{"user":"a","id":"1","since":-5}"#,
            r#"{"user":"a","id":"1","since":"yesterday"}"#,
            r#"{"user":"a","id":"1"#,
            r#"{"user":"b","id":"0"}"#,
            "\u{feff}[]",
        ] {
            let output = format!("{{\"user\":\"a\",\"id\":\"0\"}}\n{bad}\n");
            let error = parse(output.as_bytes(), NOW).unwrap_err().to_string();
            assert!(error.starts_with("session program: line 2: "), "{bad}: {error}");
        }
        let long = format!(r#"{{"user":"{}","id":"1"}}"#, "a".repeat(257));
        assert!(parse(long.as_bytes(), NOW).is_err());
    }

    #[tokio::test]
    async fn a_program_is_run_and_one_that_fails_says_nothing() {
        let sessions = read(&shell(r#"echo '{"user":"alice","id":"1"}'"#), LONG, NOW).await.unwrap();
        assert_eq!(sessions[0].user, "alice");
        assert_eq!(read(&shell("true"), LONG, NOW).await.unwrap(), []);
        let failed = read(&shell(r#"echo '{"user":"alice","id":"1"}'; exit 3"#), LONG, NOW).await;
        assert!(failed.unwrap_err().to_string().contains("exit status: 3"));
        let late = read(&shell("sleep 100"), Duration::from_millis(50), NOW).await.unwrap_err().to_string();
        assert!(late.contains("50 ms"), "{late}");
        let endless = read(&shell("head -c 17000000 /dev/zero"), LONG, NOW).await.unwrap_err().to_string();
        assert!(endless.contains("more than"), "{endless}");
    }

    proptest! {
        #[test]
        fn any_output_is_read_or_refused(
            output in "((\\{|\\}|\"user\"|\"id\"|\"since\"|\"state\"|:|,|\"a\"|[0-9.e-]{1,30}|null|\n|.){0,30})"
        ) {
            if let Ok(sessions) = parse(output.as_bytes(), NOW) {
                prop_assert!(sessions.iter().all(|session| !session.user.is_empty() && !session.id.is_empty()));
            }
        }
    }
}
