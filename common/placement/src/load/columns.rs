//! The same scores for many hosts at once.
//!
//! A decision compares every host of its pool. One by one, each costs what it takes to find its numbers; side by side, in
//! columns, a hundred cost as much as one did. The formulas are those of the weighted load and of the predictive method,
//! put so that nothing in them branches and nothing is divided: what a host's reports and the learned costs make of it is
//! computed when the farm is published. They differ from the formulas by rounding only, far less than what makes two hosts
//! equal. They refuse what is rare: a host that ramps up, or lacks a metric that others have, is computed by the formula
//! itself.

use super::{
    LearnedCosts, Scale,
    predictive::{MEMORY, MEMORY_IS_PLENTY, SCARCE_MEMORY},
};

/// One number of as many hosts as lie in one chunk.
pub(crate) type Column = [f64; LANES];
/// Hosts in a chunk: one bit each in a word.
pub(crate) const LANES: usize = 64;

const NONE: Column = [0.0; LANES];

fn low(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

fn high(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// What the cells of many hosts say.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// Users seen, 0 if they are not known, and users of places.
    pub(crate) users: Column,
    /// Places.
    pub(crate) places: Column,
}

impl Default for Counts {
    fn default() -> Self {
        Self { users: NONE, places: NONE }
    }
}

/// What the weighted load of a host is made of, apart from its cell. All of a host that is none of the candidates: 0, but
/// for `bias`.
#[derive(Clone, Debug)]
pub(crate) struct LoadColumns {
    /// 0; infinite of a host that is none of the candidates.
    pub(crate) bias: Column,
    /// Busy share, 0..=1, or the demand expected without logons, which may pass 1; 0 if not known.
    pub(crate) cpu: Column,
    /// Logons in progress in the last Load, as many as would be left of them at the instant of reference. 0 where the busy
    /// share stands for all.
    pub(crate) still: Column,
    /// Memory in use, 0..=1; 0 if not known.
    pub(crate) memory: Column,
    /// Processes per unit of capacity; 0 if not known.
    pub(crate) processes: Column,
    /// Its capacity, infinite of a host that is none of the candidates; and 1 / capacity.
    pub(crate) capacity: Column,
    pub(crate) per_capacity: Column,
    /// Share of the CPU that a logon, or a young place, is expected to take.
    pub(crate) logon_cpu: Column,
    /// Share that every place is expected to take.
    pub(crate) place_cpu: Column,
    /// Share of the memory that every place is expected to take.
    pub(crate) place_memory: Column,
    /// Places that are not young any more.
    pub(crate) aged: Column,
}

impl Default for LoadColumns {
    fn default() -> Self {
        Self {
            bias: [f64::INFINITY; LANES],
            cpu: NONE,
            still: NONE,
            memory: NONE,
            processes: NONE,
            capacity: [f64::INFINITY; LANES],
            per_capacity: NONE,
            logon_cpu: NONE,
            place_cpu: NONE,
            place_memory: NONE,
            aged: NONE,
        }
    }
}

/// What all hosts of a pool share.
#[derive(Copy, Clone, Debug)]
pub(crate) struct LoadFactors {
    cpu: f64,
    memory: f64,
    users: f64,
    processes: f64,
    per_top_users: f64,
    per_top_processes: f64,
    /// What is left now of a logon that was in progress at the instant of reference.
    decay: f64,
}

impl LoadFactors {
    /// Of a pool with this scale and these costs, `seconds` after the instant of reference.
    pub(crate) fn new(scale: &Scale, costs: &LearnedCosts, seconds: f64) -> Self {
        let weights = scale.weights();
        let inverse = |top: f64| if top > 0.0 { 1.0 / top } else { 0.0 };
        Self {
            cpu: weights.cpu_percent,
            memory: weights.memory_percent,
            users: weights.users_percent,
            processes: weights.processes_percent,
            per_top_users: inverse(scale.top_users),
            per_top_processes: inverse(scale.top_processes),
            decay: decay(seconds, costs),
        }
    }

    /// The weighted load of the candidate at `at`, with so many users, those of places among them, and places.
    #[inline(always)]
    pub(crate) fn score(&self, host: &LoadColumns, at: usize, users: f64, places: f64) -> f64 {
        let logons = host.still[at] * self.decay + high(places - host.aged[at], 0.0);
        let cpu = host.cpu[at] + host.logon_cpu[at] * logons + host.place_cpu[at] * places;
        let memory = host.memory[at] + host.place_memory[at] * places;
        self.sum(host, at, cpu, memory, users)
    }

    /// The same where nobody is on the way.
    #[inline(always)]
    pub(crate) fn score_without_places(&self, host: &LoadColumns, at: usize, users: f64) -> f64 {
        let cpu = host.cpu[at] + host.logon_cpu[at] * host.still[at] * self.decay;
        self.sum(host, at, cpu, host.memory[at], users)
    }

    #[inline(always)]
    fn sum(&self, host: &LoadColumns, at: usize, cpu: f64, memory: f64, users: f64) -> f64 {
        let users = users * host.per_capacity[at] * self.per_top_users;
        let processes = host.processes[at] * self.per_top_processes;
        self.cpu * low(cpu, 1.0)
            + self.memory * low(memory, 1.0)
            + self.users * low(users, 1.0)
            + self.processes * low(processes, 1.0)
    }

    /// Of every host of a chunk.
    pub(crate) fn scores(&self, host: &LoadColumns, counts: &Counts, scores: &mut Column) {
        for (at, score) in scores.iter_mut().enumerate() {
            *score = self.score(host, at, counts.users[at], counts.places[at]) + host.bias[at];
        }
    }

    /// The same where nobody is on their way.
    pub(crate) fn scores_without_places(&self, host: &LoadColumns, counts: &Counts, scores: &mut Column) {
        for (at, score) in scores.iter_mut().enumerate() {
            *score = self.score_without_places(host, at, counts.users[at]) + host.bias[at];
        }
    }
}

/// What the expected demand of a host is made of, apart from its cell.
#[derive(Clone, Debug)]
pub(crate) struct DemandColumns {
    /// What does not change: its background and the logon and the session that it is asked for. Infinite of a host that is
    /// none of the candidates.
    pub(crate) base: Column,
    /// What each logon in progress adds.
    pub(crate) logon: Column,
    /// What each session adds.
    pub(crate) session: Column,
    /// Logons in progress in the last Load, as many as would be left of them at the instant of reference.
    pub(crate) still: Column,
    /// Share of the memory in use with the session that it is asked for; 0 if memory does not count.
    pub(crate) memory: Column,
    /// Share of the memory that each place adds.
    pub(crate) place_memory: Column,
    /// Places that are not young any more.
    pub(crate) aged: Column,
}

impl Default for DemandColumns {
    fn default() -> Self {
        Self {
            base: [f64::INFINITY; LANES],
            logon: NONE,
            session: NONE,
            still: NONE,
            memory: NONE,
            place_memory: NONE,
            aged: NONE,
        }
    }
}

/// What all hosts of a pool share.
#[derive(Copy, Clone, Debug)]
pub(crate) struct DemandFactors {
    /// What is left now of a logon that was in progress at the instant of reference.
    decay: f64,
}

impl DemandFactors {
    /// Of a pool with these costs, `seconds` after the instant of reference.
    pub(crate) fn new(costs: &LearnedCosts, seconds: f64) -> Self {
        Self { decay: decay(seconds, costs) }
    }

    /// The predicted score of the host at `at`, with so many places.
    #[inline(always)]
    pub(crate) fn score(&self, host: &DemandColumns, at: usize, places: f64) -> f64 {
        let logons = host.still[at] * self.decay + high(places - host.aged[at], 0.0);
        let memory = host.memory[at] + host.place_memory[at] * places;
        host.base[at]
            + host.logon[at] * logons
            + host.session[at] * places
            + MEMORY * memory
            + SCARCE_MEMORY * high(memory - MEMORY_IS_PLENTY, 0.0)
    }

    /// Of every host of a chunk.
    pub(crate) fn scores(&self, host: &DemandColumns, counts: &Counts, scores: &mut Column) {
        for (at, score) in scores.iter_mut().enumerate() {
            *score = self.score(host, at, counts.places[at]);
        }
    }
}

/// What is left of a logon in progress after so many seconds; before them more than there was.
pub(crate) fn decay(seconds: f64, costs: &LearnedCosts) -> f64 {
    (-seconds / costs.logon_seconds.value.max(1e-3)).exp()
}
