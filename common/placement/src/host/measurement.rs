//! What does a source of values tell its host?
//!
//! A host is a machine, a model, or some lines of a scenario; all tell the same things, so everything behind this line
//! is the same code. A value that the source could not give is absent.

use std::time::Duration;

use usher_types::{
    CollectorState, FinishedLogons, LogonsInProgress, Memory, MountFullness, OwnAvailability, Percent,
    Readiness,
};

/// The state of the host at one moment, without its users.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measurement {
    /// Busy share since the last measurement.
    pub cpu: Option<Percent>,
    /// Busy time plus run-queue wait over elapsed time x CPUs, >= 0; may pass 1.
    pub runnable_demand: Option<f64>,
    /// Memory in use.
    pub memory: Option<Memory>,
    /// Processes, not threads.
    pub processes: Option<u32>,
    /// Whether the host takes sessions.
    pub readiness: Readiness,
    /// Time since boot.
    pub uptime: Option<Duration>,
    /// Share of time in which all work waited for CPU, memory or disk, whichever is highest.
    pub psi_full: Option<Percent>,
    /// Fullness of chosen mounts.
    pub mounts: Vec<MountFullness>,
    /// An availability index that the host computes itself; it is used instead of the one from its latencies.
    pub own_availability: Option<OwnAvailability>,
    /// Its warm-up is not done.
    pub is_warming_up: bool,
    /// How far its replicas are behind.
    pub replica_lag: Option<Duration>,
    /// Logons in progress: sessions that have begun and are not ready to work in yet; and their mean over the interval that
    /// ends with this measurement. Absent: the source cannot tell.
    pub logons_in_progress: Option<LogonsInProgress>,
    /// Logons that ended in the last 10 min. Absent: the source cannot tell.
    pub finished_logons: Option<FinishedLogons>,
    /// How each collector fares.
    pub collectors: Vec<CollectorState>,
}
