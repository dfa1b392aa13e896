//! Where does one word of a line end and the next begin?
//!
//! Words are separated by blanks. Double quotes keep blanks, commas, `=` and `#` together; inside them `\"` and `\\`
//! stand for the quote and the backslash, and any other backslash for itself, so that `"CORP\alice"` needs no care. `#`
//! starts a comment where a word could start: `u#1` is a word. Every character remembers its column, so that whatever
//! is cut out of a word can still say where it stood.

use std::fmt;

use super::error::{SyntaxError, quoted};

/// A character of a word.
#[derive(Copy, Clone, Debug)]
struct Glyph {
    c: char,
    column: u32,
    is_quoted: bool,
}

/// A word or a part of one, quotes removed.
#[derive(Clone, Debug)]
pub(super) struct Text {
    line: u32,
    /// Where it starts; also of one that is empty.
    column: u32,
    glyphs: Vec<Glyph>,
}

impl Text {
    /// Whether it is exactly this, with or without quotes.
    pub(super) fn is(&self, other: &str) -> bool {
        self.glyphs.iter().map(|glyph| glyph.c).eq(other.chars())
    }

    /// Whether it is exactly this, without quotes.
    pub(super) fn is_bare(&self, other: &str) -> bool {
        self.is(other) && !self.glyphs.iter().any(|glyph| glyph.is_quoted)
    }

    /// Its first character, if that is not quoted.
    pub(super) fn first_bare(&self) -> Option<char> {
        self.glyphs.first().filter(|glyph| !glyph.is_quoted).map(|glyph| glyph.c)
    }

    /// Without its first `count` characters.
    pub(super) fn skip(&self, count: usize) -> Self {
        self.part(count.min(self.glyphs.len()), self.glyphs.len())
    }

    /// Its parts between unquoted separators; one part if there is none.
    pub(super) fn split(&self, separator: char) -> Vec<Self> {
        let mut parts = Vec::new();
        let mut start = 0;
        for (at, glyph) in self.glyphs.iter().enumerate() {
            if glyph.c == separator && !glyph.is_quoted {
                parts.push(self.part(start, at));
                start = at + 1;
            }
        }
        parts.push(self.part(start, self.glyphs.len()));
        parts
    }

    /// Before and after the first unquoted separator.
    pub(super) fn split_once(&self, separator: char) -> Option<(Self, Self)> {
        let at = self.glyphs.iter().position(|glyph| glyph.c == separator && !glyph.is_quoted)?;
        Some((self.part(0, at), self.part(at + 1, self.glyphs.len())))
    }

    /// Before and after the last unquoted separator.
    pub(super) fn rsplit_once(&self, separator: char) -> Option<(Self, Self)> {
        let at = self.glyphs.iter().rposition(|glyph| glyph.c == separator && !glyph.is_quoted)?;
        Some((self.part(0, at), self.part(at + 1, self.glyphs.len())))
    }

    /// `key=value`, if that is what it is: a key is of letters, digits, `_ . -`, and may end in `+`.
    pub(super) fn key_and_value(&self) -> Option<(Self, Self)> {
        let (key, value) = self.split_once('=')?;
        let last = key.glyphs.len().checked_sub(1)?;
        let is_key = key.glyphs.iter().enumerate().all(|(at, glyph)| {
            let may_be = glyph.c.is_ascii_alphanumeric() || matches!(glyph.c, '_' | '.' | '-');
            !glyph.is_quoted && (may_be || (glyph.c == '+' && at == last && last > 0))
        });
        is_key.then_some((key, value))
    }

    fn part(&self, start: usize, end: usize) -> Self {
        let column = match self.glyphs.get(start) {
            Some(glyph) => glyph.column,
            // Behind the last character.
            None => start.checked_sub(1).map_or(self.column, |last| self.glyphs[last].column + 1),
        };
        Self { line: self.line, column, glyphs: self.glyphs[start..end].to_vec() }
    }

    /// As an error shows it.
    pub(super) fn quoted(&self) -> String {
        quoted(&self.to_string())
    }

    /// Where it starts.
    pub(super) fn column(&self) -> u32 {
        self.column
    }

    /// Number of characters.
    pub(super) fn len(&self) -> usize {
        self.glyphs.len()
    }

    /// What is wrong here, and what may stand here.
    pub(super) fn fault(&self, fault: impl Into<String>, allowed: impl Into<String>) -> SyntaxError {
        SyntaxError { allowed: Some(allowed.into()), ..self.plain_fault(fault) }
    }

    /// What is wrong here.
    pub(super) fn plain_fault(&self, fault: impl Into<String>) -> SyntaxError {
        let Self { line, column, .. } = *self;
        SyntaxError { line, column, fault: fault.into(), allowed: None, suggestion: None }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        self.glyphs.iter().try_for_each(|glyph| f.write_char(glyph.c))
    }
}

/// A word and where it stands in the text that it was cut from.
#[derive(Clone, Debug)]
pub(super) struct Word {
    pub(super) text: Text,
    /// Bytes, quotes included.
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Cuts a line into words. `first_column` is that of its first character.
pub(super) fn words(source: &str, line: u32, first_column: u32) -> Result<Vec<Word>, SyntaxError> {
    let mut words = Vec::new();
    let mut open: Option<Word> = None;
    let mut quote: Option<u32> = None;
    let mut column = first_column;
    let mut chars = source.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let here = column;
        column = column.saturating_add(1);
        let error =
            |column, fault: String| SyntaxError { line, column, fault, allowed: None, suggestion: None };
        if quote.is_none() && c.is_whitespace() {
            words.extend(open.take());
            continue;
        }
        if open.is_none() && c == '#' {
            break;
        }
        if c.is_control() && c != '\t' {
            return Err(error(here, format!("control character U+{:04X}", u32::from(c))));
        }
        let empty = Text { line, column: here, glyphs: Vec::new() };
        let word = open.get_or_insert(Word { text: empty, start: at, end: at });
        word.end = at + c.len_utf8();
        if c == '"' {
            quote = if quote.is_some() { None } else { Some(here) };
            continue;
        }
        let mut glyph = Glyph { c, column: here, is_quoted: quote.is_some() };
        if let (true, '\\', Some((next, escaped @ ('"' | '\\')))) =
            (glyph.is_quoted, c, chars.peek().copied())
        {
            chars.next();
            column = column.saturating_add(1);
            glyph.c = escaped;
            word.end = next + 1;
        }
        word.text.glyphs.push(glyph);
    }
    if let Some(column) = quote {
        let fault = "this quote is not closed on its line".to_owned();
        return Err(SyntaxError { line, column, fault, allowed: None, suggestion: None });
    }
    words.extend(open);
    Ok(words)
}
