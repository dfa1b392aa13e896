//! What a test of one call needs around it: a farm with its hosts, and the state that calls share.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::AtomicU64,
        mpsc::{Receiver, Sender},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use usher_placement::{
    decision::Request,
    farm::{Farm, PoolApply},
    reservation::Ledger,
};
use usher_runtime::{
    clock::{Clock, ManualClock},
    doors::Doors,
};
use usher_types::{
    BootId, BootTime, Endpoint, GatewayId, Hello, HostId, HostName, Load, PolicyChange, PoolName, RequestId,
    Token,
};

use crate::{
    config::CoordinatorConfig,
    farm_command::FarmCommand,
    history::History,
    in_flight::InFlight,
    links::Links,
    metrics::Metrics,
    placing::Teller,
    publish::Feed,
    shared::Shared,
    store::{
        Followed, LinkState, MemoryShared, MemoryStore, SharingOptions, Store, StoreError, StoreHandle,
        Stored, Write,
    },
    virtual_hosts::VirtualHosts,
};

/// The present of every test.
pub(crate) const NOW: BootTime = BootTime::from_millis(1_000_000);

pub(crate) fn hello(host: &str) -> Hello {
    Hello {
        agent_version: "test".into(),
        host_id: HostId::new(host).unwrap(),
        boot_id: BootId::new("boot-1").unwrap(),
        stream_epoch: 1,
        incarnation_ms: 0,
        host_name: HostName::new(host).unwrap(),
        endpoints: vec![Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 }],
        labels: std::collections::BTreeMap::new(),
        pool: PoolName::new("desk").unwrap(),
        zone: None,
        cores: None,
        memory_bytes: None,
        cpu_model: None,
        report_interval: Duration::from_secs(5),
        latency_period: Duration::from_secs(15),
        is_virtual: false,
        is_reporter: false,
    }
}

/// A login of pool `desk` that says nothing but its id.
pub(crate) fn request(request_id: &str) -> Request {
    Request {
        token: Token {
            gateway: GatewayId::new("g1").unwrap(),
            request_id: RequestId::new(request_id).unwrap(),
        },
        attempt: 1,
        pool: PoolName::new("desk").unwrap(),
        resource: None,
        user: None,
        client_zone: None,
        cost: 1,
        exclude: Vec::new(),
        prefer_host: None,
        dry_run: false,
        failover: None,
    }
}

/// A farm of one pool with these settings, whose hosts have so many users each.
pub(crate) fn farm(change: &PolicyChange, hosts: &[(&str, u32)]) -> (Farm, Arc<Ledger>) {
    let ledger = Arc::new(Ledger::new());
    let mut farm = Farm::new(ledger.clone(), NOW);
    let record =
        farm.prepare_pool(&PoolName::new("desk").unwrap(), &PoolApply::of(change.clone()), false).unwrap();
    farm.commit_pool(record);
    for (host, users) in hosts {
        let hello = hello(host);
        farm.attach(&hello, None, false).unwrap();
        let load = Load { users: Some(*users), streams_held: 1, ..Load::default() };
        farm.observe_load(&hello.host_id, load, &[], NOW, 0);
    }
    (farm, ledger)
}

/// A clock that goes with the runtime's, which tests pause.
#[derive(Debug)]
struct RuntimeClock(tokio::time::Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> BootTime {
        NOW + self.0.elapsed()
    }

    fn wall_unix_ms(&self) -> u64 {
        1_000_000_000_000
    }
}

/// What calls share, and the commands that they send to the farm. Time stands still.
pub(crate) fn shared(farm: &mut Farm, ledger: Arc<Ledger>) -> (Arc<Shared>, mpsc::Receiver<FarmCommand>) {
    shared_at(Arc::new(ManualClock::at(NOW)), farm, ledger)
}

/// Likewise, with time that goes on as the runtime's does.
pub(crate) fn shared_in_time(
    farm: &mut Farm,
    ledger: Arc<Ledger>,
) -> (Arc<Shared>, mpsc::Receiver<FarmCommand>) {
    shared_at(Arc::new(RuntimeClock(tokio::time::Instant::now())), farm, ledger)
}

fn shared_at(
    clock: Arc<dyn Clock>,
    farm: &mut Farm,
    ledger: Arc<Ledger>,
) -> (Arc<Shared>, mpsc::Receiver<FarmCommand>) {
    let (history, keep_history) = History::new();
    tokio::spawn(keep_history);
    let (teller, to_tell) = Teller::new();
    let (queue, commands) = mpsc::channel(64);
    let shared = Shared {
        config: CoordinatorConfig::default(),
        clock,
        snapshot: ArcSwap::from(farm.snapshot(NOW)),
        ledger,
        links: Links::default(),
        doors: Doors::default(),
        feed: Feed::default(),
        teller,
        history,
        in_flight: InFlight::default(),
        farm: queue,
        virtual_hosts: VirtualHosts::default(),
        metrics: Metrics::new("0", "none"),
        coordinator_id: "c".to_owned(),
        instance_id: "i".to_owned(),
        decision_prefix: "c.1".to_owned(),
        decisions: AtomicU64::new(0),
        last_tick_us: AtomicU64::new(NOW.as_micros()),
        seed: AtomicU64::new(0),
    };
    let shared = Arc::new(shared);
    tokio::spawn(super::tell_hosts(shared.clone(), to_tell));
    (shared, commands)
}

/// The store of a coordinator that reaches a shared one through `link`, and what its farm would be told. It follows what the others
/// write until it is told to stop, and knows no more from then on than its own writes have shown it.
pub(crate) async fn sharing(
    coordinator_id: &str,
    link: &MemoryShared,
) -> (StoreHandle, mpsc::Receiver<Followed>, CancellationToken) {
    let metrics = Metrics::new("0", "none");
    let own = StoreHandle::inline(Path::new("memory"), metrics, MemoryStore::new(coordinator_id));
    let options = SharingOptions {
        store: Arc::new(link.clone()),
        clock: Arc::new(ManualClock::at(NOW)),
        instance_id: coordinator_id.to_owned(),
        seed: false,
        write_within: Duration::from_secs(4),
    };
    let (store, follower) = own.share(options, &own.load().await.unwrap());
    let (out, told) = mpsc::channel(64);
    let stop = CancellationToken::new();
    tokio::spawn(follower.run(out, stop.clone()));
    while store.status().shared.unwrap().link != LinkState::Connected {
        tokio::task::yield_now().await;
    }
    (store, told, stop)
}

/// A disk that answers nothing until the test lets go of it.
struct Stuck(Receiver<()>);

impl Store for Stuck {
    fn load(&mut self) -> Result<Stored, StoreError> {
        Err(StoreError::Closed { path: PathBuf::from("stuck") })
    }

    fn commit(&mut self, _: &[Write]) -> Result<(), StoreError> {
        // An error: the test has let go.
        let _ = self.0.recv();
        Ok(())
    }
}

/// A store that commits nothing until what is returned with it is dropped.
pub(crate) async fn stuck_store() -> (StoreHandle, Sender<()>) {
    let (release, held) = std::sync::mpsc::channel();
    let metrics = Metrics::new("0", "none");
    let store = StoreHandle::start(Path::new("stuck"), metrics, || Ok(Stuck(held))).await.unwrap();
    (store, release)
}
