//! What is wrong with a scenario, where, and what was probably meant?

use std::fmt;

use thiserror::Error;

/// One thing that is wrong with a scenario's text.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub struct SyntaxError {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1, in characters.
    pub column: u32,
    /// What is wrong: `unknown key "max_user" of host`.
    pub fault: String,
    /// What may be written there. Absent if the fault says it.
    pub allowed: Option<String>,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, fault, allowed, suggestion } = self;
        write!(f, "{line}:{column}: {fault}")?;
        match (suggestion, allowed) {
            (Some(suggestion), _) => write!(f, ", did you mean {suggestion}?"),
            (None, Some(allowed)) => write!(f, ", allowed: {allowed}"),
            (None, None) => Ok(()),
        }
    }
}

/// Longer words are no misspelling of anything, and comparing them costs their length.
pub(super) const LONGEST_WORD: usize = 64;

/// The known word that is spelled most like `word`, if one is close.
pub(in crate::scenario) fn nearest<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    if word.len() > LONGEST_WORD {
        return None;
    }
    let word = word.to_lowercase();
    let tolerance = match word.chars().count() {
        0 => return None,
        1..=4 => 1,
        5..=7 => 2,
        _ => 3,
    };
    known
        .into_iter()
        .filter_map(|candidate| {
            let spelled = candidate.to_lowercase();
            let is_begun = word.len() >= 4 && spelled.starts_with(&word);
            let distance = if is_begun { 1 } else { strsim::osa_distance(&word, &spelled) };
            (distance <= tolerance && distance < spelled.chars().count()).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate.to_owned())
}

/// A text from outside, fit to be printed: in quotes, cut, without anything that moves a cursor.
pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(LONGEST_WORD) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_miss_is_recognised_and_a_stranger_is_not() {
        let known = ["report", "replica", "reporter", "max_users", "cpu"];
        for (word, meant) in [
            ("reprot", Some("report")),
            ("REPORT", Some("report")),
            ("max_user", Some("max_users")),
            ("maxusers", Some("max_users")),
            ("cpi", Some("cpu")),
            ("elephant", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known).as_deref(), meant, "{word}");
        }
        assert_eq!(nearest(&"report".repeat(1000), known), None);
    }

    #[test]
    fn what_is_quoted_cannot_harm_a_terminal() {
        assert_eq!(quoted("a\u{1b}[2J\u{202e}"), r#""a\u{1b}[2J\u{202e}""#);
        assert!(quoted(&"ä".repeat(10_000)).len() < 200);
    }
}
