//! What do the reports of one host say about the cost of a logon and of a session?
//!
//! Each host speaks for itself first; [`CostLearner`](super::CostLearner) hears all of them. So a host that is wrong, or
//! lies, can say one wrong thing of each cost and no more.
//!
//! * A logon's seconds and cores are what hosts say of logons that have ended. Where a host cannot say what they used, the
//!   cores are the slope of its demand over its logons in progress: how much the demand rises when one more is under way,
//!   with what the sessions use taken off.
//! * A session's cores are the demand without the logons, divided by the sessions.
//! * A session's memory is the slope of the memory in use over the sessions. A mean over the sessions would be wrong: what
//!   the machine uses at rest is known to nobody.
//! * How long a login takes to connect is the time from its place to its session.
//!
//! Everything is a mean weighted by time and forgotten within minutes to hours. A value that is not known adds nothing.

use usher_types::FinishedLogons;

use super::{CostBounds, LearnedCosts};

/// One host weighs no more than this many logons, sessions or places, however many it says it had.
pub(super) const MOST_SAMPLES: f64 = 20.0;
/// For how long demand counts: several storms must not blur, one must be seen as a whole.
const DEMAND_SECONDS: f64 = 600.0;
/// For how long the number of sessions and their memory counts: sessions come and go slowly.
const MEMORY_SECONDS: f64 = 3600.0;
/// For how long a login's connecting counts.
const CONNECT_SECONDS: f64 = 1800.0;
/// Before this much time has been seen nothing is said.
const LEAST_SECONDS: f64 = 20.0;
/// A gap in the reports counts as this at most.
const LONGEST_STEP_SECONDS: f64 = 60.0;

/// What one report adds. Absent: not known.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct CostSample {
    /// Since the sample before, seconds, >= 0.
    pub elapsed_seconds: f64,
    /// Demand over that time, cores, >= 0.
    pub demand_cores: Option<f64>,
    /// Memory in use, bytes.
    pub memory_bytes: Option<f64>,
    /// Sessions, those that are still logging on among them.
    pub sessions: Option<f64>,
    /// Mean number of logons in progress over the time of the demand.
    pub mean_logons: Option<f64>,
    /// Logons that have ended lately, all of them in each report.
    pub finished: Option<FinishedLogons>,
}

/// What one host says of one cost: the value, and how many logons, sessions or places are behind it.
pub(super) type Said = Option<(f64, f64)>;

/// What the reports of one host say.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HostEvidence {
    demand: Moments<3>,
    memory: Moments<2>,
    finished: Option<FinishedLogons>,
    connects: f64,
    connect_seconds: f64,
}

const DEMAND: usize = 0;
const LOGONS: usize = 1;
const SESSIONS: usize = 2;
const BYTES: usize = 0;
const HOLDERS: usize = 1;

impl HostEvidence {
    /// Takes in a report.
    pub fn observe(&mut self, sample: &CostSample) {
        let elapsed = sample.elapsed_seconds;
        let elapsed = if elapsed.is_nan() { 0.0 } else { elapsed.clamp(0.0, LONGEST_STEP_SECONDS) };
        self.finished = sample.finished.filter(is_possible);
        let kept = (-elapsed / CONNECT_SECONDS).exp();
        self.connects *= kept;
        self.connect_seconds *= kept;
        let finite = |value: Option<f64>| value.filter(|value| value.is_finite() && *value >= 0.0);
        let sessions = finite(sample.sessions);
        if let (Some(demand), Some(sessions)) = (finite(sample.demand_cores), sessions) {
            let logons = finite(sample.mean_logons).unwrap_or(0.0);
            self.demand.add([demand, logons, sessions], elapsed, DEMAND_SECONDS);
        }
        if let (Some(bytes), Some(sessions)) = (finite(sample.memory_bytes), sessions) {
            self.memory.add([bytes, sessions], elapsed, MEMORY_SECONDS);
        }
    }

