//! Do the programs tell people, scripts and collectors what they promise to tell?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
use usher_integration_tests::{Farm, LONG, binary, holds, page, place, row, run_ctl};

/// Two hosts, both with the resource `crm`.
async fn two_hosts() -> (Farm, usher_integration_tests::Agent) {
    let farm = Farm::start().await;
    page(&farm, "pool apply desk --set weights.users_percent=100").await;
    let agent = farm
        .agent("hosts")
        .host("s1", "cpu=35,mem=55,users=10,procs=70")
        .replica("crm")
        .host("s2", "cpu=25,mem=45,users=14,procs=89")
        .replica("crm")
        .await;
    (farm, agent)
}

#[tokio::test]
async fn looking_at_the_farm_gives_people_tables() {
    let (farm, _agent) = two_hosts().await;
    let hosts = page(&farm, "hosts").await;
    assert_eq!(row(&hosts, "NAME")[..5], ["NAME", "POOL", "STATE", "AI", "W"]);
    let s1 = row(&hosts, "s1");
    assert_eq!(s1[..9], ["s1", "desk", "AVAILABLE", "-", "71.43", "35.0%", "55.0%", "10", "0"], "{hosts}");
    assert_eq!((s1[9], s1.last()), ("70", Some(&"no_data,virtual")), "{hosts}");

    let host = page(&farm, "host show s2").await;
    assert_eq!(row(&host, "state"), ["state", "AVAILABLE"]);
    assert_eq!(row(&host, "cpu"), ["cpu", "8", "x", "model"]);
    holds(&host, &["ssh 127.0.0.1:2202", "25.0%", "14 (0 on their way", "weighted load 100.00", "COLLECTOR"]);

    let replicas = page(&farm, "replicas --resource crm").await;
    assert_eq!(row(&replicas, "RESOURCE")[..4], ["RESOURCE", "HOST", "POOL", "STATE"]);
    assert_eq!(row(&replicas, "crm")[..4], ["crm", "s1", "desk", "AVAILABLE"]);
    assert_eq!(replicas.lines().filter(|line| line.starts_with("crm ")).count(), 2);

    let pools = page(&farm, "pool list").await;
    assert_eq!(row(&pools, "desk")[..4], ["desk", "1", "2", "local"]);
    let pool = page(&farm, "pool show desk").await;
    holds(&pool, &["version  1 by local", "threshold_percent = 0.0", "users_percent = 100.0"]);
}

#[tokio::test]
async fn a_login_and_its_host_are_told_to_people_from_place_to_undrain() {
    let (farm, _agent) = two_hosts().await;
    let placed = page(&farm, "place desk --user alice --request-id R1").await;
    assert_eq!((row(&placed, "host")[1], row(&placed, "reason")[1]), ("s1", "LOWEST_LOAD"));
    assert_eq!((row(&placed, "request")[1], row(&placed, "policy")[2]), ("R1", "1"));
    assert_eq!(row(&placed, "s2")[..3], ["s2", "AVAILABLE", "100.00"], "the next best");

    let explained = page(&farm, &format!("explain {}", row(&placed, "decision")[1])).await;
    assert_eq!(row(&explained, "chosen"), ["chosen", "s1", "by", "LOWEST_LOAD"]);
    assert_eq!(row(&explained, "1"), ["1", "s1", "0.000", "0.000", "71.429", "0.000", "71.429"]);
    assert_eq!(row(&explained, "2"), ["2", "s2", "0.000", "0.000", "100.000", "0.000", "100.000"]);

    let line = "failover desk --from s1 --cause unreachable --failed-request R1 --request-id R2";
    assert_eq!(row(&page(&farm, line).await, "host")[1], "s2");
    holds(&page(&farm, "outcome R2 connected").await, &["R2"]);
    holds(&farm.ctl(&["outcome", "R1", "cancelled"]).await.exited(1).stderr, &["error: ", "R1"]);

    holds(&page(&farm, "drain s2 --reason disks").await, &["s2 is drained", "14 users"]);
    assert_eq!(row(&page(&farm, "hosts").await, "s2")[2], "RESTRICTED");
    let alone = ["place", "desk", "--exclude", "s1"];
    holds(&farm.ctl(&alone).await.exited(1).stderr, &["ALL_RESTRICTED", "s2", "undrain"]);
    holds(&page(&farm, "undrain s2").await, &["s2 takes new sessions again"]);
    holds(&page(&farm, "undrain s2").await, &["s2 was not drained"]);

    let applied = page(&farm, "pool apply desk --set threshold_percent=10").await;
    assert_eq!(row(&applied, "threshold_percent"), ["threshold_percent", "0", "10"]);
    holds(&applied, &["pool desk is at version 2"]);
}

