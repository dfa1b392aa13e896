//! Several equal coordinators and the agents that report to all of them: what most tests of faults begin with.
//!
//! On loopback by default; [`SiteStart::on_network`] gives each part a machine of its own, and certificates. What the
//! coordinators share is nothing, or a cluster of etcd: [`SiteStart::sharing`].

use std::future::IntoFuture;
use std::path::Path;
use std::pin::Pin;

use tempfile::TempDir;

use crate::agent::AgentStart;
use crate::client::Client;
use crate::coordinator::{Coordinator, CoordinatorStart};
use crate::etcd::{Etcd, EtcdStart};
use crate::farm::Logs;
use crate::netns::{Machine, Network};
use crate::pki::Authority;

/// How a site is started; `.await` starts it.
#[derive(Debug)]
pub struct SiteStart {
    folder: TempDir,
    coordinators: usize,
    settings: String,
    network: Option<Network>,
    etcd_nodes: usize,
}

/// Coordinators that run, with what is around them.
#[derive(Debug)]
pub struct Site {
    /// Equal coordinators, on ports that are kept over restarts.
    pub coordinators: Vec<Coordinator>,
    /// What they share.
    pub etcd: Option<Etcd>,
    lan: Option<Lan>,
    // Before the folder: what it prints lies there.
    #[expect(dead_code, reason = "acts when it is dropped")]
    logs: Logs,
    folder: TempDir,
}

/// The machines of a site that has any.
#[derive(Debug)]
struct Lan {
    network: Network,
    authority: Authority,
    coordinators: Vec<Machine>,
    etcd: Vec<Machine>,
    desk: Machine,
}

impl SiteStart {
    /// Each part is on a machine of its own, and all connections are mutual TLS.
    #[must_use]
    pub fn on_network(mut self) -> Self {
        self.network = Some(Network::new());
        self
    }

    /// What people decide is kept in a cluster of so many etcd nodes.
    #[must_use]
    pub fn sharing(mut self, etcd_nodes: usize) -> Self {
        self.etcd_nodes = etcd_nodes;
        self
    }

    /// Text of every coordinator's settings file.
    #[must_use]
    pub fn settings(mut self, toml: &str) -> Self {
        self.settings = toml.to_owned();
        self
    }

    fn lan(&mut self) -> Option<Lan> {
        let network = self.network.take()?;
        let machines =
            |kind: &str, count| (1..=count).map(|n| network.machine(&format!("{kind}{n}"))).collect();
        let (coordinators, etcd) = (machines("c", self.coordinators), machines("e", self.etcd_nodes));
        let desk = network.machine("desk");
        Some(Lan { authority: Authority::new(self.folder.path()), coordinators, etcd, desk, network })
    }

    async fn start(mut self) -> Site {
        let lan = self.lan();
        let folder = self.folder.path();
        let etcd = match (self.etcd_nodes, &lan) {
            (0, _) => None,
            (nodes, None) => Some(EtcdStart::new(folder, nodes).start().await),
            (_, Some(lan)) => Some(EtcdStart::on_machines(folder, &lan.etcd, &lan.authority).start().await),
        };
        let logs = Logs::of(folder);
        let mut coordinators = Vec::new();
        for number in 0..self.coordinators {
            let name = format!("c{}", number + 1);
            let mut start = CoordinatorStart::new(folder, &name).settings(&self.settings);
            let files = lan.as_ref().map(|lan| {
                let at = [lan.coordinators[number].ip()];
                lan.authority.issue_for(&format!("usher://default/coordinator/{name}"), &at)
            });
            start = match (&lan, &files) {
                (Some(lan), Some(files)) => start.on_machine(&lan.coordinators[number]).table(&files.table()),
                _ => start.on_fixed_ports(),
            };
            if let Some(etcd) = &etcd {
                start = start.store_in(etcd, files.as_ref());
            }
            coordinators.push(start.start().await);
        }
        Site { coordinators, etcd, lan, logs, folder: self.folder }
    }
}

impl IntoFuture for SiteStart {
    type Output = Site;
    type IntoFuture = Pin<Box<dyn Future<Output = Site>>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start())
    }
}

impl Site {
    /// So many coordinators, which let modelled hosts in.
    pub fn start(coordinators: usize) -> SiteStart {
        let folder = tempfile::Builder::new().prefix("usher-site-").tempdir().unwrap();
        SiteStart { folder, coordinators, settings: String::new(), network: None, etcd_nodes: 0 }
    }

    /// An agent that reports to all coordinators. On a network it has a machine of its own: [`Site::agent_on`].
    pub fn agent(&self, name: &str) -> AgentStart {
        match &self.lan {
            Some(lan) => self.agent_on(name, &lan.network.machine(name)),
            None => AgentStart::new(self.folder(), name, &self.addresses()),
        }
    }

    /// An agent on this machine of the network.
    ///
    /// # Panics
    /// If there is no network.
    pub fn agent_on(&self, name: &str, machine: &Machine) -> AgentStart {
        let files = self.lan().authority.issue(&format!("usher://default/agent/{name}"));
        let start = AgentStart::new(self.folder(), name, &self.addresses()).settings(&files.table());
        start.on_machine(machine, &self.clients("operator"))
    }

    /// Where the coordinators listen.
    pub fn addresses(&self) -> Vec<std::net::SocketAddr> {
        self.coordinators.iter().map(|coordinator| coordinator.grpc).collect()
    }

    /// A client of each coordinator, in this role and of this name: on loopback everybody has every role.
    pub fn clients(&self, role: &str) -> Vec<Client> {
        let Some(lan) = &self.lan else {
            return self.addresses().into_iter().map(|address| Client::new(address, Some(role))).collect();
        };
        let files = lan.authority.issue(&format!("usher://default/{role}/{role}-1"));
        self.addresses().into_iter().map(|address| files.client_on(&lan.desk, address)).collect()
    }

    /// A further machine.
    ///
    /// # Panics
    /// If there is no network.
    pub fn machine(&self, name: &str) -> Machine {
        self.lan().network.machine(name)
    }

    /// The machine of a coordinator.
    ///
    /// # Panics
    /// If there is no network.
    pub fn coordinator_machine(&self, number: usize) -> &Machine {
        &self.lan().coordinators[number]
    }

    /// The machine of an etcd node.
    ///
    /// # Panics
    /// If there is no network.
    pub fn etcd_machine(&self, number: usize) -> &Machine {
        &self.lan().etcd[number]
    }

    /// Who signs this site's certificates.
    ///
    /// # Panics
    /// If there is no network.
    pub fn authority(&self) -> &Authority {
        &self.lan().authority
    }

    /// The folder of everything.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn lan(&self) -> &Lan {
        self.lan.as_ref().expect("a site that was started with on_network")
    }
}
