//! What may not stand in a source file.

use super::Finding;
use super::code::{code_only, is_name, std_paths, without_tests};
use super::tree::{TextFile, Tree};

/// The folders of the pure crates' code, each with the paths that it may use although they are forbidden.
const PURE_FOLDERS: &[(&str, &[&str])] = &[
    // An address of a host is a plain value; its parser is the standard library's.
    (
        "common/types/src/",
        &["std::net::IpAddr", "std::net::Ipv4Addr", "std::net::Ipv6Addr", "std::net::AddrParseError"],
    ),
    ("common/availability/src/", &[]),
    ("common/placement/src/", &[]),
];

/// Clocks, threads and sockets. Time comes in as an argument, or no test and no simulation could say what
/// time it is.
const IMPURE_PATHS: &[&str] =
    &["std::time::Instant", "std::time::SystemTime", "std::time::UNIX_EPOCH", "std::thread", "std::net"];

/// Words that say that something is not finished, or is finished but switched off.
const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "dbg!", "#[ignore"];

/// Longer than this, a file asks whether it answers one question.
const LONG_FILE_LINES: usize = 500;

/// Folders that are somebody's own on some machine. A pattern such as `/home/*` names nobody's.
const HOME_FOLDERS: &[&str] = &["/home/", "/root/", "/Users/"];

pub(super) fn check_pure(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (folder, allowed) in PURE_FOLDERS {
        for file in tree.rust_files().filter(|file| file.path.starts_with(folder) && !file.is_test()) {
            let code = without_tests(&code_only(&file.text));
            for (line, path) in std_paths(&code) {
                if is_impure(&path) && !allowed.iter().any(|allowed| begins_with(&path, allowed)) {
                    let message = format!("{path} in a pure crate: take what it gives as an argument");
                    findings.push(Finding::error(format!("{}:{line}", file.path), message));
                }
            }
        }
    }
    findings
}

/// Whether a path names something impure, or a whole module through which something impure could be named.
fn is_impure(path: &str) -> bool {
    let module = path.strip_suffix("::*").unwrap_or(path);
    IMPURE_PATHS.iter().any(|impure| begins_with(path, impure) || begins_with(impure, module))
}

fn begins_with(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

pub(super) fn check_unfinished(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust_files() {
        for (number, line) in code_only(&file.text).lines().enumerate() {
            for word in UNFINISHED.iter().filter(|word| has_word(line, word)) {
                let message = format!("{word} is not finished work");
                findings.push(Finding::error(format!("{}:{}", file.path, number + 1), message));
            }
        }
    }
    findings
}

fn has_word(line: &str, word: &str) -> bool {
    let starts_word = |at: usize| line[..at].chars().next_back().is_none_or(|before| !is_name(before));
    line.match_indices(word).any(|(at, _)| starts_word(at))
}

pub(super) fn check_length(tree: &Tree) -> Vec<Finding> {
    let lines = |file: &TextFile| file.text.lines().count();
    tree.rust_files()
        .filter(|file| !file.is_test() && lines(file) > LONG_FILE_LINES)
        .map(|file| {
            Finding::warning(&file.path, format!("{} lines: which question does it answer?", lines(file)))
        })
        .collect()
}

pub(super) fn check_home_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        for (number, line) in file.text.lines().enumerate() {
            if let Some(folder) = HOME_FOLDERS.iter().find(|folder| names_a_home(line, folder)) {
                let message = format!("a path below {folder} exists on one person's machine only");
                findings.push(Finding::error(format!("{}:{}", file.path, number + 1), message));
            }
        }
    }
    findings
}

fn names_a_home(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + folder.len()..].chars().next();
        // Behind a name the folder is part of a longer path, such as /srv/home/.
        before.is_none_or(|char| !is_name(char) && char != '.')
            && after.is_some_and(|char| is_name(char) || char == '.')
    })
}

#[cfg(test)]
mod tests {
    use super::super::Weight;
    use super::super::tree::build::{file, files};
    use super::*;

    fn places(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|finding| finding.place.as_str()).collect()
    }

    #[test]
    fn a_clock_in_a_pure_crate_is_found_however_it_is_imported() {
        let ways = [
            "let now = std::time::Instant::now();",
            "use std::time::{Duration, Instant};",
            "use std::{fmt, time::SystemTime};",
            "use std::time;",
            "use std::time::*;",
            "use std::{time as t};",
            "use std::thread;",
            "use std::net::TcpStream;",
            "use std::net::IpAddr;",
        ];
        for way in ways {
            let tree = file("common/placement/src/farm/grace.rs", &format!("//! Grace.\n{way}\n"));
            assert_eq!(places(&check_pure(&tree)), ["common/placement/src/farm/grace.rs:2"], "{way}");
        }
    }

    #[test]
    fn durations_comments_and_tests_are_no_clock() {
        let tree = files(&[
            ("common/types/src/lib.rs", "use std::{net::IpAddr, time::Duration}; // std::time::Instant\n"),
            ("common/placement/src/a.rs", "#[cfg(test)]\nmod tests {\n    use std::time::Instant;\n}\n"),
            ("common/placement/src/a/tests.rs", "use std::thread;"),
            ("common/placement/tests/scenarios.rs", "use std::net;"),
            ("agent/src/lib.rs", "use std::thread;"),
        ]);
        assert_eq!(check_pure(&tree), []);
    }

    #[test]
    fn unfinished_work_is_found_in_code_and_not_in_words() {
        let code =
            "fn a() {\n    todo!()\n}\n#[ignore = \"slow\"]\nfn b() { x(\"dbg!\") } // unimplemented!\n";
        let findings = check_unfinished(&file("agent/tests/a.rs", code));
        assert_eq!(places(&findings), ["agent/tests/a.rs:2", "agent/tests/a.rs:4"]);
    }

    #[test]
    fn a_long_file_is_a_warning_and_a_long_test_is_not() {
        let text = "\n".repeat(LONG_FILE_LINES + 1);
        let tree = files(&[("a/src/b.rs", &text), ("a/tests/b.rs", &text), ("a/src/c.rs", &text[1..])]);
        let findings = check_length(&tree);
        assert_eq!(places(&findings), ["a/src/b.rs"]);
        assert_eq!(findings[0].weight, Weight::Warning);
    }

    #[test]
    fn a_persons_home_is_found_and_a_pattern_of_homes_is_not() {
        for folder in HOME_FOLDERS {
            let bad = file("docs/a.md", &format!("see\n`{folder}ada/usher`\n"));
            assert_eq!(places(&check_home_paths(&bad)), ["docs/a.md:2"], "{folder}");
            let fine =
                file("a.md", &format!("{folder}*/projects {folder} /srv{folder}x example.org{folder}y"));
            assert_eq!(check_home_paths(&fine), [], "{folder}");
        }
    }
}
