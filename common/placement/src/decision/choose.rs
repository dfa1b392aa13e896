//! The choice: own session first, then the preferred host, then the best of the best class.
//!
//! Equals are settled at random, never by name: the first name of the alphabet would otherwise take every burst. Where
//! several coordinators decide at the same time, each takes the best of a few hosts drawn at random, so that they do not
//! all send their users to the one host that looks best to all of them. Filling hosts one after the other is the
//! opposite of spreading, so there the whole class is ranked.

use rand::{RngExt, SeedableRng, seq::index};
use rand_pcg::Pcg64Mcg;
use usher_types::Method;

use super::{
    Assessment, Flags, Inputs, Limits, Redirect, Refusal, RefusalKind, Tier, blind,
    order::{Class, Rank, Standing},
    own, redirect,
    scan::Scan,
    words::Words,
};
use crate::{farm::SessionAt, load::LoadTerms};

/// Hosts drawn where several coordinators decide at once. Two would do against herding; with four the chosen host is
/// rarely a bad one.
const DRAWN: usize = 4;
/// In a class so large that four are next to nothing, one of this many is drawn.
const ONE_DRAWN_OF: usize = 256;
/// Alternatives named in an answer.
const ALTERNATIVES: usize = 4;

/// Why a host was chosen.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PlacementReason {
    /// The user has a session there.
    OwnSession,
    /// The user, or this request, has a place there.
    Pending,
    /// It is the home server.
    Preferred,
    /// The lowest weighted load.
    LowestLoad,
    /// The lowest expansion factor, logins on their way included.
    HighestAvailability,
    /// The lowest expected demand.
    Predicted,
    /// The fullest that still has a place.
    Fill,
    /// All are busy: the host that the login came from.
    Original,
}

impl PlacementReason {
    /// As everyone writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OwnSession => "OWN_SESSION",
            Self::Pending => "PENDING",
            Self::Preferred => "PREFERRED",
            Self::LowestLoad => "LOWEST_LOAD",
            Self::HighestAvailability => "HIGHEST_AVAILABILITY",
            Self::Predicted => "PREDICTED",
            Self::Fill => "FILL",
            Self::Original => "ORIGINAL",
        }
    }
}

/// A host that was chosen by rank, and for which a place must be taken.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// Its position in the pool.
    pub position: u32,
    /// Users that the login adds to it.
    pub adds_users: u32,
    /// Why.
    pub reason: PlacementReason,
    /// What qualifies the answer.
    pub flags: Flags,
    /// The class of state that it was chosen from.
    pub tier: Tier,
    /// It must be asked for the place, under these limits. Absent: it is only told.
    pub limits: Option<Limits>,
    /// The number by which it was ranked, low is good. Absent: not known.
    pub score: Option<f64>,
    /// The terms of its weighted load. Absent if it was not ranked by them, or if no metric is known.
    pub terms: Option<LoadTerms>,
    /// Hosts that were equally good, itself among them.
    pub tied: u32,
    /// The next best, best first: their positions, and the numbers by which they were ranked where those are known.
    pub alternatives: Vec<(u32, Option<f64>)>,
    /// Who was passed over.
    pub redirect: Option<Redirect>,
}

/// What should be done with a request.
#[derive(Clone, PartialEq, Debug)]
pub enum Decision {
    /// Take a place on this host.
    Take(Choice),
    /// The user has a session here: no place is taken.
    OwnSession {
        /// The host's position.
        position: u32,
        /// The session.
        session: SessionAt,
        /// The host takes no new sessions: ask it first whether the session still exists.
        must_confirm: bool,
        /// Who was passed over.
        redirect: Option<Redirect>,
    },
    /// The user has a place here already: no further one is taken.
    OwnPlace {
        /// The host's position.
        position: u32,
        /// Who was passed over.
        redirect: Option<Redirect>,
    },
    /// Most agents are lost: try the doors of the hosts at these positions, then decide again. Never empty.
    TryDoors(Vec<u32>),
    /// Nobody can be chosen.
    Refused(Refusal),
}