    /// A place became a session after this many seconds.
    pub fn connected_after(&mut self, seconds: f64) {
        if seconds.is_finite() {
            self.connects += 1.0;
            self.connect_seconds += CostBounds::CONNECT_SECONDS.hold(seconds);
        }
    }

    pub(super) fn logon_seconds(&self) -> Said {
        let finished = self.finished?;
        Some((finished.seconds / f64::from(finished.count), samples(f64::from(finished.count))))
    }

    /// With the sessions at the cores that they are believed to use.
    pub(super) fn logon_cores(&self, costs: &LearnedCosts) -> Said {
        if let Some(finished) = self.finished
            && let Some(core_seconds) = finished.core_seconds
        {
            return Some((core_seconds / finished.seconds, samples(f64::from(finished.count))));
        }
        let demand = &self.demand;
        let spread = demand.spread[LOGONS][LOGONS];
        // A logon that is seen from its beginning to its end adds about its length to the spread.
        let logons = samples(spread / costs.logon_seconds.value);
        if demand.seconds < LEAST_SECONDS || logons < 1.0 {
            return None;
        }
        let by_sessions = costs.session_cores.value * demand.spread[LOGONS][SESSIONS];
        Some(((demand.spread[LOGONS][DEMAND] - by_sessions) / spread, logons))
    }

    /// With the logons at the cores that they are believed to use.
    pub(super) fn session_cores(&self, costs: &LearnedCosts) -> Said {
        let demand = &self.demand;
        let settled = demand.means[SESSIONS] - demand.means[LOGONS];
        if demand.seconds < LEAST_SECONDS || settled < 1.0 {
            return None;
        }
        let theirs = demand.means[DEMAND] - costs.logon_cores.value * demand.means[LOGONS];
        Some((theirs.max(0.0) / settled, samples(settled)))
    }

    pub(super) fn session_memory_bytes(&self) -> Said {
        let memory = &self.memory;
        let spread = memory.spread[HOLDERS][HOLDERS];
        if memory.seconds < LEAST_SECONDS {
            return None;
        }
        // Numbers spread evenly over a range of n have a deviation of n / sqrt(12): about so many came or went.
        let moved = samples((12.0 * spread / memory.seconds).sqrt());
        (moved >= 1.0).then(|| (memory.spread[HOLDERS][BYTES] / spread, moved))
    }

    pub(super) fn connect_seconds(&self) -> Said {
        (self.connects >= 0.5).then(|| (self.connect_seconds / self.connects, samples(self.connects)))
    }
}

fn samples(count: f64) -> f64 {
    count.clamp(0.0, MOST_SAMPLES)
}

fn is_possible(finished: &FinishedLogons) -> bool {
    let is_time = |seconds: f64| seconds.is_finite() && seconds > 0.0;
    finished.count > 0 && is_time(finished.seconds) && finished.core_seconds.is_none_or(is_time)
}

/// Means of several numbers and how they spread together, weighted by time and forgotten exponentially.
#[derive(Clone, PartialEq, Debug)]
struct Moments<const N: usize> {
    /// Time behind them that still counts.
    seconds: f64,
    means: [f64; N],
    /// Sums of the products of deviations, times seconds.
    spread: [[f64; N]; N],
}

impl<const N: usize> Default for Moments<N> {
    fn default() -> Self {
        Self { seconds: 0.0, means: [0.0; N], spread: [[0.0; N]; N] }
    }
}

impl<const N: usize> Moments<N> {
    fn add(&mut self, values: [f64; N], elapsed: f64, forgotten_after: f64) {
        if elapsed <= 0.0 {
            return;
        }
        let kept = (-elapsed / forgotten_after).exp();
        let before = self.seconds * kept;
        self.seconds = before + elapsed;
        let share = elapsed / self.seconds;
        let deviations: [f64; N] = std::array::from_fn(|n| values[n] - self.means[n]);
        for a in 0..N {
            for b in 0..N {
                self.spread[a][b] = self.spread[a][b] * kept + before * share * deviations[a] * deviations[b];
            }
        }
        for (mean, deviation) in self.means.iter_mut().zip(deviations) {
            *mean += share * deviation;
        }
    }
}
