//! What a host is like now.

use usher_types::{
    BusyReasons, CollectorState, EndedPlace, FinishedLogons, Load, LogonsInProgress, MountFullness,
    OwnAvailability, Percent, Readiness,
};

use super::{drain, ended_place, ms, penalty, pending_place, told_outcome, user_limit};
use crate::v1;

/// What a host is like now.
///
/// The latch of the availability index is written twice: coordinators of 0.1 know only the flag.
pub fn load(load: &Load) -> v1::Load {
    load_with(load, &load.ended)
}

/// The same, telling of these places that ended and of no others.
pub fn load_with(load: &Load, ended: &[EndedPlace]) -> v1::Load {
    let (ready, not_ready_reason) = match &load.readiness {
        Readiness::Ready => (true, None),
        Readiness::NotReady(reason) => (false, Some(reason.clone())),
    };
    v1::Load {
        sequence: load.sequence,
        incarnation_ms: load.incarnation_ms,
        tick_echo: load.tick_echo,
        cpu_percent: load.cpu.map(Percent::get),
        runnable_demand: load.runnable_demand,
        memory_used_bytes: load.memory.map(|memory| memory.used_bytes),
        memory_total_bytes: load.memory.map(|memory| memory.total_bytes),
        users: load.users,
        sessions_active: load.sessions.map(|sessions| sessions.active),
        sessions_disconnected: load.sessions.map(|sessions| sessions.disconnected),
        sessions_lingering: load.sessions.map(|sessions| sessions.lingering),
        processes: load.processes,
        ready: Some(ready),
        not_ready_reason,
        uptime_ms: load.uptime.map(ms),
        availability_latched: load.latched.is_some_and(|held| held.has(BusyReasons::AVAILABILITY)),
        latched: load.latched.map(busy_latches),
        collectors: load.collectors.iter().map(collector_state).collect(),
        pending: load.pending.iter().map(pending_place).collect(),
        ended: ended.iter().map(ended_place).collect(),
        settings_version: load.settings_version,
        settings_hash: load.settings_hash.map(|hash| hash.0),
        // Of one stream, like the tick.
        other_coordinators: Vec::new(),
        capacity: load.overrides.capacity,
        max_users: load.overrides.max_users.map(user_limit),
        threshold_percent: load.overrides.threshold.map(Percent::get),
        range: load.overrides.range,
        streams_held: load.streams_held,
        coordinators: load.coordinators,
        held_back_users: load.held_back_users,
        held_back_places: load.held_back_places,
        wall_clock_unix_ms: load.wall_clock_unix_ms,
        psi_full_percent: load.psi_full.map(Percent::get),
        mounts: load.mounts.iter().map(mount_fullness).collect(),
        own_availability: load.own_availability.as_ref().map(own_availability),
        ready_age_ms: load.ready_age.map(ms),
        warming_up: load.is_warming_up,
        replica_lag_ms: load.replica_lag.map(ms),
        drain: load.drain.as_ref().map(drain),
        outcomes: load.outcomes.iter().map(told_outcome).collect(),
        penalties: load.penalties.iter().map(penalty).collect(),
        logons_in_progress: load.logons_in_progress.map(logons_in_progress),
        finished_logons: load.finished_logons.map(finished_logons),
    }
}

/// How a collector fares.
pub fn collector_state(state: &CollectorState) -> v1::CollectorState {
    v1::CollectorState {
        name: state.name.clone(),
        source: state.source.clone(),
        error: state.error.clone(),
        warning: state.warning.clone(),
    }
}

/// What holds a host BUSY.
pub fn busy_latches(held: BusyReasons) -> v1::BusyLatches {
    v1::BusyLatches { reasons: held.names().map(str::to_owned).collect() }
}

/// How full a mount is.
pub fn mount_fullness(mount: &MountFullness) -> v1::MountFullness {
    v1::MountFullness { path: mount.path.clone(), used_percent: mount.used.get() }
}

/// An availability index of the host's own making.
pub fn own_availability(own: &OwnAvailability) -> v1::OwnAvailability {
    v1::OwnAvailability { index: own.index.get(), source: own.source.clone() }
}

/// Logons in progress.
pub const fn logons_in_progress(logons: LogonsInProgress) -> v1::LogonsInProgress {
    v1::LogonsInProgress { now: logons.now, mean: logons.mean }
}

/// Logons that a host has seen through.
pub const fn finished_logons(logons: FinishedLogons) -> v1::FinishedLogons {
    v1::FinishedLogons { count: logons.count, seconds: logons.seconds, core_seconds: logons.core_seconds }
}
