//! How does an answer reach the person or the script that asked?
//!
//! Everything for people is made as text first and written once, so that it can be tested and so that a reader who
//! closes the pipe early (`usherctl hosts | head -1`) is no error.

pub(crate) mod json;
pub(crate) mod table;
pub(crate) mod text;
pub(crate) mod words;

use std::io::{self, Write};

use anyhow::Context;

use crate::failure::Failure;

/// Writes text to stdout, ending it with a line feed.
///
/// # Errors
/// If stdout cannot be written. A pipe that the reader has closed is not an error.
pub(crate) fn emit(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let line_end = if text.ends_with('\n') { "" } else { "\n" };
    let written = write!(stdout, "{text}{line_end}").and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other.context("writing to stdout")?),
    }
}

/// Writes a line to stderr. A terminal that is gone is no reason to stop: there is nobody to tell.
pub(crate) fn remark(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
