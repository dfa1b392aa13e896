//! The choice: own session first, then the preferred host, then the best of the best class.
//!
//! Equals are settled at random, never by name: the first name of the alphabet would otherwise take every burst. Where
//! several coordinators decide at the same time, each takes the best of a few hosts drawn at random, so that they do not
//! all send their users to the one host that looks best to all of them.

use std::collections::HashMap;

use rand::{Rng, RngExt, SeedableRng, seq::index};
use rand_pcg::Pcg64Mcg;
use usher_types::{Affinity, HostId, HostState, SessionState};

use super::{
    Assessment, Excluded, Flags, Inputs, Refusal, RefusalKind, Tier,
    assess::{Class, Standing},
    assess_pool,
};
use crate::{farm::SessionAt, load::LoadTerms};

/// Loads closer than this are equal.
const TIE: f64 = 1e-9;
/// Hosts drawn where several coordinators decide at once.
const DRAWN: usize = 4;
/// Alternatives named in an answer.
const ALTERNATIVES: usize = 8;
/// With more sessions on one host than this, a login name is a service, not a person who comes back.
const MAX_OWN_SESSIONS: usize = 8;

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
    /// All are busy: the host that the login came from.
    Original,
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
    /// Its terms. Absent if no metric is known.
    pub terms: Option<LoadTerms>,
    /// Hosts that were equally good, itself among them.
    pub tied: u32,
    /// The next best, best first: their positions, and their weighted loads where a term is known.
    pub alternatives: Vec<(u32, Option<f64>)>,
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
    },
    /// The user has a place here already: no further one is taken.
    OwnPlace {
        /// The host's position.
        position: u32,
    },
    /// Nobody can be chosen.
    Refused(Refusal),
}

/// Decides.
pub fn decide(inputs: &Inputs<'_>) -> Decision {
    if inputs.pool.is_stale(inputs.now) {
        return Decision::Refused(Refusal::plain(RefusalKind::Stale));
    }
    let assessment = assess_pool(inputs);
    if assessment.resource_is_unknown() {
        return Decision::Refused(Refusal::plain(RefusalKind::UnknownResource));
    }
    own_host(&assessment).unwrap_or_else(|| rank(&assessment))
}

/// The host that the user is on already, or on their way to.
fn own_host(assessment: &Assessment<'_>) -> Option<Decision> {
    let pool = assessment.inputs().pool;
    let affinity = pool.policy.affinity;
    let user = assessment.user.as_ref()?;
    if affinity == Affinity::None || pool.policy.is_shared_account(user) || is_service(assessment.sessions) {
        return None;
    }
    own_session(assessment, affinity).or_else(|| own_place(assessment))
}

/// Whether one host holds more sessions of a login name than a person has.
fn is_service(sessions: &[SessionAt]) -> bool {
    if sessions.len() <= MAX_OWN_SESSIONS {
        return false;
    }
    let mut on_host = HashMap::<&HostId, usize>::new();
    sessions.iter().any(|session| {
        let count = on_host.entry(&session.host_id).or_default();
        *count += 1;
        *count > MAX_OWN_SESSIONS
    })
}

fn own_session(assessment: &Assessment<'_>, affinity: Affinity) -> Option<Decision> {
    let pool = assessment.inputs().pool;
    let reachable = |session: &&SessionAt| -> Option<(u32, HostState)> {
        let position = pool.members.position(&session.host_id)?;
        let as_u32 = u32::try_from(position).ok()?;
        let state = assessment.state(position);
        let drained_hard = pool.hosts[position].drain.as_ref().is_some_and(|mark| mark.drain.no_reconnect);
        let takes = match state {
            HostState::Offline | HostState::NotReady => false,
            HostState::Restricted => !drained_hard,
            _ => true,
        };
        (takes && may_return(assessment, as_u32)).then_some((as_u32, assessment.state_for_newcomer(position)))
    };
    assessment
        .sessions
        .iter()
        .filter(|session| counts_for(session.state, affinity))
        .filter_map(|session| reachable(&session).map(|(position, state)| (session, position, state)))
        .max_by_key(|(session, _, _)| (wanted(session.state), session.began))
        .map(|(session, position, state)| Decision::OwnSession {
            position,
            session: session.clone(),
            must_confirm: matches!(state, HostState::Restricted | HostState::MaxUsers),
        })
}

fn counts_for(state: SessionState, affinity: Affinity) -> bool {
    match affinity {
        Affinity::Session => state != SessionState::Lingering,
        Affinity::Disconnected => state == SessionState::Disconnected,
        Affinity::Linger => true,
        Affinity::None => false,
    }
}

/// Disconnected sessions before active ones, lingering ones last.
fn wanted(state: SessionState) -> u8 {
    match state {
        SessionState::Disconnected => 2,
        SessionState::Active => 1,
        SessionState::Lingering => 0,
    }
}

/// Whether the user may be sent back to the host at `position`: not if the login has just come from there, and not if
/// the host was asked in this call and did not agree.
fn may_return(assessment: &Assessment<'_>, position: u32) -> bool {
    assessment.ruled_out(position).is_none()
        && assessment.from_host != Some(position)
        && assessment.unwilling(position as usize).is_none()
}

