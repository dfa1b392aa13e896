//! What does `usher-agent sample` report of the files of other machines?
//!
//! Each folder of `fixtures` stands for `/` of one machine at one moment.

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn sample(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usher-agent"));
    command.env_remove("USHER_CONFIG").arg("sample").args(arguments).output().unwrap()
}

fn report(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The report of one look.
fn look(name: &str) -> Value {
    report(&sample(&["--root", fixture(name).to_str().unwrap(), "--json"]))
}

/// The report of two looks with a second in between.
fn looks(first: &str, then: &str) -> Value {
    looks_apart(first, then, "1s")
}

fn looks_apart(first: &str, then: &str, elapsed: &str) -> Value {
    let (first, then) = (fixture(first), fixture(then));
    let folders = [first.to_str().unwrap(), then.to_str().unwrap()];
    report(&sample(&["--root", folders[0], "--then", folders[1], "--elapsed", elapsed, "--json"]))
}

fn collector(report: &Value, name: &str) -> Value {
    let collectors = report["collectors"].as_array().unwrap();
    collectors.iter().find(|collector| collector["name"] == name).unwrap_or(&Value::Null).clone()
}

/// What one collector says of itself, `error` or `warning`; empty if nothing.
fn says(report: &Value, name: &str, what: &str) -> String {
    collector(report, name)[what].as_str().unwrap_or_default().to_owned()
}

#[track_caller]
fn assert_near(value: &Value, expected: f64) {
    let value = value.as_f64().expect("a value");
    assert!((value - expected).abs() < 0.01, "{value}, not {expected}");
}

fn memory_percent(report: &Value) -> f64 {
    100.0 * report["memory_used_bytes"].as_f64().unwrap() / report["memory_total_bytes"].as_f64().unwrap()
}

#[track_caller]
fn assert_users(report: &Value, users: u32, sessions: u32) {
    assert_eq!(
        (&report["users"], &report["sessions_active"]),
        (&users.into(), &sessions.into()),
        "{report:#}"
    );
}

#[test]
fn case_001_002_one_look_or_two_alike_give_no_cpu() {
    assert_eq!(looks("case_001/t0", "case_001/t1")["cpu_percent"], Value::Null);
    let first = look("case_002/t0");
    assert_eq!((&first["cpu_percent"], says(&first, "cpu", "error")), (&Value::Null, String::new()));
}

#[test]
fn case_003_005_008_counters_that_fall_or_count_twice_add_nothing() {
    assert_near(&looks("case_003/t0", "case_003/t1")["cpu_percent"], 38.095);
    let steal = looks("case_005/t0", "case_005/t1");
    assert_near(&steal["cpu_percent"], 5.0);
    assert_eq!(says(&steal, "cpu", "warning"), "steal counter unreliable: it fell");
    assert_near(&looks("case_008/t0", "case_008/t1")["cpu_percent"], 42.0);
}

#[test]
fn case_007_009_a_jump_costs_one_interval_and_no_other_value() {
    for case in ["case_007", "case_009"] {
        let jump = looks(&format!("{case}/t0"), &format!("{case}/t1"));
        assert_eq!(jump["cpu_percent"], Value::Null, "{case}");
        assert!(says(&jump, "cpu", "warning").contains("no value for this interval"));
    }
    let moved = looks("case_009/t0", "case_009/t1");
    assert!((memory_percent(&moved) - 75.0).abs() < 0.01);
    assert_near(&looks("case_007/t1", "case_007/t2")["cpu_percent"], 13.333);
    assert_near(&looks("case_009/t1", "case_009/t2")["cpu_percent"], 30.0);
    assert_eq!(looks("idle_2_64/t0", "idle_2_64/t1")["cpu_percent"], Value::Null);
}

#[test]
fn case_010_012_memory_is_within_the_machine_and_without_the_page_cache() {
    for limit in ["case_010/number", "case_010/word"] {
        assert!((memory_percent(&look(limit)) - 90.0).abs() < 0.01, "{limit}");
    }
    let old = memory_percent(&look("case_012"));
    assert!((53.7..=56.3).contains(&old), "{old}");
}

#[test]
fn case_015_threads_are_not_processes() {
    assert_eq!(look("case_015")["processes"], 3);
}

#[test]
fn case_018_a_container_is_measured_by_its_share_and_said_to_be_one() {
    let container = looks("case_018/t0", "case_018/t1");
    assert_near(&container["cpu_percent"], 100.0);
    assert_eq!(collector(&container, "cpu")["source"], "cgroup");
    let warning = says(&container, "container", "warning");
    assert!(warning.contains("(lxc)") && warning.contains("5 CPUs"), "{warning}");
    assert_eq!(container["runnable_demand"], Value::Null);

    let first_version = looks("container_cgroup_v1/t0", "container_cgroup_v1/t1");
    assert_near(&first_version["cpu_percent"], 50.0);
    assert!((memory_percent(&first_version) - 50.0).abs() < 0.01);
    assert!(says(&first_version, "container", "warning").contains("(docker)"));

    let lxcfs = look("container_lxcfs");
    assert!(says(&lxcfs, "container", "warning").contains("as lxcfs shows it"));
    assert_eq!(collector(&look("u1"), "container"), Value::Null);
}

#[test]
fn case_020_a_broken_sensor_is_absent_and_named_and_the_others_go_on() {
    let broken = looks("case_020/t0", "case_020/t1");
    assert_near(&broken["cpu_percent"], 10.0);
    assert_eq!(broken["processes"], 2);
    assert_eq!((&broken["memory_used_bytes"], &broken["memory_total_bytes"]), (&Value::Null, &Value::Null));
    assert!(says(&broken, "memory", "error").contains("meminfo"));
}

#[test]
fn case_022_an_unreadable_utmp_leaves_users_absent_and_nothing_else() {
    let report = look("case_022");
    assert_eq!((&report["users"], &report["processes"]), (&Value::Null, &1.into()));
    assert!((memory_percent(&report) - 75.0).abs() < 0.01);
    assert!(says(&report, "users", "error").contains("run/utmp"));
}

#[test]
fn case_023_025_only_sessions_of_people_who_are_there_count() {
    let report = look("f_logind");
    assert_users(&report, 2, 2);
    let sessions = report["sessions"].as_array().unwrap();
    let seen: Vec<_> =
        sessions.iter().map(|s| (s["id"].as_str().unwrap(), s["user"].as_str().unwrap())).collect();
    assert_eq!(seen, [("1", "alice"), ("16", "carol")]);
    assert_eq!((&sessions[0]["age_ms"], &sessions[0]["state"]), (&3_600_000.into(), &"ACTIVE".into()));
    assert_eq!(collector(&report, "users")["source"], "logind-files");
    assert_users(&look("case_025"), 1, 1);
}

#[test]
fn case_023_processes_that_live_on_are_lingering_and_their_users_are_gone() {
    let report = look("lingering");
    assert_users(&report, 2, 2);
    assert_eq!(report["sessions_lingering"], 1);
}

#[test]
fn case_024_027_the_operator_says_who_counts() {
    assert_users(&look("case_024"), 0, 0);
    let by_default = look("case_027/by_default");
    assert_users(&by_default, 0, 0);
    assert!(says(&by_default, "users", "warning").contains("remote background sessions present: 1"));
    assert_users(&look("case_027/named"), 1, 1);

    // Settings of another place win over those below the root.
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("agent.toml");
    std::fs::write(&settings, "[sessions]\nignore_uids_below = 1003\n").unwrap();
    let root = fixture("f_logind");
    let arguments = ["--root", root.to_str().unwrap(), "--config", settings.to_str().unwrap(), "--json"];
    assert_users(&report(&sample(&arguments)), 1, 1);
}

#[test]
fn logons_are_those_that_are_busy_and_those_that_went_quiet_with_what_they_used() {
    let first = look("logons/t0");
    // alice's second session, bob's, and carol's that is still being set up; alice's first is hours old.
    assert_users(&first, 2, 3);
    assert_eq!(first["logons_in_progress"], serde_json::json!({"now": 3, "mean": 3.0}));
    assert_eq!(first["finished_logons"]["count"], 0);
    let report = looks_apart("logons/t0", "logons/t1", "6s");
    assert_eq!(report["logons_in_progress"]["now"], 2, "bob's and carol's: {report:#}");
    let finished = &report["finished_logons"];
    assert_eq!(finished["count"], 1);
    assert_near(&finished["seconds"], 1.0);
    assert_near(&finished["core_seconds"], 0.6);
    let (first, then) = (fixture("logons/t0"), fixture("logons/t1"));
    let folders = [first.to_str().unwrap(), then.to_str().unwrap()];
    let lines = sample(&["--root", folders[0], "--then", folders[1], "--elapsed", "6s"]).stdout;
    assert!(String::from_utf8(lines).unwrap().contains("1, of 1.0 s and 0.6 core-seconds each"));
    // Nothing to measure by is nothing measured.
    assert_eq!(look("f_logind")["finished_logons"], Value::Null);
    assert_eq!(look("u1")["finished_logons"], Value::Null);
}

#[test]
fn case_028_029_030_032_036_living_logins_count_in_either_layout() {
    for name in ["u1", "u2"] {
        let report = look(name);
        assert_users(&report, 2, 3);
        assert_eq!(collector(&report, "users")["source"], "utmp");
    }
    let cut = look("u1_cut");
    assert_eq!(cut["users"], Value::Null);
    assert!(says(&cut, "users", "error").contains("3000 bytes"));
}

#[test]
fn case_034_nobody_to_ask_is_unknown_and_not_nobody() {
    assert_users(&look("case_034/without_utmp"), 2, 2);
    let nobody = look("case_034/nobody_to_ask");
    assert_eq!((&nobody["users"], &nobody["sessions_active"]), (&Value::Null, &Value::Null));
    assert!(says(&nobody, "users", "error").contains("no source of sessions"));
}

#[test]
fn demand_pressure_zfs_and_a_closed_door_are_reported() {
    let report = looks("busy_host/t0", "busy_host/t1");
    assert_near(&report["cpu_percent"], 80.0);
    // Two CPUs, of which 1.6 s were busy and 4 s were waited for in one second.
    assert_near(&report["runnable_demand"], 2.8);
    assert_near(&report["psi_full_percent"], 12.5);
    let used_bytes = (6_000_000_u64 * 1024) - 1_024_000_000;
    assert_eq!(report["memory_used_bytes"], used_bytes);
    assert_eq!(
        (&report["ready"], &report["not_ready_reason"]),
        (&false.into(), &"Upgrade until noon".into())
    );
    assert_eq!(
        (&report["uptime_ms"], &report["wall_clock_unix_ms"]),
        (&501_000.into(), &1_767_226_101_000_u64.into())
    );
}

#[test]
fn a_program_is_a_source_too() {
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("agent.toml");
    let program = "[sessions]\nsource = \"program\"\nprogram = [\"/bin/sh\", \"-c\", \
                   'echo \"{\\\"user\\\":\\\"alice\\\",\\\"id\\\":1,\\\"state\\\":\\\"disconnected\\\"}\"']\n";
    std::fs::write(&settings, program).unwrap();
    let root = fixture("f_logind");
    let arguments = ["--root", root.to_str().unwrap(), "--config", settings.to_str().unwrap(), "--json"];
    let report = report(&sample(&arguments));
    assert_eq!((&report["users"], &report["sessions_disconnected"]), (&1.into(), &1.into()));
    assert_eq!(collector(&report, "users")["source"], "program");
}

#[test]
fn people_get_lines_and_wrong_use_is_refused() {
    let root = fixture("busy_host/t0");
    let lines = sample(&["--root", root.to_str().unwrap()]);
    let text = String::from_utf8(lines.stdout).unwrap();
    assert!(text.contains("Upgrade until noon") && text.contains("collector memory"), "{text}");
    let root = root.to_str().unwrap();
    for wrong in [
        &["--root", "/nonexistent"][..],
        &["--root", root, "--then", root],
        &["--root", root, "--elapsed", "1s"],
        &["--root", root, "--config", "/nonexistent"],
        &["--root", root, "--then", root, "--elapsed", "soon"],
    ] {
        assert_eq!(sample(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn this_machine_is_looked_at_twice() {
    let report = report(&sample(&["--elapsed", "300ms", "--json"]));
    assert!(
        report["cpu_percent"].as_f64().is_some_and(|percent| (0.0..=100.0).contains(&percent)),
        "{report:#}"
    );
    assert!(report["processes"].as_u64().is_some_and(|processes| processes > 1));
}
