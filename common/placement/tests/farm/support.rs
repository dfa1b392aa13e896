//! A coordinator's farm in a few words: hosts by name, time by the second, places given by hand.

use std::{sync::Arc, time::Duration};

use usher_placement::{
    farm::{Effect, Farm, PoolApply, PoolView, Restored, StateInput, state_of, state_reason},
    reservation::{Grant, GrantParts, Ledger},
};
use usher_types::{
    BootId, BootTime, Drain, DrainMode, EndReason, EndedPlace, Endpoint, GatewayId, Goodbye, Hello, HostId,
    HostName, HostState, Latency, Load, Memory, OperationName, OperationWindow, PendingPlace, Percent,
    PolicyChange, PoolName, Replica, RequestId, ResourceId, Token,
};

pub(crate) fn desk() -> PoolName {
    PoolName::new("desk").unwrap()
}

pub(crate) fn id(host: &str) -> HostId {
    HostId::new(format!("id-{host}")).unwrap()
}

pub(crate) fn at(seconds: u64) -> BootTime {
    BootTime::from_millis(1_000_000 + seconds * 1000)
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn percent(value: f64) -> Percent {
    Percent::new(value).unwrap()
}

pub(crate) fn resource(name: &str) -> ResourceId {
    ResourceId::new(name).unwrap()
}

pub(crate) fn gateway(name: &str) -> GatewayId {
    GatewayId::new(name).unwrap()
}

pub(crate) fn token(request: &str) -> Token {
    Token { gateway: gateway("g1"), request_id: RequestId::new(request).unwrap() }
}

fn endpoint() -> Endpoint {
    Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 }
}

/// A host that reports every 5 s.
pub(crate) fn hello(host: &str) -> Hello {
    Hello {
        agent_version: "test".into(),
        host_id: id(host),
        boot_id: BootId::new("boot-1").unwrap(),
        stream_epoch: 1,
        incarnation_ms: 0,
        host_name: HostName::new(host).unwrap(),
        endpoints: vec![endpoint()],
        labels: std::collections::BTreeMap::new(),
        pool: desk(),
        zone: None,
        cores: Some(4),
        memory_bytes: Some(1 << 34),
        cpu_model: None,
        report_interval: secs(5),
        latency_period: secs(15),
        is_virtual: false,
        is_reporter: false,
    }
}

/// The same host after another boot.
pub(crate) fn booted(host: &str, boot: &str, stream_epoch: u64) -> Hello {
    Hello { boot_id: BootId::new(boot).unwrap(), stream_epoch, ..hello(host) }
}

/// A report of a host that has nothing but users, and latches that hold nothing.
pub(crate) fn users(users: u32) -> Load {
    Load {
        cpu: Some(percent(0.0)),
        memory: Memory::new(0, 100),
        users: Some(users),
        processes: Some(0),
        latched: Some(usher_types::BusyReasons::NONE),
        streams_held: 1,
        ..Load::default()
    }
}

/// A window of one operation with these calls, each successful one this much slower than unloaded.
pub(crate) fn window(ok: f64, failed: f64, expansion_factor: f64) -> Latency {
    let operation = OperationWindow {
        name: OperationName::new("open_db").unwrap(),
        ok,
        failed,
        too_long: 0.0,
        sum_us: ok * 1000.0 * expansion_factor,
        min_us: Some(1000.0),
        in_flight: 0,
        oldest_in_flight: None,
        baseline_us: Some(1000.0),
        baseline_age: None,
        baseline_samples: 100,
        baseline_is_provisional: false,
    };
    Latency { window: secs(75), operations: vec![operation], ..Latency::default() }
}

pub(crate) fn listed(request: &str, attempt: u32, left_s: u64) -> PendingPlace {
    PendingPlace {
        token: token(request),
        attempt,
        content_hash: 7,
        pool: desk(),
        endpoint: endpoint(),
        user: None,
        cost: 1,
        counted_users: 1,
        left: secs(left_s),
        connected: false,
        admitted: false,
    }
}

pub(crate) fn ended(request: &str, attempt: u32, reason: EndReason, ago_s: u64) -> EndedPlace {
    EndedPlace {
        token: token(request),
        attempt,
        reason,
        ended_ago: secs(ago_s),
        content_hash: 7,
        pool: desk(),
        endpoint: endpoint(),
    }
}

pub(crate) fn drain(mode: DrainMode, reason: &str) -> Drain {
    Drain { mode, reason: reason.into(), author: "ann".into(), no_reconnect: false }
}

/// A coordinator without its network.
#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) farm: Farm,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) now: BootTime,
}

impl Sim {
    pub(crate) fn new() -> Self {
        Self::begun_at(at(0))
    }

    pub(crate) fn begun_at(now: BootTime) -> Self {
        let ledger = Arc::new(Ledger::new());
        Self { farm: Farm::new(ledger.clone(), now), ledger, now }
    }

    /// Hosts that were heard, with one user each.
    pub(crate) fn of(hosts: &[&str]) -> Self {
        let mut sim = Self::new();
        for host in hosts {
            sim.attach(host);
            sim.report(host, users(1));
        }
        sim.pass(1);
        sim
    }