fn own_place(assessment: &Assessment<'_>) -> Option<Decision> {
    let inputs = assessment.inputs();
    let takes = |position: &usize| {
        // The place is counted already, so a full host still keeps it.
        let state = assessment.state(*position);
        state.is_eligible() || matches!(state, HostState::MaxUsers | HostState::Unknown)
    };
    inputs
        .own_places
        .iter()
        .filter_map(|host_id| inputs.pool.members.position(host_id))
        .filter(takes)
        .filter_map(|position| u32::try_from(position).ok())
        .find(|position| may_return(assessment, *position))
        .map(|position| Decision::OwnPlace { position })
}

fn rank(assessment: &Assessment<'_>) -> Decision {
    let inputs = assessment.inputs();
    let hosts = 0..u32::try_from(inputs.pool.hosts.len()).unwrap_or(u32::MAX);
    let standings: Vec<Result<Standing, Excluded>> =
        hosts.clone().map(|position| assessment.standing(position)).collect();
    let candidates =
        || hosts.clone().zip(&standings).filter_map(|(n, standing)| Some((n, standing.as_ref().ok()?)));
    let Some(best_class) = candidates().map(|(_, standing)| standing.class).min() else {
        let excluded =
            hosts.clone().zip(&standings).filter_map(|(n, standing)| Some((n, *standing.as_ref().err()?)));
        return Decision::Refused(Refusal::of(excluded));
    };
    let mut rng = Pcg64Mcg::seed_from_u64(inputs.seed);
    let fixed = fixed_choice(assessment, &standings, best_class);
    let (position, tied, reason) = match fixed {
        Some((position, reason)) => (position, 1, reason),
        None => {
            let (position, tied) = best_of(candidates(), best_class, inputs.pool.has_peers(), &mut rng);
            (position, tied, PlacementReason::LowestLoad)
        }
    };
    let at = position as usize;
    let busy = standings[at].as_ref().is_ok_and(|standing| standing.class.tier == Tier::Busy);
    Decision::Take(Choice {
        position,
        adds_users: assessment.adds_users(at),
        reason,
        flags: assessment
            .host_flags(at)
            .with(Flags::ALL_BUSY, busy)
            .with(Flags::PARTIAL_VIEW, inputs.pool.is_partial()),
        terms: assessment.terms(at),
        tied,
        alternatives: alternatives(candidates(), position),
    })
}

/// The host that is chosen whatever the loads: the original if all are busy, or the home server if none is better.
fn fixed_choice(
    assessment: &Assessment<'_>,
    standings: &[Result<Standing, Excluded>],
    best: Class,
) -> Option<(u32, PlacementReason)> {
    // Zones do not matter here: it is where the user belongs.
    let good = |position: u32| {
        let standing = standings.get(position as usize).and_then(|standing| standing.as_ref().ok());
        standing.is_some_and(|s| (s.class.silent, s.class.tier) == (best.silent, best.tier))
    };
    if assessment.comes_busy()
        && best.tier == Tier::Busy
        && let Some(from) = assessment.from_host.filter(|from| good(*from))
    {
        return Some((from, PlacementReason::Original));
    }
    let inputs = assessment.inputs();
    let preferred = inputs.request.prefer_host.as_deref().and_then(|host| inputs.pool.find(host))?;
    let preferred = u32::try_from(preferred).ok()?;
    good(preferred).then_some((preferred, PlacementReason::Preferred))
}

/// The host of the class with the lowest load, equals at random, and how many were equal.
fn best_of<'s>(
    candidates: impl Iterator<Item = (u32, &'s Standing)>,
    class: Class,
    has_peers: bool,
    rng: &mut Pcg64Mcg,
) -> (u32, u32) {
    let members =
        candidates.filter(|(_, standing)| standing.class == class).map(|(n, standing)| (n, standing.load));
    if !has_peers {
        return lowest(members, rng);
    }
    let members: Vec<(u32, f64)> = members.collect();
    let drawn = index::sample(rng, members.len(), DRAWN.min(members.len()));
    lowest(drawn.into_iter().map(|n| members[n]), rng)
}

fn lowest(members: impl Iterator<Item = (u32, f64)>, rng: &mut impl Rng) -> (u32, u32) {
    let (mut best, mut lowest, mut tied) = (0, f64::NAN, 0u32);
    for (position, load) in members {
        if tied > 0 && (load == lowest || (load - lowest).abs() <= TIE) {
            tied += 1;
            // Each of k equals stays with probability 1/k.
            if rng.random_range(0..tied) == 0 {
                best = position;
            }
        } else if tied == 0 || load < lowest {
            (best, lowest, tied) = (position, load, 1);
        }
    }
    (best, tied)
}

fn alternatives<'s>(
    candidates: impl Iterator<Item = (u32, &'s Standing)>,
    chosen: u32,
) -> Vec<(u32, Option<f64>)> {
    let mut best: Vec<(u32, &Standing)> = Vec::with_capacity(ALTERNATIVES + 1);
    for (position, standing) in candidates.filter(|(position, _)| *position != chosen) {
        let key = |s: &Standing| (s.class, s.load);
        let after = best.partition_point(|(_, other)| key(other) <= key(standing));
        if after < ALTERNATIVES {
            best.insert(after, (position, standing));
            best.truncate(ALTERNATIVES);
        }
    }
    best.into_iter().map(|(position, s)| (position, s.load.is_finite().then_some(s.load))).collect()
}
