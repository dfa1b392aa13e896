//! A message bus of a test's own.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

/// A `dbus-daemon`, which ends with the test, and with it what was started to run on it.
pub(crate) struct TestBus {
    processes: Mutex<Vec<Child>>,
    address: String,
}

impl TestBus {
    pub(crate) fn start() -> Self {
        Self::run(&[])
    }

    /// With its socket at `path`, which may be left from another one.
    pub(crate) fn start_at(path: &Path) -> Self {
        let _ = std::fs::remove_file(path);
        Self::run(&[format!("--address=unix:path={}", path.display())])
    }

    fn run(more: &[String]) -> Self {
        let mut child = Command::new("dbus-daemon")
            .args(["--session", "--nofork", "--nopidfile", "--print-address"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program dbus-daemon starts; `cargo xtask peers` installs it");
        let mut address = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut address).expect("an address");
        Self { processes: Mutex::new(vec![child]), address: address.trim().to_owned() }
    }

    pub(crate) fn address(&self) -> String {
        self.address.clone()
    }

    /// Ends `process` with the bus.
    pub(crate) fn with(&self, process: Child) {
        self.processes.lock().expect("no test broke off here").push(process);
    }
}

impl Drop for TestBus {
    fn drop(&mut self) {
        for mut process in self.processes.lock().expect("no test broke off here").drain(..) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
