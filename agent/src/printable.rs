//! How is a text that holds parts of what was read shown to people?
//!
//! Errors quote what they could not understand, and that may be anything: megabytes, or characters that move the cursor
//! of the terminal in which they are read. Such a text also travels in every report until it is over, and a coordinator
//! refuses control characters. So it is cut, and what does not print is left out.

/// Bound of what a collector tells: some sentences.
pub(crate) const MOST_TOLD_CHARS: usize = 500;

/// What a collector tells, as it may be told.
pub(crate) fn told(text: Option<String>) -> Option<String> {
    text.map(|text| printable(&text, MOST_TOLD_CHARS))
}

/// `text` without control characters, of at most `most_chars` characters.
pub(crate) fn printable(text: &str, most_chars: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(most_chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_print_is_left_out_and_the_rest_is_cut() {
        assert_eq!(printable("a\u{1b}[31mb\nc\u{85}\u{7f}d", 99), "a[31mbcd");
        assert_eq!(printable("\0ääää", 3), "äää");
        let (quoted, nothing) = (told(Some("x\n".repeat(999))).unwrap(), told(None));
        assert_eq!((quoted, nothing), ("x".repeat(MOST_TOLD_CHARS), None));
    }
}