#[tokio::test]
async fn the_examples_of_the_field_can_be_typed_in_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let calc = async |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        run_ctl(folder.path(), &words).await.exited(0)
    };
    let line = "calc load --host a=35/55/10/70 --host b=25/45/14/89 --weights 30/30/25/15";
    let load = calc(line).await.stdout;
    assert_eq!(row(&load, "a"), ["a", "10.500", "16.500", "17.857", "11.798", "56.65", "preferred"]);
    assert_eq!(row(&load, "b"), ["b", "7.500", "13.500", "25.000", "15.000", "61.00"]);
    calc(&format!("{line} --json")).await.json();

    let index = calc("calc ai --op OPEN:90:12ms:3ms --op SEARCH:10:640ms:10ms").await.stdout;
    assert_eq!(row(&index, "SEARCH"), ["SEARCH", "10", "640.0ms", "10.0ms", "64.00"]);
    assert_eq!(row(&index, "10.00"), ["10.00", "6", "44.6345", "45"]);
    let scale = calc("calc ai --xf 1,2,4,8,16,32,64").await.stdout;
    let shown: Vec<_> = scale.lines().skip(1).map(|line| line.split_whitespace().last().unwrap()).collect();
    assert_eq!(shown, ["100", "83", "67", "50", "33", "17", "0"], "{scale}");
}

