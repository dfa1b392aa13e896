//! What does chaos strike?
//!
//! Three coordinators and three nodes of etcd, each on a machine of its own in a network of its own; agents on one machine,
//! the gateways on another; mutual TLS everywhere. One coordinator keeps its files on a small disk, one believes a wall clock
//! that can be set, and so does one agent.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use usher_integration_tests::chaos::COORDINATORS;
use usher_integration_tests::{
    Agent, AgentStart, Authority, CertFiles, Client, Coordinator, CoordinatorStart, Etcd, EtcdStart, Machine,
    Network, SmallDisk,
};
use usher_proto::v1;

/// The coordinator whose disk can be filled, and the one whose wall clock can be set.
pub(crate) const ON_SMALL_DISK: usize = 0;
pub(crate) const WITH_SET_CLOCK: usize = 1;
/// Room for a store and its copies; what is left of it is filled.
const DISK_KIB: u32 = 64 * 1024;
/// Long beside every hold of the load, short beside a run: a caller that got no answer cannot give back what it does not
/// know of.
const TTL: Duration = Duration::from_secs(10);

/// A host is gone after three intervals and a second: more than a busy machine takes for a report.
const INTERVAL: &str = "1s";

/// How many hosts there are, and of what size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    /// Agents of the pool that has room enough.
    pub(crate) agents: usize,
    /// Modelled hosts of each.
    pub(crate) hosts: usize,
}

/// Users that each modelled host has from the beginning, and the most that it may have.
const WIDE: (u32, u32) = (10, 110);
/// As above, in the pool that is always about full.
const TIGHT: (u32, u32) = (5, 9);
const TIGHT_HOSTS: usize = 4;

/// Everything that runs.
pub(crate) struct Farm {
    pub(crate) coordinators: Vec<Coordinator>,
    pub(crate) coordinator_machines: Vec<Machine>,
    pub(crate) etcd: Etcd,
    pub(crate) etcd_machines: Vec<Machine>,
    pub(crate) agents: Vec<Agent>,
    pub(crate) agents_machine: Machine,
    pub(crate) gateways: Machine,
    pub(crate) disk: SmallDisk,
    /// Files that say how far a wall clock is off.
    pub(crate) clocks: [PathBuf; 2],
    /// One for each coordinator, for looking at the farm.
    pub(crate) operators: Vec<Client>,
    /// For the load.
    pub(crate) gateway_files: [CertFiles; 2],
    /// Modelled hosts and the real one.
    pub(crate) hosts: usize,
    pub(crate) logs: Vec<PathBuf>,
    folder: TempDir,
    _memory: TempDir,
    // Last: what runs on the network is gone before it.
    _network: Network,
}

/// A farm that is being built.
struct Site {
    folder: PathBuf,
    /// A folder in memory.
    memory: PathBuf,
    authority: Authority,
    addresses: Vec<std::net::SocketAddr>,
    desk: Machine,
    agents: Machine,
}

impl Site {
    fn files(&self, role: &str, name: &str, at: &[std::net::IpAddr]) -> CertFiles {
        self.authority.issue_for(&format!("usher://default/{role}/{name}"), at)
    }

    fn agent(&self, name: &str) -> AgentStart {
        let operator = self.files("operator", "chaos", &[]);
        let seen_by: Vec<Client> =
            self.addresses.iter().map(|address| operator.client_on(&self.desk, *address)).collect();
        let files = self.files("agent", name, &[]);
        let start = AgentStart::new(&self.folder, name, &self.addresses).settings(&files.table());
        start
            .on_machine(&self.agents, &seen_by)
            .report_interval(INTERVAL)
            .running_in(&self.memory)
            .without_waiting()
    }

    fn log(&self, agent: &str) -> PathBuf {
        self.folder.join(format!("{agent}.occupancy"))
    }

    /// An agent with modelled hosts, which write down what they hold.
    fn modelled(&self, name: &str, pool: &str, hosts: usize, (users, most): (u32, u32)) -> AgentStart {
        let mut start = self.agent(name).pool(pool).max_users(most);
        for number in 1..=hosts {
            start = start.host(&format!("{name}-{number}"), &format!("cpu=20,mem=30,users={users},procs=50"));
        }
        start.argument("--virtual-log").argument(self.log(name).display().to_string())
    }
}

