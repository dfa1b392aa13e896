//! What hosts say, taken in.

use std::{collections::HashMap, sync::Arc, time::Duration};

use usher_types::{
    BootTime, EndReason, EndedPlace, FieldFault, HostId, Latency, Load, PendingPlace, Replica, Session,
    Token, UserMatch,
};

use super::{CellChange, Effect, Farm, HostEntry, LatencyReading, Reading};
use crate::reservation::{Grant, GrantParts, Ledger};

/// For how many intervals the last good value stands for a wrong one.
const KEEP_GOOD_INTERVALS: u32 = 3;

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
        let (mut change, effects) = reconcile(&self.ledger, host, rule, &load, measured_at);
        change.users = reading.users;
        host.cell.apply(change);
        host.cell.set_silent(false);
        host.view.reading = Some(Arc::new(reading));
        host.view.shut_down = false;
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
        let availability = host.tracker.assess(&latency, host.view.range(&pool.policy), measured_at);
        host.view.latency = Some(Arc::new(LatencyReading { measured_at, latency, availability }));
        self.publish(host_id);
    }

    /// Takes in the whole list of what a host serves.
    pub fn observe_replicas(&mut self, host_id: &HostId, replicas: Vec<Replica>) {
        let Some(host) = self.hosts.get_mut(host_id) else { return };
        host.view.replicas = replicas.into();
        let pool = host.view.facts.pool.clone();
        self.publish(host_id);
        self.rebuild_replicas(&pool);
    }

    /// Takes in the whole list of a host's sessions, as it was at `now`.
    pub fn observe_sessions(&mut self, host_id: &HostId, sessions: Vec<Session>, now: BootTime) {
        let Some(host) = self.hosts.get_mut(host_id) else { return };
        let Some(pool) = self.pools.get_mut(&host.view.facts.pool) else { return };
        pool.sessions.replace(host_id, &host.view.sessions, &sessions, pool.policy.user_match, now);
        host.view.sessions = sessions.into();
        self.publish(host_id);
    }
}

fn reading(
    host: &HostEntry,
    load: &Load,
    faults: &[FieldFault],
    measured_at: BootTime,
    wall_unix_ms: u64,
) -> Reading {
    let keep_for = host.view.facts.report_interval.saturating_mul(KEEP_GOOD_INTERVALS);
    let before =
        host.view.reading.as_deref().filter(|before| measured_at.since(before.measured_at) <= keep_for);
    let mut stale = Vec::new();
    let wrong = |fields: &[&str]| faults.iter().any(|fault| fields.contains(&fault.field.as_str()));
    let mut kept = |name: &'static str, missing: bool, fields: &[&str]| {
        let keep = missing && wrong(fields) && before.is_some_and(|before| !before.stale.contains(&name));
        if keep {
            stale.push(name);
        }
        before.filter(|_| keep)
    };
    let cpu = kept("cpu", load.cpu.is_none(), &["cpu_percent"]).and_then(|old| old.cpu_percent);
    let memory = kept("memory", load.memory.is_none(), &["memory_used_bytes", "memory_total_bytes"])
        .and_then(|old| old.memory);
    let users = kept("users", load.users.is_none(), &["users"]).and_then(|old| old.users);
    let processes = kept("processes", load.processes.is_none(), &["processes"]).and_then(|old| old.processes);
    Reading {
        measured_at,
        cpu_percent: load.cpu.map(usher_types::Percent::get).or(cpu),
        memory: load.memory.or(memory),
        users: load.users.or(users),
        processes: load.processes.or(processes),
        sessions: load.sessions,
        readiness: load.readiness.clone(),
        availability_latched: load.availability_latched,
        overrides: load.overrides,
        streams_held: load.streams_held.max(1),
        listed_pending_users: load
            .pending
            .iter()
            .map(|place| place.counted_users)
            .fold(0, u32::saturating_add),
        uptime: load.uptime,
        settings_version: load.settings_version,
        collectors: load.collectors.clone(),
        clock_skew_ms: load
            .wall_clock_unix_ms
            .map(|theirs| i64::try_from(i128::from(theirs) - i128::from(wall_unix_ms)).unwrap_or(i64::MAX)),
        stale,
    }
}

