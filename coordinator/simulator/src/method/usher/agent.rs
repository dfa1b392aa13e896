//! What does the agent of a host know and tell?
//!
//! The places that it owes and those that ended in the last minute, as a host's book keeps them, and its last
//! measurement. A report that is sent because something changed repeats that measurement: only sessions and places are
//! of now.

use std::{collections::BTreeMap, time::Duration};

use usher_types::{
    BootId, BootTime, EndReason, EndedPlace, Endpoint, FinishedLogons, Hello, HostId, HostName,
    HostOverrides, Latency, Load, LogonsInProgress, Memory, OperationName, OperationWindow, PendingPlace,
    Percent, SessionCounts,
};

use super::{A_WORD, pool};
use crate::{
    machines::{CORES, MEMORY_GB, Machines},
    scene::{Scene, Script},
    sensors::Report,
};

const LATENCY_PERIOD: Duration = Duration::from_secs(15);
const LATENCY_WINDOW: Duration = Duration::from_secs(75);
/// How long ends are told.
const ENDED_TOLD: Duration = Duration::from_secs(60);
/// Calls in the window, and what one takes without load.
const CALLS: f64 = 100.0;
const CALL_US: f64 = 1000.0;
const BYTES_PER_GB: f64 = 1e9;
/// Hosts that do not boot in a scene have run for a day.
const UP: Duration = Duration::from_secs(24 * 3600);

/// A place that an agent was told of.
#[derive(Debug)]
pub(super) struct Held {
    login: usize,
    /// The number of the coordinator that gave it.
    given_by: usize,
    place: PendingPlace,
    ends_at: BootTime,
}

impl Held {
    pub(super) fn of(login: usize, given_by: usize, place: PendingPlace, now: BootTime) -> Self {
        Self { login, given_by, ends_at: now + place.left, place }
    }

    fn listed(&self, now: BootTime) -> PendingPlace {
        PendingPlace { left: self.ends_at.since(now), ..self.place.clone() }
    }
}

/// The agent of one host.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) hello: Hello,
    overrides: HostOverrides,
    booted_at: Option<BootTime>,
    is_frozen: bool,
    has_changed: bool,
    report: Option<Report>,
    sessions: u32,
    logons: u32,
    pending: Vec<Held>,
    ended: Vec<(EndedPlace, BootTime)>,
    latency_at: Option<BootTime>,
    sequence: u64,
    told_work: f64,
}

fn host_id(host: usize) -> HostId {
    HostId::new(format!("h{host}")).expect(A_WORD)
}

/// The number of the host with this id.
pub(super) fn number_of(host_id: &HostId) -> Option<usize> {
    host_id.as_str().strip_prefix('h')?.parse().ok()
}

/// A number that is not negative and far below the largest: it fits.
fn whole(value: f64) -> u64 {
    value.round() as u64
}

