//! One host, and how many hosts there are of each kind, as a placement would see them now.

use std::collections::HashMap;

use usher_placement::{
    decision::{
        Assessment, Flags, HostLook, Inputs, Request, UserTrace, Words, assess_pool, reason_of_state,
    },
    farm::{HostView, PoolView, Reading, Snapshot},
};
use usher_proto::{v1, write};
use usher_types::{BootTime, BusyReasons, HostMarks, HostOverrides, HostState, Penalty, Percent, Policy};

use crate::{grpc::placement::load_terms, metrics::FarmFigures, stored::millis};

/// Every host of a pool as it is seen now.
pub(super) fn each_host<T>(
    pool: &PoolView,
    now: BootTime,
    each: impl Fn(&Assessment<'_>, usize) -> T,
) -> Vec<T> {
    let words = pool.words();
    let (request, user) = (Request::of_nobody(pool.name.clone()), UserTrace::default());
    let inputs = Inputs {
        pool,
        words: Words::All(&words),
        request: &request,
        user: &user,
        unwilling: &[],
        doors: &[],
        now,
        seed: 0,
    };
    let assessment = assess_pool(&inputs);
    (0..pool.hosts.len()).map(|position| each(&assessment, position)).collect()
}

/// How many hosts are in each state and held BUSY by each reason, and how many replicas are marked, by pool.
pub(crate) fn count_hosts(snapshot: &Snapshot, now: BootTime) -> FarmFigures {
    let mut figures = FarmFigures::default();
    for pool in snapshot.pools.values() {
        let seen = |assessment: &Assessment<'_>, position: usize| {
            let HostLook { state, flags, .. } = HostLook::at(assessment, position);
            let busy = busy_reasons(&pool.hosts[position], &pool.policy, state, now);
            (state, busy, flags.has(Flags::INCOMPLETE))
        };
        figures.incomplete.insert(pool.name.clone(), 0);
        for (state, busy, incomplete) in each_host(pool, now, seen) {
            *figures.incomplete.entry(pool.name.clone()).or_insert(0) += u64::from(incomplete);
            *figures.hosts.entry((pool.name.clone(), state)).or_insert(0) += 1;
            for reason in busy.names() {
                *figures.busy.entry((pool.name.clone(), reason)).or_insert(0) += 1;
            }
        }
        let foreign = pool.hosts.iter().filter(|host| host.settings_differ.is_some()).count();
        figures.foreign_settings.insert(pool.name.clone(), foreign as u64);
        for (_, mark) in pool.marked.values().flatten() {
            *figures.replica_marks.entry((pool.name.clone(), mark.as_str())).or_insert(0) += 1;
        }
    }
    figures
}

/// What holds it BUSY. Of a host that is not heard nothing does any more.
fn busy_reasons(host: &HostView, policy: &Policy, state: HostState, now: BootTime) -> BusyReasons {
    match state {
        HostState::Offline | HostState::Unknown => BusyReasons::NONE,
        _ => host.busy_reasons(policy, now),
    }
}

