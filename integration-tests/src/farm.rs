//! A coordinator and what a test puts around it, in one folder that is gone with it.

use std::future::IntoFuture;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use tempfile::TempDir;

use crate::agent::AgentStart;
use crate::client::Client;
use crate::coordinator::{Coordinator, CoordinatorStart};
use crate::ctl::{CtlOutput, run_ctl};

/// Last bytes of each log that are shown when a test fails.
const SHOWN: usize = 6000;

/// How a farm is started; `.await` starts it.
#[derive(Debug)]
pub struct FarmStart {
    folder: TempDir,
    coordinator: CoordinatorStart,
}

impl FarmStart {
    /// Another way to start the coordinator.
    #[must_use]
    pub fn coordinator(mut self, change: impl FnOnce(CoordinatorStart) -> CoordinatorStart) -> Self {
        self.coordinator = change(self.coordinator);
        self
    }

    /// Text of the coordinator's settings file.
    #[must_use]
    pub fn settings(self, toml: &str) -> Self {
        self.coordinator(|start| start.settings(toml))
    }

    /// The coordinator can be restarted: its ports are chosen now and kept.
    #[must_use]
    pub fn on_fixed_ports(self) -> Self {
        self.coordinator(CoordinatorStart::on_fixed_ports)
    }

    /// The folder of everything, for files that must be there before the start.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl IntoFuture for FarmStart {
    type Output = Farm;
    type IntoFuture = Pin<Box<dyn Future<Output = Farm>>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let logs = Logs::of(self.folder.path());
            Farm { coordinator: self.coordinator.start().await, logs, folder: self.folder }
        })
    }
}

/// A farm of real processes.
#[derive(Debug)]
pub struct Farm {
    /// Its coordinator.
    pub coordinator: Coordinator,
    // Before the folder: what it prints lies there.
    #[expect(dead_code, reason = "acts when it is dropped")]
    logs: Logs,
    folder: TempDir,
}

impl Farm {
    /// A coordinator that lets modelled hosts in, on free ports of loopback.
    pub fn start() -> FarmStart {
        let folder = tempfile::Builder::new().prefix("usher-farm-").tempdir().unwrap();
        let coordinator = CoordinatorStart::new(folder.path(), "coordinator");
        FarmStart { folder, coordinator }
    }

    /// An agent to be started: of this machine, unless hosts are added. Its files are in a folder of that name.
    pub fn agent(&self, name: &str) -> AgentStart {
        AgentStart::new(self.folder(), name, &[self.coordinator.grpc])
    }

    /// A client without a name: the gateway `local`.
    pub fn client(&self) -> Client {
        Client::new(self.coordinator.grpc, None)
    }

    /// A client that calls itself `name`.
    pub fn gateway(&self, name: &str) -> Client {
        Client::new(self.coordinator.grpc, Some(name))
    }

    /// Runs `usherctl` against this farm.
    pub async fn ctl(&self, arguments: &[&str]) -> CtlOutput {
        let settings = self.folder().join("client.toml");
        if !settings.exists() {
            std::fs::write(&settings, "").unwrap();
        }
        let coordinator = self.coordinator.grpc.to_string();
        let mut all = vec!["--config", settings.to_str().unwrap(), "--coordinator", &coordinator];
        all.extend(arguments);
        run_ctl(self.folder(), &all).await
    }

    /// The folder of everything.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Prints the logs of a test that fails.
#[derive(Debug)]
pub(crate) struct Logs {
    folder: PathBuf,
}

impl Logs {
    pub(crate) fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let folders = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let files =
            folders.flat_map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten().flatten());
        for log in files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|e| e == "log")) {
            let bytes = std::fs::read(&log).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(SHOWN)..]);
            eprintln!("--- the end of {} ---\n{text}", log.display());
        }
    }
}
