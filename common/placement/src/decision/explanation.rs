//! Why this host and no other: the same decision again, with every number written down.
//!
//! Nothing is remembered for it but the inputs. The explanation runs the same functions over them, so the two cannot
//! differ.

use std::time::Duration;

use usher_types::HostState;

use super::{Assessment, Decision, Flags, Inputs, assess_pool};
use crate::{
    farm::state_reason,
    load::{LoadTerms, Metrics},
};

/// One host of an explanation.
#[derive(Clone, PartialEq, Debug)]
pub struct ExplainedHost {
    /// Its position in the pool.
    pub position: usize,
    /// Its state for this request.
    pub state: HostState,
    /// Why it is in that state; may be empty.
    pub state_reason: String,
    /// Why it was no candidate. Absent: it was one.
    pub excluded: Option<String>,
    /// Its place in the order, from 1.
    pub rank: Option<u32>,
    /// What the decision knew of it.
    pub metrics: Metrics,
    /// Since that was measured.
    pub load_age: Option<Duration>,
    /// Availability index, 0..=100.
    pub availability_index: Option<f64>,
    /// Expansion factor, >= 1.
    pub expansion_factor: Option<f64>,
    /// Its terms. Absent if no metric is known.
    pub terms: Option<LoadTerms>,
    /// What qualifies it.
    pub flags: Flags,
}

/// A decision, explained.
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    /// What was decided.
    pub decision: Decision,
    /// The largest number of users that users were compared with, per unit of capacity.
    pub top_users: f64,
    /// The largest number of processes, likewise.
    pub top_processes: f64,
    /// Every host of the pool: candidates best first, then the others.
    pub hosts: Vec<ExplainedHost>,
}

/// Explains the decision that these inputs lead to.
pub fn explain(inputs: &Inputs<'_>) -> Explanation {
    let assessment = assess_pool(inputs);
    let mut hosts: Vec<(Option<super::assess::Standing>, ExplainedHost)> =
        (0..inputs.pool.hosts.len()).map(|position| explain_host(&assessment, position)).collect();
    let decision = super::decide(inputs);
    let chosen = match &decision {
        Decision::Take(choice) => usize::try_from(choice.position).ok(),
        _ => None,
    };
    let key = |host: &(Option<super::assess::Standing>, ExplainedHost)| {
        host.0.map(|standing| (standing.class, standing.load))
    };
    hosts.sort_by(|a, b| {
        // The chosen one first, as it was chosen among equals; then candidates by rank; then the others.
        let first = (Some(b.1.position) == chosen).cmp(&(Some(a.1.position) == chosen));
        let candidate = a.0.is_none().cmp(&b.0.is_none());
        let rank = || key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal);
        first.then(candidate).then_with(rank).then(a.1.position.cmp(&b.1.position))
    });
    for (rank, (standing, host)) in (1..).zip(&mut hosts) {
        host.rank = standing.map(|_| rank);
    }
    Explanation {
        decision,
        top_users: assessment.scale().top_users,
        top_processes: assessment.scale().top_processes,
        hosts: hosts.into_iter().map(|(_, host)| host).collect(),
    }
}

fn explain_host(
    assessment: &Assessment<'_>,
    position: usize,
) -> (Option<super::assess::Standing>, ExplainedHost) {
    let inputs = assessment.inputs();
    let host = &inputs.pool.hosts[position];
    let state = assessment.state(position);
    let adds = assessment.adds_users(position);
    let state_input = inputs.pool.state_input(position, inputs.words[position], adds, inputs.now);
    let standing = assessment.standing(u32::try_from(position).unwrap_or(u32::MAX));
    let availability = host.availability(inputs.now);
    let explained = ExplainedHost {
        position,
        state,
        state_reason: state_reason(&state_input, state),
        excluded: standing.err().map(|why| why.as_str().to_owned()),
        rank: None,
        metrics: assessment.metrics(position),
        load_age: host.reading.as_ref().and_then(|reading| reading.age(inputs.now)),
        availability_index: availability.index,
        expansion_factor: availability.expansion_factor,
        terms: assessment.terms(position),
        flags: assessment.host_flags(position),
    };
    (standing.ok(), explained)
}
