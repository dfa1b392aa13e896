//! The first walk over all hosts: who is a candidate in which class, and what are loads compared with?
//!
//! Where a chunk is calm, that is, nothing speaks for or against a host but its state, its codes are those that its columns
//! bring along. Else they are computed. The largest numbers of the pool are found on the way.

use usher_types::{HostState, Method, WhenBlind};

use super::{Block, LANES, NO_WORDS, block_of, gate::Gate};
use crate::{
    decision::{Assessment, blind, order::code},
    farm::{CellWord, Columns, NO_TIER, Ranked, SeenWords, lack},
    load::{Largest, LoadColumns},
};

/// What the first walk finds.
pub(super) struct Survey {
    pub(super) codes: Vec<u8>,
    /// Chunks whose codes are those of the columns.
    pub(super) calm: Vec<bool>,
    /// Hosts to be asked for one by one.
    pub(super) odd: Vec<u32>,
    /// Hosts that others are compared with.
    settled: u32,
    top_users: f64,
    top_processes: f64,
    users_unknown: bool,
    /// Metrics that some host lacks, and metrics that some host has.
    lacking: u8,
    held: u8,
    pub(super) lost: u32,
    pub(super) counted: u32,
}

/// A product and a quotient that stand for the same number differ by less than this share of it.
const ROUNDED: f64 = 1e-15;

impl Survey {
    pub(super) fn of(assessment: &Assessment<'_>, words: &[CellWord]) -> Self {
        let inputs = assessment.inputs();
        let gate = Gate::of(inputs);
        let named = assessment.named();
        let mut named = named.as_slice();
        let mut survey = Self {
            codes: Vec::with_capacity(words.len().next_multiple_of(LANES)),
            calm: Vec::with_capacity(inputs.pool.hosts.chunks().len()),
            odd: Vec::new(),
            settled: 0,
            top_users: 0.0,
            top_processes: 0.0,
            users_unknown: false,
            lacking: 0,
            held: 0,
            lost: 0,
            counted: 0,
        };
        let mut padded = NO_WORDS;
        for (number, chunk) in inputs.pool.hosts.chunks().iter().enumerate() {
            let (first, columns) = (number * LANES, &chunk.columns);
            let expired = columns.expired(inputs.now);
            let mut odd = expired;
            while let [position, rest @ ..] = named
                && (*position as usize) < first + LANES
            {
                odd |= 1 << (*position as usize % LANES);
                named = rest;
            }
            let block = block_of(&words[first..], &mut padded);
            let is_calm = odd == 0 && gate.is_plain && columns.is_simple();
            let is_calm = is_calm && SeenWords::of(block).are_calm(gate.adds);
            survey.calm.push(is_calm);
            if is_calm {
                survey.walk_calm(columns, block);
            } else {
                survey.walk(columns, &gate, block, odd);
            }
            survey.lost += (columns.lost & !expired).count_ones();
            survey.counted += columns.counted.count_ones();
            if odd | columns.odd != 0 {
                survey.note_odd(assessment, first, odd | columns.odd, expired);
            }
        }
        survey.codes.truncate(words.len());
        survey
    }

    /// Codes and all are what the columns say.
    fn walk_calm(&mut self, columns: &Columns, words: &Block<CellWord>) {
        self.codes.extend_from_slice(&columns.code);
        let Ranked::Load(load) = &columns.ranked else { return };
        let mut users = [0.0; LANES];
        for at in 0..LANES {
            users[at] = words[at].all_users() * load.per_capacity[at];
        }
        self.raise_users(load, words, &users);
        self.top_processes = self.top_processes.max(columns.all.top_processes);
        self.settled += columns.all.tiers;
        self.lacking |= columns.all.lacking;
        self.held |= columns.all.held;
    }

