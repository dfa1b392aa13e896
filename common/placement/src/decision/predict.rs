//! What are the logins on their way to a host expected to cost it?
//!
//! A report shows what was there when it was measured. What was placed since is known exactly, and what it costs is
//! learned: the predictive method ranks by the sum of both, and the weighted load adds it to CPU and memory, as it adds
//! the places to the users.
//!
//! A place ends when its session is seen, and then its logon is in neither the places nor the CPU of the last interval.
//! So where the background demand of a host is known, its CPU is not what was measured and its places, but the demand that
//! is expected now: the background, the sessions, and the logons in progress and on their way. That may be less than was
//! measured, when logons that were measured have ended since. Without a background of its own only the places are added: what
//! it measured itself says more of a new host than the mean of the others.

use usher_types::BootTime;

use crate::{
    farm::{CellWord, HostView, PoolView},
    load::{DemandInput, LearnedCosts, PredictedLoad, Typical},
};

/// What is known of a host that bears on its demand at `now`.
pub(crate) fn demand_input(host: &HostView, word: CellWord, now: BootTime) -> DemandInput {
    let reading = host.reading.as_deref();
    // A reading from before the coordinator started has no age, and its logons are long over.
    let age = reading.and_then(|reading| reading.age(now));
    DemandInput {
        background: reading.and_then(|reading| reading.background),
        background_is_borrowed: reading.is_some_and(|reading| reading.background_is_borrowed),
        logons: reading.zip(age).map_or(0.0, |(reading, _)| f64::from(reading.logons)),
        load_age_seconds: age.unwrap_or_default().as_secs_f64(),
        places: f64::from(word.places()),
        young_places: f64::from(young_places(host, word)),
        cores: host.facts.cores.map(f64::from),
        memory_bytes: memory_bytes(host),
        memory_used: reading.and_then(|reading| reading.memory).map(|memory| memory.used().get() / 100.0),
        ramp: host.ramp(now),
    }
}

/// What a host will have with one more login.
pub(super) fn predicted(pool: &PoolView, host: &HostView, word: CellWord, now: BootTime) -> PredictedLoad {
    PredictedLoad::of(&demand_input(host, word, now), &pool.typical, &pool.costs)
}

/// What the logins on their way to a host are expected to add to its CPU and memory, points of a percentage: to the CPU
/// perhaps less than nothing. Nothing where the size of the host is not known, nor that of any other.
pub(super) fn expected_points(pool: &PoolView, host: &HostView, word: CellWord, now: BootTime) -> (f64, f64) {
    let (places, young) = (f64::from(word.places()), f64::from(young_places(host, word)));
    let (cpu, memory) = expected_of(&pool.costs, &pool.typical, host, places, young);
    let demand = expected_demand(&pool.costs, &pool.typical, &demand_input(host, word, now));
    let measured = host.reading.as_deref().and_then(|reading| reading.cpu_percent);
    let signed = demand.zip(measured).map(|(demand, measured)| 100.0 * demand - measured);
    (signed.unwrap_or(cpu), memory)
}

/// The demand that is expected of a host before the login that is asked for, share of its cores; may pass 1. Absent: its
/// background is not known, or is not its own, or the size of no host is known.
pub(crate) fn expected_demand(costs: &LearnedCosts, typical: &Typical, input: &DemandInput) -> Option<f64> {
    input.background.filter(|_| !input.background_is_borrowed)?;
    input.cores.or(typical.cores)?;
    // A host that has just booted is slow at what it starts, not at what it does.
    Some(PredictedLoad::of(&DemandInput { ramp: None, ..*input }, typical, costs).demand_before())
}

/// What so many places add, of which so many are young, >= 0.
pub(crate) fn expected_of(
    costs: &LearnedCosts,
    typical: &Typical,
    host: &HostView,
    places: f64,
    young: f64,
) -> (f64, f64) {
    let cores = host.facts.cores.map(f64::from).or(typical.cores);
    let demand = costs.logon_cores.value * young + costs.session_cores.value * places;
    let bytes = costs.session_memory_bytes.value * places;
    let total = memory_bytes(host).or(typical.memory_bytes);
    let points = |part: f64, whole: Option<f64>| whole.map_or(0.0, |whole| 100.0 * part / whole.max(1.0));
    (points(demand, cores), points(bytes, total))
}

fn young_places(host: &HostView, word: CellWord) -> u32 {
    word.places().saturating_sub(host.aged_places)
}

fn memory_bytes(host: &HostView) -> Option<f64> {
    host.facts.memory_bytes.map(|bytes| bytes as f64)
}
