//! A sampler made of nothing but sysinfo: what an agent is that was written in an afternoon.

use std::time::{Duration, Instant};

use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};

/// Looks each second until it is killed.
pub(crate) fn run() -> ! {
    let mut system = System::new().unwrap();
    let kind = ProcessRefreshKind::nothing().without_tasks();
    let mut next = Instant::now();
    loop {
        system.refresh_cpu_usage();
        system.refresh_memory();
        system.refresh_processes_specifics(ProcessesToUpdate::All, true, kind);
        std::hint::black_box((system.global_cpu_usage(), system.used_memory(), system.processes().len()));
        next += Duration::from_secs(1);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}