/// One host, for a list.
pub(super) fn host_info(assessment: &Assessment<'_>, position: usize) -> v1::HostInfo {
    let Inputs { pool, words, now, .. } = *assessment.inputs();
    let (host, word) = (&pool.hosts[position], words[position]);
    let (facts, reading) = (&host.facts, host.reading.as_deref());
    let look = HostLook::at(assessment, position);
    let (state, availability) = (look.state, look.availability);
    let sessions = reading.and_then(|reading| reading.sessions);
    let own = reading.map(|reading| reading.overrides).unwrap_or_default();
    v1::HostInfo {
        host_id: facts.host_id.to_string(),
        host_name: facts.name.to_string(),
        pool: facts.pool.to_string(),
        zone: facts.zone.as_ref().map(ToString::to_string),
        endpoints: facts.endpoints.iter().map(write::endpoint).collect(),
        labels: facts.labels.clone().into_iter().collect(),
        state: v1::HostState::from(state).into(),
        state_reason: reason_of_state(assessment, position),
        flags: look.words(),
        r#virtual: facts.is_virtual,
        connected: host.connected,
        agent_version: facts.agent_version.clone(),
        boot_id: facts.boot_id.to_string(),
        load_age_ms: reading.and_then(|reading| reading.age(now)).map(millis),
        cpu_percent: reading.and_then(|reading| reading.cpu_percent),
        memory_percent: reading.and_then(|reading| reading.memory).map(|memory| memory.used().get()),
        memory_used_bytes: reading.and_then(|reading| reading.memory).map(|memory| memory.used_bytes),
        memory_total_bytes: reading.and_then(|reading| reading.memory).map(|memory| memory.total_bytes),
        users: word.users().or(reading.and_then(|reading| reading.users)),
        processes: reading.and_then(|reading| reading.processes),
        sessions_active: sessions.map(|sessions| sessions.active),
        sessions_disconnected: sessions.map(|sessions| sessions.disconnected),
        sessions_lingering: sessions.map(|sessions| sessions.lingering),
        pending_users: word.pending_users(),
        pending_places: word.places(),
        availability_index: availability.index,
        expansion_factor: availability.expansion_factor,
        weighted_load: look.terms.map(|terms| load_terms(&terms)),
        capacity: host.capacity(),
        max_users: host.max_users(&pool.policy).finite(),
        drain: host.drains().next().map(write::drain),
        cores: facts.cores,
        cpu_model: facts.cpu_model.clone(),
        collectors: reading
            .map(|reading| reading.collectors.iter().map(write::collector_state).collect())
            .unwrap_or_default(),
        settings_version: reading.and_then(|reading| reading.settings_version),
        replicas: u32::try_from(host.replicas.len()).unwrap_or(u32::MAX),
        uptime_ms: reading.and_then(|reading| reading.uptime).map(millis),
        clock_skew_ms: reading.and_then(|reading| reading.clock_skew_ms),
        rejected_values: host.rejected_values,
        busy_reasons: busy_reasons(host, &pool.policy, state, now).names().map(str::to_owned).collect(),
        marks: (!host.marks.is_empty()).then(|| write::host_marks(&host.marks)),
        penalties: reading.map(|reading| penalties(reading, now)).unwrap_or_default(),
        host_drain: reading.and_then(|reading| reading.drain.as_ref()).map(write::drain),
        reporter: facts.is_reporter,
        ramp: host.ramp(now).filter(|_| state.is_measured()),
        availability_source: reading
            .and_then(|reading| reading.own_availability.as_ref())
            .map(|own| own.source.clone())
            .unwrap_or_default(),
        psi_full_percent: reading.and_then(|reading| reading.psi_full).map(Percent::get),
        mounts: reading
            .map(|reading| reading.mounts.iter().map(write::mount_fullness).collect())
            .unwrap_or_default(),
        replica_lag_ms: reading.and_then(|reading| reading.replica_lag).map(millis),
        threshold_percent: host.threshold_percent(&pool.policy),
        range: host.range(&pool.policy),
        setting_origins: setting_origins(&host.marks, &own),
        settings_hash: reading.and_then(|reading| reading.settings_hash).map(|hash| hash.0),
        settings_differ: host.settings_differ.is_some(),
    }
}

/// What holds against it at `now`: the host said for how long when it reported last.
fn penalties(reading: &Reading, now: BootTime) -> Vec<v1::Penalty> {
    let passed = now.since(reading.measured_at);
    let left = |penalty: &Penalty| Penalty { left: penalty.left.saturating_sub(passed), ..penalty.clone() };
    reading.penalties.iter().map(|penalty| write::penalty(&left(penalty))).collect()
}

/// Who has made each setting of a host: an admin wins over its agent, and its agent over the pool.
fn setting_origins(marks: &HostMarks, own: &HostOverrides) -> HashMap<String, String> {
    let origin = |by_admin: bool, by_agent: bool| match (by_admin, by_agent) {
        (true, _) => "admin",
        (false, true) => "agent",
        (false, false) => "pool",
    };
    let origins = [
        ("capacity", origin(marks.capacity.is_some(), own.capacity.is_some())),
        ("max_users", origin(marks.max_users.is_some(), own.max_users.is_some())),
        ("threshold_percent", origin(marks.threshold.is_some(), own.threshold.is_some())),
        ("range", origin(marks.range.is_some(), own.range.is_some())),
    ];
    origins.into_iter().map(|(setting, origin)| (setting.to_owned(), origin.to_owned())).collect()
}
