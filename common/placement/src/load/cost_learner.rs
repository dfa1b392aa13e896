//! What does a whole pool say about the cost of a logon and of a session?
//!
//! Every few seconds each cost is learned anew from what all hosts say of it now:
//!
//! 1. Each host's word weighs as many logons, sessions or places as are behind it, but no more than twice the median.
//! 2. What is far from the middle is moved to the edge of a range around it. What was believed before has a vote there, so
//!    that of two hosts that differ the one wins that agrees with it. The mean of what is left is what the pool says.
//! 3. What is believed is that mean, mixed with the **anchor**, a mean over the past hour, as if some logons were behind
//!    that. In the first minute the anchor is the prior, and keeps the value sane; at night, when nobody logs in, it is what
//!    the day said.
//!
//! So one host of n moves a cost by less than its n-th, whatever it says. A median alone would do that too, but what
//! sessions use is skewed (few use much), and its median is far below the mean that matters.

use serde::{Deserialize, Serialize};

use super::{CostBounds, HostEvidence, LearnedCosts, LearnedValue, cost_evidence::Said};

/// The anchor weighs as this many logons, sessions or places.
const ANCHOR_SAMPLES: f64 = 5.0;
/// What a host says counts up to this many times the middle, and down to one such part of it.
const WIDEST: f64 = 1.8;
/// The prior counts as this much time.
const PRIOR_SECONDS: f64 = 30.0;
/// The anchor forgets within an hour: a new version of a desktop is learned on the day of its arrival.
const ANCHOR_SECONDS: f64 = 3600.0;
/// With so many behind it at once a value is learned, ...
const LEARNED_SAMPLES: f64 = 20.0;
/// ... or after so much time with few.
const LEARNED_SECONDS: f64 = 2.0 * PRIOR_SECONDS;

/// The cost of a pool's sessions, as it is learned.
#[derive(Clone, PartialEq, Debug)]
pub struct CostLearner {
    costs: LearnedCosts,
    anchors: Anchors,
}

/// What of it is kept over a restart.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Anchors {
    logon_cores: Anchor,
    logon_seconds: Anchor,
    connect_seconds: Anchor,
    session_cores: Anchor,
    session_memory_bytes: Anchor,
}

/// A mean over the past hour of evidence.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Anchor {
    /// Absent: nothing was learned yet.
    value: Option<f64>,
    /// Time with evidence behind it, seconds.
    seconds: f64,
    is_learned: bool,
}

impl Default for CostLearner {
    fn default() -> Self {
        Self::resume(Anchors::default())
    }
}

impl CostLearner {
    /// Goes on from what was kept.
    pub fn resume(anchors: Anchors) -> Self {
        let mut learner = Self { costs: LearnedCosts::PRIOR, anchors };
        learner.learn(0.0, std::iter::empty);
        learner
    }

    /// Begins with other values than the priors.
    pub fn starting_from(costs: &LearnedCosts) -> Self {
        let anchor = |value: LearnedValue| Anchor { value: Some(value.value), ..Anchor::default() };
        Self::resume(Anchors {
            logon_cores: anchor(costs.logon_cores),
            logon_seconds: anchor(costs.logon_seconds),
            connect_seconds: anchor(costs.connect_seconds),
            session_cores: anchor(costs.session_cores),
            session_memory_bytes: anchor(costs.session_memory_bytes),
        })
    }

    /// What must be kept over a restart.
    pub fn anchors(&self) -> Anchors {
        self.anchors
    }

    /// The costs as believed now.
    pub fn costs(&self) -> LearnedCosts {
        self.costs
    }

