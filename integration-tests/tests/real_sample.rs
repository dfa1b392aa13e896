//! Does the agent see of this machine what its own tools show?

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use usher_integration_tests::{LONG, MessageBus, MockLogind, Sshd, UtmpFile, binary, wait_for};

/// A report of this machine, with these settings and this bus.
fn sample(settings: &str, bus: Option<&MessageBus>) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.toml");
    std::fs::write(&file, settings).unwrap();
    let mut command = Command::new(binary("usher-agent"));
    command.arg("sample").arg("--config").arg(&file).arg("--json");
    if let Some(bus) = bus {
        command.env("DBUS_SYSTEM_BUS_ADDRESS", bus.address());
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What a tool prints.
fn printed(command: &[&str]) -> String {
    let output = Command::new(command[0]).args(&command[1..]).env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn memory_is_what_free_shows_and_processes_are_what_ps_lists() {
    let shown = wait_for_agreement(|| {
        let report = sample("", None);
        let free = printed(&["free", "-b"]);
        let row: Vec<f64> =
            free.lines().nth(1)?.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
        let (total, available) = (row[0], row[5]);
        let used = report["memory_used_bytes"].as_f64()?;
        assert_eq!(report["memory_total_bytes"].as_f64(), Some(total));
        let processes = printed(&["ps", "-e", "--no-headers"]).lines().count() as f64;
        let ours = report["processes"].as_f64()?;
        // The two looks are moments apart, and other tests come and go.
        let is_near = (used - (total - available)).abs() < 0.02 * total && (ours - processes).abs() <= 10.0;
        is_near.then_some((used, ours)).or_else(|| {
            eprintln!("{used} of {total} less {available}; {ours}, {processes}");
            None
        })
    });
    assert!(shown.0 > 0.0 && shown.1 > 0.0);
}

/// The first agreement of three looks.
fn wait_for_agreement<T>(mut look: impl FnMut() -> Option<T>) -> T {
    (0..3).find_map(|_| look()).expect("the agent and the tool agree")
}

#[tokio::test]
async fn case_034_users_are_those_of_the_logind_that_dbusmock_plays() {
    let folder = tempfile::tempdir().unwrap();
    let bus = MessageBus::start(folder.path()).await;
    let logind = MockLogind::start(&bus, folder.path()).await;
    let settings = "[sessions]\nsource = \"logind\"\nignore_users = [\"probe\"]\n";
    let nobody = sample(settings, Some(&bus));
    assert_eq!((&nobody["users"], &nobody["sessions_active"]), (&0.into(), &0.into()), "{nobody:#}");
    for (id, uid, user) in
        [("1", 1001, "alice"), ("2", 1001, "alice"), ("3", 1002, "bob"), ("4", 1003, "probe")]
    {
        logind.add_session(id, uid, user).await;
    }
    let report = sample(settings, Some(&bus));
    assert_eq!((&report["users"], &report["sessions_active"]), (&2.into(), &3.into()), "{report:#}");
}

#[tokio::test]
async fn alone_users_are_those_that_who_lists() {
    let _utmp = UtmpFile::new();
    let folder = tempfile::tempdir().unwrap();
    let sshd = Sshd::start(folder.path()).await;
    let logins = [sshd.log_in(), sshd.log_in()];
    let agree = async |sessions: usize| {
        wait_for(&format!("{sessions} sessions"), LONG, async || {
            let who = printed(&["who"]).lines().filter(|line| line.starts_with("root ")).count();
            let report = sample("[sessions]\nsource = \"utmp\"\n", None);
            let ours = report["sessions_active"].as_u64();
            let is_so = (who, ours) == (sessions, Some(sessions as u64))
                && report["users"] == u64::from(sessions > 0);
            if is_so { Ok(()) } else { Err(format!("who lists {who}, the agent {report:#}")) }
        })
        .await;
    };
    agree(2).await;
    let [first, second] = logins;
    first.log_out().await;
    agree(1).await;
    second.log_out().await;
    agree(0).await;
    assert!(Path::new("/run/utmp").exists());
}
