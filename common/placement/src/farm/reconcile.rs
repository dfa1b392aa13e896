//! Which places does a host still owe?
//!
//! Hosts are where equal coordinators meet: each lists every live place that it knows, whoever gave it, and those that
//! ended in the last minute. A list is held against the ledger: what it lists counts, what it says has ended has, what it
//! does not speak of counts until its time has passed, unless it is known from that list only. Nothing here decides that a
//! place has ended before its host says so or its time has passed; a place that ended here but is still listed is told to
//! the host again.

use std::{collections::HashMap, sync::Arc, time::Duration};

use usher_types::{BootTime, EndReason, EndedPlace, HostId, KeyHasher, Load, PendingPlace, Token, UserMatch};

use super::{CellChange, Effect, HostEntry};
use crate::reservation::{Grant, GrantParts, GrantState, Ledger};

/// What a host's list of places amounts to.
pub(super) struct Reconciled {
    pub(super) change: CellChange,
    pub(super) effects: Vec<Effect>,
    /// Places that were not known here; part of the change already.
    pub(super) taken_over: Vec<Arc<Grant>>,
    /// How long each place that was given here took to become a session.
    pub(super) connected_after: Vec<Duration>,
}

/// Holds the host's list of places against the ledger: what it lists counts, what it no longer lists has ended, what it
/// cannot know yet is left alone.
pub(super) fn reconcile(
    ledger: &Ledger,
    host: &HostEntry,
    rule: UserMatch,
    load: &Load,
    measured_at: BootTime,
) -> Reconciled {
    let mut change = CellChange::default();
    let mut listed: HashMap<&Token, &PendingPlace, KeyHasher> =
        load.pending.iter().map(|place| (&place.token, place)).collect();
    let mut connected_after = Vec::new();
    let ended: HashMap<&Token, &EndedPlace, KeyHasher> =
        load.ended.iter().map(|place| (&place.token, place)).collect();
    for grant in ledger.on_host(&host.view.facts.host_id) {
        let of_other_content = match listed.get(&grant.token) {
            Some(place) if place.content_hash == grant.content_hash => {
                confirm(&grant, place, &mut change);
                listed.remove(&grant.token);
                continue;
            }
            // Two coordinators gave one token for two requests: as everywhere, the higher attempt stays.
            Some(place) => place.attempt >= grant.attempt(),
            None => false,
        };
        let is_its_end = |ended: &&&EndedPlace| {
            ended.content_hash == grant.content_hash && is_end_of(&grant, ended.reason, ended.attempt)
        };
        let said = ended.get(&grant.token).filter(is_its_end);
        let reason = match said {
            _ if of_other_content => EndReason::Superseded,
            Some(ended) => ended.reason,
            // Only the host ever spoke of it, and it speaks of it no more; the Load that said why was lost.
            None if grant.is_hearsay() => EndReason::Expired,
            None if measured_at > grant.ends_at => EndReason::Expired,
            // It was given here, and counts until its time has passed: its message may still be on the way, or the host
            // has lost its book.
            None => {
                grant.set_listed(false);
                continue;
            }
        };
        if let Some(users) = grant.take(reason, measured_at) {
            change.pending_users -= i64::from(users);
            change.places -= 1;
            let is_ours = !grant.is_hearsay() && reason == EndReason::Session;
            let at = said.filter(|_| is_ours).map(|ended| measured_at.before(ended.ended_ago));
            connected_after.extend(at.map(|at| at.since(grant.since)));
        }
    }
    let seen = Seen { ledger, host, rule, now: measured_at };
    let (mut effects, mut taken_over) = (Vec::new(), Vec::new());
    // In the host's order: what follows must be the same for the same report.
    for place in load.pending.iter().filter(|place| listed.remove(&place.token).is_some()) {
        match seen.unknown_here(place, &mut change) {
            Unknown::Counts(effect) => {
                effects.extend(effect);
                taken_over.push(seen.take_over(place, &mut change));
            }
            Unknown::Ends(effect) => effects.push(effect),
            Unknown::IsKnown => {}
        }
    }
    for place in load.ended.iter().filter(|place| ledger.get(&place.token).is_none()) {
        remember_ended(ledger, host, place, measured_at);
    }
    Reconciled { change, effects, taken_over, connected_after }
}

/// Whether a place that counts here has ended with the end of `attempt` on its host. What a session or time has ended is over
/// for every attempt. What somebody took back is not, if the gateway has asked again since: then the host is told of the
/// place under the attempt under which it stands now, and has it again.
fn is_end_of(grant: &Grant, reason: EndReason, attempt: u32) -> bool {
    match reason {
        EndReason::Session | EndReason::Expired | EndReason::HostLost => grant.is_ended_by(attempt),
        EndReason::Cancelled | EndReason::Failed | EndReason::Superseded => attempt >= grant.attempt(),
    }
}

/// The host lists a place that is counted here.
fn confirm(grant: &Grant, place: &PendingPlace, change: &mut CellChange) {
    grant.raise_attempt(place.attempt);
    if place.connected {
        grant.set_connected();
    }
    if place.admitted {
        grant.set_admitted();
    }
    // More users enter the cell before the place says so: whoever ends it meanwhile takes out no more than is in there.
    let more = place.counted_users.saturating_sub(grant.counted_users());
    if more > 0 {
        grant.cell.add_pending_users(more);
    }
    change.pending_users += grant.recount(place.counted_users) - i64::from(more);
    grant.set_listed(true);
}

