//! Does a reader of other make read the same of this machine?
//!
//! sysinfo is what the agent falls back on, so the two may not differ in what they mean by a number.

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};
use usher_integration_tests::binary;

/// Between the two looks at the CPUs.
const ELAPSED: Duration = Duration::from_secs(2);

/// Two looks of `usher-agent sample`, and sysinfo's at the same moments.
fn both() -> (Value, System) {
    let elapsed = format!("{}s", ELAPSED.as_secs());
    let mut command = Command::new(binary("usher-agent"));
    command.args(["sample", "--json", "--elapsed", &elapsed]);
    let mut system = System::new().unwrap();
    system.refresh_cpu_usage();
    let ours = command.output().unwrap();
    system.refresh_cpu_usage();
    system.refresh_memory();
    let kind = ProcessRefreshKind::nothing().without_tasks();
    system.refresh_processes_specifics(ProcessesToUpdate::All, true, kind);
    assert!(ours.status.success(), "{ours:?}");
    (serde_json::from_slice(&ours.stdout).unwrap(), system)
}

fn number(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

#[test]
fn alone_cpu_memory_and_processes_are_as_sysinfo_says() {
    let (ours, theirs) = both();
    let total = number(&ours, "memory_total_bytes");
    assert!((total / theirs.total_memory() as f64 - 1.0).abs() < 0.001, "{total} {}", theirs.total_memory());

    let available = total - number(&ours, "memory_used_bytes");
    let apart = (available - theirs.available_memory() as f64).abs() / total;
    assert!(apart < 0.02, "{available} bytes available, {} by sysinfo", theirs.available_memory());

    let processes = number(&ours, "processes");
    // The program that looked has ended by now.
    let their_processes = theirs.processes().len() as f64 + 1.0;
    assert!(
        (processes - their_processes).abs() <= 10.0,
        "{processes} processes, {their_processes} by sysinfo"
    );

    let cpu = number(&ours, "cpu_percent");
    let their_cpu = f64::from(theirs.global_cpu_usage());
    assert!((cpu - their_cpu).abs() <= 8.0, "{cpu} % of the CPUs, {their_cpu} by sysinfo");

    let collectors = ours["collectors"].as_array().unwrap();
    let stand_ins: Vec<_> = collectors.iter().filter(|state| state["source"] == "sysinfo").collect();
    assert!(stand_ins.is_empty(), "our own reader failed on this machine: {stand_ins:?}");
}