    fn walk(&mut self, columns: &Columns, gate: &Gate, words: &Block<CellWord>, odd: u64) {
        let mut tier = columns.tier;
        let mut left = odd;
        while left != 0 {
            tier[left.trailing_zeros() as usize] = NO_TIER;
            left &= left - 1;
        }
        let (mut block, mut compared) = ([code::NONE; LANES], [false; LANES]);
        for at in 0..LANES {
            (block[at], compared[at]) = gate.code(columns, at, tier[at], words[at]);
        }
        self.codes.extend_from_slice(&block);
        let Ranked::Load(load) = &columns.ranked else { return };
        let (mut users, mut processes) = ([0.0; LANES], [0.0; LANES]);
        for at in 0..LANES {
            let counts = f64::from(u8::from(compared[at]));
            users[at] = counts * words[at].all_users() * load.per_capacity[at];
            processes[at] = counts * load.processes[at];
        }
        self.raise_users(load, words, &users);
        self.top_processes = self.top_processes.max(largest(&processes));
        for at in (0..LANES).filter(|at| compared[*at]) {
            self.settled += 1;
            self.users_unknown |= !words[at].knows_users();
            self.lacking |= columns.lacks[at];
            self.held |= !columns.lacks[at];
        }
    }

    /// Users per unit of capacity were multiplied, to be quick; the largest is divided, as everywhere else: what is shown
    /// and what was compared are one number.
    fn raise_users(&mut self, load: &LoadColumns, words: &Block<CellWord>, users: &Block<f64>) {
        let nearly = largest(users) * (1.0 - ROUNDED);
        if nearly <= self.top_users * (1.0 - 2.0 * ROUNDED) {
            return;
        }
        for at in (0..LANES).filter(|at| users[*at] >= nearly) {
            self.top_users = self.top_users.max(words[at].all_users() / load.capacity[at]);
        }
    }

    fn note_odd(&mut self, assessment: &Assessment<'_>, first: usize, odd: u64, expired: u64) {
        let hosts = assessment.inputs().pool.hosts.len();
        let mut left = odd;
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            if first + at < hosts {
                // Exact: pools have far less than 2^32 hosts.
                self.odd.push((first + at) as u32);
                let is_lost = expired >> at & 1 == 1 && blind::is_lost(assessment, first + at);
                self.lost += u32::from(is_lost);
            }
        }
    }
}

/// The largest of many numbers, none of which is NaN; 0 if none is larger.
fn largest(values: &Block<f64>) -> f64 {
    let mut lanes = [0.0; 8];
    for row in values.chunks_exact(lanes.len()) {
        for (lane, value) in lanes.iter_mut().zip(row) {
            *lane = if *value > *lane { *value } else { *lane };
        }
    }
    lanes.into_iter().fold(0.0, f64::max)
}

/// Sets what loads are compared with. Whether each metric is known to all hosts that are compared, or to none of them.
pub(super) fn set_scale(assessment: &mut Assessment<'_>, survey: &Survey) -> bool {
    let policy = &assessment.inputs().pool.policy;
    if policy.method != Method::WeightedLoad {
        return true;
    }
    let mut largest = Largest::new(policy.users_full_scale);
    let know = [lack::CPU, lack::MEMORY, lack::PROCESSES].map(|metric| survey.held & metric != 0);
    let is_uniform = survey.lacking & survey.held == 0 && !survey.users_unknown;
    largest.add_many(survey.settled as usize, know, survey.top_users, survey.top_processes);
    let is_compared = |position: &u32| {
        let state = assessment.state(*position as usize);
        let metrics = assessment.metrics(*position as usize);
        let is_unknown = state == HostState::Unknown && policy.allow_unknown;
        if state.is_eligible() && metrics.ramp.is_none() {
            largest.add(&metrics);
        }
        !(state.is_measured() || is_unknown) || metrics.knows_just(know)
    };
    let is_uniform = survey.odd.iter().map(is_compared).fold(is_uniform, |all, one| all & one);
    if is_uniform && largest.is_of_any() {
        let scale = largest.scale(policy.weights);
        assessment.set_scale(scale);
        return true;
    }
    assessment.scale_by_each();
    false
}

/// Whether lost hosts take part.
pub(super) fn is_blind(assessment: &Assessment<'_>, (lost, counted): (u32, u32), codes: &[u8]) -> bool {
    if lost == 0 || assessment.inputs().pool.policy.when_blind == WhenBlind::Refuse {
        return false;
    }
    // Codes are of hosts that are eligible only, but for room and consent; of no other host there is any yet.
    let somebody_is_well = codes.iter().any(|code| *code != code::NONE);
    2 * lost > counted || (!somebody_is_well && blind::is_active(assessment))
}
