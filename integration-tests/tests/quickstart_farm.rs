//! A whole farm from one command: what it prints, and that nothing of it stays, however it ends.

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::timeout;
use usher_integration_tests::{LONG, binary, wait_until};

/// From the start to the page: seconds on two cores, and it gives up by itself after 30.
const SHOWN_WITHIN: Duration = Duration::from_secs(60);
/// The farm is given 10 s to end in order.
const ENDED_WITHIN: Duration = Duration::from_secs(12);
/// A coordinator, the agent of this machine and five of modelled hosts.
const PROCESSES: usize = 7;

/// `usherctl quickstart --json` with its temporary folder in a folder of the test's.
fn quickstart(folder: &Path) -> Command {
    let mut command = Command::new(binary("usherctl"));
    command.args(["quickstart", "--json"]).env("TMPDIR", folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// The processes of a farm: each is told a path below the test's folder.
fn processes(folder: &Path) -> usize {
    let named = folder.as_os_str().as_bytes();
    let is_of_farm = |pid: &Path| {
        // A process that ends while we look is gone either way.
        let words = std::fs::read(pid.join("cmdline")).unwrap_or_default();
        words.windows(named.len()).any(|part| part == named)
    };
    let entries = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| is_of_farm(path)).count()
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

/// A farm that serves, and the document that it showed.
async fn serving(folder: &Path) -> (Child, Value) {
    let mut farm = quickstart(folder).spawn().unwrap();
    let mut stdout = farm.stdout.take().unwrap();
    let mut text = Vec::new();
    let document = timeout(SHOWN_WITHIN, async {
        loop {
            assert_ne!(stdout.read_buf(&mut text).await.unwrap(), 0, "ended before it showed the farm");
            if let Ok(document) = serde_json::from_slice(&text) {
                return document;
            }
        }
    });
    let document = document.await.expect("the farm is shown");
    assert_eq!(processes(folder), PROCESSES);
    (farm, document)
}

fn send(farm: &Child, signal: Signal) {
    let pid = Pid::from_raw(farm.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

fn hosts(document: &Value) -> &Vec<Value> {
    document["hosts"].as_array().unwrap()
}

#[tokio::test]
async fn once_prints_one_document_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let running = quickstart(folder.path()).arg("--once").output();
    let output = timeout(SHOWN_WITHIN, running).await.expect("ends by itself").unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("one document and nothing else");
    let mut keys: Vec<&String> = document.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(keys, ["explanation", "hosts", "placement"]);

    assert_eq!(hosts(&document).len(), 6);
    let (modelled, real): (Vec<&Value>, Vec<&Value>) =
        hosts(&document).iter().partition(|host| host["virtual"] == true);
    assert_eq!((modelled.len(), real.len()), (5, 1));
    let named = |host: &&Value| host["host_name"].as_str().unwrap().starts_with("virtual-");
    assert!(modelled.iter().all(named) && !real.iter().any(named), "{document:#}");
    for host in hosts(&document) {
        assert!(host["cpu_percent"].is_f64() && host["state"] == "AVAILABLE", "{host:#}");
    }

    let (placement, explanation) = (&document["placement"], &document["explanation"]);
    assert!(hosts(&document).iter().any(|host| host["host_id"] == placement["host_id"]), "{document:#}");
    assert_eq!(explanation["chosen_host_id"], placement["host_id"]);
    assert_eq!(explanation["decision_id"], placement["decision_id"]);
    let explained = explanation["hosts"].as_array().unwrap();
    assert_eq!(explained.len(), 6);
    for host in explained {
        let term = |name: &str| host["terms"][name].as_f64().unwrap();
        let sum: f64 = ["cpu", "memory", "users", "processes"].into_iter().map(term).sum();
        assert!((sum - term("weighted_load")).abs() < 0.01, "{host:#}");
        if host["host_id"] == placement["host_id"] {
            assert!((sum - placement["weighted_load"].as_f64().unwrap()).abs() < 0.01, "{document:#}");
        }
    }

    assert_eq!(processes(folder.path()), 0);
    assert!(is_empty(folder.path()), "the temporary folder is gone");
}

#[tokio::test]
async fn a_serving_farm_ends_in_order_at_an_interrupt() {
    let folder = tempfile::tempdir().unwrap();
    let (mut farm, document) = serving(folder.path()).await;
    assert_eq!(hosts(&document).len(), 6);
    send(&farm, Signal::INT);
    let status = timeout(ENDED_WITHIN, farm.wait()).await.expect("ends in time").unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(processes(folder.path()), 0);
    assert!(is_empty(folder.path()), "the temporary folder is gone");
}

#[tokio::test]
async fn a_killed_farm_takes_its_processes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let (mut farm, _) = serving(folder.path()).await;
    send(&farm, Signal::KILL);
    farm.wait().await.unwrap();
    wait_until("every process of the farm is gone", LONG, async || processes(folder.path()) == 0).await;
}
