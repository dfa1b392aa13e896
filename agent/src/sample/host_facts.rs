//! What machine is this?
//!
//! Facts that do not change while the agent runs: told once, when a stream begins. They come from sysinfo, the
//! portable library, while the numbers of every report are read from `/proc` directly, where each can fail alone. A
//! test holds the two against each other on the machine it runs on.

use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

/// Facts of the host. What cannot be told is absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostFacts {
    /// Name of the host as the kernel has it.
    pub host_name: Option<String>,
    /// Logical CPUs, >= 1.
    pub cores: Option<u32>,
    /// Installed memory, bytes, > 0.
    pub memory_bytes: Option<u64>,
    /// Model of the first CPU.
    pub cpu_model: Option<String>,
}

impl HostFacts {
    /// Reads the facts of this machine. Blocks for some milliseconds.
    #[must_use]
    pub fn read() -> Self {
        let kind = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing())
            .with_memory(MemoryRefreshKind::nothing().with_ram());
        let host_name = System::host_name().ok().and_then(|name| told(&name));
        let Ok(system) = System::new_with_specifics(kind) else {
            return Self { host_name, ..Self::default() };
        };
        let cpus = system.cpus();
        Self {
            host_name,
            cores: u32::try_from(cpus.len()).ok().filter(|&cores| cores > 0),
            memory_bytes: Some(system.total_memory()).filter(|&bytes| bytes > 0),
            cpu_model: cpus.first().and_then(|cpu| told(cpu.brand())),
        }
    }
}

fn told(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::{memory, processes};
    use super::*;
    use std::path::Path;
    use sysinfo::{ProcessRefreshKind, ProcessesToUpdate};

    #[test]
    fn the_facts_of_this_machine_agree_with_proc() {
        let facts = HostFacts::read();
        let ours = memory::read(Path::new("/")).expect("readable").memory.total_bytes as f64;
        let theirs = facts.memory_bytes.expect("told") as f64;
        assert!((theirs / ours - 1.0).abs() < 0.01, "{theirs} {ours}");
        assert!(facts.host_name.is_some());
        assert!(facts.cores.is_some_and(|cores| cores >= 1));
    }

    #[test]
    fn case_015_the_library_agrees_on_the_processes_when_told_to_leave_threads_out() {
        let mut system = System::new().expect("supported");
        let kind = ProcessRefreshKind::nothing().without_tasks();
        system.refresh_processes_specifics(ProcessesToUpdate::All, true, kind);
        let theirs = system.processes().len();
        let ours = processes::read(Path::new("/")).expect("counted") as usize;
        // Builds beside this test start and end processes between the two looks.
        assert!(theirs.abs_diff(ours) <= 30, "{theirs} {ours}");
    }
}