impl Decision {
    /// The position of the host that the login goes to.
    pub fn position(&self) -> Option<u32> {
        match self {
            Self::Take(choice) => Some(choice.position),
            Self::OwnSession { position, .. } | Self::OwnPlace { position, .. } => Some(*position),
            Self::TryDoors(_) | Self::Refused(_) => None,
        }
    }

    /// Who was passed over.
    pub fn redirect(&self) -> Option<Redirect> {
        match self {
            Self::Take(choice) => choice.redirect,
            Self::OwnSession { redirect, .. } | Self::OwnPlace { redirect, .. } => *redirect,
            Self::TryDoors(_) | Self::Refused(_) => None,
        }
    }
}

/// Decides.
pub fn decide(inputs: &Inputs<'_>) -> Decision {
    decide_by_scan(inputs).0
}

/// Decides, and says how hosts stood. Absent: nobody was looked at.
pub(super) fn decide_by_scan(inputs: &Inputs<'_>) -> (Decision, Option<Scan>) {
    if inputs.pool.is_stale(inputs.now) {
        return (Decision::Refused(Refusal::plain(RefusalKind::Stale)), None);
    }
    let mut assessment = Assessment::new(inputs);
    if assessment.resource_is_unknown() {
        // That it does not exist is said only when everybody who may hold it was heard.
        let awaited = inputs.pool.awaits_replicas(inputs.now);
        let kind = if awaited { RefusalKind::Stale } else { RefusalKind::UnknownResource };
        return (Decision::Refused(Refusal::plain(kind)), None);
    }
    let scan = Scan::of(&mut assessment);
    let decision = own::own_host(&assessment).unwrap_or_else(|| rank(&assessment, &scan));
    (decision, Some(scan))
}

fn rank(assessment: &Assessment<'_>, scan: &Scan) -> Decision {
    let inputs = assessment.inputs();
    let best = scan.best();
    let best_class = best.map(Class::of_code);
    // Lost hosts come after those that are well, but before those on which logins fail.
    if assessment.is_blind() && best_class.is_none_or(|class| class.silent || class.penalised) {
        let doors = blind::doors_to_try(assessment);
        if !doors.is_empty() {
            return Decision::TryDoors(doors);
        }
    }
    let (Some(best), Some(best_class)) = (best, best_class) else {
        return Decision::Refused(Refusal::of(assessment));
    };
    let (position, tied, reason) = match fixed_choice(assessment, best_class) {
        Some((position, reason)) => (position, 1, reason),
        None => {
            let (position, tied) = best_of(scan, best, inputs);
            (position, tied, reason_of(inputs, best_class.tier))
        }
    };
    let Ok(standing) = assessment.standing(position) else {
        return Decision::Refused(Refusal::plain(RefusalKind::AllOffline));
    };
    let alternatives = scan.next_best(position, ALTERNATIVES);
    Decision::Take(Choice {
        tied,
        reason,
        alternatives: alternatives.into_iter().map(|(position, rank)| (position, rank.shown())).collect(),
        ..choice(assessment, position, &standing)
    })
}

/// What is true of the choice of one host, whoever else there is.
fn choice(assessment: &Assessment<'_>, position: u32, standing: &Standing) -> Choice {
    let (inputs, at) = (assessment.inputs(), position as usize);
    let Class { tier, at_pending_limit, .. } = standing.class;
    let limits = Limits::of(&inputs.pool.hosts[at], &inputs.pool.policy);
    let by_load = inputs.pool.policy.method == Method::WeightedLoad && tier != Tier::Blind;
    let terms = if by_load { assessment.terms(at) } else { None };
    Choice {
        position,
        adds_users: assessment.adds_users(at),
        reason: reason_of(inputs, tier),
        flags: assessment
            .flags_of(at, tier == Tier::Blind, || terms)
            .with(Flags::ALL_BUSY, tier == Tier::Busy)
            .with(Flags::OVER_PENDING, at_pending_limit)
            .with(Flags::PARTIAL_VIEW, inputs.pool.is_partial())
            .with(Flags::BLIND, tier == Tier::Blind)
            .with(Flags::AFFINITY_UNKNOWN, inputs.user.key_id_mismatch),
        tier,
        limits: Some(limits).filter(|limits| limits.any() && assessment.can_be_asked(at)),
        score: standing.rank.shown(),
        terms,
        tied: 1,
        alternatives: Vec::new(),
        redirect: redirect::of_ranked(assessment, position),
    }
}

