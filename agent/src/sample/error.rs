//! Why did a source of values give none?
//!
//! Every source fails with this one type, so that a failure always names what was read and what was wrong with it,
//! and never takes another source down with it.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use crate::printable::{MOST_TOLD_CHARS, printable};

/// A source could not give its value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// The operating system refused the read.
    #[error("cannot read {}", path.display())]
    Read {
        /// What was read.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The source answered with something that cannot be believed.
    #[error("{subject}: {problem}")]
    Malformed {
        /// Which file or service.
        subject: &'static str,
        /// What is wrong with its answer.
        problem: String,
    },
    /// The D-Bus call failed.
    #[error("cannot ask logind to {operation}")]
    Bus {
        /// What was asked.
        operation: &'static str,
        /// What the bus said.
        source: Box<zbus::Error>,
    },
    /// The source did not answer in time.
    #[error("{subject}: timed out after {limit_ms} ms")]
    TimedOut {
        /// Which source.
        subject: &'static str,
        /// How long it was waited for, ms.
        limit_ms: u128,
    },
    /// The read that timed out earlier has not come back: a second one would hang beside it.
    #[error("{subject}: timed out earlier and still hangs")]
    StillHangs {
        /// Which source.
        subject: &'static str,
    },
    /// The thread that read the source ended without an answer.
    #[error("{subject}: the reading thread broke off")]
    BrokeOff {
        /// Which source.
        subject: &'static str,
    },
    /// No source of sessions gave an answer.
    #[error("no source of sessions: {}", tried.iter().map(|error| describe(error)).collect::<Vec<_>>().join("; "))]
    NoSessions {
        /// Why each of them did not.
        tried: Vec<SampleError>,
    },
    /// The operator switched the source off.
    #[error("{subject}: switched off by configuration")]
    Off {
        /// Which source.
        subject: &'static str,
    },
}

impl SampleError {
    pub(crate) fn malformed(subject: &'static str, problem: impl Into<String>) -> Self {
        Self::Malformed { subject, problem: problem.into() }
    }
}

/// An error with all its causes in one short line, for a status that leaves this process.
#[must_use]
pub fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let why = inner.to_string();
        // Some libraries print their cause themselves.
        if !text.ends_with(&why) {
            text.push_str(": ");
            text.push_str(&why);
        }
        cause = inner.source();
    }
    printable(&text, MOST_TOLD_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_names_the_subject_and_every_cause() {
        let error = SampleError::Read {
            path: PathBuf::from("/run/utmp"),
            source: io::Error::from(io::ErrorKind::PermissionDenied),
        };
        assert_eq!(describe(&error), "cannot read /run/utmp: permission denied");
    }

    #[test]
    fn a_description_is_short_and_printable_whatever_it_quotes() {
        let quoted = format!("`\u{1b}[31m{}` is no number", "9".repeat(9999));
        let described = describe(&SampleError::malformed("/proc/meminfo", quoted));
        assert!(described.starts_with("/proc/meminfo: `[31m999"), "{described}");
        assert_eq!(described.chars().count(), MOST_TOLD_CHARS);
    }
}
