//! Who is measured: each in a process of its own, started as its user would.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use usher_integration_tests::{
    Agent, AgentStart, Client, Collectd, Coordinator, CoordinatorStart, NodeExporter, Process,
};

use crate::SAMPLER;

/// Name of this machine's host.
const HOST: &str = "bench";
/// A report older than this says that the agent does not report each second.
const OLDEST_REPORT_MS: u64 = 3000;

/// The order of everything that is told of them.
pub(crate) const NAMES: [&str; 4] = ["usher-agent", "node exporter", "collectd", "sysinfo"];

/// All of them, and what they need.
#[derive(Debug)]
pub(crate) struct Contestants {
    agent: Agent,
    exporter: NodeExporter,
    collectd: Collectd,
    sampler: Process,
    coordinator: Coordinator,
    client: Client,
}

impl Contestants {
    /// Starts all and waits until the first report of ours was heard.
    pub(crate) async fn start(folder: &Path) -> anyhow::Result<Self> {
        let quietly = ["--log", "warn"];
        let start = CoordinatorStart::new(folder, "coordinator").without_virtual_hosts();
        let coordinator = start.argument(quietly[0]).argument(quietly[1]).start().await;
        let agent =
            AgentStart::new(folder, HOST, &[coordinator.grpc]).report_interval("1s").latency_period("15s");
        let agent = agent.argument(quietly[0]).argument(quietly[1]).await;
        let itself = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(itself);
        let sampler = Process::start("the sampler", command.arg(SAMPLER), &folder.join("sampler.log"));
        Ok(Self {
            exporter: NodeExporter::start(folder).await,
            collectd: Collectd::start(folder, 1).await,
            client: Client::new(coordinator.grpc, None),
            agent,
            sampler,
            coordinator,
        })
    }

    /// Their processes, as [`NAMES`].
    pub(crate) fn pids(&self) -> [u32; 4] {
        [self.agent.pid(), self.exporter.pid(), self.collectd.pid(), self.sampler.pid()]
    }

    /// Every process of this run.
    pub(crate) fn all_pids(&self) -> Vec<u32> {
        self.pids().into_iter().chain([self.coordinator.pid(), std::process::id()]).collect()
    }

    /// The exporter looks when it is asked.
    pub(crate) async fn scrape(&self) {
        self.exporter.figures().await;
    }

    /// Whoever has stopped costs nothing.
    pub(crate) async fn all_at_work(&mut self) -> anyhow::Result<()> {
        ensure!(self.sampler.is_running(), "the sampler ended:\n{}", self.sampler.log());
        let host = self.client.host(HOST).await.context("asking for the host")?;
        let age_ms = host.load_age_ms;
        ensure!(
            age_ms.is_some_and(|age_ms| age_ms <= OLDEST_REPORT_MS),
            "the agent does not report: its last report is {age_ms:?} ms old\n{}",
            self.agent.log()
        );
        Ok(())
    }
}
