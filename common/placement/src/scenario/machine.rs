//! One host of a scenario.
//!
//! The state of the host, its promises and its latches are those of an agent: the same code keeps them. What is added
//! here is what a machine has beside its agent: readings of sensors, sessions, a boot, and a network that fails.

mod report;
mod sessions;

pub(super) use report::overrides;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    time::Duration,
};

use usher_types::{
    BootId, BootTime, EndReason, EndedPlace, Endpoint, FieldFault, Hello, HostId, HostName, HostOverrides,
    Load, PoolName, Replica, RequestId, Token, Zone,
};

use self::sessions::Sessions;
use crate::{
    farm::Ticks,
    host::{CoreSettings, HostCore, HostRecord, Measurement, NameSettings, Occupancy, Report},
    scenario::syntax::SessionEntry,
};

/// As often as agents report if nobody says otherwise: what is older than three of these is OFFLINE.
pub(super) const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// One period of the latency window.
pub(super) const PERIOD: Duration = Duration::from_secs(15);
/// Periods in it.
const PERIODS: usize = 5;
/// Most operations of one host.
const MAX_NAMES: usize = 256;

/// Who a host is, as its line says.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// What the script calls it.
    pub called: HostName,
    /// What it calls itself.
    pub name: HostName,
    pub id: HostId,
    pub pool: PoolName,
    pub zone: Option<Zone>,
    pub certificate: Option<String>,
    pub cores: Option<u32>,
    pub memory_bytes: Option<u64>,
    pub overrides: HostOverrides,
}

/// A stream to one coordinator.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub epoch: u64,
    pub ticks: Ticks,
    /// The newest one that came.
    pub newest_tick: Option<u64>,
    pub sequence: u64,
}

/// A host that repeats its last report.
#[derive(Copy, Clone, Debug)]
pub(super) struct Every {
    pub interval: Duration,
    pub next: BootTime,
}

/// One host.
#[derive(Debug)]
pub(super) struct Machine {
    pub identity: Identity,
    pub boot: BootId,
    pub core: HostCore,
    pub measurement: Measurement,
    /// What was wrong in the last report.
    pub faults: Vec<FieldFault>,
    /// It has said what it is like in this boot.
    pub is_measured: bool,
    /// It has reported in this boot, so that there is a report to repeat.
    pub has_reported: bool,
    pub sessions: Sessions,
    pub replicas: Vec<Replica>,
    /// By the number of the coordinator; opened and ended by [`Machine::open_stream`] and [`Machine::end_stream`].
    pub streams: BTreeMap<usize, Stream>,
    /// The coordinators of its configuration: those of the farm.
    coordinators: Vec<String>,
    /// Coordinators that it cannot reach.
    pub cut_from: BTreeSet<usize>,
    /// Its streams are down until it connects again.
    pub is_away: bool,
    pub is_silent: bool,
    pub is_reporter: bool,
    pub every: Option<Every>,
    pub next_period: BootTime,
    /// What the next Load lists, whatever the book says.
    pub listed_tokens: Option<Vec<RequestId>>,
    booted_at: BootTime,
    boots: u32,
    told_ended: HashSet<(Token, u32)>,
}

impl Machine {
    /// A host that has been up for long.
    pub(super) fn new(
        identity: Identity,
        boot: Option<BootId>,
        coordinators: Vec<String>,
        now: BootTime,
    ) -> Self {
        Self {
            core: core(&identity, &coordinators, now, HostRecord::default()),
            boot: boot.unwrap_or_else(|| own_boot(&identity, 1)),
            identity,
            measurement: Measurement::default(),
            faults: Vec::new(),
            is_measured: false,
            has_reported: false,
            sessions: Sessions::default(),
            replicas: Vec::new(),
            streams: BTreeMap::new(),
            coordinators,
            cut_from: BTreeSet::new(),
            is_away: false,
            is_silent: false,
            is_reporter: false,
            every: None,
            next_period: now + PERIOD,
            listed_tokens: None,
            booted_at: BootTime::ZERO,
            boots: 1,
            told_ended: HashSet::new(),
        }
    }

