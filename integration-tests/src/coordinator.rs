//! A coordinator in a process of its own.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::binaries::binary;
use crate::process::{Process, free_tcp_port};
use crate::wait::{LONG, wait_for};

/// How a coordinator is started.
#[derive(Debug, Clone)]
pub struct CoordinatorStart {
    folder: PathBuf,
    name: String,
    settings: String,
    arguments: Vec<String>,
    ports: Option<(u16, u16)>,
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
            ports: None,
            allow_virtual: true,
        }
    }

    /// Text of the settings file.
    #[must_use]
    pub fn settings(mut self, toml: &str) -> Self {
        self.settings = toml.to_owned();
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
        self.ports = Some((free_tcp_port(), free_tcp_port()));
        self
    }

    /// The folder of its store.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Starts it and waits until it listens.
    ///
    /// # Panics
    /// If it does not.
    pub async fn start(self) -> Coordinator {
        let settings = self.folder.join("coordinator.toml");
        std::fs::write(&settings, &self.settings).unwrap();
        let mut process = self.spawn();
        let (grpc, http) = self.listening(&mut process).await;
        Coordinator { start: self, process, grpc, http }
    }

    fn spawn(&self) -> Process {
        let (grpc, http) = self.ports.unwrap_or_default();
        let mut command = Command::new(binary("usher-coordinator"));
        command.arg("--config").arg(self.folder.join("coordinator.toml"));
        command.arg("--data-dir").arg(self.data_dir());
        command.args([
            "--listen",
            &format!("127.0.0.1:{grpc}"),
            "--http-listen",
            &format!("127.0.0.1:{http}"),
        ]);
        command.args(self.allow_virtual.then_some("--allow-virtual")).args(&self.arguments);
        Process::start(&self.name, &mut command, &self.folder.join("coordinator.log"))
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
        assert!(self.start.ports.is_some(), "a coordinator that is restarted needs fixed ports");
        assert!(!self.process.is_running(), "the coordinator still runs");
        self.process = self.start.spawn();
        (self.grpc, self.http) = self.start.listening(&mut self.process).await;
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
