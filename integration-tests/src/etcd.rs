//! What if the shared store loses nodes, forgets its history, or is not there?
//!
//! A cluster of real etcd processes: on ports of loopback, or each on a machine of its own. Nothing of it is ours except
//! the way that it is started and hurt. `etcdctl` looks at it from outside, so that what a test says about the store does
//! not go through the code under test.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::netns::Machine;
use crate::pki::{Authority, CertFiles};
use crate::process::{Process, free_tcp_port};
use crate::wait::{LONG, wait_for};

/// How a cluster is started.
#[derive(Debug)]
pub struct EtcdStart {
    folder: PathBuf,
    places: Vec<Place>,
    tls: Option<(CertFiles, CertFiles)>,
}

/// Where one node listens.
#[derive(Debug)]
struct Place {
    machine: Option<Machine>,
    client: SocketAddr,
    peer: SocketAddr,
}

/// A cluster that runs. Its nodes can be killed, frozen and started again.
#[derive(Debug)]
pub struct Etcd {
    start: EtcdStart,
    nodes: Vec<Process>,
}

impl EtcdStart {
    /// A cluster of `nodes` nodes on loopback, plain, with its data in `folder`.
    pub fn new(folder: &Path, nodes: usize) -> Self {
        let at = || SocketAddr::from(([127, 0, 0, 1], free_tcp_port()));
        let places = (0..nodes).map(|_| Place { machine: None, client: at(), peer: at() }).collect();
        Self { folder: folder.join("etcd"), places, tls: None }
    }

    /// A cluster with a node on each of these machines. It speaks TLS.
    pub fn on_machines(folder: &Path, machines: &[Machine], authority: &Authority) -> Self {
        let place = |machine: &Machine| Place {
            machine: Some(machine.clone()),
            client: machine.at(2379),
            peer: machine.at(2380),
        };
        let places = machines.iter().map(place).collect();
        Self { folder: folder.join("etcd"), places, tls: None }.tls(authority)
    }

    /// Nodes and clients show certificates of this authority and demand them.
    #[must_use]
    pub fn tls(mut self, authority: &Authority) -> Self {
        let addresses: Vec<_> = self.places.iter().map(|place| place.client.ip()).collect();
        let own = authority.issue_for("usher://default/store/etcd", &addresses);
        self.tls = Some((own, authority.issue("usher://default/operator/etcdctl")));
        self
    }

    /// Starts it and waits until it answers.
    ///
    /// # Panics
    /// If it does not, or etcd is not installed: that is no reason to skip a test.
    pub async fn start(self) -> Etcd {
        std::fs::create_dir_all(&self.folder).unwrap();
        let nodes = (0..self.places.len()).map(|number| self.spawn(number)).collect();
        let etcd = Etcd { start: self, nodes };
        etcd.healthy().await;
        etcd
    }

    fn url(&self, address: SocketAddr) -> String {
        format!("{}://{address}", if self.tls.is_some() { "https" } else { "http" })
    }

    fn spawn(&self, number: usize) -> Process {
        let place = &self.places[number];
        let name = format!("etcd{number}");
        let member = |(number, place): (usize, &Place)| format!("etcd{number}={}", self.url(place.peer));
        let members: Vec<String> = self.places.iter().enumerate().map(member).collect();
        let (client, peer) = (self.url(place.client), self.url(place.peer));
        let mut command = Command::new(program("etcd"));
        command.args(["--name", &name, "--data-dir"]).arg(self.folder.join(&name));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &members.join(",")]);
        command.args(["--initial-cluster-state", "new", "--logger", "zap", "--log-level", "warn"]);
        if let Some((own, _)) = &self.tls {
            for side in ["", "peer-"] {
                command.arg(format!("--{side}client-cert-auth"));
                for (flag, file) in
                    [("cert-file", &own.cert), ("key-file", &own.key), ("trusted-ca-file", &own.ca)]
                {
                    command.arg(format!("--{side}{flag}")).arg(file);
                }
            }
        }
        let log = self.folder.join(format!("{name}.log"));
        Process::start_on(place.machine.as_ref(), &name, &mut command, &log)
    }
}

impl Etcd {
    /// `host:port` of each node, for `[store]`.
    pub fn endpoints(&self) -> Vec<String> {
        self.start.places.iter().map(|place| self.start.url(place.client)).collect()
    }

    /// The address of a node's port for clients.
    pub fn address(&self, node: usize) -> SocketAddr {
        self.start.places[node].client
    }