    /// Learns from what every host of the pool says, `elapsed_seconds` after the time before.
    pub fn learn<'a, I: Iterator<Item = &'a HostEvidence>>(
        &mut self,
        elapsed_seconds: f64,
        hosts: impl Fn() -> I,
    ) {
        let costs = self.costs;
        let anchors = &mut self.anchors;
        let all = |said: &dyn Fn(&HostEvidence) -> Said| hosts().filter_map(said).collect();
        self.costs = LearnedCosts {
            logon_cores: anchors.logon_cores.learn(
                CostBounds::LOGON_CORES,
                all(&|host| host.logon_cores(&costs)),
                elapsed_seconds,
            ),
            logon_seconds: anchors.logon_seconds.learn(
                CostBounds::LOGON_SECONDS,
                all(&|host| host.logon_seconds()),
                elapsed_seconds,
            ),
            connect_seconds: anchors.connect_seconds.learn(
                CostBounds::CONNECT_SECONDS,
                all(&|host| host.connect_seconds()),
                elapsed_seconds,
            ),
            session_cores: anchors.session_cores.learn(
                CostBounds::SESSION_CORES,
                all(&|host| host.session_cores(&costs)),
                elapsed_seconds,
            ),
            session_memory_bytes: anchors.session_memory_bytes.learn(
                CostBounds::SESSION_MEMORY_BYTES,
                all(&|host| host.session_memory_bytes()),
                elapsed_seconds,
            ),
        };
    }
}

impl Anchor {
    fn learn(&mut self, bounds: CostBounds, said: Vec<(f64, f64)>, elapsed_seconds: f64) -> LearnedValue {
        let anchor = bounds.hold(self.value.unwrap_or(bounds.prior));
        let said: Vec<(f64, f64)> =
            said.into_iter().map(|(value, weight)| (bounds.hold(value), weight)).collect();
        let Some((value, samples)) = what_all_say(said, anchor) else {
            return LearnedValue { value: anchor, samples: 0.0, is_learned: self.is_learned };
        };
        let share = samples / (samples + ANCHOR_SAMPLES);
        let believed = anchor + share * (value - anchor);
        let counted = elapsed_seconds.max(0.0) * share;
        let behind = self.seconds.clamp(0.0, ANCHOR_SECONDS);
        self.value = Some(anchor + (value - anchor) * counted / (behind + PRIOR_SECONDS + counted));
        self.seconds = (behind + counted).min(ANCHOR_SECONDS);
        self.is_learned |= samples >= LEARNED_SAMPLES || self.seconds >= LEARNED_SECONDS;
        LearnedValue { value: bounds.hold(believed), samples, is_learned: self.is_learned }
    }
}

/// The mean of what hosts say, each (value, weight), and the weight behind it. Absent: none says anything.
fn what_all_say(mut said: Vec<(f64, f64)>, believed: f64) -> Option<(f64, f64)> {
    said.retain(|(_, weight)| *weight > 0.0);
    if said.is_empty() {
        return None;
    }
    let mut weights: Vec<f64> = said.iter().map(|(_, weight)| *weight).collect();
    let (_, median_weight, _) = weights.select_nth_unstable_by(said.len() / 2, f64::total_cmp);
    let median_weight = *median_weight;
    // One host alone weighs no more than what was believed before.
    let most = (2.0 * median_weight).min(ANCHOR_SAMPLES * said.len() as f64);
    said.iter_mut().for_each(|(_, weight)| *weight = weight.min(most));
    said.sort_by(|a, b| a.0.total_cmp(&b.0));
    let middle = weighted_middle(&said, (believed, median_weight.min(most)));
    let (lowest, highest) = (middle / WIDEST, middle * WIDEST);
    let total: f64 = said.iter().map(|(_, weight)| weight).sum();
    let sum: f64 = said.iter().map(|(value, weight)| value.clamp(lowest, highest) * weight).sum();
    Some((sum / total, total))
}

/// The weighted median of `sorted` and of what was believed before; if two would do, the one closer to the latter.
fn weighted_middle(sorted: &[(f64, f64)], (believed, vote): (f64, f64)) -> f64 {
    let half = (sorted.iter().map(|(_, weight)| weight).sum::<f64>() + vote) / 2.0;
    let at = sorted.partition_point(|(value, _)| *value < believed);
    let mut below = 0.0;
    for (value, weight) in &sorted[..at] {
        below += weight;
        if below > half {
            return *value;
        }
    }
    below += vote;
    if below >= half {
        return believed;
    }
    for (value, weight) in &sorted[at..] {
        below += weight;
        if below >= half {
            return *value;
        }
    }
    believed
}

#[cfg(test)]
mod tests;
