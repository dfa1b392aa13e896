//! What is the host like now?
//!
//! Each value has its own source and fails alone: an unreadable utmp must not hide the CPU. A value that a source
//! could not give is absent, and its collector says why; nothing is ever 0 or guessed in its place.
//!
//! Each source has its own deadline, and a thread of its own as soon as another is slow, so that a hung one (a file
//! system of lxcfs that died under `/proc`, a mount whose server is gone, a bus that does not answer) costs its own value
//! and never the report.

pub mod accounts;
pub mod arc;
pub mod cgroup;
pub mod clocks;
pub mod container;
pub mod cpu;
mod deadline;
pub mod demand;
mod error;
pub(crate) mod fallback;
pub mod host_facts;
pub mod logind;
pub mod logind_bus;
pub mod logind_files;
pub mod logind_signals;
pub mod logons;
pub mod logons_cpu;
pub mod memory;
pub mod mounts;
pub mod nologin;
pub mod pids;
pub mod pressure;
pub mod processes;
mod sampler;
pub mod session_config;
pub mod session_program;
pub mod sessions;
mod source;
#[cfg(test)]
pub(crate) mod test_bus;
#[cfg(test)]
pub(crate) mod test_logind;
#[cfg(test)]
pub(crate) mod test_tree;
pub mod uptime;
pub mod utmp;

use std::time::Duration;

pub use error::{SampleError, describe};
pub use host_facts::HostFacts;
pub use logind_bus::BusAddress;
pub use memory::Memory;
pub use mounts::MountUse;
pub use sampler::{SOURCE_DEADLINE, Sampler};
pub use session_config::{SessionConfig, SessionSource};
pub use sessions::{SessionReading, SessionSample, SessionSeen, SessionState};

/// How a collector fares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorStatus {
    /// `cpu`, `demand`, `memory`, `processes`, `uptime`, `pressure`, `readiness`, `mounts`, `users` or `container`.
    pub name: &'static str,
    /// Where the value comes from: `proc`, `schedstat`, `cgroup`, `nologin`, `statvfs`, `logind`, `logind-files`,
    /// `utmp`, `program`, `lxcfs`, `sysinfo` or `none`.
    pub source: &'static str,
    /// Why there is no value. Absent when there is one, or when there cannot be one yet.
    pub error: Option<String>,
    /// Something an operator should know although there is a value.
    pub warning: Option<String>,
}

/// The state of the host at one moment. What is not known is absent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostSample {
    /// When it was taken, on the host's boot-time clock.
    pub at: Duration,
    /// Busy share since the last sample, 0..=100; in a container of what it may use. Always absent in the first.
    pub cpu_percent: Option<f64>,
    /// Busy time and time that work waited for a CPU, over elapsed x CPUs, >= 0. Absent also where the kernel does not
    /// count the waiting, and in a container with a share of its own.
    pub runnable_demand: Option<f64>,
    /// Memory in use.
    pub memory: Option<Memory>,
    /// Processes, not threads.
    pub processes: Option<u32>,
    /// Who is logged in.
    pub sessions: Option<SessionSample>,
    /// Why the host takes no logins. Absent when it takes them.
    pub not_ready: Option<String>,
    /// Time since boot.
    pub uptime: Option<Duration>,
    /// Share of time in which all work waited for CPU, memory or disk, whichever is highest, 0..=100. Absent also where
    /// the kernel does not measure it.
    pub psi_full_percent: Option<f64>,
    /// The chosen mounts whose use is known.
    pub mounts: Vec<MountUse>,
    /// One entry per collector.
    pub collectors: Vec<CollectorStatus>,
}
