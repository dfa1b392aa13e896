//! Hosts and decisions, looked at.

use serde::Serialize;
use usher_types::HostState;

/// One host, as a coordinator sees it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Shown {
    /// The host.
    pub host: String,
    /// Its state. Absent: this coordinator does not know it.
    pub state: Option<HostState>,
    /// Why, also why it is not known; may be empty.
    pub state_reason: String,
    /// Nothing was timed on it, or too long ago: there is no availability index.
    pub no_data: bool,
    /// Its numbers.
    #[serde(flatten)]
    pub numbers: Numbers,
    /// What qualifies them.
    pub flags: Vec<String>,
}

/// The numbers of a host. Absent: not known, or not used.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Numbers {
    /// Availability index, 0..=100.
    pub availability_index: Option<f64>,
    /// Expansion factor, >= 1.
    pub expansion_factor: Option<f64>,
    /// Weighted load, 0..=100; low is good.
    pub weighted_load: Option<f64>,
    /// What it is the sum of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terms: Option<Terms>,
    /// Users that it reported.
    pub users: Option<u32>,
    /// Places on their way to it.
    pub pending: Option<u32>,
}

/// The terms of a weighted load, points.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Terms {
    /// From CPU.
    pub cpu: f64,
    /// From memory.
    pub memory: f64,
    /// From users.
    pub users: f64,
    /// From processes.
    pub processes: f64,
    /// Those that stand for a number that is not known.
    pub filled: Vec<&'static str>,
}

/// The terms of a predicted load, shares of all cores or of what memory weighs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PredictedTerms {
    /// Demand in the background.
    pub background: f64,
    /// Demand of logons, this one among them.
    pub logons: f64,
    /// Demand of the sessions that they become.
    pub sessions: f64,
    /// What the memory in use weighs.
    pub memory: f64,
    /// What it weighs beyond the plenty.
    pub scarce_memory: f64,
}

/// A decision, explained.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Explained {
    /// The label of the placement.
    pub name: String,
    /// What was answered, in a few words.
    pub answer: String,
    /// The pool and the version of its settings.
    pub pool: String,
    /// See `pool`.
    pub policy_version: u64,
    /// By what hosts are ranked.
    pub method: &'static str,
    /// What users were compared with. Absent: they were not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_users: Option<f64>,
    /// Likewise, processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_processes: Option<f64>,
    /// Hosts that were asked for the place, and what each said.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<String>,
    /// Every host: candidates, best first, then the others.
    pub hosts: Vec<ExplainedLine>,
}

/// One host of an explained decision.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ExplainedLine {
    /// The host.
    pub host: String,
    /// Its place in the order, from 1. Absent: it was no candidate.
    pub rank: Option<u32>,
    /// Its state for this login.
    pub state: HostState,
    /// Why; may be empty.
    pub state_reason: String,
    /// The rule that excluded it. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded: Option<String>,
    /// The number that it was ranked by, low is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// What the score is the sum of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terms: Option<Terms>,
    /// What the score is the sum of where hosts are ranked by what they are expected to need.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted: Option<PredictedTerms>,
    /// What the decision used of it, each by name: `cpu`, `mem`, `users`, ...
    pub inputs: Vec<(&'static str, f64)>,
    /// What qualifies it, and what puts it behind others.
    pub remarks: Vec<String>,
}
