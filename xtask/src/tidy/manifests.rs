//! Does every crate say what the workspace expects of it?

use toml::{Table, Value};

use super::Finding;
use super::tree::Tree;

/// What every crate takes from the workspace rather than saying it itself.
const INHERITED: &[(&str, &str)] = &[
    ("package", "version"),
    ("package", "edition"),
    ("package", "rust-version"),
    ("package", "license"),
    ("package", "publish"),
];

/// Fewer words describe nothing.
const DESCRIPTION_WORDS: usize = 3;

const DEPENDENCY_TABLES: &[&str] = &["dependencies", "dev-dependencies", "build-dependencies"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        if file.path != "Cargo.toml" && !file.path.ends_with("/Cargo.toml") {
            continue;
        }
        let messages = match file.text.parse::<Table>() {
            Ok(manifest) => complaints(&manifest),
            Err(error) => vec![format!("is not TOML: {}", error.message())],
        };
        findings.extend(messages.into_iter().map(|message| Finding::error(&file.path, message)));
    }
    findings
}

fn complaints(manifest: &Table) -> Vec<String> {
    let mut complaints = Vec::new();
    if let Some(package) = manifest.get("package") {
        for (table, key) in INHERITED {
            if !is_inherited(manifest.get(*table).and_then(|table| table.get(key))) {
                complaints.push(format!("needs `{key}.workspace = true` in [{table}]"));
            }
        }
        if !is_inherited(manifest.get("lints")) {
            complaints.push("needs `workspace = true` in [lints]".into());
        }
        let description = package.get("description").and_then(Value::as_str).unwrap_or_default();
        if description.split_whitespace().count() < DESCRIPTION_WORDS {
            complaints.push("needs a description that says what the crate is for".into());
        }
    }
    let workspace = manifest.get("workspace").and_then(Value::as_table);
    for table in [Some(manifest), workspace].into_iter().flatten() {
        complaints.extend(wildcards(table).map(|name| format!("{name} needs a version, not any")));
    }
    complaints
}

fn is_inherited(value: Option<&Value>) -> bool {
    value.and_then(|value| value.get("workspace")).and_then(Value::as_bool) == Some(true)
}

/// Dependencies that any version would satisfy.
fn wildcards(table: &Table) -> impl Iterator<Item = &String> {
    let tables = DEPENDENCY_TABLES.iter().filter_map(|name| table.get(*name)?.as_table());
    tables
        .flatten()
        .filter(|(_, wanted)| {
            let version = wanted.as_str().or_else(|| wanted.get("version")?.as_str());
            let elsewhere = ["path", "workspace"].iter().any(|key| wanted.get(key).is_some());
            !elsewhere && version.is_none_or(|version| version.trim() == "*")
        })
        .map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::super::tree::build::file;
    use super::*;

    const GOOD: &str = "[package]\nname = \"x\"\ndescription = \"Says what hosts report\"\n\
        version.workspace = true\nedition.workspace = true\nrust-version.workspace = true\n\
        license.workspace = true\npublish.workspace = true\n[lints]\nworkspace = true\n\
        [dependencies]\nserde.workspace = true\n";

    fn messages(manifest: &str) -> Vec<String> {
        check(&file("common/x/Cargo.toml", manifest)).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_complete_manifest_passes_and_each_missing_line_is_named() {
        assert_eq!(messages(GOOD), Vec::<String>::new());
        for key in ["version", "edition", "rust-version", "license", "publish"] {
            let without = GOOD.replace(&format!("{key}.workspace = true\n"), "");
            assert!(
                messages(&without).contains(&format!("needs `{key}.workspace = true` in [package]")),
                "{key}"
            );
        }
        let own_licence = GOOD.replace("license.workspace = true", "license = \"MIT\"");
        assert_eq!(messages(&own_licence), ["needs `license.workspace = true` in [package]"]);
        assert_eq!(
            messages(&GOOD.replace("[lints]\nworkspace", "[lints]\nx")),
            ["needs `workspace = true` in [lints]"]
        );
    }

    #[test]
    fn a_placeholder_is_no_description() {
        let placeholder = GOOD.replace("Says what hosts report", "DESC");
        assert_eq!(messages(&placeholder), ["needs a description that says what the crate is for"]);
    }

    #[test]
    fn any_version_is_no_version() {
        let root =
            "[workspace.dependencies]\na = \"*\"\nb = { version = \"1\" }\nc = { path = \"c\" }\nd = {}\n";
        assert_eq!(messages(root), ["a needs a version, not any", "d needs a version, not any"]);
    }

    #[test]
    fn a_file_that_is_not_toml_is_named() {
        assert_eq!(messages("[package").len(), 1);
    }
}
