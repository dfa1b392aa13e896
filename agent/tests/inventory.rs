//! How a coordinator hears of what a host holds, however much that is, and of how far behind it is.

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

mod support;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use prost::Message;
use support::{Agent, Coordinator, Stream, config, soon};
use usher_agent::hooks::HookConfig;
use usher_agent::inventory::{GlobEntry, ProgramEntry};
use usher_proto::v1;
use usher_proto::v1::attach_request::Message as FromAgent;
use usher_runtime::config::HumanDuration;

const MANY: usize = 60_000;

/// A program that prints what `lines` holds.
fn program(folder: &Path, lines: &str) -> ProgramEntry {
    std::fs::write(folder.join("lines"), lines).unwrap();
    ProgramEntry {
        command: vec!["/bin/cat".into(), folder.join("lines").display().to_string()],
        interval: HumanDuration::from_millis(100),
        deadline: HumanDuration::from_secs(30),
    }
}

/// All pages of one list, each below a mebibyte.
async fn whole_list(stream: &mut Stream) -> (u64, Vec<v1::Replica>) {
    let mut replicas = Vec::new();
    for number in 0.. {
        let page = stream
            .wait_for("a page", |message| match message {
                FromAgent::InventoryPage(page) => Some(page),
                _ => None,
            })
            .await;
        assert_eq!(page.page, number);
        assert!(page.encoded_len() < 1 << 20, "{} bytes", page.encoded_len());
        replicas.extend(page.replicas);
        if page.last {
            return (page.generation, replicas);
        }
    }
    unreachable!("pages go on until the last")
}

fn many_lines() -> String {
    let line = |number: usize| {
        let path = format!("/srv/data/{number:06}/{}", "x".repeat(100));
        format!("{{\"resource\":\"mail/{number:06}.nsf\",\"path\":\"{path}\"}}\n")
    };
    (0..MANY).map(line).collect()
}

#[tokio::test]
async fn case_121_sixty_thousand_replicas_arrive_in_pages_and_whole_again_after_a_reconnect() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let mut with = config(folder.path(), &[&coordinator]);
    with.inventory.program = Some(program(folder.path(), &many_lines()));
    let agent = Agent::start(with, None);
    let mut stream = coordinator.greeted().await;
    let (generation, first) = whole_list(&mut stream).await;
    let by_id: BTreeMap<_, _> = first.iter().map(|replica| (&replica.resource_id, &replica.path)).collect();
    assert_eq!((first.len(), by_id.len()), (MANY, MANY));
    assert!(first.iter().all(|replica| replica.path.as_ref().is_some_and(|path| path.len() == 117)));
    stream.load("reports go on", |_| true).await;
    drop(stream);

    let mut again = coordinator.greeted().await;
    assert_eq!(whole_list(&mut again).await, (generation, first), "whole, under the same number");
    agent.stop().await;
}

#[tokio::test]
async fn a_file_that_appears_is_told_at_once_by_the_id_of_its_rule() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data/mail");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("crm.nsf"), "").unwrap();
    let mut coordinator = Coordinator::start().await;
    let mut with = config(folder.path(), &[&coordinator]);
    let pattern = format!("{}/**/*.nsf", folder.path().join("data").display());
    with.inventory.globs = vec![GlobEntry { pattern, id: "{parent}/{stem}".into(), title: None }];
    let agent = Agent::start(with, None);
    let mut stream = coordinator.greeted().await;
    let ids = |list: &[v1::Replica]| list.iter().map(|one| one.resource_id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&whole_list(&mut stream).await.1), ["mail/crm"]);
    std::fs::write(data.join("hr.nsf"), "").unwrap();
    assert_eq!(ids(&whole_list(&mut stream).await.1), ["mail/crm", "mail/hr"]);
    agent.stop().await;
}

#[tokio::test]
async fn a_hook_delivers_an_index_and_the_furthest_of_two_lags_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let mut with = config(folder.path(), &[&coordinator]);
    let hook = |script: &str| {
        let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let (interval, deadline) = (HumanDuration::from_millis(50), HumanDuration::from_secs(10));
        Some(HookConfig { command, interval, deadline })
    };
    with.hooks.availability = hook("echo 42.5 domino");
    with.hooks.replica_lag = hook("echo 12");
    let lines = "{\"resource\":\"crm\",\"lag_s\":900}\n{\"resource\":\"hr\"}\n";
    with.inventory.program = Some(program(folder.path(), lines));
    let agent = Agent::start(with, None);
    let mut stream = coordinator.greeted().await;
    let load = stream
        .load("both", |load| load.own_availability.is_some() && load.replica_lag_ms == Some(900_000))
        .await;
    let own = load.own_availability.unwrap();
    assert_eq!((own.index, own.source.as_str()), (42.5, "domino"));
    std::fs::write(folder.path().join("lines"), "{\"resource\":\"crm\",\"lag_s\":5}\n").unwrap();
    stream.load("the hook's", |load| load.replica_lag_ms == Some(12_000)).await;
    agent.stop().await;
}

/// The resident memory of a process that no file backs, kibibytes.
fn anonymous_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Of the program itself: what its list costs, and that it does not grow with each look.
#[tokio::test]
async fn case_121_the_memory_of_a_long_list_is_bounded_and_flat() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let listed = program(folder.path(), &many_lines());
    let script = folder.path().join("list.sh");
    let runs = folder.path().join("runs");
    let body = format!("#!/bin/sh\necho run >> {}\nexec cat {}\n", runs.display(), listed.command[1]);
    std::fs::write(&script, body).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    let settings = format!(
        "coordinators = [{:?}]\nname = \"h1\"\nstate_dir = {:?}\nruntime_dir = {:?}\nstatsd = {{ listen = \"none\" }}\n\
         sessions = {{ source = \"none\" }}\n\
         [inventory.program]\ncommand = [{script:?}]\ninterval = \"1s\"\ndeadline = \"30s\"\n",
        coordinator.address,
        folder.path().join("state"),
        folder.path().join("run"),
    );
    let file = folder.path().join("agent.toml");
    std::fs::write(&file, settings).unwrap();
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_usher-agent"))
        .arg("--config")
        .arg(&file)
        .env_remove("USHER_CONFIG")
        .env_remove("USHER_COORDINATORS")
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stream = coordinator.greeted().await;
    assert_eq!(whole_list(&mut stream).await.1.len(), MANY);
    let pid = child.id().unwrap();
    let after = async |count: usize| {
        soon("more runs", async {
            while std::fs::read_to_string(&runs).unwrap_or_default().lines().count() < count {
                tokio::task::yield_now().await;
            }
        })
        .await;
        anonymous_kib(pid)
    };
    let early = after(3).await;
    let late = after(10).await;
    println!("anonymous memory with {MANY} replicas: {early} KiB after 3 runs, {late} KiB after 10");
    // The texts alone are 8 MiB; a list that is read while the one before it stands is there twice.
    assert!(early < 64 << 10 && late < 64 << 10, "{early} and {late} KiB");
    assert!(late < early * 2, "it grows: {early} and {late} KiB");
    child.kill().await.unwrap();
}
