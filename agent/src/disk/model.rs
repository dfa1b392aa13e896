//! A disk on which every step can fail, and which knows what a cut of the power may leave.
//!
//! Sure are contents that were flushed, and names in folders that were flushed. Everything since then may be there or
//! not, each for itself and in any order: content may be missing, cut short or full of zeros, a rename may not have
//! happened, or may have left both names. That is more than file systems of today do, and what they have done.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::{Disk, Outlives};

/// Names with what is in their files.
pub(crate) type Tree = BTreeMap<PathBuf, Vec<u8>>;

/// What goes wrong, and when. Steps count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The process, or the machine, ends before this step.
    Cut(usize),
    /// This step fails.
    Once(usize, Errno),
    /// This step and all after it fail.
    ForGood(usize, Errno),
}

/// What ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The process: whatever it did is there.
    Process,
    /// The power.
    Power,
}

#[derive(Debug, Clone)]
struct File {
    content: Vec<u8>,
    flushed: Option<Vec<u8>>,
}

/// What happened to names since their folder was flushed.
#[derive(Debug, Clone)]
enum Change {
    Named { name: PathBuf, file: usize },
    Renamed { from: PathBuf, to: PathBuf, file: usize },
    Removed { name: PathBuf },
}

#[derive(Debug, Default)]
struct State {
    files: Vec<File>,
    names: BTreeMap<PathBuf, usize>,
    sure: BTreeMap<PathBuf, usize>,
    changes: Vec<Change>,
    steps: usize,
    is_cut: bool,
}

/// All in one folder.
#[derive(Debug)]
pub(crate) struct ModelDisk {
    state: RefCell<State>,
    trouble: Option<Trouble>,
    has_links: bool,
}

impl ModelDisk {
    /// One that holds these files, flushed, and does all that is asked of it.
    pub(crate) fn holding(tree: &Tree) -> Self {
        let mut state = State::default();
        for (name, content) in tree {
            state.names.insert(name.clone(), state.files.len());
            state.files.push(File { content: content.clone(), flushed: Some(content.clone()) });
        }
        state.sure = state.names.clone();
        Self { state: RefCell::new(state), trouble: None, has_links: true }
    }

    pub(crate) fn with_trouble(self, trouble: Trouble) -> Self {
        Self { trouble: Some(trouble), ..self }
    }

    /// A file system whose files have one name each.
    pub(crate) fn without_links(self) -> Self {
        Self { has_links: false, ..self }
    }

    /// Steps that were tried so far.
    pub(crate) fn steps(&self) -> usize {
        self.state.borrow().steps
    }

    /// As the process sees it.
    pub(crate) fn tree(&self) -> Tree {
        let state = self.state.borrow();
        state.names.iter().map(|(name, file)| (name.clone(), state.files[*file].content.clone())).collect()
    }

    /// All that may be there after a cut now, each once.
    pub(crate) fn survivals(&self, cut: Cut) -> Vec<Tree> {
        if cut == Cut::Process {
            return vec![self.tree()];
        }
        let state = self.state.borrow();
        let mut survivals = BTreeSet::new();
        for names in name_survivals(&state.sure, &state.changes) {
            let files: BTreeSet<usize> = names.values().copied().collect();
            let mut trees = vec![BTreeMap::new()];
            for file in files {
                let contents = content_survivals(&state.files[file]);
                let with = |tree: &BTreeMap<usize, Vec<u8>>, content: &Vec<u8>| {
                    let mut tree = tree.clone();
                    tree.insert(file, content.clone());
                    tree
                };
                trees = trees
                    .iter()
                    .flat_map(|tree| contents.iter().map(move |content| with(tree, content)))
                    .collect();
            }
            let named = |contents: BTreeMap<usize, Vec<u8>>| -> Tree {
                names.iter().map(|(name, file)| (name.clone(), contents[file].clone())).collect()
            };
            survivals.extend(trees.into_iter().map(named));
        }
        survivals.into_iter().collect()
    }