#[tokio::test]
async fn every_command_has_a_manual_page_and_shells_can_complete_it() {
    let folder = tempfile::tempdir().unwrap();
    run_ctl(folder.path(), &["man", "man1"]).await.exited(0);
    let mut pages = BTreeSet::new();
    for page in std::fs::read_dir(folder.path().join("man1")).unwrap() {
        let path = page.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        holds(&text, &[".TH usherctl", ".SH NAME", ".SH SYNOPSIS", "Examples:"]);
        pages.insert(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    let commands = [
        "quickstart",
        "hosts",
        "host",
        "host-show",
        "host-set",
        "coordinators",
        "replicas",
        "locate",
        "mark",
        "sessions",
        "simulate",
        "place",
        "failover",
        "connect",
        "outcome",
        "explain",
        "decisions",
        "drain",
        "undrain",
        "pool",
        "pool-list",
        "pool-show",
        "pool-create",
        "pool-apply",
        "pool-history",
        "pool-learned",
        "pool-diff",
        "backup",
        "restore",
        "quarantine",
        "quarantine-show",
        "quarantine-drop",
        "baseline",
        "baseline-show",
        "baseline-reset",
        "scenario",
        "scenario-run",
        "calc",
        "calc-ai",
        "calc-load",
        "completions",
        "man",
    ];
    let mut expected: BTreeSet<String> = commands.iter().map(|name| format!("usherctl-{name}.1")).collect();
    expected.insert("usherctl.1".to_owned());
    assert_eq!(pages, expected);
    holds(&run_ctl(folder.path(), &["man"]).await.exited(0).stdout, &[".SH SYNOPSIS", "quickstart"]);

    for shell in ["bash", "zsh", "fish"] {
        let script = run_ctl(folder.path(), &["completions", shell]).await.exited(0).stdout;
        holds(&script, &["usherctl", "quickstart", "undrain", "request-id"]);
        std::fs::write(folder.path().join(shell), script).unwrap();
    }
    // The one shell that is on every machine reads its script.
    let status = Command::new("bash").arg("-n").arg(folder.path().join("bash")).status().unwrap();
    assert!(status.success());
    run_ctl(folder.path(), &["completions", "sh"]).await.exited(2);
}

#[test]
fn the_settings_in_force_are_a_file_that_says_where_each_came_from() {
    let folder = tempfile::tempdir().unwrap();
    for (program, text, variable, flags, expected) in [
        (
            "usher-coordinator",
            "farm = \"file\"\n[limits]\ncall_deadline = \"3s\"\n",
            ("USHER_FARM", "environment"),
            ["--listen", "127.0.0.1:1234"],
            [
                "farm = \"environment\"  # environment USHER_FARM",
                "listen = \"127.0.0.1:1234\"  # flag --listen",
                "max_concurrent_calls = 1024  # default",
                "call_deadline = \"3s\"  # ",
            ],
        ),
        (
            "usher-agent",
            "coordinators = [\"127.0.0.1:1\"]\n[latency]\nperiods = 7\n",
            ("USHER_COORDINATORS", "127.0.0.1:2,127.0.0.1:3"),
            ["--pool", "night"],
            [
                "coordinators = [\"127.0.0.1:2\", \"127.0.0.1:3\"]  # environment USHER_COORDINATORS",
                "pool = \"night\"  # flag --pool",
                "report_interval = \"5s\"  # default",
                "periods = 7  # ",
            ],
        ),
    ] {
        let file = folder.path().join("settings.toml");
        std::fs::write(&file, text).unwrap();
        let command = |arguments: &[&str]| {
            let mut command = Command::new(binary(program));
            for name in ["USHER_COORDINATORS", "USHER_CONFIG", "USHER_LOG", "USHER_FARM"] {
                command.env_remove(name);
            }
            command.env(variable.0, variable.1).args(arguments);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        let dump = command(&[&["--config", file.to_str().unwrap(), "--dump-config"], &flags[..]].concat());
        holds(&dump, &expected);
        let from_file = dump.lines().find(|line| line.starts_with(expected[3])).unwrap();
        holds(from_file, &[file.to_str().unwrap()]);
        std::fs::write(&file, &dump).unwrap();
        holds(&command(&["check-config", file.to_str().unwrap()]), &["ok"]);
    }
}

/// Each line is one object that says when, how bad, where and what.
#[track_caller]
fn log_lines(text: &str) -> Vec<Value> {
    let read = |line: &str| -> Value {
        let said: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for key in ["timestamp", "level", "target", "message"] {
            assert!(said[key].is_string(), "{key} in {line}");
        }
        let when = said["timestamp"].as_str().unwrap();
        assert!(when.ends_with('Z') && when.as_bytes()[10] == b'T', "{line}");
        said
    };
    text.lines().map(read).collect()
}

#[tokio::test]
async fn log_lines_for_collectors_are_one_object_each_and_name_no_user() {
    let words = ["--log-format", "json", "--log", "info,usher_coordinator=trace,usher_agent=trace"];
    let start =
        Farm::start().coordinator(|start| words.into_iter().fold(start, |start, word| start.argument(word)));
    let mut farm = start.await;
    let hosts = farm.agent("hosts").host("s1", "cpu=10,users=1").host("s2", "cpu=10,users=1");
    let mut agent = words.into_iter().fold(hosts, |start, word| start.argument(word)).await;
    let client = farm.client();
    let request =
        |id: &str| usher_proto::v1::PlaceRequest { user: Some("ermengarde".into()), ..place("desk", id) };
    let placed = client.place(request("R1")).await.unwrap();
    client
        .place(usher_proto::v1::PlaceRequest { cost: Some(0), ..request("two\n\"lines\"") })
        .await
        .unwrap_err();
    client.explain(&placed.decision_id).await.unwrap();
    farm.ctl(&["drain", "s1", "--reason", "\"quoted\"\n{and} broken"]).await.exited(0);
    agent.terminate();
    assert_eq!(agent.ended(LONG).await.code(), Some(0));
    farm.coordinator.terminate();
    assert_eq!(farm.coordinator.ended(LONG).await.code(), Some(0));

    for (process, first, text) in
        [("coordinator", "coordinator started", farm.coordinator.log()), ("agent", "", agent.log())]
    {
        let lines = log_lines(&text);
        assert!(lines.len() >= 3, "{process}: {text}");
        assert!(lines.iter().any(|line| line["message"].as_str().unwrap().contains(first)), "{text}");
        assert!(!text.contains("ermengarde"), "{process} names a user: {text}");
    }
}
