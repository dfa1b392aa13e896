//! What of a Rust file is code: comments, the inside of strings and, when asked, what only tests compile are
//! blanked, and every line stays where it was.
//!
//! A parser would know more and cost a dependency; the rules only ask whether a word is in the code, and in
//! which line.

/// The text with comments, strings and character literals blanked.
pub(super) fn code_only(text: &str) -> String {
    let mut scanner = Scanner { rest: text, code: String::with_capacity(text.len()), last: ' ' };
    while !scanner.rest.is_empty() {
        scanner.step();
    }
    scanner.code
}

struct Scanner<'text> {
    rest: &'text str,
    code: String,
    /// The character of code before `rest`: after a letter, an `r` does not begin a raw string.
    last: char,
}

impl Scanner<'_> {
    fn step(&mut self) {
        let rest = self.rest;
        let raw_quote = rest.strip_prefix('r').map(|after| after.trim_start_matches('#'));
        if rest.starts_with("//") {
            self.blank(rest.find('\n').unwrap_or(rest.len()));
        } else if rest.starts_with("/*") {
            self.blank(block_comment_len(rest));
        } else if rest.starts_with('"') {
            self.blank(string_len(rest));
        } else if raw_quote.is_some_and(|after| after.starts_with('"')) && !is_name(self.last) {
            self.blank(raw_string_len(rest));
        } else if let Some(len) = char_len(rest) {
            self.blank(len);
        } else {
            self.keep();
        }
    }

    fn keep(&mut self) {
        let mut chars = self.rest.chars();
        let Some(char) = chars.next() else { return };
        // `br"..."` and `cr"..."` are raw strings too: their prefix is no name.
        let raw_prefix = matches!(char, 'b' | 'c') && !is_name(self.last) && chars.as_str().starts_with('r');
        self.last = if raw_prefix { ' ' } else { char };
        self.code.push(char);
        self.rest = chars.as_str();
    }

    fn blank(&mut self, len: usize) {
        let (blanked, rest) = self.rest.split_at(len);
        self.code.extend(blanked.chars().map(|char| if char == '\n' { '\n' } else { ' ' }));
        self.last = ' ';
        self.rest = rest;
    }
}