impl Farm {
    /// Starts everything and waits until everybody hears everybody.
    pub(crate) async fn start(size: Size) -> Self {
        let folder = tempfile::Builder::new().prefix("usher-chaos-").tempdir().unwrap();
        let memory = tempfile::Builder::new().prefix("usher-chaos-").tempdir_in("/dev/shm").unwrap();
        let network = Network::new();
        let machines = |kind: &str| -> Vec<Machine> {
            (1..=COORDINATORS).map(|number| network.machine(&format!("{kind}{number}"))).collect()
        };
        let (coordinator_machines, etcd_machines) = (machines("c"), machines("e"));
        let site = Site {
            folder: folder.path().to_owned(),
            memory: memory.path().to_owned(),
            authority: Authority::new(folder.path()),
            addresses: coordinator_machines.iter().map(|machine| machine.at(7443)).collect(),
            desk: network.machine("desk"),
            agents: network.machine("agents"),
        };
        let gateways = network.machine("gateways");
        let etcd = EtcdStart::on_machines(folder.path(), &etcd_machines, &site.authority).start().await;
        let clocks = ["coordinator.clock", "agent.clock"].map(|name| folder.path().join(name));
        for clock in &clocks {
            set_clock(clock, 0);
        }
        let mut coordinators = Vec::new();
        let mut disk = None;
        for (number, machine) in coordinator_machines.iter().enumerate() {
            let name = format!("c{}", number + 1);
            let files = site.files("coordinator", &name, &[machine.ip()]);
            let mut start =
                CoordinatorStart::new(folder.path(), &name).on_machine(machine).table(&files.table());
            start = start.store_in(&etcd, Some(&files));
            if number == ON_SMALL_DISK {
                disk = Some(SmallDisk::mount(&start.data_dir(), DISK_KIB));
            }
            if number == WITH_SET_CLOCK {
                start = faked(&clocks[0])
                    .into_iter()
                    .fold(start, |start, (name, value)| start.environment(name, value));
            }
            coordinators.push(start.start().await);
        }
        let operator = site.files("operator", "chaos", &[]);
        let operators: Vec<Client> =
            site.addresses.iter().map(|address| operator.client_on(&site.desk, *address)).collect();
        let admin = site.files("admin", "chaos", &[]).client_on(&site.desk, site.addresses[0]);
        for pool in ["desk", "tight"] {
            let ttl = u64::try_from(TTL.as_millis()).unwrap();
            admin
                .apply(pool, v1::Policy { reservation_ttl_ms: Some(ttl), ..Default::default() })
                .await
                .unwrap();
        }
        let (agents, logs) = start_agents(&site, size, &clocks[1]).await;
        let farm = Self {
            coordinators,
            coordinator_machines,
            etcd,
            etcd_machines,
            agents,
            agents_machine: site.agents.clone(),
            gateway_files: ["lib", "raw"].map(|name| site.files("gateway", name, &[])),
            gateways,
            disk: disk.unwrap(),
            clocks,
            operators,
            hosts: size.agents * size.hosts + TIGHT_HOSTS + 1,
            logs,
            folder,
            _memory: memory,
            _network: network,
        };
        farm.is_whole(Duration::from_secs(60))
            .await
            .unwrap_or_else(|lacking| panic!("the farm does not come up: {lacking}"));
        farm
    }

    /// Where the coordinators listen.
    pub(crate) fn addresses(&self) -> Vec<std::net::SocketAddr> {
        self.coordinators.iter().map(|coordinator| coordinator.grpc).collect()
    }

    /// For files of the load.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Waits until every coordinator hears every host.
    ///
    /// # Errors
    /// What is lacking when the time is over.
    pub(crate) async fn is_whole(&self, within: Duration) -> Result<(), String> {
        let deadline = std::time::Instant::now() + within;
        for (number, operator) in self.operators.iter().enumerate() {
            while let Err(lacking) = hears_all(operator, self.hosts).await {
                if std::time::Instant::now() > deadline {
                    return Err(format!("c{}: {lacking}", number + 1));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }
}

async fn hears_all(operator: &Client, hosts: usize) -> Result<(), String> {
    let mut directory = operator.directory.clone();
    let asked = directory.list_hosts(v1::ListHostsRequest::default());
    let answer =
        tokio::time::timeout(Duration::from_secs(1), asked).await.map_err(|_| "no answer".to_owned())?;
    let listed = answer.map_err(|status| status.to_string())?.into_inner().hosts;
    // A busy or a full host is heard like any other.
    let lost = [v1::HostState::Offline, v1::HostState::Unknown];
    let is_well = |host: &v1::HostInfo| host.connected && !lost.contains(&host.state());
    match listed.iter().find(|host| !is_well(host)) {
        Some(host) => {
            let (name, state, why) = (&host.host_name, host.state(), &host.state_reason);
            Err(format!("{name} is {state:?}, connected {}: {why}", host.connected))
        }
        None if listed.len() == hosts => Ok(()),
        None => Err(format!("{} hosts of {hosts}", listed.len())),
    }
}

async fn start_agents(site: &Site, size: Size, clock: &Path) -> (Vec<Agent>, Vec<PathBuf>) {
    let mut starts = Vec::new();
    for number in 1..=size.agents {
        let name = format!("wide{number}");
        let mut start = site.modelled(&name, "desk", size.hosts, WIDE);
        if number == 1 {
            start =
                faked(clock).into_iter().fold(start, |start, (name, value)| start.environment(name, value));
        }
        starts.push((start, site.log(&name)));
    }
    starts.push((site.modelled("tight", "tight", TIGHT_HOSTS, TIGHT), site.log("tight")));
    let (mut agents, mut logs) = (Vec::new(), Vec::new());
    for (start, log) in starts {
        agents.push(start.await);
        logs.push(log);
    }
    // This machine itself, with nobody on it.
    let files = site.files("agent", "real", &[]);
    let settings =
        format!("{}\n[sessions]\nsource = \"program\"\nprogram = [\"/bin/true\"]\n", files.table());
    agents.push(site.agent("real").settings(&settings).max_users(WIDE.1).await);
    (agents, logs)
}

/// What makes a process believe the wall clock that a file tells. Its other clocks are left alone.
fn faked(clock: &Path) -> Vec<(&'static str, String)> {
    let output =
        Command::new("sh").args(["-c", "ls /usr/lib/*/faketime/libfaketimeMT.so.1"]).output().unwrap();
    let library = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    assert!(!library.is_empty(), "libfaketime is not installed; `cargo xtask peers` installs it");
    vec![
        ("LD_PRELOAD", library),
        ("FAKETIME_TIMESTAMP_FILE", clock.display().to_string()),
        ("FAKETIME_CACHE_DURATION", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("DONT_FAKE_MONOTONIC", "1".to_owned()),
    ]
}

/// The wall clock of whoever believes this file is so many seconds off.
pub(crate) fn set_clock(clock: &Path, seconds: i64) {
    // In one step: whoever reads sees the old offset or the new one.
    let next = clock.with_extension("next");
    std::fs::write(&next, format!("{seconds:+}\n")).unwrap();
    std::fs::rename(next, clock).unwrap();
}
