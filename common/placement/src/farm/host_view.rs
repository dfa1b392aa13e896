//! One host, as a decision sees it: everything that was heard of it, frozen.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use usher_availability::{Availability, Basis};
use usher_types::{
    BootId, BootTime, BusyReasons, CollectorState, Drain, Endpoint, GatewayId, Hello, HostId, HostMarks,
    HostName, HostOverrides, HostState, Latency, Memory, MountFullness, OwnAvailability, Penalty,
    PenaltyCause, Percent, Policy, PoolName, Readiness, Replica, Session, SessionCounts, SettingsHash,
    UserLimit, Zone,
};

use super::{CellWord, GRACE, Grace, columns::NEVER};
use crate::load::Metrics;

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
    pub is_reporter: bool,
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
            is_reporter: hello.is_reporter,
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
    /// What holds it BUSY by its load: by its own latches, or, if it keeps none, by this coordinator's.
    pub latched: BusyReasons,
    /// Share of time in which all work waited.
    pub psi_full: Option<Percent>,
    /// Fullness of chosen mounts.
    pub mounts: Arc<[MountFullness]>,
    /// An availability index of its own making.
    pub own_availability: Option<Arc<OwnAvailability>>,
    /// Since it booted, or became ready after a long time of not being so, then.
    pub ready_age: Option<Duration>,
    /// Its warm-up is not done.
    pub is_warming_up: bool,
    /// How far its replicas were behind.
    pub replica_lag: Option<Duration>,
    /// Drained on the host itself.
    pub drain: Option<Drain>,
    /// What holds against it for failing.
    pub penalties: Arc<[Penalty]>,
    /// Its own settings.
    pub overrides: HostOverrides,
    /// Coordinators that it has a stream to, >= 1.
    pub streams_held: u32,
    /// Coordinators that it is configured to report to, >= 1: so many share what it cannot be asked for.
    pub coordinators: u32,
    /// Users that it keeps free for coordinators without a stream to it.
    pub held_back_users: u32,
    /// Logons that it keeps free for them.
    pub held_back_places: u32,
    /// Users of the places that it listed.
    pub listed_pending_users: u32,
    /// The places that it listed.
    pub listed_places: u32,
    /// Demand without its logons as a share of its cores, >= 0: a mean over about 10 s. Of a host that is new the pool's
    /// mean.
    pub background: Option<f64>,
    /// It is the pool's mean, and nothing of its own.
    pub background_is_borrowed: bool,
    /// Logons in progress: sessions that have begun and are not logged on yet.
    pub logons: u32,
    /// Time since its boot, then.
    pub uptime: Option<Duration>,
    /// Pool settings in force at the agent.
    pub settings_version: Option<u64>,
    /// Their hash, as its coordinator told it.
    pub settings_hash: Option<SettingsHash>,
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
    /// Share of its calls that failed or took too long. Absent: too few calls to say.
    pub error_share_percent: Option<f64>,
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
    /// It said goodbye, for whatever reason, and has not come back: nobody misses it.
    pub said_goodbye: bool,
    /// The last Load. Absent: never heard.
    pub reading: Option<Arc<Reading>>,
    /// The last Latency.
    pub latency: Option<Arc<LatencyReading>>,
    /// Drained by an admin.
    pub drain: Option<Arc<DrainMark>>,
    /// An admin's settings of it.
    pub marks: HostMarks,
    /// Its sessions, as listed last.
    pub sessions: Arc<[Session]>,
    /// Its replicas.
    pub replicas: Arc<[Replica]>,
    /// It listed replicas before this coordinator started, and has not since: what it holds is not known.
    pub replicas_unheard: bool,
    /// It has had other settings than this coordinator's for long: their hash.
    pub settings_differ: Option<SettingsHash>,
    /// Values refused or corrected since the coordinator started.
    pub rejected_values: u64,
    /// Users of the places that have ended since its last Load only because it was silent: whether they came, it has not
    /// said. After a start also those that were given before it and that it had not listed.
    pub unheard_users: u32,
    /// The same places, counted as logons.
    pub unheard_places: u32,
    /// Its places whose login has connected and logged on by now, in all likelihood, or will not come. As of the last
    /// second.
    pub aged_places: u32,
}