    /// A coordinator that starts 3 s later with what this one stored.
    pub(crate) fn restarted(&self) -> Self {
        let mut sim = Self::begun_at(self.now + secs(3));
        let drains = self.farm.last_known(true).into_iter().map(|known| known.facts.host_id);
        let hosts: Vec<HostId> = drains.collect();
        let drain = |id: &HostId| Some((id.clone(), self.farm.settings_of(id)?.drain?.clone()));
        let marks = |id: &HostId| Some((id.clone(), self.farm.marks_of(id)?));
        let stored = Restored {
            pools: self.farm.pool_records().map(|(record, _)| record.clone()).collect(),
            bindings: Vec::new(),
            known: self.farm.last_known(true),
            drains: hosts.iter().filter_map(drain).collect(),
            marks: hosts.iter().filter_map(marks).collect(),
            replica_marks: self.farm.replica_marks(self.now).collect(),
            learned: self.farm.learned(),
        };
        sim.farm.restore(stored, sim.now);
        sim
    }

    pub(crate) fn attach(&mut self, host: &str) {
        self.farm.attach(&hello(host), None, false).unwrap();
    }

    pub(crate) fn report(&mut self, host: &str, load: Load) -> Vec<Effect> {
        self.farm.observe_load(&id(host), load, &[], self.now, 0)
    }

    pub(crate) fn latency(&mut self, host: &str, latency: Latency) {
        self.farm.observe_latency(&id(host), latency, 0, self.now);
    }

    pub(crate) fn serves(&mut self, host: &str, resources: &[&str]) {
        let replica = |name: &&str| Replica { resource_id: resource(name), path: None, title: None };
        self.farm.observe_replicas(&id(host), resources.iter().map(replica).collect());
    }

    pub(crate) fn goodbye(&mut self, host: &str, goodbye: Goodbye) {
        self.farm.detach(&id(host), 1, Some(goodbye), self.now);
    }

    pub(crate) fn lose(&mut self, host: &str) {
        self.farm.detach(&id(host), 1, None, self.now);
    }

    pub(crate) fn apply(&mut self, change: PolicyChange) {
        let record = self.farm.prepare_pool(&desk(), &PoolApply::of(change), false).unwrap();
        self.farm.commit_pool(record);
    }

    pub(crate) fn drain(&mut self, host: &str, drain: Drain) {
        let mark = self.farm.drain_mark(&id(host), drain);
        self.farm.set_drain(&id(host), mark);
    }

    /// Time passes; the coordinator ticks each second.
    pub(crate) fn pass(&mut self, seconds: u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        for _ in 0..seconds {
            self.now = self.now + secs(1);
            effects.extend(self.farm.tick(self.now));
        }
        effects
    }

    /// Time passes while these hosts report every 5 s.
    pub(crate) fn pass_with(&mut self, seconds: u64, alive: &[&str]) {
        for second in 0..seconds {
            self.pass(1);
            if second % 5 == 4 {
                alive.iter().for_each(|host| _ = self.report(host, users(1)));
            }
        }
    }

    pub(crate) fn pool(&mut self) -> Arc<PoolView> {
        self.farm.snapshot(self.now).pools[&desk()].clone()
    }

    pub(crate) fn position(&mut self, host: &str) -> usize {
        self.pool().members.position(&id(host)).unwrap()
    }

    fn seen<T>(&mut self, host: &str, look: impl Fn(&StateInput<'_>) -> T) -> T {
        let (pool, position, now) = (self.pool(), self.position(host), self.now);
        look(&pool.state_input(position, pool.members.cells[position].load(), 1, now))
    }

    pub(crate) fn state(&mut self, host: &str) -> HostState {
        self.seen(host, state_of)
    }

    pub(crate) fn reason(&mut self, host: &str) -> String {
        self.seen(host, |input| state_reason(input, state_of(input)))
    }

    /// Users of places given out, and places, as counted in the host's cell.
    pub(crate) fn pending(&mut self, host: &str) -> (u32, u32) {
        let (pool, position) = (self.pool(), self.position(host));
        let word = pool.members.cells[position].load();
        (word.pending_users(), word.places())
    }

    /// Gives a place of one user.
    pub(crate) fn place(&mut self, request: &str, host: &str) -> Arc<Grant> {
        self.give(request, host, false)
    }

    /// Gives a place of one user on a host that is not heard.
    pub(crate) fn place_blind(&mut self, request: &str, host: &str) -> Arc<Grant> {
        self.give(request, host, true)
    }

    fn give(&mut self, request: &str, host: &str, blind: bool) -> Arc<Grant> {
        let (pool, position) = (self.pool(), self.position(host));
        let cell = pool.members.cells[position].clone();
        assert!(cell.reserve(cell.load(), 1));
        let parts = GrantParts {
            token: token(request),
            made_under: 1,
            content_hash: 7,
            pool: desk(),
            host_id: id(host),
            cell,
            endpoints: Arc::from([endpoint()]),
            user: None,
            user_key: None,
            cost: 1,
            counted_at_first: 1,
            since: self.now,
            ends_at: self.now + secs(120),
            decision_id: None,
            blind,
            untold: blind,
        };
        let grant = Arc::new(Grant::new(parts, false));
        self.ledger.insert(grant.clone());
        grant
    }
}

/// The hosts whose state changed, and to what.
pub(crate) fn changes(effects: &[Effect]) -> Vec<(HostId, HostState)> {
    let change = |effect: &Effect| match effect {
        Effect::StateChanged { host_id, to, .. } => Some((host_id.clone(), *to)),
        _ => None,
    };
    effects.iter().filter_map(change).collect()
}