/// What the rank of this tier says of its best.
fn reason_of(inputs: &Inputs<'_>, tier: Tier) -> PlacementReason {
    match inputs.pool.policy.method {
        // Of lost hosts the one with the fewest places on their way.
        _ if tier == Tier::Blind => PlacementReason::LowestLoad,
        Method::WeightedLoad => PlacementReason::LowestLoad,
        Method::Predictive => PlacementReason::Predicted,
        Method::Availability => PlacementReason::HighestAvailability,
        Method::FillFirst => PlacementReason::Fill,
    }
}

/// The host that is chosen whatever the loads: the original if all are busy, or the home server if none is better.
fn fixed_choice(assessment: &Assessment<'_>, best: Class) -> Option<(u32, PlacementReason)> {
    // Neither zones nor logons in progress matter here: it is where the user belongs.
    let is_best = |class: &Class| {
        (class.silent, class.penalised, class.tier) == (best.silent, best.penalised, best.tier)
    };
    let good = |position: u32| assessment.class(position).ok().filter(is_best);
    if assessment.comes_busy()
        && best.tier == Tier::Busy
        && let Some(from) = assessment.from_host.filter(|from| good(*from).is_some())
    {
        return Some((from, PlacementReason::Original));
    }
    let inputs = assessment.inputs();
    let preferred = inputs.request.prefer_host.as_deref().and_then(|host| inputs.pool.find(host))?;
    let preferred = u32::try_from(preferred).ok()?;
    good(preferred).filter(|class| !class.penalised)?;
    Some((preferred, PlacementReason::Preferred))
}

/// The best host of the class, equals at random, and how many were equal.
fn best_of(scan: &Scan, best: u8, inputs: &Inputs<'_>) -> (u32, u32) {
    let mut lowest = Lowest { rng: Pcg64Mcg::seed_from_u64(inputs.seed), best: None, tied: 0 };
    let is_drawn = matches!(inputs.words, Words::Drawn(_));
    if inputs.pool.policy.method == Method::FillFirst || !inputs.pool.has_peers() || is_drawn {
        scan.offer_members(best, &mut lowest);
    } else {
        let members: Vec<(u32, Rank)> = scan.members(best).collect();
        let drawn = DRAWN.max(members.len() / ONE_DRAWN_OF).min(members.len());
        for n in index::sample(&mut lowest.rng, members.len(), drawn) {
            let (position, rank) = members[n];
            lowest.take(position, rank);
        }
    }
    (lowest.best.map_or(0, |(position, _)| position), lowest.tied)
}

/// The lowest rank so far, equals at random.
pub(super) struct Lowest {
    rng: Pcg64Mcg,
    best: Option<(u32, Rank)>,
    tied: u32,
}

impl Lowest {
    /// Whether every rank with this score or a higher one comes after it.
    pub(super) fn comes_before(&self, score: f64) -> bool {
        self.best.is_some_and(|(_, lowest)| {
            lowest.group == 0 && score > lowest.score && !Rank::ties(Rank { group: 0, score }, lowest)
        })
    }

    /// Takes a host into account.
    pub(super) fn take(&mut self, position: u32, rank: Rank) {
        match self.best {
            Some((_, lowest)) if rank.ties(lowest) => {
                self.tied += 1;
                // Each of k equals stays with probability 1/k.
                if self.rng.random_range(0..self.tied) == 0 {
                    self.best = Some((position, lowest));
                }
            }
            Some((_, lowest)) if rank.order(lowest).is_gt() => {}
            _ => (self.best, self.tied) = (Some((position, rank)), 1),
        }
    }
}
