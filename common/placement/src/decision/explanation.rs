//! Why this host and no other: the same decision again, with every number written down.
//!
//! Nothing is remembered for it but the inputs. The explanation runs the same functions over them, so the two cannot
//! differ. It shows what the pool's method used and nothing else: a number beside a decision is taken for its reason.

use std::{cmp::Ordering, collections::BTreeMap, time::Duration};

use usher_types::{HostState, Method, PenaltyCause, PendingLimit};

use super::{
    Assessment, Decision, Excluded, Flags, Inputs, Tier, assess_pool, decide,
    order::{self, Standing},
    predict,
    words::Words,
};
use crate::{
    farm::state_reason,
    load::{DemandInput, LoadTerms, PredictedLoad},
};

/// Candidates that a reduced explanation keeps beside the chosen one.
const KEPT: usize = 16;

/// What a decision knew of a host. Absent: not known, or not used by the pool's method.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct HostNumbers {
    /// Busy share, percent 0..=100.
    pub cpu_percent: Option<f64>,
    /// Memory in use, percent 0..=100.
    pub memory_percent: Option<f64>,
    /// Points that the logins on their way are expected to add to the CPU; below 0 if logons that it was measured with
    /// have ended since. Absent: the pool does not predict.
    pub expected_cpu: Option<f64>,
    /// Points that they are expected to add to the memory in use.
    pub expected_memory: Option<f64>,
    /// Users seen.
    pub users: Option<u32>,
    /// Users of places given out and not seen yet.
    pub pending_users: u32,
    /// Processes.
    pub processes: Option<u32>,
    /// Size relative to a normal host, > 0.
    pub capacity: Option<f64>,
    /// Limit of users.
    pub max_users: Option<u32>,
}

/// What a prediction was made from, and what it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ExplainedPrediction {
    /// What was known of the host.
    pub input: DemandInput,
    /// The terms.
    pub load: PredictedLoad,
}

/// One host of an explanation.
#[derive(Clone, PartialEq, Debug)]
pub struct ExplainedHost {
    /// Its position in the pool.
    pub position: usize,
    /// Its state for this request.
    pub state: HostState,
    /// Why it is in that state; may be empty.
    pub state_reason: String,
    /// The class of state that it was ordered by. Absent: it was no candidate.
    pub tier: Option<Tier>,
    /// Why it was no candidate. Absent: it was one.
    pub excluded: Option<Excluded>,
    /// Its place in the order, from 1.
    pub rank: Option<u32>,
    /// What the decision knew of it.
    pub numbers: HostNumbers,
    /// Since that was measured.
    pub load_age: Option<Duration>,
    /// Availability index, 0..=100. Absent: not known, or neither its state nor its rank depends on it.
    pub availability_index: Option<f64>,
    /// Expansion factor, >= 1. Likewise.
    pub expansion_factor: Option<f64>,
    /// Its terms, which add up to the score. Absent: it was not ranked by them, or no metric is known.
    pub terms: Option<LoadTerms>,
    /// What it is expected to have with the login, whose terms add up to the score. Absent: the pool does not rank by that.
    pub predicted: Option<ExplainedPrediction>,
    /// Users and places as a share of its limit; where the fullest host comes first.
    pub filled_share: Option<f64>,
    /// The number by which it was ranked, low is good. Absent: it was not ranked, or what that needs is not known.
    pub score: Option<f64>,
    /// Why it comes last for this gateway.
    pub penalised: Option<PenaltyCause>,
    /// It did not answer when it was last asked.
    pub is_silent: bool,
    /// Logons on their way to it. Absent: the pool has no limit of them.
    pub logons_in_progress: Option<u32>,
    /// Share of its capacity that counts while it is ramping up.
    pub ramp: Option<f64>,
    /// What qualifies it.
    pub flags: Flags,
}

/// How many hosts of a large pool a decision looked at.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Drawn {
    /// Those that were drawn, and those that the request is about.
    pub looked_at: usize,
    /// Hosts of the pool.
    pub of: usize,
    /// Hosts of the best class as of the snapshot: those that were drawn from.
    pub best_class: usize,
}

/// A decision, explained.
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    /// What was decided.
    pub decision: Decision,
    /// How hosts were ordered.
    pub method: Method,
    /// The largest number of users that users were compared with, per unit of capacity. Absent: not compared.
    pub top_users: Option<f64>,
    /// The largest number of processes, likewise.
    pub top_processes: Option<f64>,
    /// In a pool too large to be looked at as a whole: how many hosts were looked at. Absent: all.
    pub drawn: Option<Drawn>,
    /// Every host that was looked at: candidates best first, then the others.
    pub hosts: Vec<ExplainedHost>,
    /// How many hosts each rule excluded, by the rule's text.
    pub excluded_counts: BTreeMap<&'static str, u32>,
    /// Only the chosen host, the best 16 and the counts are left of it.
    pub is_reduced: bool,
}

impl Explanation {
    /// What is kept of it for long: the chosen host, the best 16 candidates, and how many were excluded by what.
    #[must_use]
    pub fn reduce(mut self) -> Self {
        // The chosen one comes first already; of an own session it may be no candidate by rank.
        let chosen = self.decision.position();
        let is_chosen = |host: &ExplainedHost| u32::try_from(host.position).ok() == chosen;
        let mut others = 0;
        self.hosts.retain(|host| {
            let kept = is_chosen(host) || (host.rank.is_some() && others < KEPT);
            others += usize::from(kept && !is_chosen(host));
            kept
        });
        self.hosts.shrink_to_fit();
        self.is_reduced = true;
        self
    }
}

