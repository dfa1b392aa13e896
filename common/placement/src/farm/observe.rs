//! What hosts say, taken in.

use std::{collections::HashMap, sync::Arc, time::Duration};

use usher_availability::{Availability, availability_index};
use usher_types::{
    BootTime, EndReason, EndedPlace, FieldFault, HostId, HostOverrides, Latency, Load, Memory, PendingPlace,
    Percent, Replica, Session, Token, UserLimit, UserMatch,
};

use super::{CellChange, Effect, Farm, HostEntry, LatencyReading, Reading};
use crate::reservation::{Grant, GrantParts, GrantState, Ledger};

/// For how many intervals the last good value stands for a wrong one.
const KEEP_GOOD_INTERVALS: u32 = 3;

/// The last good value of each number that may come wrong, and when it was measured.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct LastGood {
    cpu_percent: Option<(f64, BootTime)>,
    memory: Option<(Memory, BootTime)>,
    users: Option<(u32, BootTime)>,
    processes: Option<(u32, BootTime)>,
    capacity: Option<(f64, BootTime)>,
    max_users: Option<(UserLimit, BootTime)>,
    threshold: Option<(Percent, BootTime)>,
    range: Option<(f64, BootTime)>,
}

impl Farm {
    /// Whether this stream is the living one of the host.
    pub fn is_current(&self, host_id: &HostId, stream_epoch: u64) -> bool {
        self.hosts.get(host_id).is_some_and(|host| host.stream_epoch == Some(stream_epoch))
    }

    /// Takes in a Load that was measured at `measured_at`, in which `faults` were dropped as wrong.
    ///
    /// `wall_unix_ms` is the coordinator's wall clock, only to show the skew of the host's.
    pub fn observe_load(
        &mut self,
        host_id: &HostId,
        load: Load,
        faults: &[FieldFault],
        measured_at: BootTime,
        wall_unix_ms: u64,
    ) -> Vec<Effect> {
        let Some(host) = self.hosts.get_mut(host_id) else { return Vec::new() };
        host.view.rejected_values = host.view.rejected_values.saturating_add(faults.len() as u64);
        let rule =
            self.pools.get(&host.view.facts.pool).map(|pool| pool.policy.user_match).unwrap_or_default();
        let reading = reading(host, &load, faults, measured_at, wall_unix_ms);
        let Reconciled { mut change, effects, taken_over } =
            reconcile(&self.ledger, host, rule, &load, measured_at);
        change.users = reading.users;
        host.cell.apply(change);
        // Only now: whoever ends one of them takes it out of the cell, where it must be by then.
        taken_over.into_iter().for_each(|grant| self.ledger.insert(grant));
        self.ledger.bound_host(host_id);
        host.cell.set_silent(false);
        host.view.reading = Some(Arc::new(reading));
        self.publish(host_id);
        effects
    }

    /// Takes in a Latency that was measured at `measured_at`.
    pub fn observe_latency(
        &mut self,
        host_id: &HostId,
        latency: Latency,
        faults: usize,
        measured_at: BootTime,
    ) {
        let Some(host) = self.hosts.get_mut(host_id) else { return };
        host.view.rejected_values = host.view.rejected_values.saturating_add(faults as u64);
        let Some(pool) = self.pools.get(&host.view.facts.pool) else { return };
        let range = host.view.range(&pool.policy);
        let availability = with_range(host.tracker.assess(&latency, range, measured_at), range);
        host.view.latency = Some(Arc::new(LatencyReading { measured_at, latency, availability }));
        self.publish(host_id);
    }

    /// Takes in the whole list of what a host serves.
    pub fn observe_replicas(&mut self, host_id: &HostId, replicas: Vec<Replica>) {
        let Some(host) = self.hosts.get_mut(host_id) else { return };
        host.view.replicas = replicas.into();
        if let Some(pool) = self.pools.get_mut(&host.view.facts.pool) {
            pool.replicas_changed = true;
        }
        self.publish(host_id);
    }

