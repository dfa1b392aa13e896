//! collectd, which looks at this machine by itself and keeps what it saw nowhere.

use std::path::Path;
use std::process::Command;

use super::system_program;
use crate::process::Process;
use crate::wait::{LONG, wait_for};

/// A collectd that runs.
#[derive(Debug)]
pub struct Collectd {
    process: Process,
}

impl Collectd {
    /// Starts one that looks at CPU, memory, processes and users each `interval_s` seconds, with its settings and log in
    /// `folder`.
    ///
    /// # Panics
    /// If it is not installed, or does not begin to look.
    pub async fn start(folder: &Path, interval_s: u32) -> Self {
        let settings = folder.join("collectd.conf");
        let plugins =
            ["cpu", "memory", "processes", "users"].map(|name| format!("LoadPlugin {name}\n")).concat();
        let base = folder.display();
        let text =
            format!("Interval {interval_s}\nBaseDir \"{base}\"\nPIDFile \"{base}/collectd.pid\"\n{plugins}");
        std::fs::write(&settings, text).unwrap();
        let mut command = Command::new(system_program("collectd"));
        command.arg("-f").arg("-C").arg(&settings);
        let mut process = Process::start("collectd", &mut command, &folder.join("collectd.log"));
        wait_for("collectd to look", LONG, async || {
            assert!(process.is_running(), "it ended:\n{}", process.log());
            let log = process.log();
            if log.contains("entering read-loop") { Ok(()) } else { Err(log) }
        })
        .await;
        Self { process }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }
}
