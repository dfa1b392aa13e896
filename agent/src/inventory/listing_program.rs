//! What does this host hold, as a program of the operator's tells it?
//!
//! Databases and mail servers know what they hold, and how far behind each copy is; their files do not tell. A program
//! prints it, one JSON object a line: `{"resource": "mail/crm.nsf", "path": "/data/crm.nsf", "title": "CRM", "lag_s": 12}`;
//! all but `resource` may be left out. Nothing printed and an exit code of 0 is that it holds nothing.
//!
//! A line that is not understood is counted and named, and its resource is not listed: nobody is sent to a copy of which
//! nothing is known. A run that fails, is late, prints too much, or has no good line among bad ones tells nothing at all:
//! the list before it stays. What is taken out of service is not printed; marks are the coordinators' and outlive it.

use std::time::Duration;

use serde::Deserialize;
use usher_types::Replica;

use super::notes::Notes;
use super::{MAX_FOUND, MAX_TEXT_BYTES, found};
use crate::program;

/// Longest line: the longest id, path and title with every byte escaped.
const MAX_LINE_BYTES: usize = 32 * 1024;
/// Bound of all that it prints: a hundred thousand lines of common length, twice.
const MAX_OUTPUT_BYTES: usize = 64 * 1024 * 1024;
/// Longest lag that is believed: ten years.
const MOST_LAG_SECONDS: f64 = 3650.0 * 86_400.0;

/// One line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    resource: String,
    path: Option<String>,
    title: Option<String>,
    lag_s: Option<f64>,
}

/// What a run told.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Listed {
    /// In the order of the lines.
    pub(super) replicas: Vec<Replica>,
    /// That of the replica that is furthest behind. Absent: no line has one.
    pub(super) lag: Option<Duration>,
    /// Lines that were not understood.
    pub(super) bad: Notes,
    /// Resources beyond the bound.
    pub(super) left_out: usize,
}

/// Runs `command` for at most `deadline` and reads what it prints, without ever holding more of it than a line.
///
/// # Errors
/// Why the run tells nothing.
pub(super) async fn read(command: &[String], deadline: Duration) -> Result<Listed, String> {
    let mut reader = Reader::default();
    let heard = program::run_heard(command, deadline, |bytes| reader.take(bytes));
    let program::Heard { status, is_whole } = heard.await.map_err(|error| error.to_string())?;
    let program = command.first().map(String::as_str).unwrap_or_default();
    if !status.success() {
        return Err(format!("{program} ended with {status}"));
    }
    if !is_whole {
        return Err(format!("{program} ended, and something that it started may go on printing"));
    }
    reader.finish()
}

/// Cuts what comes into lines and reads them.
#[derive(Debug, Default)]
struct Reader {
    line: Vec<u8>,
    /// The line is longer than any that is read.
    is_too_long: bool,
    number: usize,
    bytes: usize,
    listed: Listed,
}

impl Reader {
    fn take(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len());
        if self.bytes > MAX_OUTPUT_BYTES {
            return;
        }
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let (line, after) = rest.split_at(end);
            self.keep(line);
            self.end_line();
            rest = after.get(1..).unwrap_or_default();
        }
        self.keep(rest);
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.line.len() + bytes.len() > MAX_LINE_BYTES {
            self.is_too_long = true;
        }
        if !self.is_too_long {
            self.line.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self) {
        self.number += 1;
        let line = std::mem::take(&mut self.line);
        let read = if std::mem::take(&mut self.is_too_long) {
            Err(format!("it has more than {MAX_LINE_BYTES} bytes"))
        } else if line.trim_ascii().is_empty() {
            Ok(None)
        } else {
            replica(&line).map(Some)
        };
        match read {
            Ok(None) => {}
            Ok(Some((replica, lag))) => {
                self.listed.lag = self.listed.lag.max(lag);
                if self.listed.replicas.len() < MAX_FOUND {
                    self.listed.replicas.push(replica);
                } else {
                    self.listed.left_out += 1;
                }
            }
            Err(problem) => {
                let number = self.number;
                self.listed.bad.add(|| format!("line {number}: {problem}"));
            }
        }
        // The room of the line is used again.
        self.line = line;
        self.line.clear();
    }

    fn finish(mut self) -> Result<Listed, String> {
        if self.bytes > MAX_OUTPUT_BYTES {
            return Err(format!("it printed more than {MAX_OUTPUT_BYTES} bytes"));
        }
        if !self.line.is_empty() || self.is_too_long {
            self.end_line();
        }
        match self.listed.bad.summary() {
            Some(bad) if self.listed.replicas.is_empty() => Err(format!("no line is understood: {bad}")),
            _ => Ok(self.listed),
        }
    }
}

fn replica(line: &[u8]) -> Result<(Replica, Option<Duration>), String> {
    let Line { resource, path, title, lag_s } =
        serde_json::from_slice(line).map_err(|error| error.to_string())?;
    for (name, text) in [("path", &path), ("title", &title)] {
        if text.as_ref().is_some_and(|text| text.len() > MAX_TEXT_BYTES || text.chars().any(char::is_control))
        {
            return Err(format!("`{name}` has more than {MAX_TEXT_BYTES} bytes or control characters"));
        }
    }
    let lag = match lag_s {
        None => None,
        Some(seconds) if (0.0..=MOST_LAG_SECONDS).contains(&seconds) => {
            Some(Duration::from_secs_f64(seconds))
        }
        Some(seconds) => return Err(format!("`lag_s` = {seconds} is not allowed, must be seconds >= 0")),
    };
    let replica = found(&resource, path, title)?;
    Ok((replica, lag))
}

