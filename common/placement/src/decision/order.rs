//! Of two candidates, which comes first?
//!
//! First by class, then by rank within it. A class gathers what no number can outweigh: a host that does not answer, one
//! on which logins fail, the state, the logons that it is busy with, the zone. Of two classes the lower comes first
//! whatever the ranks; only the best class that anybody is in is chosen from.
//!
//! The rank is one number that each method computes in its own way; low is good.
//!
//! | method | rank |
//! |---|---|
//! | `weighted_load` | the weighted load, 0..=100; of a host that is ramping up perhaps more |
//! | `availability` | `XF (1 + pending / max(1, users))`, >= 1: how much slower it answers than without load, made worse by the logins that are on their way and not measured yet. While ramping up, `max(1, users)` is multiplied by its ramp. Hosts whose XF is not known come after all others, fewest users first |
//! | `predictive` | the expected demand and memory with this login, >= 0. Hosts of which neither is known come after all others |
//! | `fill_first` | the free share of its user limit, `1 - (users + pending) / max_users`: the fullest first. Without a limit of its own a host is never filled: 1. Ramping hosts come last |
//!
//! A host whose agent is lost has old numbers only; of such hosts the one with the fewest places on their way comes first.

use std::cmp::Ordering;

use usher_types::{HostState, Method};

use super::Assessment;

/// Classes of state, best first.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Tier {
    /// AVAILABLE.
    Available,
    /// WARMING: it will be as good as the others soon.
    Warming,
    /// BUSY: served if nobody better is left.
    Busy,
    /// UNKNOWN, where the pool allows it.
    Unknown,
    /// Its agent is lost, but its own door accepts connections.
    Blind,
}

impl Tier {
    /// As everyone writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "AVAILABLE",
            Self::Warming => "WARMING",
            Self::Busy => "BUSY",
            Self::Unknown => "UNKNOWN",
            Self::Blind => "BLIND",
        }
    }

    /// The state that it stands for.
    pub(super) const fn state(self) -> HostState {
        match self {
            Self::Available => HostState::Available,
            Self::Warming => HostState::Warming,
            Self::Busy => HostState::Busy,
            Self::Unknown => HostState::Unknown,
            Self::Blind => HostState::Offline,
        }
    }
}

/// What no rank can outweigh. The fields are compared in this order.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Class {
    /// It did not answer when it was last asked.
    pub silent: bool,
    /// Logins fail on it.
    pub penalised: bool,
    pub tier: Tier,
    /// As many logons are on their way to it as should be.
    pub at_pending_limit: bool,
    /// It is in another zone than the client.
    pub far: bool,
}

/// A class and a group of rank in one number, the lower first; what many hosts are compared by at once.
///
/// | bit | content |
/// |---|---|
/// | 7 | silent |
/// | 6 | penalised |
/// | 3..=5 | tier |
/// | 2 | at the limit of logons in progress |
/// | 1 | far |
/// | 0 | group of rank |
pub(super) mod code {
    pub(in crate::decision) const SILENT_SHIFT: u32 = 7;
    pub(in crate::decision) const PENALISED_SHIFT: u32 = 6;
    pub(in crate::decision) const TIER_SHIFT: u32 = 3;
    pub(in crate::decision) const AT_LIMIT_SHIFT: u32 = 2;
    pub(in crate::decision) const FAR_SHIFT: u32 = 1;
    /// In place of a code: no candidate. After all others.
    pub(in crate::decision) const NONE: u8 = u8::MAX;
}

/// The code of a host of which only its tier, as a number, and its group are known. [`code::NONE`] without a tier.
pub(crate) const fn code_of_tier(tier: u8, group: u8) -> u8 {
    if tier == code::NONE { code::NONE } else { tier << code::TIER_SHIFT | group }
}

impl Standing {
    /// See [`code`].
    pub(super) fn code(&self) -> u8 {
        let Class { silent, penalised, tier, at_pending_limit, far } = self.class;
        u8::from(silent) << code::SILENT_SHIFT
            | u8::from(penalised) << code::PENALISED_SHIFT
            | (tier as u8) << code::TIER_SHIFT
            | u8::from(at_pending_limit) << code::AT_LIMIT_SHIFT
            | u8::from(far) << code::FAR_SHIFT
            | self.rank.group
    }
}