impl Agent {
    pub(super) fn new(scene: &Scene, script: &Script, host: usize) -> Self {
        let size = scene.sizes.of(host);
        let hello = Hello {
            agent_version: "simulated".into(),
            host_id: host_id(host),
            boot_id: BootId::new("boot").expect(A_WORD),
            stream_epoch: 1,
            incarnation_ms: 1,
            host_name: HostName::new(format!("host{host}")).expect(A_WORD),
            endpoints: vec![Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 }],
            labels: BTreeMap::new(),
            pool: pool(),
            zone: None,
            cores: u32::try_from(whole(CORES * size)).ok(),
            memory_bytes: Some(whole(MEMORY_GB * size * BYTES_PER_GB)),
            cpu_model: None,
            report_interval: Duration::from_secs_f64(scene.report_s),
            latency_period: LATENCY_PERIOD,
            is_virtual: true,
            is_reporter: false,
        };
        Self {
            hello,
            overrides: HostOverrides { capacity: Some(size), ..HostOverrides::default() },
            booted_at: None,
            // One that has not booted yet says nothing.
            is_frozen: script.fresh[host],
            has_changed: false,
            report: None,
            sessions: 0,
            logons: 0,
            pending: Vec::new(),
            ended: Vec::new(),
            latency_at: None,
            sequence: 0,
            told_work: scene.told_work,
        }
    }

    pub(super) fn boot(&mut self, now: BootTime) {
        (self.booted_at, self.is_frozen, self.report) = (Some(now), false, None);
    }

    pub(super) fn freeze(&mut self) {
        self.is_frozen = true;
    }

    /// A measurement of the interval that has just ended.
    pub(super) fn measured(&mut self, report: &Report, now: BootTime) {
        (self.sessions, self.logons) = (report.sessions, report.logons_now);
        self.report = Some(*report);
        let (live, over) = std::mem::take(&mut self.pending).into_iter().partition(|held| held.ends_at > now);
        self.pending = live;
        for held in over {
            self.end(held, EndReason::Expired, now);
        }
    }

    /// It is told of a place.
    pub(super) fn expect(&mut self, held: Held) {
        self.pending.push(held);
        self.has_changed = true;
    }

    pub(super) fn session_begins(&mut self, login: usize, now: BootTime) {
        self.has_changed = true;
        if let Some(at) = self.pending.iter().position(|held| held.login == login) {
            let held = self.pending.swap_remove(at);
            self.end(held, EndReason::Session, now);
        }
    }

    pub(super) fn session_ends(&mut self) {
        self.has_changed = true;
    }

    fn end(&mut self, held: Held, reason: EndReason, now: BootTime) {
        let PendingPlace { token, attempt, content_hash, pool, endpoint, .. } = held.place;
        let ended_ago = Duration::ZERO;
        self.ended
            .push((EndedPlace { token, attempt, reason, ended_ago, content_hash, pool, endpoint }, now));
    }

    /// Whether something changed that must be told; it looks at its own host.
    pub(super) fn has_changed(&mut self, truth: &Machines, host: usize) -> bool {
        let has_changed = std::mem::take(&mut self.has_changed) && !self.is_frozen && self.report.is_some();
        if has_changed {
            self.sessions = truth.sessions[host];
            self.logons = u32::try_from(truth.logons[host].len()).unwrap_or(u32::MAX);
        }
        has_changed
    }

    /// The whole state, to `streams` coordinators. Absent before the first measurement, and from a frozen agent.
    pub(super) fn load(&mut self, streams: u32, now: BootTime) -> Option<Load> {
        let report = self.report.filter(|_| !self.is_frozen)?;
        self.sequence += 1;
        self.ended.retain(|(_, at)| now.since(*at) <= ENDED_TOLD);
        let total = self.hello.memory_bytes.unwrap_or_default();
        let up = self.booted_at.map_or(UP, |booted_at| now.since(booted_at));
        let (count, seconds, core_seconds) = report.finished;
        let ended =
            |(place, at): &(EndedPlace, BootTime)| EndedPlace { ended_ago: now.since(*at), ..place.clone() };
        Some(Load {
            sequence: self.sequence,
            incarnation_ms: self.hello.incarnation_ms,
            cpu: Percent::new((100.0 * report.cpu).min(100.0)).ok(),
            runnable_demand: Some(report.demand),
            memory: Memory::new(whole(report.memory * total as f64).min(total), total),
            users: Some(self.sessions),
            sessions: Some(SessionCounts { active: self.sessions, ..SessionCounts::default() }),
            processes: Some(report.processes),
            uptime: Some(up),
            ready_age: Some(up),
            logons_in_progress: Some(LogonsInProgress { now: self.logons, mean: report.logons_mean }),
            finished_logons: Some(FinishedLogons {
                count,
                seconds,
                core_seconds: Some(core_seconds * self.told_work),
            }),
            pending: self.pending.iter().map(|held| held.listed(now)).collect(),
            ended: self.ended.iter().map(ended).collect(),
            overrides: self.overrides,
            streams_held: streams,
            ..Load::default()
        })
    }

    /// The places that the coordinator number `given_by` gave, and no others.
    pub(super) fn pending_of(&self, given_by: usize, now: BootTime) -> Vec<PendingPlace> {
        let own = self.pending.iter().filter(|held| held.given_by == given_by);
        own.map(|held| held.listed(now)).collect()
    }

    /// The window of its calls, when a period has passed since the last.
    pub(super) fn latency(&mut self, now: BootTime) -> Option<Latency> {
        if self.latency_at.is_some_and(|at| now.since(at) < LATENCY_PERIOD) {
            return None;
        }
        let report = self.report.filter(|_| !self.is_frozen)?;
        self.latency_at = Some(now);
        let operation = OperationWindow {
            name: OperationName::new("call").expect(A_WORD),
            ok: CALLS,
            failed: 0.0,
            too_long: 0.0,
            sum_us: CALLS * CALL_US * report.expansion_factor,
            min_us: Some(CALL_US),
            in_flight: 0,
            oldest_in_flight: None,
            baseline_us: Some(CALL_US),
            baseline_age: None,
            baseline_samples: 1000,
            baseline_is_provisional: false,
        };
        Some(Latency {
            sequence: self.sequence,
            incarnation_ms: self.hello.incarnation_ms,
            window: LATENCY_WINDOW,
            operations: vec![operation],
            overflow_calls: 0,
        })
    }
}
