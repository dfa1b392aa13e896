//! What was read of the cells?
//!
//! In most pools all of them; in a pool too large for that, those that were drawn, and those of the hosts that the request
//! is about. A host that was not read is one of which nothing is known: nobody is placed there.

use std::ops::Index;

use crate::farm::{CellWord, PoolView};

static NOT_READ: CellWord = CellWord::UNKNOWN;

/// Cells as a decision uses them.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Words<'a> {
    /// Of every host, in the order of the pool.
    All(&'a [CellWord]),
    /// Of some hosts, by position, in ascending order.
    Drawn(&'a [(u32, CellWord)]),
}

impl<'a> From<&'a Vec<CellWord>> for Words<'a> {
    fn from(words: &'a Vec<CellWord>) -> Self {
        Self::All(words)
    }
}

impl<'a> Words<'a> {
    fn at(self, position: usize) -> &'a CellWord {
        let word = match self {
            Self::All(words) => words.get(position),
            Self::Drawn(words) => {
                let found = words.binary_search_by_key(&position, |(position, _)| *position as usize);
                found.ok().map(|at| &words[at].1)
            }
        };
        word.unwrap_or(&NOT_READ)
    }
}

impl Index<usize> for Words<'_> {
    type Output = CellWord;

    fn index(&self, position: usize) -> &CellWord {
        self.at(position)
    }
}

/// Cells as they were read.
#[derive(Clone, PartialEq, Debug)]
pub enum ReadWords {
    /// See [`Words::All`].
    All(Vec<CellWord>),
    /// See [`Words::Drawn`].
    Drawn(Vec<(u32, CellWord)>),
}

impl ReadWords {
    /// Reads those of every host.
    pub(super) fn all(pool: &PoolView) -> Self {
        Self::All(pool.words())
    }

    /// Reads those of the hosts at these positions, which ascend.
    pub(super) fn of(pool: &PoolView, positions: &[u32]) -> Self {
        let read = |position: &u32| (*position, pool.members.word(*position as usize));
        Self::Drawn(positions.iter().map(read).collect())
    }

    /// For a decision.
    pub fn as_words(&self) -> Words<'_> {
        match self {
            Self::All(words) => Words::All(words),
            Self::Drawn(words) => Words::Drawn(words),
        }
    }

    /// Of how many hosts.
    pub const fn len(&self) -> usize {
        match self {
            Self::All(words) => words.len(),
            Self::Drawn(words) => words.len(),
        }
    }

    /// Whether none was read.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What they take in memory, bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::All(words) => size_of_val(words.as_slice()),
            Self::Drawn(words) => size_of_val(words.as_slice()),
        }
    }
}

impl Index<usize> for ReadWords {
    type Output = CellWord;

    fn index(&self, position: usize) -> &CellWord {
        self.as_words().at(position)
    }
}
