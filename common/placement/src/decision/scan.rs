//! How do all hosts stand for one request, at once?
//!
//! What [`Assessment::standing`] says of one host is found here for all of them in two walks over the columns that the
//! snapshot brought along: the first finds who is a candidate in which class, and the largest numbers that loads are
//! compared with; the second the scores. Nothing is computed here that the columns do not hold: whatever is unusual, in
//! the host, in the request or in the pool, is asked of the assessment, host by host. Both give the same order.

mod best;
mod gate;
mod survey;

use self::{
    gate::{Factors, Gate},
    survey::{Survey, is_blind, set_scale},
};
use super::{Assessment, order::code, words::Words};
use crate::{
    farm::{CellWord, Columns, PoolView, Ranked, SeenWords, is_over},
    load::{Counts, LANES},
};

type Block<T> = [T; LANES];

/// Scores whose lowest is kept beside them, so that most need not be looked at.
const ROW: usize = 8;

/// How hosts stand, in the order of the words that were read.
#[derive(Debug)]
pub(super) struct Scan {
    /// Of drawn hosts; absent: each stands at its position.
    positions: Option<Vec<u32>>,
    codes: Vec<u8>,
    scores: Vec<f64>,
    /// Of each row, no candidate of which has a lower score.
    lowest: Vec<f64>,
}

/// Users per unit of capacity of the host at `position`, if others are compared with it.
pub(super) fn users_per_capacity(pool: &PoolView, position: usize, word: CellWord, adds: u32) -> f64 {
    let (columns, at) = pool.hosts.columns(position);
    match &columns.ranked {
        // Of a host without a tier it is 0.
        Ranked::Load(load) if !columns.all.is_limited || !is_over(columns.limit[at], word, adds) => {
            word.all_users() * load.per_capacity[at]
        }
        _ => 0.0,
    }
}

impl Scan {
    /// Of every host whose word was read. Sets what the assessment compares with.
    pub(super) fn of(assessment: &mut Assessment<'_>) -> Self {
        match assessment.inputs().words {
            Words::All(words) => Self::of_all(assessment, words),
            Words::Drawn(words) => Self::of_drawn(assessment, words),
        }
    }

    fn new(positions: Option<Vec<u32>>, hosts: usize) -> Self {
        Self {
            positions,
            codes: vec![code::NONE; hosts],
            scores: vec![f64::INFINITY; hosts],
            lowest: Vec::new(),
        }
    }

    /// Of every host, in which class it stands; sets what the assessment compares with. No code without candidates.
    pub(super) fn codes_of(assessment: &mut Assessment<'_>, words: &[CellWord]) -> Vec<u8> {
        let survey = Survey::of(assessment, words);
        set_scale(assessment, &survey);
        if is_blind(assessment, (survey.lost, survey.counted), &survey.codes) {
            return Vec::new();
        }
        let mut codes = survey.codes;
        for position in survey.odd {
            let standing = assessment.standing(position);
            codes[position as usize] = standing.map_or(code::NONE, |standing| standing.code());
        }
        codes
    }

    fn of_all(assessment: &mut Assessment<'_>, words: &[CellWord]) -> Self {
        let survey = Survey::of(assessment, words);
        let is_uniform = set_scale(assessment, &survey);
        let mut scan = Self { positions: None, codes: survey.codes, scores: Vec::new(), lowest: Vec::new() };
        let are_ruled_out = scan.rule_out(assessment);
        if is_blind(assessment, (survey.lost, survey.counted), &scan.codes) {
            assessment.set_blind(true);
            return Self::one_by_one(assessment);
        }
        let calm = if are_ruled_out { Vec::new() } else { survey.calm };
        scan.score(assessment, words, &calm, is_uniform);
        for position in survey.odd {
            scan.ask(assessment, position as usize, position);
        }
        scan
    }

    fn of_drawn(assessment: &mut Assessment<'_>, words: &[(u32, CellWord)]) -> Self {
        let inputs = assessment.inputs().clone();
        assessment.scale_by_drawn(words);
        let (gate, factors) = (Gate::of(&inputs), Factors::of(assessment));
        let (named, holders) = (assessment.named(), assessment.holders());
        let mut scan = Self::new(Some(words.iter().map(|(position, _)| *position).collect()), words.len());
        for (n, (position, word)) in words.iter().enumerate() {
            let (columns, at) = inputs.pool.hosts.columns(*position as usize);
            if columns.is_odd(at, inputs.now)
                || columns.lacks_some(at)
                || (columns.is_by_load() && !word.knows_users())
                || named.binary_search(position).is_ok()
            {
                scan.ask(assessment, n, *position);
            } else if holders.is_none_or(|holders| holders.binary_search(position).is_ok()) {
                let is_calm = gate.is_plain && columns.is_simple();
                let is_calm = is_calm && SeenWords::of(&[*word]).are_calm(gate.adds);
                // What need not be looked at need not come out of memory.
                scan.codes[n] = if is_calm {
                    columns.code[at]
                } else {
                    gate.code(columns, at, columns.tier[at], *word).0
                };
                if scan.codes[n] != code::NONE {
                    scan.scores[n] = factors.score(columns, at, *word);
                }
            }
        }
        scan.find_lowest();
        scan
    }

