//! Who decides where a login goes?

mod oracle;
mod stale;
mod usher;

use std::{fmt, str::FromStr};

pub(crate) use oracle::Oracle;
pub(crate) use stale::{Given, Rule, Stale};
pub(crate) use usher::Usher;
use usher_types::{PolicyChange, WeightsChange};

use crate::{
    login::Login,
    machines::Machines,
    scene::{Scene, Script},
    sensors::Report,
};

/// What a method is told, and what it is asked.
pub(crate) trait Placer {
    /// A report has come.
    fn report(&mut self, host: usize, report: &Report, now_s: f64);
    /// A placed login has become a session.
    fn session_begins(&mut self, host: usize, login: usize, now_s: f64);
    /// A session is over.
    fn session_ends(&mut self, host: usize, now_s: f64);
    /// The agent of a host has frozen: nothing is heard of it.
    fn agent_freezes(&mut self, host: usize, now_s: f64);
    /// A host has died, and everybody knows it.
    fn host_dies(&mut self, host: usize, now_s: f64);
    /// A host has booted and may be used.
    fn host_boots(&mut self, host: usize, now_s: f64);
    /// A second has passed.
    fn second(&mut self, now_s: f64);
    /// A step is over.
    fn step_ends(&mut self, truth: &Machines, now_s: f64);
    /// Where the login number `number` goes. Absent: it is refused.
    fn place(&mut self, number: usize, login: &Login, truth: &Machines, now_s: f64) -> Option<usize>;
}

/// The best of all in steps of ten percent, on seeds that no figure is made from: `storm --weights` finds them.
const BEST_WEIGHTS: WeightsChange = WeightsChange {
    cpu_percent: Some(90.0),
    memory_percent: Some(0.0),
    users_percent: Some(10.0),
    processes_percent: Some(0.0),
};

/// A way to decide.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Method {
    /// Any host.
    Random,
    /// One host after the other.
    RoundRobin,
    /// Fewest sessions as last reported.
    LeastSessionsStale,
    /// Lowest weighted load 15/15/55/15 as last reported.
    AadsStale,
    /// Highest availability index as last reported.
    HighestIndexStale,
    /// Of two hosts drawn at random the one with the lower weighted load as last reported.
    BestOfTwoAadsStale,
    /// Weighted load with places given out among the users.
    AadsReservations,
    /// The same, users and processes not divided by capacity.
    AadsReservationsRaw,
    /// CPU as last reported, and what the places given out since will use.
    CpuReservations,
    /// usher's weighted load with its default settings.
    WeightedLoad,
    /// The same with the best weights that were found for a storm.
    WeightedLoadBest,
    /// usher's availability.
    Availability,
    /// usher's predictive method.
    Predictive,
    /// The same, looking at every host of a pool however large it is.
    PredictiveWholeScan,
    /// Greedy on the true state.
    Oracle,
}

impl Method {
    /// All that differ in pools of any size.
    pub const ALL: &[Self] = &[
        Self::Random,
        Self::RoundRobin,
        Self::LeastSessionsStale,
        Self::AadsStale,
        Self::HighestIndexStale,
        Self::BestOfTwoAadsStale,
        Self::AadsReservations,
        Self::AadsReservationsRaw,
        Self::CpuReservations,
        Self::WeightedLoad,
        Self::WeightedLoadBest,
        Self::Availability,
        Self::Predictive,
        Self::Oracle,
    ];

    /// As it is typed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::RoundRobin => "round_robin",
            Self::LeastSessionsStale => "least_sessions_stale",
            Self::AadsStale => "aads_stale",
            Self::HighestIndexStale => "highest_index_stale",
            Self::BestOfTwoAadsStale => "best_of_two_stale",
            Self::AadsReservations => "aads_reservations",
            Self::AadsReservationsRaw => "aads_reservations_raw",
            Self::CpuReservations => "cpu_reservations",
            Self::WeightedLoad => "weighted_load",
            Self::WeightedLoadBest => "weighted_load_best",
            Self::Availability => "availability",
            Self::Predictive => "predictive",
            Self::PredictiveWholeScan => "predictive_whole_scan",
            Self::Oracle => "oracle",
        }
    }

    /// The settings of usher's pool; those of the methods of others are the defaults.
    fn settings(self) -> PolicyChange {
        let of = |method| PolicyChange { method: Some(method), ..PolicyChange::default() };
        match self {
            Self::WeightedLoadBest => {
                PolicyChange { weights: Some(BEST_WEIGHTS), ..of(usher_types::Method::WeightedLoad) }
            }
            Self::Availability => of(usher_types::Method::Availability),
            Self::Predictive | Self::PredictiveWholeScan => of(usher_types::Method::Predictive),
            _ => of(usher_types::Method::WeightedLoad),
        }
    }

    pub(crate) fn placer(self, scene: &Scene, script: &Script, seed: u64) -> Box<dyn Placer> {
        let stale = |rule, given| Box::new(Stale::new(rule, given, scene, script, seed));
        match self {
            Self::Random => stale(Rule::Any, Given::Ignored),
            Self::RoundRobin => stale(Rule::InTurn, Given::Ignored),
            Self::LeastSessionsStale => stale(Rule::Sessions, Given::Ignored),
            Self::AadsStale => stale(Rule::WeightedLoad { by_capacity: true }, Given::Ignored),
            Self::HighestIndexStale => stale(Rule::Index, Given::Ignored),
            Self::BestOfTwoAadsStale => stale(Rule::BestOfTwo, Given::Ignored),
            Self::AadsReservations => stale(Rule::WeightedLoad { by_capacity: true }, Given::Counted),
            Self::AadsReservationsRaw => stale(Rule::WeightedLoad { by_capacity: false }, Given::Counted),
            Self::CpuReservations => stale(Rule::Cpu, Given::Counted),
            Self::Oracle => Box::new(Oracle::new(script, seed)),
            _ => {
                let scans_all = self == Self::PredictiveWholeScan;
                Box::new(Usher::with_scan(&self.settings(), scans_all, scene, script, seed))
            }
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.iter().find(|method| method.as_str() == text).copied().ok_or_else(|| {
            let all: Vec<&str> = Self::ALL.iter().map(|method| method.as_str()).collect();
            format!("there is no method `{text}`, there are {}", all.join(", "))
        })
    }
}

/// The index with the lowest score, equals at random. Infinite scores are no candidates.
pub(crate) fn lowest(
    scores: impl Iterator<Item = (usize, f64)>,
    rng: &mut rand_pcg::Pcg64Mcg,
) -> Option<usize> {
    use rand::RngExt;
    let mut best: Option<(usize, f64)> = None;
    let mut tied = 1u32;
    for (index, score) in scores.filter(|(_, score)| score.is_finite()) {
        match best {
            Some((_, lowest)) if (score - lowest).abs() <= 1e-9 => {
                tied += 1;
                if rng.random_range(0..tied) == 0 {
                    best = Some((index, lowest));
                }
            }
            Some((_, lowest)) if score > lowest => {}
            _ => (best, tied) = (Some((index, score)), 1),
        }
    }
    best.map(|(index, _)| index)
}