/// A Load counts for three intervals and a second: one that is lost, or late, changes nothing.
const INTERVALS_TO_OFFLINE: u32 = 3;
const OFFLINE_SLACK: Duration = Duration::from_secs(1);
/// A Latency counts for three periods.
const PERIODS_TO_NO_DATA: u32 = 3;
/// For how long a host that has just booted, or become ready again, takes less than its share.
const RAMP: Duration = Duration::from_secs(120);
/// The share that it begins with.
const RAMP_BEGINS: f64 = 0.1;

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

    /// How available it is at `now`: by its own word if it computes an index itself, else by its latencies.
    pub fn availability(&self, now: BootTime) -> Availability {
        if let Some(own) = self.reading.as_ref().and_then(|reading| reading.own_availability.as_ref()) {
            return Availability {
                index: Some(own.index.get()),
                basis: Basis::Measured,
                ..Availability::NO_DATA
            };
        }
        self.fresh_latency(now).map_or(Availability::NO_DATA, |latency| latency.availability)
    }

    /// The last Latency, if it still counts.
    pub fn fresh_latency(&self, now: BootTime) -> Option<&LatencyReading> {
        self.latency.as_deref().filter(|latency| now.since(latency.measured_at) <= self.latency_lasts())
    }

    fn latency_lasts(&self) -> Duration {
        self.facts.latency_period.saturating_mul(PERIODS_TO_NO_DATA)
    }

    /// Size relative to a normal host, > 0.
    pub fn capacity(&self) -> f64 {
        self.overrides().capacity.unwrap_or(1.0)
    }

    /// Its own settings, an admin's over them.
    pub fn overrides(&self) -> HostOverrides {
        self.marks.over(self.reading.as_ref().map(|reading| reading.overrides).unwrap_or_default())
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
        self.overrides().threshold.map_or(policy.threshold_percent, Percent::get)
    }

    /// Whether it says that it is not warm yet.
    pub fn is_warming(&self, policy: &Policy) -> bool {
        self.reading.as_ref().is_some_and(|reading| {
            reading.is_warming_up || reading.replica_lag.is_some_and(|lag| lag > policy.max_replica_lag)
        })
    }

    /// Whether no new session may begin on it: an admin's word, or its own.
    pub fn is_drained(&self) -> bool {
        self.drains().next().is_some()
    }

    /// Whether reconnects are refused too.
    pub fn refuses_reconnects(&self) -> bool {
        self.drains().any(|drain| drain.no_reconnect)
    }

    /// Its drains: the admin's, then its own. One that was told to the host, and is not known to have come to it, is one.
    pub fn drains(&self) -> impl Iterator<Item = &Drain> {
        let own = self.reading.as_ref().and_then(|reading| reading.drain.as_ref());
        let told = self.drain.as_ref().map(|mark| &mark.drain);
        told.into_iter().chain(own.filter(|own| told != Some(own)))
    }

    /// Share of its capacity that counts at `now` while it is ramping up after a boot, >= 0.1, < 1. Absent: all of it.
    pub fn ramp(&self, now: BootTime) -> Option<f64> {
        let reading = self.reading.as_ref()?;
        let age = reading.ready_age?.saturating_add(now.since(reading.measured_at));
        (age < RAMP).then(|| (age.as_secs_f64() / RAMP.as_secs_f64()).max(RAMP_BEGINS))
    }

    /// Until when its state and its numbers are what they are at `now` if it is not heard again, users, places and a
    /// running ramp apart.
    pub(super) fn unchanged_until(&self, grace: Option<Grace>, now: BootTime) -> BootTime {
        let offline_at = self.offline_at().filter(|at| now <= *at);
        let grace_ends = grace.filter(|grace| grace.holds(now)).map(|grace| grace.began + GRACE);
        let latency = self.fresh_latency(now);
        let no_data_at = latency.map(|latency| latency.measured_at + self.latency_lasts());
        [offline_at, grace_ends, no_data_at].into_iter().flatten().min().unwrap_or(NEVER)
    }

    /// What it brings to the comparison by weighted load at `now`, without what its places are expected to cost.
    pub(crate) fn metrics(&self, word: CellWord, now: BootTime) -> Metrics {
        let reading = self.reading.as_deref();
        Metrics {
            cpu: reading.and_then(|reading| reading.cpu_percent),
            memory: reading.and_then(|reading| reading.memory).map(|memory| memory.used().get()),
            expected_cpu: 0.0,
            expected_memory: 0.0,
            users: word.users().map(f64::from),
            pending: f64::from(word.pending_users()),
            processes: reading.and_then(|reading| reading.processes).map(f64::from),
            capacity: self.capacity(),
            ramp: self.ramp(now),
        }
    }

    /// Its expansion factor at `now`, >= 1. That of a host which delivers an index of its own is the one at which the
    /// index has this value. Absent: not known.
    pub fn expansion_factor(&self, policy: &Policy, now: BootTime) -> Option<f64> {
        let availability = self.availability(now);
        availability.expansion_factor.or_else(|| {
            let index = availability.index?;
            Some(f64::exp2(self.range(policy) * (1.0 - index / 100.0)))
        })
    }

    /// Why it comes last for a login through `gateway` at `now`, with `places` logons on their way to it. Absent: it
    /// does not.
    pub fn penalised(&self, gateway: &GatewayId, places: u32, now: BootTime) -> Option<PenaltyCause> {
        let reading = self.reading.as_ref()?;
        let passed = now.since(reading.measured_at);
        let applies = |penalty: &&Penalty| penalty.gateway.as_ref().is_none_or(|of| of == gateway);
        let holds = |penalty: &&Penalty| penalty.left > passed || places > 0;
        reading.penalties.iter().filter(applies).find(holds).map(|penalty| penalty.cause)
    }

    /// Whether in `state` it is lost: it was heard once, and is silent without having said why.
    pub fn is_lost(&self, state: HostState) -> bool {
        let silent = matches!(state, HostState::Offline | HostState::Unknown);
        silent && self.reading.is_some() && !self.said_goodbye
    }

    /// Whether it keeps something free for coordinators that have no stream to it.
    pub fn keeps_for_others(&self) -> bool {
        self.reading.as_ref().is_some_and(|said| said.held_back_users > 0 || said.held_back_places > 0)
    }

    /// Whether it can be asked for its consent.
    pub fn can_be_asked(&self) -> bool {
        self.connected && !self.facts.is_reporter
    }
}
