//! What does a script read?
//!
//! One JSON document on stdout; a command that tells of many things as they happen writes one in each line, and an error
//! is a line too. serde_json escapes what JSON demands; the other control characters (DEL and the C1
//! block) are escaped too, since a script's output often ends on a terminal.

use std::fmt::Write as _;

use anyhow::Context;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::emit;

/// Prints a document on stdout.
///
/// # Errors
/// If the value cannot be written as JSON, or stdout cannot be written.
pub(crate) fn emit_json(document: &impl Serialize) -> Result<(), Failure> {
    emit(&escaped(serde_json::to_string_pretty(document))?)
}

/// Prints a document on stdout, in one line.
///
/// # Errors
/// As [`emit_json`].
pub(crate) fn emit_json_line(document: &impl Serialize) -> Result<(), Failure> {
    emit(&escaped(serde_json::to_string(document))?)
}

fn escaped(text: serde_json::Result<String>) -> anyhow::Result<String> {
    let text = text.context("writing the answer as JSON")?;
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        // Outside of strings JSON has none of these, so an escape is always inside one.
        if matches!(character, '\u{7f}'..='\u{9f}') {
            let _ = write!(escaped, "\\u{:04x}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    Ok(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_stay_readable_but_never_raw() {
        let text = escaped(serde_json::to_string(&"a\u{9b}31m\u{1b}\u{7f}")).unwrap();
        assert_eq!(text, "\"a\\u009b31m\\u001b\\u007f\"");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), "a\u{9b}31m\u{1b}\u{7f}");
    }
}