    /// The agent starts again with other words in its configuration; all that it kept, it keeps.
    pub(super) fn restart_agent(&mut self, identity: Identity, now: BootTime) {
        self.replace_core(identity, self.core.record(), now);
        if self.is_measured {
            self.measure(now);
        }
    }

    /// The host boots: its promises, sessions and measurements are gone; what it has learned of its speed is on its disk.
    pub(super) fn reboot(&mut self, boot: Option<BootId>, now: BootTime) {
        self.boots += 1;
        self.boot = boot.unwrap_or_else(|| own_boot(&self.identity, self.boots));
        self.booted_at = now;
        self.replace_core(self.identity.clone(), HostRecord::default(), now);
        self.measurement = Measurement::default();
        self.faults.clear();
        (self.is_measured, self.has_reported) = (false, false);
        self.sessions.end_all();
        self.listed_tokens = None;
        self.told_ended.clear();
        self.is_silent = false;
        self.is_away = false;
    }

    fn replace_core(&mut self, identity: Identity, kept: HostRecord, now: BootTime) {
        let old = std::mem::replace(&mut self.core, core(&identity, &self.coordinators, now, kept));
        self.identity = identity;
        // Its streams are those of the agent that was.
        self.streams.clear();
        for (name, record) in old.operations().baselines(now) {
            // It was kept by this very code a moment ago.
            let _ = self.core.operations_mut().restore(name.clone(), &record, now);
        }
    }

    /// How it introduces itself.
    pub(super) fn hello(&self, stream_epoch: u64, now: BootTime) -> Hello {
        let identity = &self.identity;
        Hello {
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            host_id: identity.id.clone(),
            boot_id: self.boot.clone(),
            stream_epoch,
            incarnation_ms: now.as_micros() / 1000,
            host_name: identity.name.clone(),
            endpoints: vec![Endpoint {
                kind: "ssh".to_owned(),
                address: identity.name.to_string(),
                port: 22,
            }],
            labels: BTreeMap::new(),
            pool: identity.pool.clone(),
            zone: identity.zone.clone(),
            cores: identity.cores,
            memory_bytes: identity.memory_bytes,
            cpu_model: None,
            report_interval: REPORT_INTERVAL,
            latency_period: PERIOD,
            is_virtual: false,
            is_reporter: self.is_reporter,
        }
    }

    /// Measures what `measurement` says, and its sessions.
    pub(super) fn measure(&mut self, now: BootTime) {
        self.is_measured = true;
        self.measurement.uptime = Some(now.since(self.booted_at));
        let occupancy = self.sessions.occupancy(now);
        self.core.measure(self.measurement.clone(), occupancy, now);
    }

    /// Takes over the list of all its sessions. Users that were counted before anything was listed are these and
    /// others: their number stays.
    pub(super) fn list_sessions(&mut self, entries: &[SessionEntry], now: BootTime) {
        let are_old = self.core.next_expiry().is_none();
        let counted = match self.sessions.users {
            Some(sessions::Users::Counted(users)) => Some(users),
            _ => None,
        };
        self.sessions.replace(entries, are_old, now);
        if counted.is_some() {
            self.count_users(counted, now);
        }
        self.look_at_sessions(now);
    }

    /// Looks at its sessions again.
    pub(super) fn look_at_sessions(&mut self, now: BootTime) {
        if self.is_measured {
            let occupancy = self.sessions.occupancy(now);
            self.core.occupy(occupancy, now);
        } else {
            self.measure(now);
        }
    }

