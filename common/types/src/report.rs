//! What hosts say about themselves.
//!
//! A value that a sensor could not give is absent, never 0. Each [`Load`] is the whole state: nothing in it depends on
//! an earlier one.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    BootId, BusyReasons, Drain, EndedPlace, HostId, HostName, OperationName, Penalty, PendingPlace, Percent,
    PoolName, ResourceId, SessionCounts, SettingsHash, ToldOutcome, UserLimit, Zone,
};

/// Where clients reach a host.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// What it speaks: `ssh`, `rdp`, `http`, `tcp`, or a word of the operator's.
    pub kind: String,
    /// IP address or DNS name, without a port; not empty.
    pub address: String,
    /// TCP port, >= 1.
    pub port: u16,
}

/// Who a host is; the first message of a stream.
#[derive(Clone, PartialEq, Debug)]
pub struct Hello {
    /// Version of the agent, for people.
    pub agent_version: String,
    /// The host's identity.
    pub host_id: HostId,
    /// Changes with every boot.
    pub boot_id: BootId,
    /// Of two streams of one boot, the higher is the living one.
    pub stream_epoch: u64,
    /// When the agent started, milliseconds on the host's boot-time clock.
    pub incarnation_ms: u64,
    /// Its name.
    pub host_name: HostName,
    /// Where clients reach it; at least one.
    pub endpoints: Vec<Endpoint>,
    /// Words of the operator's.
    pub labels: BTreeMap<String, String>,
    /// The pool that it serves.
    pub pool: PoolName,
    /// Where it stands.
    pub zone: Option<Zone>,
    /// Logical CPUs.
    pub cores: Option<u32>,
    /// Installed memory.
    pub memory_bytes: Option<u64>,
    /// For people.
    pub cpu_model: Option<String>,
    /// How often it reports, 100 ms..=1 h.
    pub report_interval: Duration,
    /// One period of its latency window, 100 ms..=5 min.
    pub latency_period: Duration,
    /// A modelled host.
    pub is_virtual: bool,
    /// It reports, but nobody can ask it anything: it gives no consent and keeps no list of places.
    pub is_reporter: bool,
}

/// Memory in use.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Memory {
    /// In use; at most the total.
    pub used_bytes: u64,
    /// Installed, or allowed.
    pub total_bytes: u64,
}

impl Memory {
    /// Checks that the use fits the total. Absent otherwise.
    pub fn new(used_bytes: u64, total_bytes: u64) -> Option<Self> {
        (total_bytes > 0 && used_bytes <= total_bytes).then_some(Self { used_bytes, total_bytes })
    }

    /// Share in use.
    pub fn used(self) -> Percent {
        Percent::of(self.used_bytes, self.total_bytes).unwrap_or(Percent::FULL)
    }
}

/// Whether a host can take sessions, as it says itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Readiness {
    /// It can, or does not say.
    #[default]
    Ready,
    /// It cannot, and why.
    NotReady(String),
}

/// How a collector fares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CollectorState {
    /// `cpu`, `memory`, `processes`, `users`, ...
    pub name: String,
    /// Where its value comes from.
    pub source: String,
    /// Why there is no value.
    pub error: Option<String>,
    /// What an operator should know although there is one.
    pub warning: Option<String>,
}

/// The agent's own settings, which win over the pool's.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct HostOverrides {
    /// Size relative to a normal host, > 0.
    pub capacity: Option<f64>,
    /// Limit of users.
    pub max_users: Option<UserLimit>,
    /// BUSY at or below this availability index.
    pub threshold: Option<Percent>,
    /// Exponent of the availability index, 1..=30.
    pub range: Option<f64>,
}

/// How full a chosen mount is.
#[derive(Clone, PartialEq, Debug)]
pub struct MountFullness {
    /// Where it is mounted.
    pub path: String,
    /// Share in use, of space or of inodes, whichever is higher.
    pub used: Percent,
}

/// Logons that a host has seen through.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct FinishedLogons {
    /// How many ended in the last 10 min.
    pub count: u32,
    /// Seconds that they took, together, >= 0.
    pub seconds: f64,
    /// CPU time that they took, core-seconds, together, >= 0. Absent: not known.
    pub core_seconds: Option<f64>,
}

