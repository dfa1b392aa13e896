//! Whose agents are lost, and who may be tried nevertheless?
//!
//! Lost agents are not lost hosts: an upgrade of all agents that goes wrong, or a broken network between hosts and
//! coordinators, silences a pool whose doors stand open. A host is **lost** if it was heard before and is now OFFLINE
//! without having said goodbye, or UNKNOWN. Where over half of a pool is lost, or a login has no eligible candidate and
//! some of its candidates are lost, the doors themselves are asked: a lost host whose advertised endpoint accepts a
//! connection may be chosen, after everybody who is known to be well.
//!
//! Never one that is drained, that said that it is not ready, or that was full when it last spoke: nothing suggests that
//! it has changed its mind.

use rand::{SeedableRng, seq::index};
use rand_pcg::Pcg64Mcg;
use usher_types::{HostState, Readiness, WhenBlind};

use super::{Assessment, Excluded};

/// Doors tried for one login. Enough to spread a storm over; trying a thousand takes longer than the login may wait.
const DOORS: usize = 64;

/// Whether lost hosts take part in this decision.
pub(super) fn is_active(assessment: &Assessment<'_>) -> bool {
    let pool = assessment.inputs().pool;
    if pool.policy.when_blind == WhenBlind::Refuse {
        return false;
    }
    let (mut counted, mut lost) = (0usize, 0usize);
    let (mut eligible_candidate, mut lost_candidate) = (false, false);
    for (at, position) in (0..pool.hosts.len()).zip(0u32..) {
        let state = assessment.state(at);
        // Hosts that said goodbye count in no share.
        counted += usize::from(!pool.hosts[at].said_goodbye);
        let is_lost = is_lost(assessment, at);
        lost += usize::from(is_lost);
        if (is_lost && !lost_candidate || state.is_eligible() && !eligible_candidate)
            && assessment.ruled_out(position).is_none()
        {
            lost_candidate |= is_lost;
            eligible_candidate |= state.is_eligible();
        }
    }
    2 * lost > counted || (lost_candidate && !eligible_candidate)
}

/// Whether the agent of the host at `position` is lost.
pub(super) fn is_lost(assessment: &Assessment<'_>, position: usize) -> bool {
    let state = assessment.state(position);
    // Most hosts are neither, and need not be looked at.
    matches!(state, HostState::Offline | HostState::Unknown)
        && assessment.inputs().pool.hosts[position].is_lost(state)
}

/// Whether nothing but its door is missing for the lost host at `position` to be chosen.
fn may_be_tried(assessment: &Assessment<'_>, position: usize) -> bool {
    let host = &assessment.inputs().pool.hosts[position];
    let ready = host.reading.as_ref().is_some_and(|reading| reading.readiness == Readiness::Ready);
    ready && !host.is_drained() && is_lost(assessment, position)
}

/// Whether the lost host at `position` may be chosen, or what speaks against it.
pub(super) fn check(assessment: &Assessment<'_>, position: usize) -> Result<(), Excluded> {
    let door = may_be_tried(assessment, position).then(|| assessment.door(position)).flatten();
    match door {
        Some(true) => Ok(()),
        Some(false) => Err(Excluded::DoorShut),
        None => Err(Excluded::State(assessment.state(position))),
    }
}

/// Doors that must be tried before it can be decided; empty: enough is known.
pub(super) fn doors_to_try(assessment: &Assessment<'_>) -> Vec<u32> {
    let (mut untried, mut known, mut open) = (Vec::new(), 0usize, false);
    for position in assessment.positions() {
        let at = position as usize;
        let is_candidate = assessment.ruled_out(position).is_none() && assessment.unwilling(at).is_none();
        if !is_candidate || !may_be_tried(assessment, at) {
            continue;
        }
        // A host that has no place left is tried too: whether it is full or gone is not the same refusal.
        match assessment.door(at) {
            Some(accepts) => {
                known += 1;
                open |= accepts && assessment.check_room(at).is_ok();
            }
            None => untried.push(position),
        }
    }
    if open && known >= DOORS {
        return Vec::new();
    }
    if untried.len() <= DOORS {
        return untried;
    }
    let mut rng = Pcg64Mcg::seed_from_u64(assessment.inputs().seed);
    index::sample(&mut rng, untried.len(), DOORS).into_iter().map(|n| untried[n]).collect()
}
