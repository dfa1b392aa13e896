//! What Prometheus' node exporter reads of this machine.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::system_program;
use crate::http::http_get;
use crate::process::Process;
use crate::wait::{LONG, wait_for};

/// A node exporter that runs.
#[derive(Debug)]
pub struct NodeExporter {
    address: SocketAddr,
    process: Process,
}

/// What it says at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Time in which the CPUs, added up, were neither idle nor waiting for a disk, since boot, s.
    pub busy_s: f64,
    /// Time of all CPUs, added up, since boot, s.
    pub total_s: f64,
    /// Memory that new work cannot get, 0..=100.
    pub memory_percent: f64,
    /// Processes, not threads.
    pub processes: f64,
}

impl NodeExporter {
    /// Starts one that writes its log into `folder`.
    ///
    /// # Panics
    /// If it is not installed, or does not say where it listens.
    pub async fn start(folder: &Path) -> Self {
        let mut command = Command::new(system_program("prometheus-node-exporter"));
        command.args(["--collector.disable-defaults", "--collector.cpu", "--collector.meminfo"]);
        command.args(["--collector.processes", "--web.listen-address=127.0.0.1:0"]);
        let mut process = Process::start("node exporter", &mut command, &folder.join("node-exporter.log"));
        let address = wait_for("the node exporter to listen", LONG, async || {
            assert!(process.is_running(), "it ended:\n{}", process.log());
            let log = process.log();
            let said = log.lines().find_map(|line| line.split_once("msg=\"Listening on\" address="));
            said.and_then(|(_, address)| address.parse().ok()).ok_or(log)
        })
        .await;
        Self { address, process }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its figures now.
    ///
    /// # Panics
    /// If it does not answer, or leaves one out.
    pub async fn figures(&self) -> Figures {
        let page = http_get(self.address, "/metrics").await;
        assert_eq!(page.status, 200, "{page:?}");
        Figures::read(&page.body)
    }
}

impl Figures {
    fn read(page: &str) -> Self {
        let only = |name: &str| {
            let found = series(page, name).into_iter().find(|(labels, _)| labels.is_empty());
            found.unwrap_or_else(|| panic!("the node exporter tells no {name}:\n{page}")).1
        };
        let (mut busy_s, mut total_s) = (0.0, 0.0);
        for (labels, seconds) in series(page, "node_cpu_seconds_total") {
            total_s += seconds;
            if !labels.contains("mode=\"idle\"") && !labels.contains("mode=\"iowait\"") {
                busy_s += seconds;
            }
        }
        let (total, available) = (only("node_memory_MemTotal_bytes"), only("node_memory_MemAvailable_bytes"));
        let memory_percent = 100.0 * (total - available) / total;
        Self { busy_s, total_s, memory_percent, processes: only("node_processes_pids") }
    }

    /// Busy share of all CPUs between an earlier look and this one, 0..=100.
    pub fn cpu_percent_since(&self, earlier: &Self) -> f64 {
        100.0 * (self.busy_s - earlier.busy_s) / (self.total_s - earlier.total_s)
    }
}

/// Labels and value of every line that begins with `name`.
fn series<'a>(page: &'a str, name: &str) -> Vec<(&'a str, f64)> {
    let lines = page.lines().filter_map(|line| line.strip_prefix(name)?.rsplit_once(' '));
    lines.filter_map(|(labels, value)| Some((labels, value.parse().ok()?))).collect()
}