/// Holds the host's list of places against the ledger: what it lists counts, what it no longer lists has ended, what it
/// cannot know yet is left alone.
fn reconcile(
    ledger: &Ledger,
    host: &HostEntry,
    rule: UserMatch,
    load: &Load,
    measured_at: BootTime,
) -> (CellChange, Vec<Effect>) {
    let host_id = &host.view.facts.host_id;
    let mut change = CellChange::default();
    let mut listed: HashMap<&Token, &PendingPlace> =
        load.pending.iter().map(|place| (&place.token, place)).collect();
    let ended: HashMap<&Token, &EndedPlace> = load.ended.iter().map(|place| (&place.token, place)).collect();
    for grant in ledger.on_host(host_id) {
        if let Some(place) = listed.remove(&grant.token) {
            grant.set_listed();
            grant.raise_attempt(place.attempt);
            if place.connected {
                grant.set_connected();
            }
            change.pending_users += grant.recount(place.counted_users);
            continue;
        }
        let said = ended.get(&grant.token).filter(|ended| ended.attempt >= grant.attempt());
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
    let mut effects = Vec::new();
    for place in listed.into_values() {
        let seen = Seen { ledger, host, rule, now: measured_at };
        effects.extend(take_over(&seen, place, &mut change));
    }
    for place in load.ended.iter().filter(|place| ledger.get(&place.token).is_none()) {
        remember_ended(ledger, host, place, measured_at);
    }
    (change, effects)
}

/// What a host's list is held against.
struct Seen<'a> {
    ledger: &'a Ledger,
    host: &'a HostEntry,
    rule: UserMatch,
    now: BootTime,
}

/// A place that the host lists and this coordinator does not count there: another coordinator's, or one from before a
/// restart.
fn take_over(seen: &Seen<'_>, place: &PendingPlace, change: &mut CellChange) -> Option<Effect> {
    let host_id = &seen.host.view.facts.host_id;
    let superseded = |host_id: &HostId, attempt: u32| Effect::EndPlace {
        host_id: host_id.clone(),
        token: place.token.clone(),
        attempt,
        reason: EndReason::Superseded,
    };
    let mut effect = None;
    if let Some(known) = seen.ledger.get(&place.token) {
        if known.counts() {
            // One token on two hosts: the higher attempt stays, on a tie the one with more time left.
            let theirs = (place.attempt, place.left);
            let ours = (known.attempt(), known.ends_at.since(seen.now));
            if theirs <= ours {
                return Some(superseded(host_id, place.attempt));
            }
            let attempt = known.attempt();
            known.end(EndReason::Superseded, seen.now);
            effect = Some(superseded(&known.host_id, attempt));
        } else if known.host_id == *host_id && known.attempt() >= place.attempt {
            // It has ended here; the message that says so is on its way to the host.
            return None;
        }
    }
    change.pending_users += i64::from(place.counted_users);
    change.places += 1;
    let grant = Grant::new(parts(seen.host, seen.rule, place, seen.now), false);
    grant.set_listed();
    if place.connected {
        grant.set_connected();
    }
    seen.ledger.insert(Arc::new(grant));
    effect
}

fn parts(host: &HostEntry, rule: UserMatch, place: &PendingPlace, now: BootTime) -> GrantParts {
    GrantParts {
        token: place.token.clone(),
        attempt: place.attempt,
        content_hash: place.content_hash,
        pool: place.pool.clone(),
        host_id: host.view.facts.host_id.clone(),
        cell: host.cell.clone(),
        endpoints: host.view.facts.endpoints.clone(),
        user: place.user.clone(),
        user_key: place.user.as_deref().and_then(|user| rule.key(user)),
        cost: place.cost,
        counted_users: place.counted_users,
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
