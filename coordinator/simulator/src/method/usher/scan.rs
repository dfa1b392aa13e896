//! What would the predictive method choose if it looked at every host of a large pool?
//!
//! In pools too large for that it draws some of them. How much that costs in quality can only be seen beside a scan of
//! all, so here is one: the same score from the same numbers, without drawing. What does not change between two snapshots
//! is kept; what placements change is read from the cells each time.

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
    /// Of each host its class, the lower the better, and what its demand is predicted from. Absent: no candidate.
    hosts: Vec<Option<(u8, DemandInput, u32)>>,
}

impl Scan {
    /// The host with the lowest score of the best class, with the word of its cell by which it was ranked.
    pub(super) fn best(&mut self, pool: &Arc<PoolView>, now: BootTime) -> Option<(usize, CellWord)> {
        if !self.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, pool)) {
            self.hosts = (0..pool.hosts.len()).map(|position| candidate(pool, position, now)).collect();
            self.of = Some(pool.clone());
        }
        let mut best: Option<(u8, f64, usize, CellWord)> = None;
        for (position, host) in self.hosts.iter().enumerate() {
            let Some((class, input, aged)) = host else { continue };
            let word = pool.members.cells[position].load();
            let class = if word.is_silent() { u8::MAX } else { *class };
            let places = f64::from(word.places());
            let young_places = f64::from(word.places().saturating_sub(*aged));
            let input = DemandInput { places, young_places, ..*input };
            let score = PredictedLoad::of(&input, &pool.typical, &pool.costs).score();
            // Two scores of measured numbers are never equal but by chance: no draw is needed.
            if best.is_none_or(|(lowest, least, ..)| (class, score) < (lowest, least)) {
                best = Some((class, score, position, word));
            }
        }
        best.map(|(_, _, position, word)| (position, word))
    }
}

fn candidate(pool: &PoolView, position: usize, now: BootTime) -> Option<(u8, DemandInput, u32)> {
    let host = &pool.hosts[position];
    let word = pool.members.cells[position].load();
    let class = match state_of(&pool.state_input(position, word, 1, now)) {
        HostState::Available => 0,
        HostState::Warming => 1,
        HostState::Busy => 2,
        _ => return None,
    };
    Some((class, input(host, now), host.aged_places))
}

fn input(host: &HostView, now: BootTime) -> DemandInput {
    let reading = host.reading.as_deref();
    let memory = reading.and_then(|reading| reading.memory);
    DemandInput {
        background: reading.and_then(|reading| reading.background),
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
