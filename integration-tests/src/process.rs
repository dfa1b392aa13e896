//! How is a process started, hurt and looked after?

use std::fs::{File, OpenOptions};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rand::RngExt;
use rustix::process::{Pid, Signal, kill_process};

use crate::netns::Machine;
use crate::wait::wait_for;

/// A process of ours. It is killed when this is dropped, and never outlives the test.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command whose output goes to the end of a file.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Self {
        let file = || -> File { OpenOptions::new().create(true).append(true).open(log).unwrap() };
        for name in ["USHER_COORDINATORS", "USHER_CONFIG", "USHER_LOG", "USHER_FARM", "NOTIFY_SOCKET"] {
            command.env_remove(name);
        }
        let started = command.stdin(Stdio::null()).stdout(file()).stderr(file()).spawn();
        let child = started.unwrap_or_else(|error| panic!("cannot start {name} ({command:?}): {error}"));
        Self { name: name.to_owned(), child, log: log.to_owned() }
    }

    /// As [`Process::start`], on a machine of a network of the test's own.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_on(machine: Option<&Machine>, name: &str, command: &mut Command, log: &Path) -> Self {
        match machine {
            Some(machine) => machine.within(|| Self::start(name, command, log)),
            None => Self::start(name, command, log),
        }
    }

    /// Whether a process of anybody has this id.
    pub fn exists(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written so far, with what earlier processes wrote to the same file.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The file of its output.
    pub fn log_file(&self) -> &Path {
        &self.log
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// SIGKILL, and its end.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM: asks it to end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGSTOP: it stands still, as in a machine that is frozen.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT: it goes on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks it to read its settings anew.
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Its end.
    ///
    /// # Panics
    /// If it does not end `within` the time.
    pub async fn ended(&mut self, within: Duration) -> ExitStatus {
        let what = format!("the end of {}", self.name);
        wait_for(&what, within, async || self.child.try_wait().unwrap().ok_or("it runs")).await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A TCP port of loopback that nobody listens on, below those that the system gives to outgoing connections: it is still
/// free when a killed process is started on it again.
pub fn free_tcp_port() -> u16 {
    free_port(|port| TcpListener::bind(("127.0.0.1", port)).is_ok())
}

/// As [`free_tcp_port`], for UDP.
pub fn free_udp_port() -> u16 {
    free_port(|port| UdpSocket::bind(("127.0.0.1", port)).is_ok())
}

fn free_port(is_free: impl Fn(u16) -> bool) -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let outgoing = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768);
    let usual = 10_000..outgoing;
    let range = if usual.len() > 1000 { usual } else { 10_000..60_000 };
    let mut tries = std::iter::repeat_with(|| rand::rng().random_range(range.clone())).take(1000);
    tries.find(|port| is_free(*port)).unwrap()
}
