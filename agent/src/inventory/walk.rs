//! Which paths match a pattern?
//!
//! The walk begins at the longest folder without a wildcard and goes only as deep as the pattern can reach. It follows
//! symbolic links, since data often lies behind one, but never into a folder that it is inside of already. It is
//! bounded in depth and in entries, so that a pattern that says more than was meant does not read a whole disk.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use rustix::io::Errno;
use usher_types::Replica;

use super::config::GlobEntry;
use super::id_rule::IdRule;
use super::notes::Notes;
use super::watch::Watches;
use super::{InventoryError, MAX_FOUND, found};

/// Entries looked at for one pattern: some seconds of a local disk.
const MAX_LOOKED_AT: usize = 1_000_000;

/// Folders below the root; deeper trees are not made by people.
const MAX_DEPTH: usize = 32;

/// A pattern, split into the folder where the walk begins and what must match below it.
#[derive(Debug)]
pub(super) struct Pattern {
    base: PathBuf,
    matcher: GlobMatcher,
    /// Names below the base that a match can have at most.
    depth: usize,
    of_folders: bool,
    rule: IdRule,
    title: Option<String>,
}

impl Pattern {
    pub(super) fn new(entry: &GlobEntry) -> Result<Self, InventoryError> {
        let pattern = entry.pattern.as_str();
        let path = Path::new(pattern);
        if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
            return Err(InventoryError::NotAbsolute { pattern: pattern.to_owned() });
        }
        let of_folders = pattern.ends_with('/');
        let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        // The last part is always matched, so that a pattern without a wildcard has a name below its folder.
        let plain = parts.iter().take_while(|part| !part.contains(['*', '?', '[', '{', '\\'])).count();
        let (base, rest) = parts.split_at(plain.min(parts.len().saturating_sub(1)));
        let rest_text = rest.join("/");
        let glob = GlobBuilder::new(&rest_text)
            .literal_separator(true)
            .build()
            .map_err(|source| InventoryError::Pattern { pattern: pattern.to_owned(), source })?;
        // Braces may hide separators, so their depth is not counted but only bounded.
        let depth = if rest_text.contains("**") || rest_text.contains('{') { MAX_DEPTH } else { rest.len() };
        Ok(Self {
            base: Path::new("/").join(base.join("/")),
            matcher: glob.compile_matcher(),
            depth: depth.min(MAX_DEPTH),
            of_folders,
            rule: IdRule::parse(&entry.id)
                .map_err(|problem| InventoryError::Rule { rule: entry.id.clone(), problem })?,
            title: entry.title.clone(),
        })
    }
}

fn is_nowhere(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::LOOP)
}

/// What a walk found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) replicas: Vec<Replica>,
    /// Resources beyond the bound.
    pub(super) left_out: usize,
    pub(super) errors: Notes,
}

/// `path`, an absolute path of the host, below `root`.
pub(super) fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Looks for what matches, and has every folder watched before it is looked into.
pub(super) fn walk(pattern: &Pattern, root: &Path, watches: &mut Watches) -> Found {
    let found = Found::default();
    let mut walk = Walk { pattern, root, watches, inside: Vec::new(), looked_at: 0, found };
    walk.enter(Path::new(""), 1);
    if walk.looked_at > MAX_LOOKED_AT {
        let base = pattern.base.display();
        walk.found.errors.add(|| format!("{base}: more than {MAX_LOOKED_AT} entries: the rest is left out"));
    }
    walk.found
}

struct Walk<'a> {
    pattern: &'a Pattern,
    root: &'a Path,
    watches: &'a mut Watches,
    /// Device and inode of the folders that the walk is inside of.
    inside: Vec<(u64, u64)>,
    looked_at: usize,
    found: Found,
}

impl Walk<'_> {
    /// Looks at all entries of a folder, `relative` to the base, whose names are the `depth`th below it.
    fn enter(&mut self, relative: &Path, depth: usize) {
        let shown = self.pattern.base.join(relative);
        let folder = below(self.root, &shown);
        let identity = match fs::metadata(&folder) {
            Ok(metadata) => (metadata.dev(), metadata.ino()),
            Err(error) => return self.refused(&shown, &error),
        };
        if self.inside.contains(&identity) {
            return;
        }
        // First: what comes while it is looked into is then seen or told, perhaps both.
        self.watches.add(&folder);
        let entries = match fs::read_dir(&folder).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
            Ok(entries) => entries,
            Err(error) => return self.refused(&shown, &error),
        };
        let mut names: Vec<_> = entries.into_iter().map(|entry| entry.file_name()).collect();
        names.sort();
        self.inside.push(identity);
        for name in names {
            self.looked_at += 1;
            if self.looked_at > MAX_LOOKED_AT {
                break;
            }
            self.look_at(&relative.join(name), depth);
        }
        self.inside.pop();
    }

    fn look_at(&mut self, relative: &Path, depth: usize) {
        let shown = self.pattern.base.join(relative);
        let metadata = match fs::metadata(below(self.root, &shown)) {
            Ok(metadata) => metadata,
            // A file that went while we looked, a link to nothing, or to itself: there is nothing to serve.
            Err(error) if is_nowhere(&error) => return,
            Err(error) => return self.refused(&shown, &error),
        };
        let wanted = if self.pattern.of_folders { metadata.is_dir() } else { !metadata.is_dir() };
        if wanted && self.pattern.matcher.is_match(relative) {
            self.take(relative, &shown);
        }
        if metadata.is_dir() && depth < self.pattern.depth {
            self.enter(relative, depth + 1);
        }
    }

    fn take(&mut self, relative: &Path, shown: &Path) {
        let (Some(relative), Some(path)) = (relative.to_str(), shown.to_str()) else {
            return self.found.errors.add(|| format!("{}: its name is not UTF-8", shown.display()));
        };
        let id = self.pattern.rule.apply(relative, path);
        let id = id.ok_or_else(|| "its path lacks a part that its id is made of".to_owned());
        let (path, title) = (Some(path.to_owned()), self.pattern.title.clone());
        match id.and_then(|id| found(&id, path, title)) {
            Ok(_) if self.found.replicas.len() >= MAX_FOUND => self.found.left_out += 1,
            Ok(replica) => self.found.replicas.push(replica),
            // What cannot be an id, such as a path with a line feed, cannot be asked for either.
            Err(problem) => self.found.errors.add(|| format!("{}: {problem}", shown.display())),
        }
    }

    fn refused(&mut self, shown: &Path, error: &io::Error) {
        self.found.errors.add(|| format!("cannot look into {}: {error}", shown.display()));
    }
}