    /// SIGKILL for one node.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].kill();
    }

    /// A node's process.
    pub fn node(&self, node: usize) -> &Process {
        &self.nodes[node]
    }

    /// Starts a node again after it has ended, with its data. Does not wait until it answers.
    ///
    /// # Panics
    /// If it still runs.
    pub fn restart(&mut self, node: usize) {
        assert!(!self.nodes[node].is_running(), "etcd{node} still runs");
        self.nodes[node] = self.start.spawn(node);
    }

    /// Waits until the cluster takes writes, through whichever node.
    ///
    /// # Panics
    /// If it does not.
    pub async fn healthy(&self) {
        wait_for("etcd to take writes", LONG, async || {
            self.try_ctl(&["put", "health", "ok"]).await.map(drop)
        })
        .await;
    }

    /// The value of a key, for a test to look at without the code under test.
    ///
    /// # Panics
    /// If the cluster does not answer.
    pub async fn get(&self, key: &str) -> Option<String> {
        let value = self.ctl(&["get", "--print-value-only", key]).await;
        (!value.is_empty()).then(|| value.trim_end().to_owned())
    }

    /// Lets this node lead.
    ///
    /// # Panics
    /// If it does not.
    pub async fn let_lead(&self, node: usize) {
        wait_for("the node to lead", LONG, async || {
            let all = self.try_ctl(&["endpoint", "status", "--write-out=json"]).await?;
            let all: Value = serde_json::from_str(&all).map_err(|error| error.to_string())?;
            let status = all.as_array().into_iter().flatten();
            let mut status = status.filter(|of| of["Endpoint"].as_str() == Some(&self.endpoints()[node]));
            let status = status.next().map(|of| &of["Status"]).ok_or("it does not say who it is")?;
            let id = status["header"]["member_id"].as_u64().ok_or("it has no id")?;
            if status["leader"].as_u64() == Some(id) {
                return Ok(());
            }
            self.try_ctl(&["move-leader", &format!("{id:x}")]).await?;
            Err("it has just been told to lead".to_owned())
        })
        .await;
    }

    /// Every key that begins with `prefix`.
    ///
    /// # Panics
    /// If the cluster does not answer.
    pub async fn keys(&self, prefix: &str) -> Vec<String> {
        let keys = self.ctl(&["get", "--prefix", "--keys-only", prefix]).await;
        keys.lines().filter(|key| !key.is_empty()).map(str::to_owned).collect()
    }

    /// Forgets all history up to now, as an operator's cron job does; up to which revision.
    ///
    /// # Panics
    /// If the cluster does not answer.
    pub async fn compact(&self) -> i64 {
        let status: Value =
            serde_json::from_str(&self.ctl(&["get", "health", "--write-out=json"]).await).unwrap();
        let revision = status["header"]["revision"].as_i64().unwrap();
        self.ctl(&["compact", "--physical", &revision.to_string()]).await;
        revision
    }

    /// Runs `etcdctl` against all nodes that run; what it says.
    ///
    /// # Panics
    /// If it fails.
    pub async fn ctl(&self, arguments: &[&str]) -> String {
        self.try_ctl(arguments).await.unwrap_or_else(|error| panic!("etcdctl {arguments:?}: {error}"))
    }

    async fn try_ctl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(program("etcdctl"));
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.endpoints().join(",")]);
        command.args(["--command-timeout", "3s", "--dial-timeout", "2s"]);
        if let Some((_, own)) = &self.start.tls {
            for (flag, file) in [("--cert", &own.cert), ("--key", &own.key), ("--cacert", &own.ca)] {
                command.arg(flag).arg(file);
            }
        }
        command.args(arguments).stdin(Stdio::null());
        // From a node's own machine, whose loopback nobody cuts.
        let machine = self.start.places.iter().find_map(|place| place.machine.as_ref());
        let spawn = || {
            tokio::process::Command::from(command)
                .kill_on_drop(true)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
        };
        let child = match machine {
            Some(machine) => machine.within(spawn),
            None => spawn(),
        };
        let output = tokio::time::timeout(Duration::from_secs(10), child.unwrap().wait_with_output()).await;
        let output = output.map_err(|_| "it does not end".to_owned())?.map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}

/// A program of Debian's package `etcd-server` or `etcd-client`.
fn program(name: &str) -> PathBuf {
    let path = Path::new("/usr/bin").join(name);
    assert!(path.is_file(), "{} is not there; `cargo xtask peers` installs it", path.display());
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Network;

    #[tokio::test]
    async fn a_cluster_of_three_lives_with_two_and_not_with_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut etcd = EtcdStart::new(folder.path(), 3).start().await;
        etcd.ctl(&["put", "/usher/x", "1"]).await;
        etcd.kill(0);
        etcd.healthy().await;
        etcd.kill(1);
        // What becomes of such a write is open: a node that has it in its log may lead when the others are back.
        assert!(etcd.try_ctl(&["put", "/elsewhere/x", "2"]).await.is_err());
        etcd.restart(0);
        etcd.restart(1);
        etcd.healthy().await;
        assert_eq!(etcd.get("/usher/x").await.as_deref(), Some("1"));
        assert_eq!(etcd.keys("/usher").await, ["/usher/x"]);
        let revision = etcd.compact().await;
        let gone = etcd.try_ctl(&["get", "health", &format!("--rev={}", revision - 1)]).await.unwrap_err();
        assert!(gone.contains("compacted"), "{gone}");
    }

    #[tokio::test]
    async fn on_a_network_it_demands_certificates() {
        let folder = tempfile::tempdir().unwrap();
        let network = Network::new();
        let machines = ["e1", "e2", "e3"].map(|name| network.machine(name));
        let authority = Authority::new(folder.path());
        let mut etcd = EtcdStart::on_machines(folder.path(), &machines, &authority).start().await;
        assert!(etcd.endpoints()[0].starts_with("https://10.77.0."));
        etcd.start.tls = None;
        assert!(etcd.try_ctl(&["get", "health"]).await.is_err());
    }
}
