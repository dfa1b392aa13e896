//! Are the figures of this machine what another program reads of it?

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use usher_integration_tests::{Client, Farm, LONG, NodeExporter, wait_for};
use usher_proto::v1;

/// Reports of one second each that make the window.
const REPORTS: usize = 10;

/// The report after the one with this uptime: a report's uptime is the moment in which it was measured.
async fn next_report(client: &Client, after_uptime_ms: u64) -> v1::HostInfo {
    wait_for("the next report", LONG, async || {
        let host = client.host("this-machine").await.map_err(|status| status.to_string())?;
        match host.uptime_ms {
            Some(uptime_ms) if uptime_ms > after_uptime_ms => Ok(host),
            other => Err(format!("uptime {other:?} ms")),
        }
    })
    .await
}

/// Work for one CPU until it is dropped, so that the machine is neither idle nor full.
struct Work(Arc<AtomicBool>);

impl Work {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let watched = stop.clone();
        std::thread::spawn(move || {
            while !watched.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Self(stop)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn alone_cpu_memory_and_processes_are_as_the_node_exporter_says() {
    let farm = Farm::start().await;
    let _work = Work::start();
    let exporter = NodeExporter::start(farm.folder()).await;
    let _agent = farm.agent("this-machine").report_interval("1s").await;
    let client = farm.client();

    // The window of both begins and ends with a report, so that they measure the same ten seconds.
    let mut uptime_ms = next_report(&client, 0).await.uptime_ms.unwrap();
    uptime_ms = next_report(&client, uptime_ms).await.uptime_ms.unwrap();
    let (begin, begin_ms) = (exporter.figures().await, uptime_ms);
    let (mut cpu, mut memory, mut processes) = (0.0, 0.0, 0.0);
    let (mut other_memory, mut other_processes, mut end) = (0.0, 0.0, begin);
    for _ in 0..REPORTS {
        let host = next_report(&client, uptime_ms).await;
        end = exporter.figures().await;
        let measured_ms = host.uptime_ms.unwrap();
        cpu += host.cpu_percent.unwrap() * (measured_ms - uptime_ms) as f64;
        memory += host.memory_percent.unwrap() / REPORTS as f64;
        processes += f64::from(host.processes.unwrap()) / REPORTS as f64;
        other_memory += end.memory_percent / REPORTS as f64;
        other_processes += end.processes / REPORTS as f64;
        uptime_ms = measured_ms;
    }
    let cpu = cpu / (uptime_ms - begin_ms) as f64;
    let other_cpu = end.cpu_percent_since(&begin);

    let seen = format!(
        "CPU {cpu:.2} and {other_cpu:.2} %, memory {memory:.2} and {other_memory:.2} %, processes {processes:.1} \
         and {other_processes:.1}, in {} ms",
        uptime_ms - begin_ms
    );
    println!("{seen}");
    let one_cpu = 100.0 / std::thread::available_parallelism().unwrap().get() as f64;
    assert!(other_cpu > 0.7 * one_cpu, "the machine worked: {seen}");
    assert!((cpu - other_cpu).abs() <= 2.0, "{seen}");
    assert!((memory - other_memory).abs() <= 1.0, "{seen}");
    assert!((processes - other_processes).abs() <= 3.0, "{seen}");
}
