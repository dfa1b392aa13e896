//! The farms: each a coordinator and modelled hosts, in processes of their own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use usher_integration_tests::{
    Agent, AgentStart, Authority, CertFiles, Client, Coordinator, CoordinatorStart, free_tcp_port, place,
    wait_for,
};
use usher_proto::v1;

use crate::load::Connections;

/// The pool of every farm.
pub(crate) const POOL: &str = "desk";
/// Hosts of one agent process: a few processes, as a few machines would be.
const HOSTS_PER_AGENT: usize = 2500;
/// Agents spread their first connections over up to 15 s, and then the hosts must report.
const ATTACHED_WITHIN: Duration = Duration::from_secs(90);

/// One coordinator with its hosts.
#[derive(Debug)]
pub(crate) struct Farm {
    pub(crate) name: &'static str,
    pub(crate) hosts: usize,
    coordinator: Coordinator,
    agents: Vec<Agent>,
    client: Client,
    pub(crate) connections: Connections,
    // After the agents, which write there until they end.
    _agents_folder: TempDir,
}

/// Certificates of a farm under mutual TLS.
struct Certificates {
    coordinator: CertFiles,
    agent: CertFiles,
    gateway: CertFiles,
    operator: CertFiles,
}

impl Certificates {
    fn new(folder: &Path) -> Self {
        let authority = Authority::new(folder);
        let issue = |role: &str| authority.issue(&format!("usher://default/{role}/{role}-1"));
        Self {
            coordinator: issue("coordinator"),
            agent: issue("agent"),
            gateway: issue("gateway"),
            operator: issue("admin"),
        }
    }
}

impl Farm {
    /// Starts a farm and waits until every host was heard.
    pub(crate) async fn start(folder: &Path, name: &'static str, hosts: usize, tls: bool) -> Self {
        let folder: PathBuf = folder.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let certificates = tls.then(|| Certificates::new(&folder));
        let certificates = certificates.as_ref();
        let table = |files: fn(&Certificates) -> &CertFiles| {
            certificates.map(|all| files(all).table()).unwrap_or_default()
        };
        let echo = SocketAddr::from(([127, 0, 0, 1], free_tcp_port()));
        let coordinator = CoordinatorStart::new(&folder, "coordinator")
            .settings(&table(|all| &all.coordinator))
            .argument("--bench-echo")
            .argument(echo.to_string())
            .argument("--log")
            .argument("warn")
            .start()
            .await;
        let grpc = coordinator.grpc;
        let to = |address: SocketAddr, files: fn(&Certificates) -> &CertFiles| match certificates {
            Some(all) => files(all).client(address),
            None => Client::new(address, None),
        };
        let agents_folder = memory_folder();
        let mut agents = Vec::new();
        for first in (0..hosts).step_by(HOSTS_PER_AGENT) {
            let numbers = first..hosts.min(first + HOSTS_PER_AGENT);
            let mut start = AgentStart::new(agents_folder.path(), &format!("agent-{first}"), &[grpc])
                .pool(POOL)
                .settings(&table(|all| &all.agent))
                .report_interval("5s")
                .latency_period("15s")
                .argument("--log")
                .argument("warn")
                .without_waiting();
            for number in numbers {
                start = start.host(&format!("host-{number}"), &values(number));
            }
            agents.push(start.await);
        }
        let connections = Connections::new(|| to(grpc, |all| &all.gateway), || to(echo, |all| &all.gateway));
        let client = to(grpc, |all| &all.operator);
        let farm =
            Self { name, hosts, coordinator, agents, client, connections, _agents_folder: agents_folder };
        farm.heard().await;
        farm
    }

    async fn heard(&self) {
        let all = u32::try_from(self.hosts).unwrap();
        wait_for(&format!("the hosts of farm {}", self.name), ATTACHED_WITHIN, async || {
            let request = v1::PlaceRequest { dry_run: true, ..place(POOL, "heard") };
            let placed = self.client.place(request).await.map_err(|status| status.to_string())?;
            if placed.hosts_heard == all { Ok(()) } else { Err(format!("{} heard", placed.hosts_heard)) }
        })
        .await;
    }

    /// From now on every host has a limit of users, and is asked for its consent. It is far away.
    pub(crate) async fn limit_users(&self) {
        let max_users = Some(v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(100_000)) });
        let policy = v1::Policy { max_users, ..v1::Policy::default() };
        self.client.apply(POOL, policy).await.unwrap();
    }

    /// The coordinator's process.
    pub(crate) fn server(&self) -> u32 {
        self.coordinator.pid()
    }

    /// All of its processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let agents = self.agents.iter().map(|agent| agent.pid());
        std::iter::once(self.server()).chain(agents).collect()
    }
}

/// A folder in memory, if this machine has one: what an agent keeps until the next boot lies in `/run`, which is one.
fn memory_folder() -> TempDir {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("usher-bench-");
    builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir()).unwrap()
}

/// Hosts that differ: no choice is a tie among all.
fn values(number: usize) -> String {
    let of = |step: usize, range: usize| number * step % range;
    let (cpu, memory, users, processes) = (5 + of(37, 61), 10 + of(53, 67), 1 + of(29, 47), 60 + of(41, 400));
    format!("cpu={cpu},mem={memory},users={users},procs={processes},ai-xf=1.5")
}
