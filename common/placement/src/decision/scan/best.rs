//! The best of all hosts, once it is known how each stands.
//!
//! Of each row of eight the lowest score is known, so that most rows need not be looked into.

use super::{ROW, Scan};
use crate::decision::{
    choose::Lowest,
    order::{Rank, code},
};

impl Scan {
    /// The lowest code. Absent: nobody is a candidate.
    pub(in crate::decision) fn best(&self) -> Option<u8> {
        self.codes.iter().copied().min().filter(|code| *code != code::NONE)
    }

    fn position(&self, n: usize) -> u32 {
        // Exact: pools have far less than 2^32 hosts.
        self.positions.as_ref().map_or(n as u32, |positions| positions[n])
    }

    /// The hosts of the class of `best`, in the order of the pool.
    pub(in crate::decision) fn members(&self, best: u8) -> impl Iterator<Item = (u32, Rank)> {
        let is_member = move |(_, code): &(usize, &u8)| **code >> 1 == best >> 1;
        let members = self.codes.iter().enumerate().filter(is_member);
        members.map(|(n, code)| (self.position(n), self.rank(n, *code)))
    }

    fn rank(&self, n: usize, code: u8) -> Rank {
        Rank { group: code & 1, score: self.scores[n] }
    }

    /// Lets `lowest` take the hosts of the class of `best`, in the order of the pool, but those that come after what it
    /// has for sure.
    pub(in crate::decision) fn offer_members(&self, best: u8, lowest: &mut Lowest) {
        for (row, score) in self.lowest.iter().enumerate() {
            if lowest.comes_before(*score) {
                continue;
            }
            let first = row * ROW;
            for (n, code) in self.codes.iter().enumerate().skip(first).take(ROW) {
                if *code >> 1 == best >> 1 {
                    lowest.take(self.position(n), self.rank(n, *code));
                }
            }
        }
    }

    /// The best candidates but `chosen`, at most `most`, best first.
    pub(in crate::decision) fn next_best(&self, chosen: u32, most: usize) -> Vec<(u32, Rank)> {
        // One more than wanted: the chosen one may be among them.
        let mut best = Best::new(most + 1);
        let only = self.only_code();
        if let Some(only) = only {
            // No score above the highest of so many lowest ones of rows can be among as many best ones.
            let mut bound = Best::new(most + 1);
            (0u32..).zip(&self.lowest).for_each(|(row, lowest)| bound.offer(only, *lowest, row));
            best.bound = bound.worst();
        }
        for (row, lowest) in self.lowest.iter().enumerate() {
            if only.is_some() && *lowest > best.bound.1 {
                continue;
            }
            let first = row * ROW;
            for (n, code) in self.codes.iter().enumerate().skip(first).take(ROW) {
                if *code != code::NONE {
                    best.offer(*code, self.scores[n], self.position(n));
                }
            }
        }
        let others = best.found.into_iter().filter(|(_, _, position)| *position != chosen).take(most);
        others.map(|(code, score, position)| (position, Rank { group: code & 1, score })).collect()
    }

    /// The code of all candidates, if they have one.
    fn only_code(&self) -> Option<u8> {
        let only = self.best()?;
        let others = self.codes.iter().filter(|code| (**code != only) & (**code != code::NONE)).count();
        (others == 0).then_some(only)
    }

    /// Hosts of the class of `best`.
    pub(in crate::decision) fn count(&self, best: u8) -> usize {
        self.codes.iter().filter(|code| **code >> 1 == best >> 1).count()
    }
}

/// The best few of many, the earlier first among equals.
struct Best {
    most: usize,
    found: Vec<(u8, f64, u32)>,
    /// What comes after this is none of them.
    bound: (u8, f64),
}

impl Best {
    fn new(most: usize) -> Self {
        Self { most, found: Vec::with_capacity(most + 1), bound: (code::NONE, f64::INFINITY) }
    }

    /// Of the worst of them; of nobody while there are fewer.
    fn worst(&self) -> (u8, f64) {
        let worst = self.found.get(self.most - 1);
        worst.map_or((code::NONE, f64::INFINITY), |(code, score, _)| (*code, *score))
    }

    fn offer(&mut self, code: u8, score: f64, position: u32) {
        if (code, score) > self.bound {
            return;
        }
        let before = |(other, than, _): &&(u8, f64, u32)| (*other, *than) <= (code, score);
        // Most are among the last.
        let at = self.found.len() - self.found.iter().rev().take_while(|other| !before(other)).count();
        if at < self.most {
            self.found.insert(at, (code, score, position));
            self.found.truncate(self.most);
            if self.found.len() == self.most {
                let worst = self.worst();
                self.bound = if worst < self.bound { worst } else { self.bound };
            }
        }
    }
}