    /// Every host is asked for.
    fn one_by_one(assessment: &Assessment<'_>) -> Self {
        let mut scan = Self::new(None, assessment.inputs().pool.hosts.len());
        for position in assessment.positions() {
            scan.ask(assessment, position as usize, position);
        }
        scan.find_lowest();
        scan
    }

    /// How the host at `position` stands, from the assessment.
    fn ask(&mut self, assessment: &Assessment<'_>, n: usize, position: u32) {
        let standing = assessment.standing(position);
        self.codes[n] = standing.as_ref().map_or(code::NONE, |standing| standing.code());
        self.scores[n] = standing.map_or(f64::INFINITY, |standing| standing.rank.score);
        if let Some(lowest) = self.lowest.get_mut(n / ROW) {
            *lowest = lowest.min(self.scores[n]);
        }
    }

    fn find_lowest(&mut self) {
        let rows = self.scores.chunks(ROW);
        self.lowest = rows.map(|row| row.iter().copied().fold(f64::INFINITY, f64::min)).collect();
    }

    /// What the resource rules out. Whether there is one.
    fn rule_out(&mut self, assessment: &Assessment<'_>) -> bool {
        let Some(holders) = assessment.holders() else { return false };
        let mut next = 0;
        for holder in holders {
            let holder = (*holder as usize).min(self.codes.len());
            self.codes[next.min(holder)..holder].fill(code::NONE);
            next = holder + 1;
        }
        let next = next.min(self.codes.len());
        self.codes[next..].fill(code::NONE);
        true
    }

    /// The second walk. In calm chunks the columns know who is none of the candidates.
    fn score(&mut self, assessment: &Assessment<'_>, words: &[CellWord], calm: &[bool], is_uniform: bool) {
        let inputs = assessment.inputs();
        let factors = Factors::of(assessment);
        let lanes = words.len().next_multiple_of(LANES);
        self.scores.reserve_exact(lanes);
        self.lowest.reserve_exact(lanes / ROW);
        let (mut counts, mut scores, mut padded) = (Counts::default(), [0.0; LANES], NO_WORDS);
        for (number, chunk) in inputs.pool.hosts.chunks().iter().enumerate() {
            let first = number * LANES;
            let block = block_of(&words[first..], &mut padded);
            factors.scores(&chunk.columns, block, &mut counts, &mut scores);
            if !calm.get(number).is_some_and(|is_calm| *is_calm) {
                let codes = self.codes.iter().copied().skip(first).chain(std::iter::repeat(code::NONE));
                for (score, code) in scores.iter_mut().zip(codes) {
                    *score = if code == code::NONE { f64::INFINITY } else { *score };
                }
            }
            self.scores.extend_from_slice(&scores);
            self.lowest.extend_from_slice(&lowest_of_rows(&scores));
            if !is_uniform {
                self.ask_incomplete(assessment, &chunk.columns, block, first, words.len());
            }
        }
        self.scores.truncate(words.len());
        self.lowest.truncate(words.len().div_ceil(ROW));
    }

    fn ask_incomplete(
        &mut self,
        assessment: &Assessment<'_>,
        columns: &Columns,
        words: &Block<CellWord>,
        first: usize,
        len: usize,
    ) {
        for (at, word) in words.iter().enumerate().take(len - first) {
            let is_candidate = self.codes[first + at] != code::NONE;
            if is_candidate && (columns.lacks[at] != 0 || !word.knows_users()) {
                self.ask(assessment, first + at, (first + at) as u32);
            }
        }
    }
}

const NO_WORDS: Block<CellWord> = [CellWord::NOBODY; LANES];

/// The first words as a whole block, if need be in `padded`.
fn block_of<'a>(words: &'a [CellWord], padded: &'a mut Block<CellWord>) -> &'a Block<CellWord> {
    match words.first_chunk() {
        Some(whole) => whole,
        None => {
            padded[..words.len()].copy_from_slice(words);
            padded
        }
    }
}

/// The lowest of each row of scores, none of which is NaN.
fn lowest_of_rows(scores: &Block<f64>) -> [f64; LANES / ROW] {
    let mut lowest = [f64::INFINITY; LANES / ROW];
    for (lowest, row) in lowest.iter_mut().zip(scores.chunks_exact(ROW)) {
        for score in row {
            *lowest = if *score < *lowest { *score } else { *lowest };
        }
    }
    lowest
}

#[cfg(test)]
mod tests;
