//! The rules of the house that neither the compiler nor clippy can know, as code.
//!
//! A rule reads the [`Tree`] and returns what is wrong with it; none touches a disk or a process, so each is
//! tested on a bad tree written in a few lines. A rule that has never been seen to fail is a rule that may be
//! checking nothing. The rules also run as a test of this crate, so that no test command misses them.

mod code;
mod imports;
mod licences;
mod links;
mod manifests;
mod rule_table;
mod sources;
mod tree;

use std::fmt;

use anyhow::{Context, bail};

use crate::workspace::Workspace;
use tree::Tree;

/// Every rule, in the order in which its findings are printed.
const RULES: &[Rule] = &[
    Rule {
        name: "imports",
        says: "a crate depends only on those of ours that its row of the import table allows",
        check: imports::check_table,
    },
    Rule {
        name: "pure-dependencies",
        says: "no way leads from a pure crate to a library that does I/O",
        check: imports::check_pure_dependencies,
    },
    Rule {
        name: "pure-sources",
        says: "a pure crate sees no clock, no thread and no socket",
        check: sources::check_pure,
    },
    Rule {
        name: "unfinished",
        says: "no todo!, unimplemented!, dbg! or #[ignore]",
        check: sources::check_unfinished,
    },
    Rule {
        name: "long-files",
        says: "a source file of more than 500 lines is asking a question (a warning)",
        check: sources::check_length,
    },
    Rule {
        name: "home-paths",
        says: "no file names a person's home folder",
        check: sources::check_home_paths,
    },
    Rule {
        name: "links",
        says: "a link in a Markdown file to a file of the repository leads somewhere",
        check: links::check,
    },
    Rule {
        name: "manifests",
        says: "every crate says what it is for and inherits licence, lints and publish; no wildcard version",
        check: manifests::check,
    },
    Rule {
        name: "licences",
        says: "every package of Cargo.lock has a licence, a name and a source that deny.toml allows",
        check: licences::check,
    },
    Rule {
        name: "rule-table",
        says: "each rule of the decision core is named by a test, and the table of both is up to date",
        check: rule_table::check,
    },
];

struct Rule {
    name: &'static str,
    says: &'static str,
    check: fn(&Tree) -> Vec<Finding>,
}

/// One thing that a rule found.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    weight: Weight,
    /// A file, `file:line`, or a package.
    place: String,
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// The tree may not land.
    Error,
    /// A person should look.
    Warning,
}

impl Finding {
    fn error(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { weight: Weight::Error, place: place.into(), message: message.into() }
    }

    fn warning(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { weight: Weight::Warning, place: place.into(), message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weight = match self.weight {
            Weight::Error => "error",
            Weight::Warning => "warning",
        };
        write!(f, "{weight}: {}: {}", self.place, self.message)
    }
}

/// Prints each rule with what it says.
pub(crate) fn print_rules() {
    for rule in RULES {
        println!("{:18} {}", rule.name, rule.says);
    }
}

/// Checks every rule and prints every finding.
///
/// # Errors
///
/// When the tree cannot be read, or at least one finding is an error.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    let tree = Tree::load(workspace)?;
    let (mut errors, mut warnings) = (0, 0);
    for rule in RULES {
        for finding in (rule.check)(&tree) {
            println!("  {finding} [{}]", rule.name);
            match finding.weight {
                Weight::Error => errors += 1,
                Weight::Warning => warnings += 1,
            }
        }
    }
    println!(
        "  tidy: {} rules on {} files and {} packages: {errors} errors, {warnings} warnings",
        RULES.len(),
        tree.files.len(),
        tree.packages.len()
    );
    if errors > 0 {
        bail!("the tree breaks the rules in {errors} places");
    }
    Ok(())
}

/// Writes the table of rules and tests. Whether it has changed.
///
/// # Errors
///
/// When the tree cannot be read or the table not be written.
pub(crate) fn write_rule_table(workspace: &Workspace) -> anyhow::Result<bool> {
    let table = rule_table::table(&Tree::load(workspace)?);
    let path = workspace.root.join(rule_table::TABLE);
    if std::fs::read_to_string(&path).is_ok_and(|current| current == table) {
        return Ok(false);
    }
    std::fs::write(&path, table).with_context(|| format!("writing {}", path.display()))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_keeps_the_rules() {
        let tree = Tree::load(&Workspace::load().unwrap()).unwrap();
        let findings = RULES.iter().flat_map(|rule| (rule.check)(&tree));
        let errors = findings.filter(|finding| finding.weight == Weight::Error);
        let errors: Vec<String> = errors.map(|finding| finding.to_string()).collect();
        assert!(errors.is_empty(), "{}", errors.join("\n"));
    }
}