/// What a host's list is held against.
struct Seen<'a> {
    ledger: &'a Ledger,
    host: &'a HostEntry,
    rule: UserMatch,
    now: BootTime,
}

/// What to do with a place that a host lists and that was not among those counted on it.
enum Unknown {
    /// Another coordinator's, or one from before a restart: it counts. The effect ends its twin on another host.
    Counts(Option<Effect>),
    /// It does not: the host is told so.
    Ends(Effect),
    /// It came to be counted just now.
    IsKnown,
}

impl Seen<'_> {
    fn unknown_here(&self, place: &PendingPlace, change: &mut CellChange) -> Unknown {
        let host_id = &self.host.view.facts.host_id;
        let end = |host_id: &HostId, attempt: u32, reason: EndReason| Effect::EndPlace {
            host_id: host_id.clone(),
            token: place.token.clone(),
            attempt,
            reason,
        };
        if let Some((attempt, reason)) = self.ended_here(place) {
            return Unknown::Ends(end(host_id, attempt, reason));
        }
        let Some(known) = self.ledger.get(&place.token) else { return Unknown::Counts(None) };
        let here = known.host_id == *host_id;
        let same = known.content_hash == place.content_hash;
        match known.state() {
            // It stays here, and the host is told of it: then it lists it instead.
            GrantState::Live | GrantState::Asked if here && !same => Unknown::IsKnown,
            GrantState::Live | GrantState::Asked if here => {
                confirm(&known, place, change);
                Unknown::IsKnown
            }
            GrantState::Live | GrantState::Asked => {
                let ours = (known.attempt(), known.ends_at.since(self.now), &known.host_id);
                if gives_way((place.attempt, place.left, host_id), ours) {
                    return Unknown::Ends(end(host_id, place.attempt, EndReason::Superseded));
                }
                let attempt = known.attempt();
                known.end(EndReason::Superseded, self.now);
                Unknown::Counts(Some(end(&known.host_id, attempt, EndReason::Superseded)))
            }
            // Given elsewhere, and lost only here, where the host was not heard: its own book and whoever gave it know better.
            GrantState::Ended(EndReason::HostLost) if here && known.is_hearsay() => Unknown::Counts(None),
            GrantState::Ended(_) => Unknown::Counts(None),
        }
    }

    /// Under which attempt, and why, the place ended that was given on this host under this attempt or a higher one, although
    /// its token may have been tried on other hosts since: the message that says so is on its way to the host, or was lost.
    fn ended_here(&self, place: &PendingPlace) -> Option<(u32, EndReason)> {
        let given = self.ledger.last_on(&self.host.view.facts.host_id, &place.token)?;
        let is_it = given.content_hash == place.content_hash && given.attempt() >= place.attempt;
        match given.state() {
            // Lost only here, where the host was not heard.
            GrantState::Ended(EndReason::HostLost) if given.is_hearsay() => None,
            GrantState::Ended(reason) if is_it => Some((given.attempt(), reason)),
            _ => None,
        }
    }

    /// The caller puts it into the ledger once the change is in the cell.
    fn take_over(&self, place: &PendingPlace, change: &mut CellChange) -> Arc<Grant> {
        change.pending_users += i64::from(place.counted_users);
        change.places += 1;
        let grant = Grant::new(parts(self.host, self.rule, place, self.now), false);
        grant.set_hearsay();
        if place.connected {
            grant.set_connected();
        }
        if place.admitted {
            grant.set_admitted();
        }
        Arc::new(grant)
    }
}

/// Times left that differ by less than a message may take are equal.
const SAME_TIME: Duration = Duration::from_millis(250);

/// Of one token on two hosts, whether the first place gives way to the second: the higher attempt stays, on a tie the one
/// with more time left. Equal in both, the lower host id: two coordinators that each hear of the other's place must not
/// end both.
fn gives_way(theirs: (u32, Duration, &HostId), ours: (u32, Duration, &HostId)) -> bool {
    if theirs.0 != ours.0 {
        theirs.0 < ours.0
    } else if theirs.1.abs_diff(ours.1) >= SAME_TIME {
        theirs.1 < ours.1
    } else {
        theirs.2 > ours.2
    }
}

fn parts(host: &HostEntry, rule: UserMatch, place: &PendingPlace, now: BootTime) -> GrantParts {
    GrantParts {
        token: place.token.clone(),
        made_under: place.attempt,
        content_hash: place.content_hash,
        pool: place.pool.clone(),
        host_id: host.view.facts.host_id.clone(),
        cell: host.cell.clone(),
        endpoints: host.view.facts.endpoints.clone(),
        user: place.user.clone(),
        user_key: place.user.as_deref().and_then(|user| rule.key(user)),
        cost: place.cost,
        counted_at_first: place.counted_users,
        since: now,
        ends_at: now + place.left,
        decision_id: None,
        blind: false,
        untold: false,
    }
}

fn remember_ended(ledger: &Ledger, host: &HostEntry, ended: &EndedPlace, now: BootTime) {
    let place = PendingPlace {
        token: ended.token.clone(),
        attempt: ended.attempt,
        content_hash: ended.content_hash,
        pool: ended.pool.clone(),
        endpoint: ended.endpoint.clone(),
        user: None,
        cost: 1,
        counted_users: 0,
        left: Duration::ZERO,
        connected: false,
        admitted: false,
    };
    let grant = Grant::new(parts(host, UserMatch::default(), &place, now), false);
    // Counted nowhere: it is only remembered.
    let _ = grant.take(ended.reason, now.before(ended.ended_ago));
    ledger.insert(Arc::new(grant));
}
