//! Can anyone question the farm with a text file, without a coordinator and without settings?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use usher_integration_tests::{CtlOutput, binary, holds, run_ctl};

const FARM: &str = "pool desk weights=30/30/25/15
host s1 pool=desk
host s2 pool=desk
report s1 cpu=35 mem=55 users=10 procs=70
report s2 cpu=25 mem=45 users=14 procs=89
place desk user=alice as p1
expect p1 host=s1
expect s2 w=61.00
";

async fn run(folder: &Path, line: &str) -> CtlOutput {
    let words: Vec<&str> = line.split(' ').collect();
    run_ctl(folder, &words).await
}

#[tokio::test]
async fn case_067_a_scenario_tells_what_happens_and_its_expectations_hold() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("farm.txt"), FARM).unwrap();
    // The settings are broken and nobody listens: a scenario needs neither.
    std::fs::write(folder.path().join("client.toml"), "nonsense = ").unwrap();
    let line = "--config client.toml --coordinator 127.0.0.1:1 scenario run --check farm.txt";
    let ran = run(folder.path(), line).await.exited(0);
    holds(&ran.stdout, &["p1 -> s1 reason=lowest_load w=56.65 flags= reservation="]);
    assert_eq!(ran.stderr, "");

    let json = run(folder.path(), "scenario run --json farm.txt").await.exited(0).stdout;
    let events: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let placed = events.iter().find(|event| event["event"] == "placed").unwrap();
    assert_eq!((&placed["host"], &placed["line"]), (&"s1".into(), &6.into()));
    assert!((placed["weighted_load"].as_f64().unwrap() - 56.6549).abs() < 1e-4, "{placed}");
}

#[tokio::test]
async fn an_expectation_that_does_not_hold_is_shown_and_fails_only_a_check() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("farm.txt"), format!("{FARM}expect p1 host=s2\n")).unwrap();
    std::fs::write(folder.path().join("good.txt"), FARM).unwrap();
    let shown = run(folder.path(), "scenario run farm.txt").await.exited(0).stdout;
    holds(&shown, &["host=s2", "host=s1"]);
    let checked = run(folder.path(), "scenario run --check good.txt farm.txt").await.exited(4);
    holds(&checked.stderr, &["1 of 5 expectations", "farm.txt:9: p1", "- host=s2", "+ host=s1"]);
    holds(&checked.stdout, &["# good.txt", "# farm.txt"]);
    let json = run(folder.path(), "scenario run --check --json farm.txt").await.exited(4).stdout;
    let last: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    assert_eq!(last["error"]["reason"], "CHECK_FAILED");
}

#[tokio::test]
async fn every_fault_of_a_text_is_told_with_file_line_column_and_a_suggestion() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("bad.txt"), "pool desk weigths=1\nhots s1\nhost s1 pol=desk\n")
        .unwrap();
    std::fs::write(folder.path().join("stops.txt"), format!("{FARM}show s3\n")).unwrap();
    let bad = run(folder.path(), "scenario run bad.txt").await.exited(2);
    let lines: Vec<&str> = bad.stderr.lines().collect();
    for (line, place, meant) in [
        (lines[0], "bad.txt:1:11: ", "weights"),
        (lines[1], "bad.txt:2:1: ", "host"),
        (lines[2], "bad.txt:3:9: ", "pool"),
    ] {
        assert!(line.starts_with(place) && line.ends_with(&format!("did you mean {meant}?")), "{bad:?}");
    }
    assert_eq!(bad.stdout, "", "nothing was run");

    let stops = run(folder.path(), "scenario run stops.txt").await.exited(2);
    holds(&stops.stdout, &["p1 -> s1"]);
    holds(&stops.stderr, &["stops.txt:9:", "s3"]);
    let missing = run(folder.path(), "scenario run --check nowhere.txt").await.exited(2);
    holds(&missing.stderr, &["nowhere.txt: cannot be read"]);
    run(folder.path(), "scenario run").await.exited(2);
}

#[test]
fn a_scenario_is_read_from_standard_input() {
    let mut child = Command::new(binary("usherctl"))
        .args(["scenario", "run", "--check", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(FARM.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    holds(&String::from_utf8(output.stdout).unwrap(), &["p1 -> s1"]);
}
