//! Do the links of the Markdown files lead somewhere?

use std::collections::BTreeSet;

use super::Finding;
use super::tree::{TextFile, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let known = known_paths(tree);
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, target) in links(&file.text) {
            let place = || format!("{}:{line}", file.path);
            match resolve(file, target) {
                None => {
                    findings.push(Finding::error(place(), format!("{target} leads out of the repository")))
                }
                Some(path) if !known.contains(path.as_str()) => {
                    findings.push(Finding::error(place(), format!("{target} does not exist")));
                }
                Some(_) => {}
            }
        }
    }
    findings
}

/// The files of the tree and the folders they are in.
fn known_paths(tree: &Tree) -> BTreeSet<&str> {
    let mut known = BTreeSet::from([""]);
    for file in &tree.files {
        known.insert(&file.path);
        known.extend(file.path.match_indices('/').map(|(at, _)| &file.path[..at]));
    }
    known
}

/// The path from the root of the repository; none when it leads out of it.
fn resolve(file: &TextFile, target: &str) -> Option<String> {
    let target = target.split('#').next().unwrap_or_default();
    if target.is_empty() {
        return Some(file.path.clone());
    }
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let start = if target.starts_with('/') { "" } else { folder };
    let mut parts: Vec<&str> = start.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The targets of a Markdown text's links to files, with their lines: `[words](target)` and `[name]: target`.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut in_fence = false;
    for (number, line) in text.lines().enumerate() {
        let line_start = line.trim_start();
        if line_start.starts_with("```") || line_start.starts_with("~~~") {
            in_fence = !in_fence;
        } else if !in_fence {
            let definition = line_start.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
            let inline = line.match_indices("](").filter(|(at, _)| !in_code(&line[..*at]));
            let inline = inline.filter_map(|(at, _)| line[at + 2..].split_once(')'));
            let targets =
                definition.map(|(_, target)| target).into_iter().chain(inline.map(|(target, _)| target));
            let first_word = targets.filter_map(|target| target.split_whitespace().next());
            found.extend(
                first_word.filter(|target| !leads_elsewhere(target)).map(|target| (number + 1, target)),
            );
        }
    }
    found
}

/// Whether what follows is inside a code span.
fn in_code(before: &str) -> bool {
    before.matches('`').count() % 2 == 1
}

/// A link with a scheme leads to another place than the repository.
fn leads_elsewhere(target: &str) -> bool {
    let scheme = target.split_once(':').map_or("", |(scheme, _)| scheme);
    !scheme.is_empty() && scheme.chars().all(|char| char.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::super::tree::build::files;
    use super::*;

    #[test]
    fn a_link_to_a_file_that_is_not_there_is_found() {
        let text = "See [a](a.md), [b](../README.md#start)\nand [c](missing.md \"title\") [d](../../out.md).\n\n[e]: gone/\n";
        let tree = files(&[
            ("docs/index.md", text),
            ("docs/a.md", "[up](..) [root](/docs) [self](#a)"),
            ("README.md", ""),
        ]);
        let findings = check(&tree);
        let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
        let expected = [
            "error: docs/index.md:2: missing.md does not exist",
            "error: docs/index.md:2: ../../out.md leads out of the repository",
            "error: docs/index.md:4: gone/ does not exist",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn code_and_other_places_are_not_checked() {
        let text =
            "[a](https://example.org/x) <mailto:a@example.org> `[b](c)`\n```\n[d](e)\n```\n[f](mailto:x@y)\n";
        assert_eq!(check(&files(&[("README.md", text)])), []);
    }
}