/// Explains the decision that these inputs lead to.
pub fn explain(inputs: &Inputs<'_>) -> Explanation {
    let assessment = assess_pool(inputs);
    let decision = decide(inputs);
    let chosen = decision.position();
    let looked_at: Vec<u32> = match inputs.words {
        Words::All(_) => assessment.positions().collect(),
        Words::Drawn(words) => words.iter().map(|(position, _)| *position).collect(),
    };
    let drawn = matches!(inputs.words, Words::Drawn(_)).then(|| Drawn {
        looked_at: looked_at.len(),
        of: inputs.pool.hosts.len(),
        best_class: inputs.pool.crowd.as_ref().map_or(0, |crowd| crowd.best_class()),
    });
    let mut hosts: Vec<(u32, Result<Standing, Excluded>)> =
        looked_at.into_iter().map(|position| (position, assessment.standing(position))).collect();
    hosts.sort_by(|(a, of_a), (b, of_b)| {
        // The chosen one first, as it was chosen among equals; then candidates by rank; then the others.
        let is_chosen = |position: &u32| Some(*position) != chosen;
        let by_standing = match (of_a, of_b) {
            (Ok(a), Ok(b)) => a.order(b),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => Ordering::Equal,
        };
        is_chosen(a).cmp(&is_chosen(b)).then(by_standing).then(a.cmp(b))
    });
    let mut excluded_counts = BTreeMap::new();
    for why in hosts.iter().filter_map(|(_, standing)| standing.as_ref().err()) {
        *excluded_counts.entry(why.as_str()).or_default() += 1;
    }
    let mut rank = 0;
    let explained = hosts.into_iter().map(|(position, standing)| {
        rank += u32::from(standing.is_ok());
        let host = explain_host(&assessment, position as usize, standing);
        ExplainedHost { rank: standing.is_ok().then_some(rank), ..host }
    });
    let by_load = inputs.pool.policy.method == Method::WeightedLoad;
    Explanation {
        drawn,
        hosts: explained.collect(),
        method: inputs.pool.policy.method,
        top_users: Some(assessment.scale().top_users).filter(|_| by_load),
        top_processes: Some(assessment.scale().top_processes).filter(|_| by_load),
        excluded_counts,
        decision,
        is_reduced: false,
    }
}

fn explain_host(
    assessment: &Assessment<'_>,
    position: usize,
    standing: Result<Standing, Excluded>,
) -> ExplainedHost {
    let inputs = assessment.inputs();
    let (host, policy) = (&inputs.pool.hosts[position], &inputs.pool.policy);
    let state = assessment.state(position);
    let adds = assessment.adds_users(position);
    let state_input = inputs.pool.state_input(position, inputs.words[position], adds, inputs.now);
    let standing_ok = standing.ok();
    let tier = standing_ok.map(|standing| standing.class.tier);
    let ranked_by = |method: Method| policy.method == method && tier.is_some_and(|tier| tier != Tier::Blind);
    // The index makes a host BUSY, too; with the threshold off it does not.
    let uses_index = policy.method == Method::Availability || host.threshold_percent(policy) > 0.0;
    let availability = host.availability(inputs.now);
    ExplainedHost {
        position,
        state,
        state_reason: state_reason(&state_input, state),
        tier,
        excluded: standing.err(),
        rank: None,
        numbers: numbers(assessment, position),
        load_age: host.reading.as_ref().and_then(|reading| reading.age(inputs.now)),
        availability_index: availability.index.filter(|_| uses_index),
        expansion_factor: assessment.expansion_factor(position).filter(|_| uses_index),
        terms: assessment.terms(position).filter(|_| ranked_by(Method::WeightedLoad)),
        predicted: Some(position)
            .filter(|_| ranked_by(Method::Predictive))
            .map(|position| explain_prediction(assessment, position)),
        filled_share: order::filled_share(assessment, position).filter(|_| ranked_by(Method::FillFirst)),
        score: standing_ok.and_then(|standing| standing.rank.shown()),
        penalised: assessment.penalised(position),
        is_silent: inputs.words[position].is_silent(),
        logons_in_progress: (policy.max_pending != PendingLimit::Unlimited)
            .then(|| assessment.logons_in_progress(position)),
        ramp: assessment.metrics(position).ramp,
        flags: assessment.host_flags(position),
    }
}

fn explain_prediction(assessment: &Assessment<'_>, position: usize) -> ExplainedPrediction {
    let inputs = assessment.inputs();
    let host = &inputs.pool.hosts[position];
    ExplainedPrediction {
        input: predict::demand_input(host, inputs.words[position], inputs.now),
        load: assessment.predicted(position),
    }
}

fn numbers(assessment: &Assessment<'_>, position: usize) -> HostNumbers {
    let inputs = assessment.inputs();
    let (host, policy, word) = (&inputs.pool.hosts[position], &inputs.pool.policy, inputs.words[position]);
    let metrics = assessment.metrics(position);
    let by_load = policy.method == Method::WeightedLoad;
    let predicts = by_load && policy.predict;
    HostNumbers {
        cpu_percent: metrics.cpu.filter(|_| by_load),
        memory_percent: metrics.memory.filter(|_| by_load),
        expected_cpu: Some(metrics.expected_cpu).filter(|_| predicts),
        expected_memory: Some(metrics.expected_memory).filter(|_| predicts),
        users: word.users(),
        pending_users: word.pending_users(),
        processes: host.reading.as_ref().and_then(|reading| reading.processes).filter(|_| by_load),
        capacity: Some(metrics.capacity).filter(|_| by_load),
        max_users: host.max_users(policy).finite(),
    }
}