impl Class {
    /// That of a code which is none of no candidate.
    pub(super) const fn of_code(code: u8) -> Self {
        Self {
            silent: code >> code::SILENT_SHIFT & 1 == 1,
            penalised: code >> code::PENALISED_SHIFT & 1 == 1,
            tier: match code >> code::TIER_SHIFT & 7 {
                0 => Tier::Available,
                1 => Tier::Warming,
                2 => Tier::Busy,
                3 => Tier::Unknown,
                _ => Tier::Blind,
            },
            at_pending_limit: code >> code::AT_LIMIT_SHIFT & 1 == 1,
            far: code >> code::FAR_SHIFT & 1 == 1,
        }
    }
}

/// Where a host stands within its class.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) struct Rank {
    /// Groups within the class, the lower first: what the score of one group says cannot be compared with another's.
    pub group: u8,
    /// Low is good.
    pub score: f64,
}

/// Scores closer than this are equal.
const TIE: f64 = 1e-9;

impl Rank {
    const fn scored(score: f64) -> Self {
        Self { group: 0, score }
    }

    /// Whether neither comes before the other.
    pub(super) fn ties(self, other: Self) -> bool {
        // Equal infinities have no difference.
        self.group == other.group && (self.score == other.score || (self.score - other.score).abs() <= TIE)
    }

    pub(super) fn order(self, other: Self) -> Ordering {
        self.group.cmp(&other.group).then(self.score.total_cmp(&other.score))
    }

    /// The number by which the method ranks it. Absent: what that needs is not known.
    pub(super) fn shown(self) -> Option<f64> {
        self.score.is_finite().then_some(self.score)
    }
}

/// A candidate.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) struct Standing {
    pub class: Class,
    pub rank: Rank,
}

impl Standing {
    pub(super) fn order(&self, other: &Self) -> Ordering {
        self.class.cmp(&other.class).then(self.rank.order(other.rank))
    }
}

/// The rank of the host at `position` in a class of this tier.
pub(super) fn rank(assessment: &Assessment<'_>, position: usize, tier: Tier) -> Rank {
    let metrics = assessment.metrics(position);
    if tier == Tier::Blind {
        return Rank::scored(metrics.pending);
    }
    match assessment.inputs().pool.policy.method {
        Method::Availability => by_availability(assessment, position),
        Method::FillFirst => {
            let free = filled_share(assessment, position).map_or(1.0, |filled| 1.0 - filled);
            Rank { group: u8::from(metrics.ramp.is_some()), score: free }
        }
        Method::Predictive => Rank {
            group: u8::from(assessment.is_unpredictable(position)),
            score: assessment.predicted(position).score(),
        },
        Method::WeightedLoad => {
            Rank::scored(assessment.terms(position).map_or(f64::INFINITY, |terms| terms.weighted_load()))
        }
    }
}

fn by_availability(assessment: &Assessment<'_>, position: usize) -> Rank {
    let metrics = assessment.metrics(position);
    match assessment.expansion_factor(position) {
        Some(factor) => {
            let users = metrics.users.unwrap_or(0.0).max(1.0) * metrics.ramp.unwrap_or(1.0);
            Rank::scored(factor * (1.0 + metrics.pending / users))
        }
        None => {
            Rank { group: 1, score: metrics.users.map_or(f64::INFINITY, |users| users + metrics.pending) }
        }
    }
}

/// Users and places of the host at `position` as a share of its limit. Absent without a limit, or where users are not
/// known.
pub(super) fn filled_share(assessment: &Assessment<'_>, position: usize) -> Option<f64> {
    let pool = assessment.inputs().pool;
    let limit = pool.hosts[position].max_users(&pool.policy).finite()?;
    let metrics = assessment.metrics(position);
    Some((metrics.users? + metrics.pending) / f64::from(limit.max(1)))
}