    /// So many users were reported, whatever the sessions say.
    pub(super) fn count_users(&mut self, users: Option<u32>, now: BootTime) {
        self.sessions.users = None;
        let Some(users) = users else { return };
        if self.sessions.are_listed {
            // By the host's own rules, which know shared accounts and spellings.
            self.core.occupy(Occupancy::Listed(self.sessions.list(now)), now);
            let named = self.core.load(now, 0).and_then(|load| load.users).unwrap_or_default();
            self.sessions.users = Some(sessions::Users::Beside(i64::from(users) - i64::from(named)));
        } else {
            self.sessions.users = Some(sessions::Users::Counted(users));
        }
    }

    /// The farm has these coordinators now.
    pub(super) fn configure(&mut self, coordinators: Vec<String>) {
        self.core.set_coordinators(&coordinators);
        self.coordinators = coordinators;
    }

    /// A stream to this coordinator is open.
    pub(super) fn open_stream(&mut self, coordinator: usize, stream: Stream) {
        self.streams.insert(coordinator, stream);
        self.core.stream_opened(coordinator);
    }

    /// The stream to this coordinator has ended.
    pub(super) fn end_stream(&mut self, coordinator: usize) {
        self.streams.remove(&coordinator);
        self.core.stream_closed(coordinator);
    }

    /// The Load that it sends now, without what belongs to one stream, and the report that it is made of, which says what
    /// each coordinator is told. Absent: it has never measured anything.
    pub(super) fn report_now(&mut self, now: BootTime, wall_unix_ms: u64) -> Option<(Load, Report)> {
        let report = self.core.publish(now, wall_unix_ms)?;
        let mut load = report.load().clone();
        load.streams_held = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
        if self.faults.iter().any(|fault| fault.field == "users") {
            // Sessions that are listed are no stand-in for a count that is wrong.
            load.users = None;
        }
        if self.is_reporter {
            // A reporter has no agent that keeps latches, promises or what gateways said.
            load.latched = None;
            load.logons_in_progress = None;
            load.settings_version = None;
            load.pending.clear();
            load.ended.clear();
            load.outcomes.clear();
            load.penalties.clear();
        }
        Some((load, report))
    }

    /// The places that ended since the last call.
    pub(super) fn newly_ended(&mut self, load: &Load) -> Vec<(Token, EndReason)> {
        let mut news = Vec::new();
        for EndedPlace { token, attempt, reason, .. } in &load.ended {
            if self.told_ended.insert((token.clone(), *attempt)) {
                news.push((token.clone(), *reason));
            }
        }
        news
    }

    /// Whether it may have a stream to this coordinator.
    pub(super) fn reaches(&self, coordinator: usize) -> bool {
        !self.is_away && !self.cut_from.contains(&coordinator)
    }

    /// Whether it answers on the stream to this coordinator.
    pub(super) fn answers(&self, coordinator: usize) -> bool {
        !self.is_silent && !self.is_reporter && self.streams.contains_key(&coordinator)
    }

    /// When something next happens on it by itself.
    pub(super) fn next_event(&self) -> BootTime {
        let every = self.every.filter(|_| !self.is_silent).map(|every| every.next);
        let expiry = self.core.next_expiry();
        [every, expiry].into_iter().flatten().fold(self.next_period, BootTime::min)
    }
}

fn core(identity: &Identity, coordinators: &[String], now: BootTime, kept: HostRecord) -> HostCore {
    let settings = CoreSettings {
        pool: identity.pool.clone(),
        overrides: identity.overrides,
        incarnation_ms: now.as_micros() / 1000,
        latency_period: PERIOD,
        periods: PERIODS,
        max_names: MAX_NAMES,
        names: NameSettings::default(),
        coordinators: coordinators.to_vec(),
        report_interval: REPORT_INTERVAL,
    };
    HostCore::new(settings, kept)
}

/// A boot of its own: the script's name is a word of the same letters.
fn own_boot(identity: &Identity, number: u32) -> BootId {
    let longest = identity.called.key().chars().take(100).collect::<String>();
    BootId::new(format!("{longest}-boot-{number}"))
        .expect("a host name of at most 100 letters and a number are a boot id")
}