    /// Takes in the whole list of a host's sessions, as it was at `now`.
    pub fn observe_sessions(&mut self, host_id: &HostId, sessions: Vec<Session>, now: BootTime) {
        let Some(host) = self.hosts.get_mut(host_id) else { return };
        let Some(pool) = self.pools.get_mut(&host.view.facts.pool) else { return };
        pool.sessions.replace(host_id, &host.view.sessions, &sessions, pool.policy.user_match, now);
        host.sessions_at = now;
        host.view.sessions = sessions.into();
        self.publish(host_id);
    }
}

/// The same availability under another exponent: an index that was computed with settings that are no longer in force
/// must not be compared with a threshold that is.
pub(super) fn with_range(availability: Availability, range: f64) -> Availability {
    let index = match (availability.index, availability.expansion_factor) {
        (Some(_), Some(xf)) => Some(availability_index(xf, range)),
        (index, _) => index,
    };
    Availability { index, ..availability }
}

fn reading(
    host: &mut HostEntry,
    load: &Load,
    faults: &[FieldFault],
    measured_at: BootTime,
    wall_unix_ms: u64,
) -> Reading {
    let keep_for = host.view.facts.report_interval.saturating_mul(KEEP_GOOD_INTERVALS);
    let wrong = |fields: &[&str]| faults.iter().any(|fault| fields.contains(&fault.field.as_str()));
    let mut kept = Kept { keep_for, now: measured_at, stale: Vec::new() };
    let good = &mut host.last_good;
    let cpu = load.cpu.map(Percent::get);
    let cpu_percent = kept.value("cpu", &mut good.cpu_percent, cpu, wrong(&["cpu_percent"]));
    let wrong_memory = wrong(&["memory_used_bytes", "memory_total_bytes"]);
    let memory = kept.value("memory", &mut good.memory, load.memory, wrong_memory);
    let users = kept.value("users", &mut good.users, load.users, wrong(&["users"]));
    let processes = kept.value("processes", &mut good.processes, load.processes, wrong(&["processes"]));
    let said = &load.overrides;
    let overrides = HostOverrides {
        capacity: kept.value("capacity", &mut good.capacity, said.capacity, wrong(&["capacity"])),
        max_users: kept.value("max_users", &mut good.max_users, said.max_users, wrong(&["max_users"])),
        threshold: kept.value(
            "threshold",
            &mut good.threshold,
            said.threshold,
            wrong(&["threshold_percent"]),
        ),
        range: kept.value("range", &mut good.range, said.range, wrong(&["range"])),
    };
    let listed_users = load.pending.iter().map(|place| place.counted_users);
    let skew = |theirs: u64| i64::try_from(i128::from(theirs) - i128::from(wall_unix_ms)).unwrap_or(i64::MAX);
    Reading {
        measured_at,
        cpu_percent,
        memory,
        users,
        processes,
        sessions: load.sessions,
        readiness: load.readiness.clone(),
        availability_latched: load.availability_latched,
        overrides,
        streams_held: load.streams_held.max(1),
        listed_pending_users: listed_users.fold(0, u32::saturating_add),
        uptime: load.uptime,
        settings_version: load.settings_version,
        collectors: load.collectors.clone(),
        clock_skew_ms: load.wall_clock_unix_ms.map(skew),
        stale: kept.stale,
    }
}

/// Lets the last good value stand for a wrong one.
struct Kept {
    keep_for: Duration,
    now: BootTime,
    stale: Vec<&'static str>,
}

impl Kept {
    /// The value to believe: the one that came, or, if it came wrong, the last good one while it is young enough. One
    /// that the host says it does not know is not known, and the older one is forgotten.
    fn value<T: Copy>(
        &mut self,
        name: &'static str,
        good: &mut Option<(T, BootTime)>,
        came: Option<T>,
        wrong: bool,
    ) -> Option<T> {
        if came.is_some() || !wrong {
            *good = came.map(|value| (value, self.now));
            return came;
        }
        let (value, _) = good.filter(|(_, measured_at)| self.now.since(*measured_at) <= self.keep_for)?;
        self.stale.push(name);
        Some(value)
    }
}

