//! A farm whose hosts have all reported once, each something else.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc, time::Duration};

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use usher_placement::{
    decision::Request,
    farm::{Farm, PoolApply, Snapshot},
    reservation::Ledger,
};
use usher_types::{
    BootId, BootTime, BusyReasons, Endpoint, GatewayId, Hello, HostId, HostName, Latency, Load, Memory,
    Method, OperationName, OperationWindow, Percent, PolicyChange, PoolName, RequestId, Token, UserLimit,
};

const POOL: &str = "desk";

fn name<T, E: std::fmt::Debug>(made: Result<T, E>) -> T {
    made.expect("a word is a name")
}

/// A farm, and the plain arrays that the reference scans.
pub(crate) struct BenchFarm {
    pub(crate) method: &'static str,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) now: BootTime,
    farm: RefCell<Farm>,
    plain: [Vec<f64>; 3],
}

impl BenchFarm {
    pub(crate) fn new((method, called): (Method, &'static str), hosts: usize) -> Self {
        let now = BootTime::from_millis(1_000_000);
        let ledger = Arc::new(Ledger::default());
        let mut farm = Farm::new(ledger.clone(), now);
        let pool = name(PoolName::new(POOL));
        let max_users = (method == Method::FillFirst).then_some(UserLimit::Users(10_000));
        let change = PolicyChange { method: Some(method), max_users, ..PolicyChange::default() };
        let record = farm.prepare_pool(&pool, &PoolApply::of(change), false);
        farm.commit_pool(record.expect("these settings are allowed"));
        let mut rng = Pcg64Mcg::seed_from_u64(hosts as u64);
        let mut plain: [Vec<f64>; 3] = Default::default();
        for number in 0..hosts {
            let hello = hello(number);
            farm.attach(&hello, None, false).expect("nobody else has this id");
            let load = load(&mut rng);
            plain[0].push(load.cpu.map_or(0.0, Percent::get));
            plain[1].push(f64::from(load.users.unwrap_or_default()));
            plain[2].push(f64::from(load.processes.unwrap_or_default()));
            farm.observe_load(&hello.host_id, load, &[], now, 0);
            farm.observe_latency(&hello.host_id, latency(rng.random_range(1.0..8.0)), 0, now);
        }
        let snapshot = farm.snapshot(now);
        Self { method: called, ledger, snapshot, now, farm: RefCell::new(farm), plain }
    }

    /// What a first draft would do: one pass over plain arrays for the largest number of users, one for the lowest load.
    pub(crate) fn plain_scan(&self) -> usize {
        let [cpu, users, processes] = &self.plain;
        let top = users.iter().copied().fold(1.0, f64::max);
        let mut lowest = (0, f64::INFINITY);
        for at in 0..cpu.len() {
            let load = 0.3 * cpu[at] + 55.0 * users[at] / top + 15.0 * processes[at] / 600.0;
            if load < lowest.1 {
                lowest = (at, load);
            }
        }
        lowest.0
    }

    /// One host reports, and the farm is published.
    pub(crate) fn publish_one_report(&self, seed: u64) -> Arc<Snapshot> {
        let mut farm = self.farm.borrow_mut();
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let number = rng.random_range(0..self.plain[0].len());
        farm.observe_load(&hello(number).host_id, load(&mut rng), &[], self.now, 0);
        farm.snapshot(self.now)
    }
}

fn hello(number: usize) -> Hello {
    Hello {
        agent_version: "bench".into(),
        host_id: name(HostId::new(format!("00000000-0000-0000-0000-{number:012}"))),
        boot_id: name(BootId::new("boot-1")),
        stream_epoch: 1,
        incarnation_ms: 0,
        host_name: name(HostName::new(format!("h{number}.example"))),
        endpoints: vec![Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 }],
        labels: BTreeMap::new(),
        pool: name(PoolName::new(POOL)),
        zone: None,
        cores: Some(8),
        memory_bytes: Some(1 << 35),
        cpu_model: None,
        report_interval: Duration::from_secs(5),
        latency_period: Duration::from_secs(15),
        is_virtual: true,
        is_reporter: false,
    }
}

fn load(rng: &mut impl Rng) -> Load {
    Load {
        cpu: Percent::new(rng.random_range(5.0..80.0)).ok(),
        memory: Memory::new(rng.random_range(1..28 << 30), 1 << 35),
        users: Some(rng.random_range(1..60)),
        processes: Some(rng.random_range(100..600)),
        streams_held: 1,
        latched: Some(BusyReasons::NONE),
        ..Load::default()
    }
}

fn latency(expansion_factor: f64) -> Latency {
    let operation = OperationWindow {
        name: name(OperationName::new("login")),
        ok: 100.0,
        failed: 0.0,
        too_long: 0.0,
        sum_us: 100.0 * 1000.0 * expansion_factor,
        min_us: Some(1000.0),
        in_flight: 0,
        oldest_in_flight: None,
        baseline_us: Some(1000.0),
        baseline_age: None,
        baseline_samples: 100,
        baseline_is_provisional: false,
    };
    Latency { window: Duration::from_secs(75), operations: vec![operation], ..Latency::default() }
}

/// A login of somebody of whom nothing is known.
pub(crate) fn request(dry_run: bool) -> Request {
    let token = Token { gateway: name(GatewayId::new("bench")), request_id: name(RequestId::new("bench")) };
    Request { token, dry_run, ..Request::of_nobody(name(PoolName::new(POOL))) }
}
