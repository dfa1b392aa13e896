//! Does the user belong to one of the hosts?
//!
//! Somebody who has left a session behind finds it again, whatever the loads; somebody who is on their way already (two
//! windows opened at once) does not take a second place. Neither holds for accounts that are no single person.

use std::cmp::Reverse;

use usher_types::{Affinity, HostState, SessionState};

use super::{Assessment, Decision, redirect};
use crate::farm::SessionAt;

/// The host that the user is on already, or on their way to.
pub(super) fn own_host(assessment: &Assessment<'_>) -> Option<Decision> {
    if !has_affinity(assessment) {
        return None;
    }
    own_session(assessment).or_else(|| own_place(assessment))
}

fn has_affinity(assessment: &Assessment<'_>) -> bool {
    let inputs = assessment.inputs();
    inputs.pool.policy.affinity != Affinity::None && inputs.user.is_a_person()
}

/// The sessions that count, on hosts of the pool, with their positions.
fn sessions<'a>(assessment: &Assessment<'a>) -> impl Iterator<Item = (&'a SessionAt, u32)> {
    let inputs = assessment.inputs();
    let (pool, affinity) = (inputs.pool, inputs.pool.policy.affinity);
    inputs.user.sessions.iter().filter(move |session| counts_for(session.state, affinity)).filter_map(
        move |session| {
            let position = pool.members.position(&session.host_id)?;
            Some((session, u32::try_from(position).ok()?))
        },
    )
}

/// Disconnected sessions before active ones, lingering ones last; the newest first. Of equals the host id decides, so
/// that the order in which hosts were heard does not.
fn preference(session: &SessionAt) -> impl Ord + '_ {
    let wanted = match session.state {
        SessionState::Disconnected => 2u8,
        SessionState::Active => 1,
        SessionState::Lingering => 0,
    };
    (wanted, session.began, Reverse((&session.host_id, &session.session_id)))
}

fn own_session(assessment: &Assessment<'_>) -> Option<Decision> {
    let (session, position) = sessions(assessment)
        .filter(|(_, position)| may_return(assessment, *position) && takes_back(assessment, *position))
        .max_by(|(a, _), (b, _)| preference(a).cmp(&preference(b)))?;
    let state = assessment.state_for_newcomer(position as usize);
    Some(Decision::OwnSession {
        position,
        session: session.clone(),
        must_confirm: matches!(state, HostState::Restricted | HostState::MaxUsers),
        redirect: redirect::of_own(assessment, position),
    })
}

/// The host of the session that the user would have been sent back to first, were it for that session alone.
pub(super) fn home_of_session(assessment: &Assessment<'_>) -> Option<u32> {
    if !has_affinity(assessment) {
        return None;
    }
    sessions(assessment)
        .max_by(|(a, _), (b, _)| preference(a).cmp(&preference(b)))
        .map(|(_, position)| position)
}

fn counts_for(state: SessionState, affinity: Affinity) -> bool {
    match affinity {
        Affinity::Session => state != SessionState::Lingering,
        Affinity::Disconnected => state == SessionState::Disconnected,
        Affinity::Linger => true,
        Affinity::None => false,
    }
}

/// Whether the host at `position` takes its users back.
fn takes_back(assessment: &Assessment<'_>, position: u32) -> bool {
    let at = position as usize;
    match assessment.state(at) {
        HostState::Offline | HostState::NotReady => false,
        HostState::Restricted => !assessment.inputs().pool.hosts[at].refuses_reconnects(),
        _ => true,
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
    let takes = |position: &usize| match assessment.state(*position) {
        // The place is counted already, so a full host still keeps it.
        HostState::Available | HostState::Warming | HostState::Busy | HostState::MaxUsers => true,
        HostState::Unknown => true,
        HostState::Offline => assessment.is_open_though_lost(*position),
        HostState::Restricted | HostState::NotReady => false,
    };
    inputs
        .user
        .places
        .iter()
        .filter_map(|host_id| inputs.pool.members.position(host_id))
        .filter(|position| takes(position) && assessment.penalised(*position).is_none())
        .filter_map(|position| u32::try_from(position).ok())
        .find(|position| may_return(assessment, *position))
        .map(|position| Decision::OwnPlace { position, redirect: redirect::of_own(assessment, position) })
}