/// What a program printed: the replicas, the lag, and how many lines were not understood or are too many.
#[cfg(test)]
pub(crate) fn understood(output: &[u8]) -> Result<(Vec<Replica>, Option<Duration>, usize), String> {
    let mut reader = Reader::default();
    reader.take(output);
    let Listed { replicas, lag, bad, left_out } = reader.finish()?;
    Ok((replicas, lag, bad.count + left_out))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn parse(output: &[u8]) -> Result<Listed, String> {
        let mut reader = Reader::default();
        reader.take(output);
        reader.finish()
    }

    fn shell(script: &str) -> Vec<String> {
        ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
    }

    fn ids(listed: &Listed) -> Vec<&str> {
        listed.replicas.iter().map(|replica| replica.resource_id.as_str()).collect()
    }

    #[test]
    fn each_line_is_a_replica_and_the_lag_is_that_of_the_one_furthest_behind() {
        let output = br#"{"resource":"mail/crm.nsf","path":"/data/crm.nsf","title":"CRM","lag_s":12.5}

            {"resource":"wiki","lag_s":900}
            {"resource":"atlas"}"#;
        let listed = parse(output).unwrap();
        assert_eq!(ids(&listed), ["mail/crm.nsf", "wiki", "atlas"]);
        let first = &listed.replicas[0];
        assert_eq!((first.path.as_deref(), first.title.as_deref()), (Some("/data/crm.nsf"), Some("CRM")));
        assert_eq!((listed.lag, listed.bad.count), (Some(Duration::from_secs(900)), 0));
        assert_eq!(parse(b"").unwrap(), Listed::default());
        assert_eq!(parse(b"{\"resource\":\"a\"}").unwrap().lag, None);
    }

    #[test]
    fn a_bad_line_is_named_and_counted_and_the_others_are_listed() {
        for bad in [
            "{}",
            "[]",
            r#"{"resource":""}"#,
            r#"{"resource":"a\u0000b"}"#,
            r#"{"resource":"a","in_service":false}"#,
            r#"{"resource":"a","lag_s":-1}"#,
            r#"{"resource":"a","lag_s":1e400}"#,
            r#"{"resource":"a","lag_s":"12"}"#,
            r#"{"resource":"a","title":"a\nb"}"#,
            r#"{"resource":"a"#,
            "\u{fffd}",
        ] {
            let listed = parse(format!("{{\"resource\":\"good\"}}\n{bad}\n{bad}\n").as_bytes()).unwrap();
            assert_eq!(ids(&listed), ["good"], "{bad}");
            let told = listed.bad.summary().unwrap();
            assert!(told.starts_with("line 2: ") && told.ends_with("(and 1 more)"), "{bad}: {told}");
        }
        let long = format!(
            "{{\"resource\":\"good\"}}\n{}\n{{\"resource\":\"b\"}}\n",
            "x".repeat(MAX_LINE_BYTES + 1)
        );
        let listed = parse(long.as_bytes()).unwrap();
        assert_eq!((ids(&listed), listed.bad.count), (vec!["good", "b"], 1));
    }

    #[test]
    fn a_run_without_one_good_line_tells_nothing() {
        let error = parse(b"Traceback (most recent call last):\n  File \"list.py\"\n").unwrap_err();
        assert!(error.starts_with("no line is understood: line 1: "), "{error}");
    }

    #[tokio::test]
    async fn a_program_that_fails_is_late_or_prints_without_end_tells_nothing() {
        let listed = read(&shell(r#"echo '{"resource":"a"}'"#), LONG).await.unwrap();
        assert_eq!(ids(&listed), ["a"]);
        let failed = read(&shell(r#"echo '{"resource":"a"}'; exit 3"#), LONG).await.unwrap_err();
        assert!(failed.contains("/bin/sh ended with exit status: 3"), "{failed}");
        let late = read(&shell("sleep 100"), Duration::from_millis(50)).await.unwrap_err();
        assert!(late.contains("50 ms"), "{late}");
        let endless = read(&shell("head -c 70000000 /dev/zero"), LONG).await.unwrap_err();
        assert!(endless.contains("more than"), "{endless}");
        let open = read(&shell(r#"echo '{"resource":"a"}'; sleep 100 &"#), LONG).await.unwrap_err();
        assert!(open.contains("may go on printing"), "{open}");
        let missing = read(&["/no/such/program".to_owned()], LONG).await.unwrap_err();
        assert!(missing.contains("cannot start /no/such/program"), "{missing}");
    }

    proptest! {
        #[test]
        fn any_output_in_any_pieces_is_read_or_refused_alike(
            output in "((\\{|\\}|\"resource\"|\"path\"|\"lag_s\"|:|,|\"a\"|[0-9.e-]{1,30}|null|\n|.){0,30})",
            piece in 1_usize..9,
        ) {
            let whole = parse(output.as_bytes());
            let mut reader = Reader::default();
            output.as_bytes().chunks(piece).for_each(|bytes| reader.take(bytes));
            prop_assert_eq!(&whole, &reader.finish());
            if let Ok(listed) = whole {
                prop_assert!(listed.replicas.iter().all(|replica| !replica.resource_id.as_str().is_empty()));
            }
        }
    }
}
