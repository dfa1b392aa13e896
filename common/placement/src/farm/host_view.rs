//! One host, as a decision sees it: everything that was heard of it, frozen.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use usher_availability::{Availability, holds_busy};
use usher_types::{
    BootId, BootTime, CollectorState, Drain, Endpoint, Hello, HostId, HostName, HostOverrides, Latency,
    Memory, Policy, PoolName, Readiness, Replica, Session, SessionCounts, UserLimit, Zone,
};

/// Who a host is; changes only when it introduces itself again.
#[derive(Clone, PartialEq, Debug)]
#[expect(missing_docs, reason = "each field is the one of the same name in `Hello`")]
pub struct HostFacts {
    pub host_id: HostId,
    pub boot_id: BootId,
    pub name: HostName,
    pub pool: PoolName,
    pub zone: Option<Zone>,
    pub endpoints: Arc<[Endpoint]>,
    pub labels: BTreeMap<String, String>,
    pub agent_version: String,
    pub cores: Option<u32>,
    pub memory_bytes: Option<u64>,
    pub cpu_model: Option<String>,
    pub report_interval: Duration,
    pub latency_period: Duration,
    pub is_virtual: bool,
}

impl From<&Hello> for HostFacts {
    fn from(hello: &Hello) -> Self {
        Self {
            host_id: hello.host_id.clone(),
            boot_id: hello.boot_id.clone(),
            name: hello.host_name.clone(),
            pool: hello.pool.clone(),
            zone: hello.zone.clone(),
            endpoints: hello.endpoints.clone().into(),
            labels: hello.labels.clone(),
            agent_version: hello.agent_version.clone(),
            cores: hello.cores,
            memory_bytes: hello.memory_bytes,
            cpu_model: hello.cpu_model.clone(),
            report_interval: hello.report_interval,
            latency_period: hello.latency_period,
            is_virtual: hello.is_virtual,
        }
    }
}

/// The last Load, as far as it is believed.
#[derive(Clone, PartialEq, Debug)]
pub struct Reading {
    /// When it was measured, on the coordinator's clock; its origin if that was before the coordinator started.
    pub measured_at: BootTime,
    /// Busy share, percent.
    pub cpu_percent: Option<f64>,
    /// Memory in use.
    pub memory: Option<Memory>,
    /// Users, as the host counted them. Decisions take them from the cell.
    pub users: Option<u32>,
    /// Processes.
    pub processes: Option<u32>,
    /// Sessions by state.
    pub sessions: Option<SessionCounts>,
    /// Whether it takes sessions, as it says.
    pub readiness: Readiness,
    /// Its latch holds it BUSY.
    pub availability_latched: bool,
    /// Its own settings.
    pub overrides: HostOverrides,
    /// Coordinators that it reports to, >= 1.
    pub streams_held: u32,
    /// Users of the places that it listed.
    pub listed_pending_users: u32,
    /// Time since its boot, then.
    pub uptime: Option<Duration>,
    /// Pool settings in force at the agent.
    pub settings_version: Option<u64>,
    /// How its collectors fare.
    pub collectors: Vec<CollectorState>,
    /// Its wall clock minus ours, ms.
    pub clock_skew_ms: Option<i64>,
    /// Values that stand for a wrong one: the last good one is shown for a while.
    pub stale: Vec<&'static str>,
}

impl Reading {
    /// How old it is at `now`. Absent: it is from before the coordinator started, and nobody knows how old.
    pub fn age(&self, now: BootTime) -> Option<Duration> {
        (self.measured_at > BootTime::ZERO).then(|| now.since(self.measured_at))
    }
}

/// The admin's drain of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DrainMark {
    /// The drain.
    pub drain: Drain,
    /// The boot in which it was set. Absent: the host was not known then.
    pub boot_id: Option<BootId>,
}

/// The last Latency and what it amounts to.
#[derive(Clone, PartialEq, Debug)]
pub struct LatencyReading {
    /// When it was measured, on the coordinator's clock.
    pub measured_at: BootTime,
    /// The window.
    pub latency: Latency,
    /// What it amounts to.
    pub availability: Availability,
}

/// One host, frozen.
#[derive(Clone, Debug)]
pub struct HostView {
    /// Who it is.
    pub facts: Arc<HostFacts>,
    /// Whether a stream is open.
    pub connected: bool,
    /// It said goodbye because it goes down.
    pub shut_down: bool,
    /// The last Load. Absent: never heard.
    pub reading: Option<Arc<Reading>>,
    /// The last Latency.
    pub latency: Option<Arc<LatencyReading>>,
    /// Drained by an admin.
    pub drain: Option<Arc<DrainMark>>,
    /// Its sessions, as listed last.
    pub sessions: Arc<[Session]>,
    /// Its replicas.
    pub replicas: Arc<[Replica]>,
    /// Values refused or corrected since the coordinator started.
    pub rejected_values: u64,
}

/// A Load counts for three intervals and a second: one that is lost, or late, changes nothing.
const INTERVALS_TO_OFFLINE: u32 = 3;
const OFFLINE_SLACK: Duration = Duration::from_secs(1);
/// A Latency counts for three periods.
const PERIODS_TO_NO_DATA: u32 = 3;

impl HostView {
    /// When the last Load stops to count. Absent: never heard.
    pub fn offline_at(&self) -> Option<BootTime> {
        let reading = self.reading.as_ref()?;
        Some(
            reading.measured_at
                + self.facts.report_interval.saturating_mul(INTERVALS_TO_OFFLINE)
                + OFFLINE_SLACK,
        )
    }

    /// How available it is at `now`.
    pub fn availability(&self, now: BootTime) -> Availability {
        match &self.latency {
            Some(latency)
                if now.since(latency.measured_at)
                    <= self.facts.latency_period.saturating_mul(PERIODS_TO_NO_DATA) =>
            {
                latency.availability
            }
            _ => Availability::NO_DATA,
        }
    }

    /// Size relative to a normal host, > 0.
    pub fn capacity(&self) -> f64 {
        self.overrides().capacity.unwrap_or(1.0)
    }

    /// Its own settings.
    pub fn overrides(&self) -> HostOverrides {
        self.reading.as_ref().map(|reading| reading.overrides).unwrap_or_default()
    }

    /// Its limit of users.
    pub fn max_users(&self, policy: &Policy) -> UserLimit {
        self.overrides().max_users.unwrap_or(policy.max_users)
    }

    /// The exponent of its availability index.
    pub fn range(&self, policy: &Policy) -> f64 {
        self.overrides().range.unwrap_or(policy.range)
    }

    /// The availability index at or below which it is BUSY.
    pub fn threshold_percent(&self, policy: &Policy) -> f64 {
        self.overrides().threshold.map_or(policy.threshold_percent, usher_types::Percent::get)
    }

    /// Whether its availability index holds it BUSY at `now`.
    pub fn is_held_busy(&self, policy: &Policy, now: BootTime) -> bool {
        let latched = self.reading.as_ref().is_some_and(|reading| reading.availability_latched);
        let index = self.availability(now).index;
        holds_busy(index, self.threshold_percent(policy), policy.exit_margin_percent, latched)
    }
}