pub(super) fn is_name(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

fn block_comment_len(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = &text[at..];
        let delimiter = rest.starts_with("/*") || rest.starts_with("*/");
        if rest.starts_with("/*") {
            depth += 1;
        } else if rest.starts_with("*/") {
            depth -= 1;
        }
        at += if delimiter { 2 } else { rest.chars().next().map_or(1, char::len_utf8) };
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_len(text: &str) -> usize {
    let mut escaped = false;
    for (at, char) in text.char_indices().skip(1) {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn raw_string_len(text: &str) -> usize {
    let hashes = text[1..].chars().take_while(|char| *char == '#').count();
    let end = format!("\"{}", "#".repeat(hashes));
    let body = hashes + 2;
    text[body..].find(&end).map_or(text.len(), |at| body + at + end.len())
}

/// The length of a character literal; none for a lifetime.
fn char_len(text: &str) -> Option<usize> {
    let body = text.strip_prefix('\'')?;
    if let Some(escape) = body.strip_prefix('\\') {
        let first = escape.chars().next()?.len_utf8();
        return escape[first..].find('\'').map(|at| 2 + first + at + 1);
    }
    let char = body.chars().next()?;
    body[char.len_utf8()..].starts_with('\'').then(|| char.len_utf8() + 2)
}

/// The code without the items under `#[cfg(test)]`. Wants the output of [`code_only`].
pub(super) fn without_tests(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = ["#[cfg(test)", "#[cfg(all(test"].iter().filter_map(|attr| rest.find(attr)).min() {
        let (before, item) = rest.split_at(at);
        let (item, after) = item.split_at(item_len(item));
        kept.push_str(before);
        kept.extend(item.chars().map(|char| if char == '\n' { '\n' } else { ' ' }));
        rest = after;
    }
    kept.push_str(rest);
    kept
}

/// Up to the item's closing brace, or its semicolon when it has none.
fn item_len(item: &str) -> usize {
    let mut depth = 0_usize;
    for (at, char) in item.char_indices() {
        match char {
            ';' if depth == 0 => return at + 1,
            '{' => depth += 1,
            '}' if depth <= 1 => return at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    item.len()
}

/// Every path of the standard library in the code, with its line: `use std::{time::{self, Instant}, fs}` has
/// three. `core::` counts as `std::`. Wants the output of [`code_only`].
pub(super) fn std_paths(code: &str) -> Vec<(usize, String)> {
    let mut paths = Vec::new();
    for root in ["std::", "core::"] {
        for (at, _) in code.match_indices(root) {
            let before = code[..at].chars().next_back();
            if before.is_none_or(|char| !is_name(char)) {
                let line = 1 + code[..at].matches('\n').count();
                let mut found = Vec::new();
                use_tree("std", &code[at + root.len()..], &mut found);
                paths.extend(found.into_iter().map(|path| (line, path)));
            }
        }
    }
    paths.sort();
    paths
}

/// Adds the paths that begin with `prefix` and go on with the use-tree at the start of `text`; returns what
/// is behind the tree.
fn use_tree<'text>(prefix: &str, text: &'text str, found: &mut Vec<String>) -> &'text str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = rest.trim_start_matches(|char: char| char.is_whitespace() || char == ',');
            let after = if rest.starts_with('}') { rest } else { use_tree(prefix, rest, found) };
            // Behind `as name` or in something that is no use-tree, go on at the next entry.
            let next = after.find([',', '}']).map_or("", |at| &after[at..]);
            match next.strip_prefix('}') {
                Some(behind) => return behind,
                None if next.is_empty() => return next,
                None => rest = next,
            }
        }
    }
    let len = text.find(|char| !is_name(char) && char != '*').unwrap_or(text.len());
    let (segment, rest) = text.split_at(len);
    let path = if segment == "self" { prefix.to_owned() } else { format!("{prefix}::{segment}") };
    match rest.strip_prefix("::").filter(|after| after.starts_with(|c: char| is_name(c) || "{*".contains(c)))
    {
        Some(after) => use_tree(&path, after, found),
        None => {
            found.push(path);
            rest
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_not_code() {
        let text = "a /* x /* y */ z */ b // c\nd \"e \\\" f\" g r#\"h \" i\"# j br\"k\" 'l' m<'n>(o)";
        let code = code_only(text);
        let words: Vec<&str> = code.split_whitespace().collect();
        assert_eq!(words, ["a", "b", "d", "g", "j", "b", "m<'n>(o)"]);
        assert_eq!(code.lines().count(), 2);
    }

    #[test]
    fn a_quote_in_a_character_does_not_open_a_string() {
        assert_eq!(code_only("x('\"'); y('\\''); z(\"a\")").replace(' ', ""), "x();y();z()");
        assert_eq!(code_only("f('é', \"é\\\\\") g").replace(' ', ""), "f(,)g");
    }

    #[test]
    fn what_only_tests_compile_is_left_out() {
        let code = "a();\n#[cfg(test)]\nmod tests {\n fn b() { c() }\n}\nd();\n#[cfg(test)]\nmod e;\nf();";
        assert_eq!(without_tests(code).split_whitespace().collect::<Vec<_>>(), ["a();", "d();", "f();"]);
        assert_eq!(without_tests(code).lines().count(), code.lines().count());
    }

    #[test]
    fn a_use_tree_has_all_its_paths() {
        let code = "use std::{fmt, time::{self, Duration as D, Instant}, net::*};\nstd::thread::spawn(|| 1);\n\
                    let v = std::vec::Vec::<u8>::new(); use core::time::Duration; my_std::x();";
        let paths: Vec<String> =
            std_paths(code).into_iter().map(|(line, path)| format!("{line} {path}")).collect();
        let expected = [
            "1 std::fmt",
            "1 std::net::*",
            "1 std::time",
            "1 std::time::Duration",
            "1 std::time::Instant",
            "2 std::thread::spawn",
            "3 std::time::Duration",
            "3 std::vec::Vec",
        ];
        assert_eq!(paths, expected);
    }
}
