//! What hosts say, taken in.

use std::{sync::Arc, time::Duration};

use usher_availability::{Availability, availability_index, error_share_percent, judge};
use usher_types::{
    BootTime, BusyReasons, EndReason, FieldFault, HostId, HostOverrides, Latency, Load, Outcome, Percent,
    Policy, Replica, Session,
};

use super::{
    Effect, Farm, HostEntry, LatencyReading, Reading,
    last_good::{self, KEEP_GOOD_INTERVALS, Kept},
    learned::{learn_from, young_since},
    reconcile::{Reconciled, reconcile},
};

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
        let Some(pool) = self.pools.get(&host.view.facts.pool) else { return Vec::new() };
        host.view.rejected_values = host.view.rejected_values.saturating_add(faults.len() as u64);
        let mut reading = reading(host, &load, faults, measured_at, wall_unix_ms);
        let size = (host.view.facts.cores, host.view.facts.report_interval);
        learn_from(&mut host.learning, &pool.learned, (&load, &mut reading), size);
        let Reconciled { mut change, effects, taken_over, connected_after } =
            reconcile(&self.ledger, host, pool.policy.user_match, &load, measured_at);
        connected_after.into_iter().for_each(|took| host.learning.connected_after(took));
        change.users = reading.users;
        host.cell.apply(change);
        // Only now: whoever ends one of them takes it out of the cell, where it must be by then.
        for grant in taken_over {
            grant.set_listed(true);
            self.ledger.insert(grant);
        }
        self.ledger.bound_host(host_id);
        let young_since = young_since(&pool.learned.costs(), measured_at);
        host.view.aged_places = self.ledger.aged_on(host_id, young_since);
        host.cell.set_silent(false);
        let range = host.view.range(&pool.policy);
        host.view.reading = Some(Arc::new(reading));
        (host.view.unheard_users, host.view.unheard_places) = (0, 0);
        let expiries = host.last_good.stale.iter().map(|(_, until)| *until);
        self.next_expiry = expiries.chain(self.next_expiry).min();
        if host.view.range(&pool.policy) != range {
            host.follow_range(&pool.policy);
        }
        host.keeps_latches = load.latched.is_some();
        host.latch(&pool.policy, measured_at);
        self.note_successes(host_id, &load, measured_at);
        self.publish(host_id);
        effects
    }

    /// Remembers whose logins succeeded on a host, and when: others' failures are judged by it.
    fn note_successes(&mut self, host_id: &HostId, load: &Load, measured_at: BootTime) {
        let Some(host) = self.hosts.get(host_id) else { return };
        let Some(pool) = self.pools.get_mut(&host.view.facts.pool) else { return };
        let connected = load.outcomes.iter().filter(|told| told.outcome == Outcome::Connected);
        let arrived = load.ended.iter().filter(|place| place.reason == EndReason::Session);
        let arrived = arrived.map(|place| (&place.token.gateway, measured_at.before(place.ended_ago)));
        for (_, at) in arrived.clone() {
            pool.confirmed.note(host_id, at);
        }
        let connected = connected.map(|told| (&told.token.gateway, measured_at.before(told.age)));
        for (gateway, at) in arrived.chain(connected) {
            self.ledger.successes().note(&pool.record.name, gateway, host_id, at);
        }
    }

    /// How long ago a place on another host of its pool became a session, as far as it was heard.
    pub fn confirmed_elsewhere(&self, host_id: &HostId, now: BootTime) -> Option<Duration> {
        let pool = self.pools.get(&self.hosts.get(host_id)?.view.facts.pool)?;
        pool.confirmed.elsewhere(host_id).map(|at| now.since(at))
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
        let error_share_percent = error_share_percent(&latency.operations);
        host.view.latency =
            Some(Arc::new(LatencyReading { measured_at, latency, availability, error_share_percent }));
        host.latch(&pool.policy, measured_at);
        host.latch_index(&pool.policy, measured_at);
        self.publish(host_id);
    }

    /// Takes in the whole list of what a host serves.
    pub fn observe_replicas(&mut self, host_id: &HostId, replicas: Vec<Replica>) {
        let Some(host) = self.hosts.get_mut(host_id) else { return };
        host.view.replicas = replicas.into();
        host.view.replicas_unheard = false;
        host.has_listed = true;
        if let Some(marks) = self.replica_marks.get_mut(host_id) {
            marks.follow(&host.view.replicas, self.last_tick);
        }
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

impl HostEntry {
    /// The index of the calls that were measured before, under the exponent that is in force now.
    pub(super) fn follow_range(&mut self, policy: &Policy) {
        let range = self.view.range(policy);
        if let Some(reading) = &mut self.view.latency {
            let availability = with_range(reading.availability, range);
            *reading = Arc::new(LatencyReading { availability, ..(**reading).clone() });
        }
    }

    /// Latches for a host that keeps no latches itself. They follow those of the others too: a host of 0.1 says that it
    /// keeps one only while that one holds.
    pub(super) fn latch(&mut self, policy: &Policy, measured_at: BootTime) {
        let held = self.latches.update(&self.view.latch_input(policy, measured_at), policy, measured_at);
        if !self.keeps_latches
            && let Some(reading) = &mut self.view.reading
            && reading.latched != held
        {
            Arc::make_mut(reading).latched = held;
        }
    }

    /// A host latches its index at the end of each period, as what is told here does, and says so in its next Load:
    /// until then the same window has the same answer here.
    fn latch_index(&mut self, policy: &Policy, measured_at: BootTime) {
        let input = self.view.latch_input(policy, measured_at);
        let Some(reading) = &mut self.view.reading else { return };
        let index = BusyReasons::AVAILABILITY;
        let held = reading.latched.has(index);
        let holds = judge(&input, policy, reading.latched).has(index);
        if holds != held {
            Arc::make_mut(reading).latched = reading.latched.without(index).with(index, holds);
        }
    }
}

/// The same availability under another exponent: an index that was computed with settings that are no longer in force
/// must not be compared with a threshold that is.
fn with_range(availability: Availability, range: f64) -> Availability {
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
    let mut kept = Kept { keep_for, now: measured_at, stale: Vec::new() };
    let overrides = overrides(host, load, faults, &mut kept);
    let wrong = |fields: &[&str]| is_wrong(faults, fields);
    let good = &mut host.last_good;
    let cpu = load.cpu.map(Percent::get);
    let cpu_percent = kept.value(last_good::CPU, &mut good.cpu_percent, cpu, wrong(&["cpu_percent"]));
    let wrong_memory = wrong(&["memory_used_bytes", "memory_total_bytes"]);
    let memory = kept.value(last_good::MEMORY, &mut good.memory, load.memory, wrong_memory);
    let users = kept.value(last_good::USERS, &mut good.users, load.users, wrong(&["users"]));
    let processes =
        kept.value(last_good::PROCESSES, &mut good.processes, load.processes, wrong(&["processes"]));
    let psi_full =
        kept.value(last_good::PSI, &mut good.psi_full, load.psi_full, wrong(&["psi_full_percent"]));
    // What is left of a list of which a part was wrong is no list.
    let wrong_mounts = wrong(&["mounts"]);
    good.mounts_left = load.mounts.as_slice().into();
    let mounts = (!wrong_mounts).then(|| good.mounts_left.clone());
    let mounts = kept.value(last_good::MOUNTS, &mut good.mounts, mounts, wrong_mounts);
    let own = load.own_availability.clone().map(Arc::new);
    let own = kept.value(
        last_good::OWN_AVAILABILITY,
        &mut good.own_availability,
        own,
        wrong(&["own_availability"]),
    );
    let stale = kept.stale.iter().map(|(name, _)| *name).collect();
    good.stale = kept.stale;
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
        latched: load.latched.unwrap_or(BusyReasons::NONE),
        psi_full,
        mounts: mounts.unwrap_or_else(|| good.mounts_left.clone()),
        own_availability: own,
        ready_age: load.ready_age,
        is_warming_up: load.is_warming_up,
        replica_lag: load.replica_lag,
        drain: load.drain.clone(),
        penalties: load.penalties.as_slice().into(),
        overrides,
        streams_held: load.streams_held.max(1),
        coordinators: load.coordinators.unwrap_or(load.streams_held).max(1),
        held_back_users: load.held_back_users,
        held_back_places: load.held_back_places,
        listed_pending_users: listed_users.fold(0, u32::saturating_add),
        listed_places: u32::try_from(load.pending.len()).unwrap_or(u32::MAX),
        background: None,
        background_is_borrowed: false,
        logons: load.logons_in_progress.map_or(0, |logons| logons.now),
        uptime: load.uptime,
        settings_version: load.settings_version,
        settings_hash: load.settings_hash,
        collectors: load.collectors.clone(),
        clock_skew_ms: load.wall_clock_unix_ms.map(skew),
        stale,
    }
}

fn overrides(host: &mut HostEntry, load: &Load, faults: &[FieldFault], kept: &mut Kept) -> HostOverrides {
    let (good, said) = (&mut host.last_good, &load.overrides);
    let wrong = |field: &str| is_wrong(faults, &[field]);
    HostOverrides {
        capacity: kept.value(last_good::CAPACITY, &mut good.capacity, said.capacity, wrong("capacity")),
        max_users: kept.value(last_good::MAX_USERS, &mut good.max_users, said.max_users, wrong("max_users")),
        threshold: kept.value(
            last_good::THRESHOLD,
            &mut good.threshold,
            said.threshold,
            wrong("threshold_percent"),
        ),
        range: kept.value(last_good::RANGE, &mut good.range, said.range, wrong("range")),
    }
}

/// Whether one of `fields`, or a part of one, was dropped as wrong.
fn is_wrong(faults: &[FieldFault], fields: &[&str]) -> bool {
    let is_part = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
    let is_of = |fault: &FieldFault, field: &str| fault.field.strip_prefix(field).is_some_and(is_part);
    faults.iter().any(|fault| fields.iter().any(|field| is_of(fault, field)))
}
