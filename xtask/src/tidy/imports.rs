//! Who may depend on whom.
//!
//! What decides (types, availability, placement) must not know what talks to the world, so that it can be
//! tested and simulated without it. The compiler would accept any edge; this table is where one is argued.

use std::collections::{BTreeMap, VecDeque};

use super::Finding;
use super::tree::Tree;

/// Each crate of ours with those of ours that it may need to run or to be built. Tests may need more.
const TABLE: &[(&str, &[&str])] = &[
    ("usher-types", &[]),
    ("usher-availability", &["usher-types"]),
    ("usher-placement", &["usher-types", "usher-availability"]),
    ("usher-proto", &["usher-types"]),
    ("usher-runtime", &["usher-types"]),
    (
        "usher-agent",
        &["usher-types", "usher-availability", "usher-placement", "usher-proto", "usher-runtime"],
    ),
    (
        "usher-coordinator",
        &["usher-types", "usher-availability", "usher-placement", "usher-proto", "usher-runtime"],
    ),
    (
        "usher-client",
        &["usher-types", "usher-availability", "usher-placement", "usher-proto", "usher-runtime"],
    ),
    ("usher-simulator", &["usher-types", "usher-availability", "usher-placement"]),
    (
        "usherctl",
        &[
            "usher-types",
            "usher-placement",
            "usher-proto",
            "usher-runtime",
            "usher-agent",
            "usher-client",
            "usher-coordinator",
            "usher-simulator",
        ],
    ),
    (
        "usher-integration-tests",
        &[
            "usher-types",
            "usher-availability",
            "usher-placement",
            "usher-proto",
            "usher-runtime",
            "usher-agent",
            "usher-client",
            "usher-coordinator",
            "usher-simulator",
            "usherctl",
        ],
    ),
    (
        "usher-simulation",
        &[
            "usher-types",
            "usher-availability",
            "usher-placement",
            "usher-proto",
            "usher-runtime",
            "usher-agent",
            "usher-coordinator",
        ],
    ),
    ("xtask", &[]),
];

/// The crates that decide: given the same input they give the same answer.
pub(super) const PURE: &[&str] = &["usher-types", "usher-availability", "usher-placement"];

/// Libraries that bring a runtime, a socket or a wire type with them.
const IMPURE: &[&str] = &["tokio", "mio", "hyper", "tonic", "prost", "zbus", "redb"];

pub(super) fn check_table(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in tree.packages.iter().filter(|package| package.ours) {
        let Some((_, allowed)) = TABLE.iter().find(|(name, _)| *name == package.name) else {
            let message = "has no row in the import table: add one to xtask/src/tidy/imports.rs";
            findings.push(Finding::error(&package.name, message));
            continue;
        };
        let ours = package.needs.iter().filter_map(|id| tree.package(id)).filter(|needed| needed.ours);
        for needed in ours.filter(|needed| !allowed.contains(&needed.name.as_str())) {
            let allowed = if allowed.is_empty() { "none of ours".to_owned() } else { allowed.join(", ") };
            let edge = format!("{} -> {} is not allowed; it may need {allowed}", package.name, needed.name);
            findings.push(Finding::error(&package.name, edge));
        }
    }
    findings
}

pub(super) fn check_pure_dependencies(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in tree.packages.iter().filter(|package| PURE.contains(&package.name.as_str())) {
        for (name, way) in reached_from(tree, &package.id) {
            if IMPURE.contains(&name) {
                findings.push(Finding::error(&package.name, format!("is pure but needs {name}: {way}")));
            }
        }
    }
    findings
}

/// Every package that one leads to, by name, with a shortest way to it.
fn reached_from<'tree>(tree: &'tree Tree, start: &str) -> BTreeMap<&'tree str, String> {
    let mut ways: BTreeMap<&str, String> = BTreeMap::new();
    let mut queue: VecDeque<_> =
        tree.package(start).into_iter().map(|package| (package, String::new())).collect();
    while let Some((package, before)) = queue.pop_front() {
        if ways.contains_key(package.name.as_str()) {
            continue;
        }
        let way =
            if before.is_empty() { package.name.clone() } else { format!("{before} -> {}", package.name) };
        ways.insert(&package.name, way.clone());
        queue.extend(package.needs.iter().filter_map(|id| tree.package(id)).map(|next| (next, way.clone())));
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::super::tree::build::{package, packages};
    use super::*;

    fn messages(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|finding| finding.message.as_str()).collect()
    }

    #[test]
    fn an_edge_against_the_table_is_named() {
        let tree = packages(vec![package("usher-types", &["usher-proto"]), package("usher-proto", &[])]);
        let expected = ["usher-types -> usher-proto is not allowed; it may need none of ours"];
        assert_eq!(messages(&check_table(&tree)), expected);
    }

    #[test]
    fn only_the_command_line_may_need_the_agent() {
        let tree = packages(vec![
            package("usher-agent", &[]),
            package("usher-coordinator", &["usher-agent"]),
            package("usherctl", &["usher-agent"]),
        ]);
        let findings = check_table(&tree);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].message.starts_with("usher-coordinator -> usher-agent is not allowed"));
    }

    #[test]
    fn a_crate_without_a_row_is_an_error() {
        let findings = check_table(&packages(vec![package("usher-sidecar", &[])]));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].place, "usher-sidecar");
    }

    #[test]
    fn a_pure_crate_that_leads_to_a_runtime_is_refused_with_the_way() {
        let tree = packages(vec![
            package("usher-placement", &["papaya"]),
            package("papaya", &["seize"]),
            package("seize", &["tokio", "papaya"]),
            package("tokio", &[]),
            package("usher-runtime", &["tokio"]),
        ]);
        let expected = ["is pure but needs tokio: usher-placement -> papaya -> seize -> tokio"];
        assert_eq!(messages(&check_pure_dependencies(&tree)), expected);
    }

    #[test]
    fn the_table_names_each_crate_once_and_no_crate_above_itself() {
        for (at, (name, allowed)) in TABLE.iter().enumerate() {
            let above: Vec<&str> = TABLE[..at].iter().map(|(name, _)| *name).collect();
            assert!(!above.contains(name), "{name} has two rows");
            assert!(allowed.iter().all(|needed| above.contains(needed)), "{name} may need a crate below it");
        }
    }
}
