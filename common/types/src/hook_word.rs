//! What does a program mean that an operator lets speak for a host?
//!
//! Operators have such programs already, written for HAProxy's agent-check and the like; so their words are taken: the
//! first one of a line, in any case, before a `#`. A word that is not known changes nothing, and must be counted and
//! shown: in HAProxy, whose documentation said `failed` where the program knew `fail`, servers stayed up unnoticed.

use thiserror::Error;

/// What a program says of its host.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum HookWord {
    /// `up`, `ready`: it takes sessions.
    Ready,
    /// `fail`, `failed`, `down`, `stopped`, `maint`: it takes none.
    NotReady,
    /// `drain`: no new sessions.
    Drain,
}

/// A word that means nothing here.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the hook said {0:?}, known are up, ready, fail, failed, down, stopped, maint, drain")]
pub struct UnknownHookWord(
    /// As it was said, cut to 64 characters.
    pub String,
);

/// Longest part of an unknown word that is shown.
const SHOWN_CHARS: usize = 64;

impl HookWord {
    /// What a line says. Absent: nothing.
    ///
    /// # Errors
    /// [`UnknownHookWord`]; nothing changes.
    pub fn parse(line: &str) -> Result<Option<Self>, UnknownHookWord> {
        let said = line.split('#').next().unwrap_or_default();
        let Some(word) = said.split_whitespace().next() else { return Ok(None) };
        match word.to_ascii_lowercase().as_str() {
            "up" | "ready" => Ok(Some(Self::Ready)),
            "fail" | "failed" | "down" | "stopped" | "maint" => Ok(Some(Self::NotReady)),
            "drain" => Ok(Some(Self::Drain)),
            _ => Err(UnknownHookWord(word.chars().take(SHOWN_CHARS).collect())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // rule: hook-words
    #[test]
    fn case_171_known_words_are_taken_in_any_case_and_with_a_comment() {
        for line in ["failed", "FAIL", "down # disk", "maint ", "\tStopped\r\n"] {
            assert_eq!(HookWord::parse(line), Ok(Some(HookWord::NotReady)), "{line:?}");
        }
        for line in ["up", "READY", "ready 50%"] {
            assert_eq!(HookWord::parse(line), Ok(Some(HookWord::Ready)), "{line:?}");
        }
        assert_eq!(HookWord::parse("drain"), Ok(Some(HookWord::Drain)));
    }

    // rule: hook-words
    #[test]
    fn case_171_an_empty_line_says_nothing_and_an_unknown_word_is_shown() {
        for line in ["", "   ", "# down"] {
            assert_eq!(HookWord::parse(line), Ok(None), "{line:?}");
        }
        let unknown = HookWord::parse("fialed").unwrap_err();
        assert!(unknown.to_string().contains("fialed"), "{unknown}");
        assert_eq!(HookWord::parse(&"x".repeat(1000)).unwrap_err().0.len(), SHOWN_CHARS);
    }
}
