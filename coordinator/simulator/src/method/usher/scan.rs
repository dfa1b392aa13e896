//! What would the predictive method choose if it looked at every host of a large pool?
//!
//! In pools too large for that it draws some of them. How much that costs in quality can only be seen beside a scan of
//! all, so here is one: the same score from the same numbers, without drawing. What does not change between two snapshots
//! is kept, and a score until the cell has another word.

use std::sync::Arc;

use usher_placement::{
    farm::{CellWord, HostView, PoolView, state_of},
    load::{DemandInput, PredictedLoad},
};
use usher_types::{BootTime, HostState};

/// The candidates of one snapshot.
#[derive(Debug, Default)]
pub(super) struct Scan {
    of: Option<Arc<PoolView>>,
    /// Absent: no candidate.
    hosts: Vec<Option<Candidate>>,
}

/// A host that may be chosen.
#[derive(Debug)]
struct Candidate {
    /// The lower the better.
    class: u8,
    input: DemandInput,
    aged_places: u32,
    word: CellWord,
    /// By this word.
    score: f64,
}

impl Candidate {
    fn rank(&mut self, word: CellWord, pool: &PoolView) -> (u8, f64) {
        if word != self.word {
            (self.word, self.score) = (word, score(&self.input, self.aged_places, word, pool));
        }
        (if word.is_silent() { u8::MAX } else { self.class }, self.score)
    }
}

impl Scan {
    /// The host with the lowest score of the best class, with the word of its cell by which it was ranked.
    pub(super) fn best(&mut self, pool: &Arc<PoolView>, now: BootTime) -> Option<(usize, CellWord)> {
        if !self.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, pool)) {
            self.hosts = (0..pool.hosts.len()).map(|position| candidate(pool, position, now)).collect();
            self.of = Some(pool.clone());
        }
        let mut best: Option<((u8, f64), usize, CellWord)> = None;
        for (position, host) in self.hosts.iter_mut().enumerate() {
            let Some(host) = host else { continue };
            let word = pool.members.cells[position].load();
            let rank = host.rank(word, pool);
            // Two scores of measured numbers are never equal but by chance: no draw is needed.
            if best.is_none_or(|(lowest, ..)| rank < lowest) {
                best = Some((rank, position, word));
            }
        }
        best.map(|(_, position, word)| (position, word))
    }
}

fn candidate(pool: &PoolView, position: usize, now: BootTime) -> Option<Candidate> {
    let host = &pool.hosts[position];
    let word = pool.members.cells[position].load();
    let class = match state_of(&pool.state_input(position, word, 1, now)) {
        HostState::Available => 0,
        HostState::Warming => 1,
        HostState::Busy => 2,
        _ => return None,
    };
    let (input, aged_places) = (input(host, now), host.aged_places);
    Some(Candidate { class, input, aged_places, word, score: score(&input, aged_places, word, pool) })
}

fn score(input: &DemandInput, aged_places: u32, word: CellWord, pool: &PoolView) -> f64 {
    let places = f64::from(word.places());
    let young_places = f64::from(word.places().saturating_sub(aged_places));
    let input = DemandInput { places, young_places, ..*input };
    PredictedLoad::of(&input, &pool.typical, &pool.costs).score()
}

fn input(host: &HostView, now: BootTime) -> DemandInput {
    let reading = host.reading.as_deref();
    let memory = reading.and_then(|reading| reading.memory);
    DemandInput {
        background: reading.and_then(|reading| reading.background),
        background_is_borrowed: reading.is_some_and(|reading| reading.background_is_borrowed),
        logons: reading.map_or(0.0, |reading| f64::from(reading.logons)),
        load_age_seconds: reading.map_or(0.0, |reading| now.since(reading.measured_at).as_secs_f64()),
        places: 0.0,
        young_places: 0.0,
        cores: host.facts.cores.map(f64::from),
        memory_bytes: memory.map(|memory| memory.total_bytes as f64),
        memory_used: memory.map(|memory| memory.used().get() / 100.0),
        ramp: host.ramp(now),
    }
}