/// What a host is like now.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Load {
    /// Counts the messages of the stream.
    pub sequence: u64,
    /// When the agent started, milliseconds on the host's boot-time clock.
    pub incarnation_ms: u64,
    /// The newest tick that the agent had received.
    pub tick_echo: Option<u64>,
    /// Busy share of the last interval.
    pub cpu: Option<Percent>,
    /// Busy time plus run-queue wait over elapsed time x CPUs, >= 0; may pass 1.
    pub runnable_demand: Option<f64>,
    /// Memory in use.
    pub memory: Option<Memory>,
    /// Distinct users with a session.
    pub users: Option<u32>,
    /// Sessions by state.
    pub sessions: Option<SessionCounts>,
    /// Processes, not threads.
    pub processes: Option<u32>,
    /// Whether it can take sessions.
    pub readiness: Readiness,
    /// Time since boot.
    pub uptime: Option<Duration>,
    /// What holds it BUSY, as its own latches say. Absent: it keeps none (a reporter), so that each coordinator latches
    /// by itself.
    pub latched: Option<BusyReasons>,
    /// Share of time in which all work waited for CPU, memory or disk, whichever is highest.
    pub psi_full: Option<Percent>,
    /// Fullness of chosen mounts.
    pub mounts: Vec<MountFullness>,
    /// An availability index that it computes itself, and by what name.
    pub own_availability: Option<OwnAvailability>,
    /// Since it booted or, if later, since it became ready after more than 60 s of not being so; counted by the host.
    pub ready_age: Option<Duration>,
    /// Its warm-up is not done.
    pub is_warming_up: bool,
    /// How far its replicas are behind.
    pub replica_lag: Option<Duration>,
    /// Drained on the host itself.
    pub drain: Option<Drain>,
    /// What it was told of logins in the last 60 s.
    pub outcomes: Vec<ToldOutcome>,
    /// What holds against it for failing.
    pub penalties: Vec<Penalty>,
    /// Logons in progress, and their mean over the interval.
    pub logons_in_progress: Option<LogonsInProgress>,
    /// Logons that it has seen through.
    pub finished_logons: Option<FinishedLogons>,
    /// How each collector fares.
    pub collectors: Vec<CollectorState>,
    /// Every live place that the host knows.
    pub pending: Vec<PendingPlace>,
    /// Places that ended in the last 60 s.
    pub ended: Vec<EndedPlace>,
    /// The pool settings in force at the agent.
    pub settings_version: Option<u64>,
    /// Their hash, as its coordinator told it.
    pub settings_hash: Option<SettingsHash>,
    /// The agent's own settings.
    pub overrides: HostOverrides,
    /// Coordinators that the agent holds a stream to.
    pub streams_held: u32,
    /// Coordinators that the agent is configured to report to, >= 1, whether it reaches them now or not. Absent: it does
    /// not say (0.1).
    pub coordinators: Option<u32>,
    /// Users that it keeps free for coordinators that have no stream to it.
    pub held_back_users: u32,
    /// Logons that it keeps free for them, where these have a hard limit.
    pub held_back_places: u32,
    /// The host's wall clock, ms since 1970 UTC; only for showing skew.
    pub wall_clock_unix_ms: Option<u64>,
}

/// An availability index of the host's own making.
#[derive(Clone, PartialEq, Debug)]
pub struct OwnAvailability {
    /// 0..=100.
    pub index: Percent,
    /// Where it comes from, for people: `domino`.
    pub source: String,
}

/// Logons in progress.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct LogonsInProgress {
    /// Now.
    pub now: u32,
    /// Mean over the last report interval, >= 0.
    pub mean: f64,
}

/// One operation over the whole window.
#[derive(Clone, PartialEq, Debug)]
pub struct OperationWindow {
    /// Its name.
    pub name: OperationName,
    /// Successful calls, >= 0; a sampled call counts 1 / rate.
    pub ok: f64,
    /// Failed calls, >= 0.
    pub failed: f64,
    /// Calls that took too long, >= 0; they count as failed.
    pub too_long: f64,
    /// Sum over the successful calls, microseconds, >= 0.
    pub sum_us: f64,
    /// Shortest successful call, microseconds, > 0.
    pub min_us: Option<f64>,
    /// Calls begun and not finished.
    pub in_flight: u32,
    /// Age of the oldest of them.
    pub oldest_in_flight: Option<Duration>,
    /// How long the operation takes when the host is not loaded, microseconds, > 0.
    pub baseline_us: Option<f64>,
    /// Since the baseline last moved.
    pub baseline_age: Option<Duration>,
    /// Calls behind the baseline.
    pub baseline_samples: u64,
    /// No quiet hour has confirmed the baseline yet.
    pub baseline_is_provisional: bool,
}

/// The whole window of every operation.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Latency {
    /// Counts the messages of the stream.
    pub sequence: u64,
    /// When the agent started.
    pub incarnation_ms: u64,
    /// Length of the window.
    pub window: Duration,
    /// Every operation.
    pub operations: Vec<OperationWindow>,
    /// Calls of operations beyond the agent's cap on names.
    pub overflow_calls: u64,
}

/// One host's copy of a resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replica {
    /// What it is a copy of.
    pub resource_id: ResourceId,
    /// Where it lies on the host.
    pub path: Option<String>,
    /// For people.
    pub title: Option<String>,
}

/// Why a stream ends in order.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Goodbye {
    /// The host goes down.
    HostShutdown,
    /// Only the agent stops.
    AgentStop,
}
