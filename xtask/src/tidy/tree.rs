//! What the rules look at: the text files of the repository, the packages of Cargo.lock and deny.toml.

use std::path::Path;

use anyhow::{Context, anyhow};
use cargo_metadata::{DependencyKind, Metadata};

use crate::workspace::Workspace;

/// Folders with nothing in them that a person wrote.
const SKIPPED_FOLDERS: &[&str] = &[".git", "target", "__pycache__", "node_modules"];

/// Everything the rules may read.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) files: Vec<TextFile>,
    pub(super) packages: Vec<Package>,
    pub(super) deny: Deny,
}

/// A file that is valid UTF-8.
#[derive(Debug)]
pub(super) struct TextFile {
    /// From the root of the repository, with `/` between its parts.
    pub(super) path: String,
    pub(super) text: String,
}

/// One package of Cargo.lock.
#[derive(Debug, Default)]
pub(super) struct Package {
    /// Cargo's own id: names are not unique.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) ours: bool,
    /// The ids of what it needs to run or to be built; what only its tests need is not here.
    pub(super) needs: Vec<String>,
    /// An SPDX expression; absent when the package states none.
    pub(super) licence: Option<String>,
    /// Where it comes from; absent for a path.
    pub(super) source: Option<String>,
}

/// The parts of deny.toml that the rules go by.
#[derive(Debug, Default)]
pub(super) struct Deny {
    pub(super) allowed_licences: Vec<String>,
    /// Forbidden packages, each with the reason.
    pub(super) banned: Vec<(String, String)>,
}

impl Tree {
    /// Reads the repository.
    ///
    /// # Errors
    ///
    /// When a folder or file cannot be read, or deny.toml is not as expected.
    pub(super) fn load(workspace: &Workspace) -> anyhow::Result<Self> {
        let mut files = Vec::new();
        collect(&workspace.root, &workspace.root, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let deny = std::fs::read_to_string(workspace.root.join("deny.toml")).context("reading deny.toml")?;
        Ok(Self { files, packages: packages(&workspace.metadata)?, deny: Deny::parse(&deny)? })
    }

    /// The files of Rust.
    pub(super) fn rust_files(&self) -> impl Iterator<Item = &TextFile> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    pub(super) fn package(&self, id: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.id == id)
    }
}

impl TextFile {
    /// Whether only tests are compiled from it: by convention, and all of ours keep to it.
    pub(super) fn is_test(&self) -> bool {
        let (folders, name) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        name == "tests.rs"
            || name.ends_with("_tests.rs")
            || folders.split('/').any(|folder| folder == "tests" || folder == "integration-tests")
    }
}

impl Deny {
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let table: toml::Table = text.parse().context("parsing deny.toml")?;
        let list = |section: &str, key: &str| {
            let value = table.get(section).and_then(|section| section.get(key)?.as_array());
            value.ok_or_else(|| anyhow!("deny.toml has no list {section}.{key}"))
        };
        let mut deny = Self::default();
        for licence in list("licenses", "allow")? {
            let licence = licence.as_str().context("deny.toml: a licence that is not a string")?;
            deny.allowed_licences.push(licence.to_owned());
        }
        for ban in list("bans", "deny")? {
            let field = |key: &str| ban.get(key)?.as_str().map(str::to_owned);
            let name = field("crate").context("deny.toml: a ban without `crate`")?;
            deny.banned.push((name, field("reason").context("deny.toml: a ban without `reason`")?));
        }
        Ok(deny)
    }
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<TextFile>) -> anyhow::Result<()> {
    for entry in folder.read_dir().with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        let path = entry.path();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if !SKIPPED_FOLDERS.iter().any(|skipped| entry.file_name() == *skipped) {
                collect(root, &path, files)?;
            }
        } else if kind.is_file() {
            let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            let name = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
            // What is not text has no rules.
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(TextFile { path: name, text });
            }
        }
    }
    Ok(())
}

fn packages(metadata: &Metadata) -> anyhow::Result<Vec<Package>> {
    let resolve = metadata.resolve.as_ref().context("cargo metadata without resolved dependencies")?;
    let mut packages = Vec::with_capacity(resolve.nodes.len());
    for node in &resolve.nodes {
        let package = &metadata[&node.id];
        let for_use = |kind: DependencyKind| kind != DependencyKind::Development;
        let needs = node.deps.iter().filter(|dep| dep.dep_kinds.iter().any(|kind| for_use(kind.kind)));
        packages.push(Package {
            id: node.id.repr.clone(),
            name: package.name.to_string(),
            ours: metadata.workspace_members.contains(&node.id),
            needs: needs.map(|dep| dep.pkg.repr.clone()).collect(),
            licence: package.license.clone(),
            source: package.source.as_ref().map(|source| source.repr.clone()),
        });
    }
    Ok(packages)
}

/// Trees for the tests of the rules.
#[cfg(test)]
pub(super) mod build {
    use super::{Package, TextFile, Tree};

    pub(in crate::tidy) fn file(path: &str, text: &str) -> Tree {
        files(&[(path, text)])
    }

    pub(in crate::tidy) fn files(files: &[(&str, &str)]) -> Tree {
        let text_file = |(path, text): &(&str, &str)| TextFile { path: (*path).into(), text: (*text).into() };
        Tree { files: files.iter().map(text_file).collect(), ..Tree::default() }
    }

    /// A package whose id is its name; it is ours when it is called as ours are.
    pub(in crate::tidy) fn package(name: &str, needs: &[&str]) -> Package {
        Package {
            id: name.into(),
            name: name.into(),
            ours: name.starts_with("usher") || name == "xtask",
            needs: needs.iter().map(|id| (*id).into()).collect(),
            licence: Some("MIT".into()),
            source: None,
        }
    }

    pub(in crate::tidy) fn packages(packages: Vec<Package>) -> Tree {
        Tree { packages, ..Tree::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_read_and_what_is_built_is_not() {
        let tree = Tree::load(&Workspace::load().unwrap()).unwrap();
        let has = |path: &str| tree.files.iter().any(|file| file.path == path);
        assert!(has("xtask/src/tidy/tree.rs") && has(".ci/run") && has("deny.toml"));
        assert!(!tree.files.iter().any(|file| file.path.starts_with("target/")));
        let types = tree.packages.iter().find(|package| package.name == "usher-types").unwrap();
        let needs = |name: &str| types.needs.iter().any(|id| tree.package(id).unwrap().name == name);
        assert!(types.ours && needs("serde"), "{types:?}");
        assert!(!needs("proptest"), "what only tests need is not a dependency");
    }

    #[test]
    fn a_deny_file_without_its_lists_is_refused() {
        assert!(Deny::parse("[licenses]\nallow = []\n").is_err());
        assert!(Deny::parse("[licenses]\n[bans]\ndeny = []\n").is_err());
        assert!(Deny::parse("[licenses]\nallow = []\n[bans]\ndeny = [{ crate = \"x\" }]\n").is_err());
    }
}
