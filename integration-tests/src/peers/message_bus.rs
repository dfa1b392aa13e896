//! A D-Bus of the test's own, which stands for the system's.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::system_program;
use crate::process::Process;
use crate::wait::{LONG, wait_until};

/// A bus that runs.
#[derive(Debug)]
pub struct MessageBus {
    socket: PathBuf,
    _process: Process,
}

impl MessageBus {
    /// Starts one whose socket and log are in `folder`.
    ///
    /// # Panics
    /// If it is not installed, or does not listen.
    pub async fn start(folder: &Path) -> Self {
        let socket = folder.join("bus");
        let mut command = Command::new(system_program("dbus-daemon"));
        command.args(["--session", "--nofork", "--nopidfile"]);
        command.arg(format!("--address=unix:path={}", socket.display()));
        let mut process = Process::start("dbus-daemon", &mut command, &folder.join("dbus-daemon.log"));
        wait_until("the bus to listen", LONG, async || {
            assert!(process.is_running(), "it ended:\n{}", process.log());
            socket.exists()
        })
        .await;
        Self { socket, _process: process }
    }

    /// Its address, as in `DBUS_SYSTEM_BUS_ADDRESS`.
    pub fn address(&self) -> String {
        format!("unix:path={}", self.socket.display())
    }
}
