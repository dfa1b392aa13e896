//! A coordinator in a process of its own.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::binaries::binary;
use crate::etcd::Etcd;
use crate::http::{http_get, metric};
use crate::netns::Machine;
use crate::pki::CertFiles;
use crate::process::{Process, free_tcp_port};
use crate::wait::{LONG, wait_for, wait_until};

/// How a coordinator is started.
#[derive(Debug, Clone)]
pub struct CoordinatorStart {
    folder: PathBuf,
    name: String,
    settings: String,
    arguments: Vec<String>,
    tables: String,
    fixed: Option<(SocketAddr, SocketAddr)>,
    machine: Option<Machine>,
    environment: Vec<(String, String)>,
    data: Option<PathBuf>,
    allow_virtual: bool,
}

impl CoordinatorStart {
    /// A coordinator whose data, settings and log are in `folder`, on ports that the system chooses, which lets modelled
    /// hosts in.
    pub fn new(folder: &Path, name: &str) -> Self {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self {
            folder,
            name: name.to_owned(),
            settings: String::new(),
            arguments: Vec::new(),
            tables: String::new(),
            fixed: None,
            machine: None,
            environment: Vec::new(),
            data: None,
            allow_virtual: true,
        }
    }

    /// Text of the settings file.
    #[must_use]
    pub fn settings(mut self, toml: &str) -> Self {
        self.settings = toml.to_owned();
        self
    }

    /// A further table of the settings file, as in `[limits]` with its lines.
    #[must_use]
    pub fn table(mut self, toml: &str) -> Self {
        self.tables.push('\n');
        self.tables.push_str(toml);
        self
    }

    /// What people decide is kept in this cluster. `files` is what the coordinator shows it, where it speaks TLS.
    #[must_use]
    pub fn store_in(self, etcd: &Etcd, files: Option<&CertFiles>) -> Self {
        let tls = files.map(|files| files.table().replace("[tls]", "[store.tls]")).unwrap_or_default();
        self.table(&format!("[store]\nkind = \"etcd\"\nendpoints = {:?}\n{tls}", etcd.endpoints()))
    }

    /// Its store is in this folder, and nothing else of it.
    #[must_use]
    pub fn data_in(mut self, folder: &Path) -> Self {
        self.data = Some(folder.to_owned());
        self
    }

    /// A variable of its environment.
    #[must_use]
    pub fn environment(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// On a machine of a network, at port 7443. Its HTTP port is 7480 of that machine's loopback, where it speaks TLS as well:
    /// a test looks at its log, and not at [`Coordinator::metrics`].
    #[must_use]
    pub fn on_machine(mut self, machine: &Machine) -> Self {
        self.machine = Some(machine.clone());
        self.fixed = Some((machine.at(7443), SocketAddr::from(([127, 0, 0, 1], 7480))));
        self
    }

    /// A further argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Modelled hosts are refused, as on a real farm.
    #[must_use]
    pub fn without_virtual_hosts(mut self) -> Self {
        self.allow_virtual = false;
        self
    }

    /// On ports that are chosen now and kept over restarts.
    #[must_use]
    pub fn on_fixed_ports(mut self) -> Self {
        let at = || SocketAddr::from(([127, 0, 0, 1], free_tcp_port()));
        self.fixed = Some((at(), at()));
        self
    }

    /// The folder of its store.
    pub fn data_dir(&self) -> PathBuf {
        self.data.clone().unwrap_or_else(|| self.folder.join("data"))
    }

    /// Starts it and waits until it listens.
    ///
    /// # Panics
    /// If it does not.
    pub async fn start(self) -> Coordinator {
        let settings = self.folder.join("coordinator.toml");
        std::fs::write(&settings, format!("{}{}", self.settings, self.tables)).unwrap();
        let mut process = self.spawn();
        let (grpc, http) = self.listening(&mut process).await;
        Coordinator { start: self, process, grpc, http }
    }

    fn spawn(&self) -> Process {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (grpc, http) = self.fixed.unwrap_or((any, any));
        let mut command = Command::new(binary("usher-coordinator"));
        command.arg("--config").arg(self.folder.join("coordinator.toml"));
        command.arg("--data-dir").arg(self.data_dir());
        command.args(["--listen", &grpc.to_string(), "--http-listen", &http.to_string()]);
        command.args(self.allow_virtual.then_some("--allow-virtual")).args(&self.arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let log = self.folder.join("coordinator.log");
        Process::start_on(self.machine.as_ref(), &self.name, &mut command, &log)
    }

    async fn listening(&self, process: &mut Process) -> (SocketAddr, SocketAddr) {
        let file = self.data_dir().join("listening.json");
        let what = format!("{} to listen", self.name);
        wait_for(&what, LONG, async || {
            assert!(process.is_running(), "{} ended at its start:\n{}", self.name, process.log());
            let text = std::fs::read(&file).map_err(|error| error.to_string())?;
            let said: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
            if said["pid"] != process.pid() {
                return Err("the file of an earlier process".to_owned());
            }
            let address = |key: &str| said[key].as_str().unwrap().parse().unwrap();
            Ok((address("grpc"), address("http")))
        })
        .await
    }
}

/// A coordinator that runs. Its [`Process`] can be killed, asked to end, and frozen.
#[derive(Debug)]
pub struct Coordinator {
    start: CoordinatorStart,
    process: Process,
    /// Where gRPC listens.
    pub grpc: SocketAddr,
    /// Where HTTP listens.
    pub http: SocketAddr,
}

impl Coordinator {
    /// Starts it again after it has ended, with the same data on the same ports.
    ///
    /// # Panics
    /// If it still runs, or was not started on fixed ports.
    pub async fn restart(&mut self) {
        assert!(self.start.fixed.is_some(), "a coordinator that is restarted needs fixed ports");
        assert!(!self.process.is_running(), "the coordinator still runs");
        self.process = self.start.spawn();
        (self.grpc, self.http) = self.start.listening(&mut self.process).await;
    }

    /// All of its `/metrics`.
    ///
    /// # Panics
    /// If it does not answer, or has a certificate and speaks TLS.
    pub async fn metrics(&self) -> String {
        http_get(self.http, "/metrics").await.body
    }

    /// Waits until what it knows of the hosts now is on its disk, which happens every ten seconds: it shows them after a
    /// restart.
    ///
    /// # Panics
    /// If it does not happen.
    pub async fn hosts_stored(&self) {
        let commits = async || {
            metric(&self.metrics().await, "usher_coordinator_store_commit_duration_seconds_count").unwrap()
        };
        let before = commits().await;
        wait_until("the hosts to be stored", LONG, async || commits().await > before).await;
    }

    /// The folder of its store.
    pub fn data_dir(&self) -> PathBuf {
        self.start.data_dir()
    }
}

impl Deref for Coordinator {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Coordinator {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}