    fn step(&self) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        let now = state.steps;
        state.is_cut |= matches!(self.trouble, Some(Trouble::Cut(at)) if at <= now);
        if state.is_cut {
            return Err(io::Error::other("this process has ended"));
        }
        state.steps += 1;
        match self.trouble {
            Some(Trouble::Once(at, errno)) if at == now => Err(errno.into()),
            Some(Trouble::ForGood(at, errno)) if at <= now => Err(errno.into()),
            _ => Ok(()),
        }
    }

    fn file(&self, name: &Path) -> io::Result<usize> {
        self.state.borrow().names.get(name).copied().ok_or_else(|| Errno::NOENT.into())
    }
}

impl Disk for ModelDisk {
    fn read(&self, path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
        self.step()?;
        let file = self.file(path)?;
        let mut content = self.state.borrow().files[file].content.clone();
        content.truncate(usize::try_from(most_bytes).unwrap_or(usize::MAX));
        Ok(content)
    }

    /// In four steps: the name, the first half, the rest, the flush.
    fn create(&self, path: &Path, content: &[u8], outlives: Outlives) -> io::Result<()> {
        self.step()?;
        if self.file(path).is_ok() {
            return Err(Errno::EXIST.into());
        }
        let file = {
            let mut state = self.state.borrow_mut();
            let file = state.files.len();
            state.files.push(File { content: Vec::new(), flushed: None });
            state.names.insert(path.to_owned(), file);
            state.changes.push(Change::Named { name: path.to_owned(), file });
            file
        };
        for written in [content.len() / 2, content.len()] {
            self.step()?;
            self.state.borrow_mut().files[file].content = content[..written].to_vec();
        }
        if outlives == Outlives::Power {
            self.step()?;
            self.state.borrow_mut().files[file].flushed = Some(content.to_vec());
        }
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        let file = self.file(from)?;
        if !self.has_links {
            return Err(Errno::PERM.into());
        }
        let mut state = self.state.borrow_mut();
        state.names.insert(to.to_owned(), file);
        state.changes.push(Change::Named { name: to.to_owned(), file });
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        let file = self.file(from)?;
        let mut state = self.state.borrow_mut();
        state.names.remove(from);
        state.names.insert(to.to_owned(), file);
        state.changes.push(Change::Renamed { from: from.to_owned(), to: to.to_owned(), file });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        self.file(path)?;
        let mut state = self.state.borrow_mut();
        state.names.remove(path);
        state.changes.push(Change::Removed { name: path.to_owned() });
        Ok(())
    }

    fn flush_folder(&self, _: &Path) -> io::Result<()> {
        self.step()?;
        let mut state = self.state.borrow_mut();
        state.sure = state.names.clone();
        state.changes.clear();
        Ok(())
    }
}

/// Every choice of changes, in their order; a rename may also have left both names.
fn name_survivals(sure: &BTreeMap<PathBuf, usize>, changes: &[Change]) -> BTreeSet<BTreeMap<PathBuf, usize>> {
    let mut survivals = BTreeSet::from([sure.clone()]);
    for change in changes {
        let mut changed = survivals.clone();
        for mut names in survivals {
            match change {
                Change::Named { name, file } => drop(names.insert(name.clone(), *file)),
                Change::Removed { name } => drop(names.remove(name)),
                Change::Renamed { from, to, file } => {
                    names.insert(to.clone(), *file);
                    let mut both = names.clone();
                    both.insert(from.clone(), *file);
                    changed.insert(both);
                    names.remove(from);
                }
            }
            changed.insert(names);
        }
        survivals = changed;
    }
    survivals
}

fn content_survivals(file: &File) -> BTreeSet<Vec<u8>> {
    let whole = &file.content;
    if file.flushed.as_ref() == Some(whole) {
        return BTreeSet::from([whole.clone()]);
    }
    let flushed = file.flushed.clone().unwrap_or_default();
    let cut_short = [whole.len() / 2, whole.len().saturating_sub(1)].map(|end| whole[..end].to_vec());
    let [half, nearly_all] = cut_short;
    BTreeSet::from([flushed, Vec::new(), half, nearly_all, vec![0; whole.len()], whole.clone()])
}
