//! Is a settings file that holds a mistake refused, with its place and a way out?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use usher_integration_tests::{binary, run_ctl};

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// A program that must end by itself at once, since its file is refused.
fn run(program: &str, arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(binary(program));
    for name in ["USHER_COORDINATORS", "USHER_CONFIG", "USHER_LOG", "USHER_FARM"] {
        command.env_remove(name);
    }
    command.args(arguments).current_dir(folder).output().unwrap()
}

#[track_caller]
fn refused(output: &Output, code: i32, words: &[&str]) {
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

#[test]
fn case_149_a_misspelt_key_is_refused_with_its_line_and_a_suggestion() {
    let folder = tempfile::tempdir().unwrap();
    let (here, check) = (folder.path(), "check-config");
    let file = write(here, "coordinator.toml", "farm = \"north\"\nlissten = \"127.0.0.1:0\"\n");
    let path = file.to_str().unwrap();
    let words = [path, "lissten", "2", "did you mean", "listen"];
    refused(&run("usher-coordinator", &["--config", path], here), 2, &words);
    refused(&run("usher-coordinator", &[check, path], here), 1, &words);

    let file =
        write(here, "agent.toml", "coordinators = [\"127.0.0.1:1\"]\n\n[overrides]\ntreshold_percent = 40\n");
    let path = file.to_str().unwrap();
    let words = [path, "treshold_percent", "4", "did you mean", "threshold_percent"];
    refused(&run("usher-agent", &["--config", path], here), 2, &words);
    refused(&run("usher-agent", &[check, path], here), 1, &words);
}

#[tokio::test]
async fn case_149_a_misspelt_key_of_the_client_is_wrong_use() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "client.toml", "# mine\ncoordinater = [\"127.0.0.1:1\"]\n");
    let path = file.to_str().unwrap();
    let said = run_ctl(folder.path(), &["--config", path, "hosts"]).await.exited(2);
    for word in [path, "coordinater", "2", "did you mean"] {
        assert!(said.stderr.contains(word), "{word:?} is not in: {}", said.stderr);
    }
    // A script gets one document, errors too.
    let said = run_ctl(folder.path(), &["--config", path, "hosts", "--json"]).await.exited(2);
    assert!(said.json()["error"]["message"].as_str().unwrap().contains("coordinater"), "{said:?}");
}

#[test]
fn a_value_outside_its_range_is_refused_with_key_and_range() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (program, text, key) in [
        ("usher-coordinator", "[limits]\nmax_concurrent_calls = 0\n", "max_concurrent_calls"),
        ("usher-coordinator", "[limits]\nmax_message_bytes = 1\n", "max_message_bytes"),
        ("usher-coordinator", "[limits]\ncall_deadline = \"1ms\"\n", "call_deadline"),
        ("usher-coordinator", "listen = \"0.0.0.0:7443\"\n", "listen"),
        ("usher-coordinator", "farm = \"a b\"\n", "farm"),
        ("usher-coordinator", "listen = 7443\n", "listen"),
        ("usher-agent", "report_interval = \"99ms\"\n", "report_interval"),
        ("usher-agent", "report_interval = \"-5s\"\n", "report_interval"),
        ("usher-agent", "[latency]\nperiods = 21\n", "periods"),
        ("usher-agent", "[latency]\nperiod = \"6m\"\n", "period"),
        ("usher-agent", "[overrides]\ncapacity = 0.0\n", "capacity"),
        ("usher-agent", "[overrides]\ncapacity = nan\n", "capacity"),
        ("usher-agent", "[overrides]\nrange = 120\n", "range"),
        ("usher-agent", "[overrides]\nmax_users = 0\n", "max_users"),
        ("usher-agent", "[overrides]\nthreshold_percent = inf\n", "threshold_percent"),
        ("usher-agent", "pool = \"a b\"\n", "pool"),
        ("usher-agent", "coordinators = [\"192.0.2.1:7443\"]\n", "coordinators"),
        ("usher-agent", "[statsd]\nlisten = \"everywhere\"\n", "statsd"),
    ] {
        let file = write(here, "wrong.toml", text);
        let path = file.to_str().unwrap();
        refused(&run(program, &["check-config", path], here), 1, &[path, key]);
        refused(&run(program, &["--config", path], here), 2, &[path, key]);
    }
}

#[test]
fn a_file_that_is_no_toml_or_not_there_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let file = write(here, "broken.toml", "farm = \"north\n");
    for program in ["usher-coordinator", "usher-agent"] {
        let path = file.to_str().unwrap();
        refused(&run(program, &["--config", path], here), 2, &[path]);
        refused(&run(program, &["--config", "missing.toml"], here), 2, &["missing.toml"]);
        refused(&run(program, &["check-config", "missing.toml"], here), 1, &["missing.toml"]);
        refused(&run(program, &["--no-such-flag"], here), 2, &["--no-such-flag"]);
    }
}