/// What a host's list of places amounts to.
struct Reconciled {
    change: CellChange,
    effects: Vec<Effect>,
    /// Places that were not known here; part of the change already.
    taken_over: Vec<Arc<Grant>>,
}

/// Holds the host's list of places against the ledger: what it lists counts, what it no longer lists has ended, what it
/// cannot know yet is left alone.
fn reconcile(
    ledger: &Ledger,
    host: &HostEntry,
    rule: UserMatch,
    load: &Load,
    measured_at: BootTime,
) -> Reconciled {
    let mut change = CellChange::default();
    let mut listed: HashMap<&Token, &PendingPlace> =
        load.pending.iter().map(|place| (&place.token, place)).collect();
    let ended: HashMap<&Token, &EndedPlace> = load.ended.iter().map(|place| (&place.token, place)).collect();
    for grant in ledger.on_host(&host.view.facts.host_id) {
        if let Some(place) = listed.remove(&grant.token) {
            confirm(&grant, place, &mut change);
            continue;
        }
        let said = ended.get(&grant.token).filter(|ended| grant.is_ended_by(ended.attempt));
        let reason = match said {
            Some(ended) => ended.reason,
            // The host held it, and holds it no more; the Load that said why was lost.
            None if grant.is_listed() => EndReason::Expired,
            None if measured_at > grant.ends_at => EndReason::Expired,
            // Its message may still be on the way.
            None => continue,
        };
        if let Some(users) = grant.take(reason, measured_at) {
            change.pending_users -= i64::from(users);
            change.places -= 1;
        }
    }
    let seen = Seen { ledger, host, rule, now: measured_at };
    let (mut effects, mut taken_over) = (Vec::new(), Vec::new());
    for place in listed.into_values() {
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
    Reconciled { change, effects, taken_over }
}

/// The host lists a place that is counted here.
fn confirm(grant: &Grant, place: &PendingPlace, change: &mut CellChange) {
    grant.set_listed();
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
        let Some(known) = self.ledger.get(&place.token) else { return Unknown::Counts(None) };
        let here = known.host_id == *host_id;
        match known.state() {
            GrantState::Live | GrantState::Asked if here => {
                confirm(&known, place, change);
                Unknown::IsKnown
            }
            GrantState::Live | GrantState::Asked => {
                // One token on two hosts: the higher attempt stays, on a tie the one with more time left.
                let theirs = (place.attempt, place.left);
                let ours = (known.attempt(), known.ends_at.since(self.now));
                if theirs <= ours {
                    return Unknown::Ends(end(host_id, place.attempt, EndReason::Superseded));
                }
                let attempt = known.attempt();
                known.end(EndReason::Superseded, self.now);
                Unknown::Counts(Some(end(&known.host_id, attempt, EndReason::Superseded)))
            }
            // It has ended here, and the message that says so is on its way to the host, or was lost.
            GrantState::Ended(reason) if here && known.attempt() >= place.attempt => {
                Unknown::Ends(end(host_id, known.attempt(), reason))
            }
            GrantState::Ended(_) => Unknown::Counts(None),
        }
    }

    /// The caller puts it into the ledger once the change is in the cell.
    fn take_over(&self, place: &PendingPlace, change: &mut CellChange) -> Arc<Grant> {
        change.pending_users += i64::from(place.counted_users);
        change.places += 1;
        let grant = Grant::new(parts(self.host, self.rule, place, self.now), false);
        grant.set_listed();
        if place.connected {
            grant.set_connected();
        }
        if place.admitted {
            grant.set_admitted();
        }
        Arc::new(grant)
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
