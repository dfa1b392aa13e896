//! What does a program mean that its operator lets speak for this host?
//!
//! The first line that says anything counts. What stands behind its word is the reason, for people. Words that mean
//! nothing here change nothing, and are counted and shown.

use std::process::ExitStatus;
use std::time::Duration;

use usher_types::{HookWord, Percent};

use super::values;
use crate::program::Finished;

/// Longest reason that is kept, in characters.
const REASON_CHARS: usize = 200;

/// What a hook is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookKind {
    /// Whether the host takes sessions.
    Readiness,
    /// Whether its warm-up is done.
    WarmUp,
    /// Whether it is BUSY whatever its load is.
    Busy,
    /// The availability index, instead of the one from latencies.
    Availability,
    /// How far its replicas are behind.
    ReplicaLag,
}

impl HookKind {
    /// As settings, collectors and metrics write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Readiness => "readiness",
            Self::WarmUp => "warm_up",
            Self::Busy => "busy",
            Self::Availability => "availability",
            Self::ReplicaLag => "replica_lag",
        }
    }
}

/// What a hook says of the host.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// It takes sessions; its warm-up is done; it is not BUSY.
    Ready,
    /// It takes none; its warm-up is not done. Why, for people; may be empty.
    NotReady(String),
    /// No new sessions. Why, for people; may be empty.
    Drain(String),
    /// It is BUSY.
    Busy,
    /// Its availability index.
    Index {
        /// The index.
        index: Percent,
        /// Where it comes from, for people; may be empty.
        source: String,
    },
    /// How far its replicas are behind.
    Lag(Duration),
    /// There is no value just now: what was delivered before is void.
    NoValue,
}

/// What a hook's output means. Absent: it said nothing.
///
/// # Errors
/// Why it means nothing here; nothing changes then.
pub fn understand(kind: HookKind, finished: &Finished) -> Result<Option<Said>, String> {
    let text = String::from_utf8_lossy(&finished.output);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if matches!(kind, HookKind::Availability | HookKind::ReplicaLag) {
        return values::understand(kind, line, finished);
    }
    let said = match (kind, HookWord::parse(line)) {
        (HookKind::Busy, Err(unknown)) if unknown.0.eq_ignore_ascii_case("busy") => Some(Said::Busy),
        (_, Ok(None)) => None,
        (_, Ok(Some(HookWord::Ready))) => Some(Said::Ready),
        (HookKind::Readiness | HookKind::WarmUp, Ok(Some(HookWord::NotReady))) => {
            Some(Said::NotReady(reason(line)))
        }
        (HookKind::Readiness, Ok(Some(HookWord::Drain))) => Some(Said::Drain(reason(line))),
        (_, Ok(Some(_))) => return Err(format!("the hook said {:?}, which means nothing here", word(line))),
        (_, Err(unknown)) => return Err(unknown.to_string()),
    };
    match (said, finished.status.success()) {
        // A program that failed may close the host, which is the safe side, but not open it.
        (None | Some(Said::Ready), false) => Err(ended(finished.status)),
        (said, _) => Ok(said),
    }
}

pub(super) fn ended(status: ExitStatus) -> String {
    format!("the hook ended with {status}")
}

/// The first word, at most 64 characters of it.
pub(super) fn word(line: &str) -> String {
    line.split_whitespace().next().unwrap_or_default().chars().take(64).collect()
}

/// What stands behind the word, without the `#` of a comment and without control characters.
pub(super) fn reason(line: &str) -> String {
    let rest =
        line.trim_start().split_once(|c: char| c.is_whitespace() || c == '#').map_or("", |(_, rest)| rest);
    let rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '#').trim_end();
    rest.chars().filter(|c| !c.is_control()).take(REASON_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn said(kind: HookKind, output: &str, code: i32) -> Result<Option<Said>, String> {
        let status = ExitStatus::from_raw(code << 8);
        understand(kind, &Finished { status, output: output.as_bytes().to_vec() })
    }

    #[test]
    fn case_171_each_hook_knows_its_words_and_takes_what_follows_for_the_reason() {
        use HookKind::{Busy, Readiness, WarmUp};
        let not_ready = |why: &str| Ok(Some(Said::NotReady(why.to_owned())));
        assert_eq!(said(Readiness, "up\n", 0), Ok(Some(Said::Ready)));
        assert_eq!(
            said(Readiness, "\n\nDOWN # the database is gone\nmore", 0),
            not_ready("the database is gone")
        );
        assert_eq!(said(Readiness, "maint until noon\r\n", 0), not_ready("until noon"));
        assert_eq!(said(Readiness, "drain", 0), Ok(Some(Said::Drain(String::new()))));
        assert_eq!(said(WarmUp, "ready", 0), Ok(Some(Said::Ready)));
        assert_eq!(said(WarmUp, "failed caches are cold", 0), not_ready("caches are cold"));
        assert_eq!(said(Busy, "busy", 0), Ok(Some(Said::Busy)));
        assert_eq!(said(Busy, "up", 0), Ok(Some(Said::Ready)));
        assert_eq!(said(Readiness, "", 0), Ok(None));
    }

    #[test]
    fn case_171_words_that_mean_nothing_here_change_nothing() {
        for (kind, output) in [
            (HookKind::Readiness, "fialed"),
            (HookKind::Readiness, "busy"),
            (HookKind::Readiness, "\u{fffd}\u{0}"),
            (HookKind::WarmUp, "drain"),
            (HookKind::Busy, "down"),
        ] {
            assert!(said(kind, output, 0).is_err(), "{output:?}");
        }
    }

    #[test]
    fn a_program_that_failed_may_close_the_host_but_not_open_it() {
        assert_eq!(said(HookKind::Readiness, "down", 2), Ok(Some(Said::NotReady(String::new()))));
        for output in ["up", ""] {
            assert!(said(HookKind::Readiness, output, 2).unwrap_err().contains("exit status: 2"));
        }
    }

    #[test]
    fn a_reason_is_bounded_and_has_no_control_characters() {
        let Ok(Some(Said::NotReady(why))) =
            said(HookKind::Readiness, &format!("down \u{1b}[31m{}", "x".repeat(999)), 0)
        else {
            panic!("not ready");
        };
        assert_eq!((why.chars().count(), why.starts_with("[31mxx")), (REASON_CHARS, true));
    }
}
