//! Do the session programs that come along say what their servers say?
//!
//! The servers' own commands are stood for by scripts that print what the real ones would.

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use usher_agent::sample::session_program::parse;
use usher_agent::sample::{SessionSeen, SessionState};

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/sessions").join(name)
}

/// Runs a program where the command `of_server` prints `text`.
fn run(name: &str, of_server: &str, text: &str, exit_code: u8) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let printed = folder.path().join("printed");
    fs::write(&printed, text).unwrap();
    let command = folder.path().join(of_server);
    fs::write(&command, format!("#!/bin/sh\ncat {}\nexit {exit_code}\n", printed.display())).unwrap();
    fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    Command::new(program(name)).arg(&printed).env("PATH", path).output().unwrap()
}

fn now() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap()
}

fn sessions(output: &Output) -> Vec<SessionSeen> {
    assert!(output.status.success(), "{output:?}");
    parse(&output.stdout, Some(now())).unwrap()
}

fn seen(sessions: &[SessionSeen]) -> Vec<(&str, &str, SessionState)> {
    sessions.iter().map(|session| (session.user.as_str(), session.id.as_str(), session.state)).collect()
}

#[test]
fn x2go_tells_who_is_connected_and_who_left_a_desktop_running() {
    let text = "2001|alice-50-1767225600_stDXFCE_dp24|50|s1|R|2026-01-01T10:00:00|c|192.0.2.1|30001|30002|x|alice|100|30003|-1|-1\n\
                2002|bob-51-1767225600_stDXFCE_dp24|51|s1|S|2026-01-01T10:00:00|c||1|2|x|bob|7200|3|-1|-1\n\
                2003|carol-52|52|s1|F|2026-01-01T10:00:00|c||1|2|x|carol|1|3|-1|-1\n";
    let sessions = sessions(&run("x2go", "x2golistsessions_root", text, 0));
    let expected = [
        ("alice", "alice-50-1767225600_stDXFCE_dp24", SessionState::Active),
        ("bob", "bob-51-1767225600_stDXFCE_dp24", SessionState::Disconnected),
    ];
    assert_eq!(seen(&sessions), expected);
    let age = sessions[0].age.unwrap();
    assert!(age.abs_diff(Duration::from_secs(100)) < Duration::from_secs(10), "{age:?}");
    assert_eq!(parse(&run("x2go", "x2golistsessions_root", "", 0).stdout, None).unwrap(), []);
    assert!(!run("x2go", "x2golistsessions_root", text, 1).status.success());
}

#[test]
fn thinlinc_has_a_session_for_each_x_server() {
    let text =
        "alice                                                              2001     100\nCORP\\bob 2002 5\n";
    let found = sessions(&run("thinlinc", "ps", text, 0));
    assert_eq!(
        seen(&found),
        [("alice", "2001", SessionState::Active), ("CORP\\bob", "2002", SessionState::Active)]
    );
    assert_eq!(sessions(&run("thinlinc", "ps", "", 1)), []);
}

#[test]
fn dovecot_has_a_session_for_each_user_and_protocol() {
    let text = "username\t#\tproto\t(pids)\t(ips)\nalice@example.org\t3\timap\t(1 2 3)\t(192.0.2.1)\n\
                alice@example.org\t1\tpop3\t(4)\t(192.0.2.1)\no\"neil\t1\timap\t(5)\t(192.0.2.2)\n";
    let found = sessions(&run("dovecot", "doveadm", text, 0));
    let users: Vec<_> = found.iter().map(|session| session.user.as_str()).collect();
    assert_eq!(users, ["alice@example.org", "alice@example.org", "o\"neil"]);
    assert_eq!(sessions(&run("dovecot", "doveadm", "username\t#\tproto\t(pids)\t(ips)\n", 0)), []);
    assert!(!run("dovecot", "doveadm", "", 75).status.success());
}

#[test]
fn domino_has_a_session_for_each_name_of_a_fresh_list() {
    let text = "\n  User Name              Databases Open            Minutes Since Last Used\n\
                \x20 Susan Salani/Acme      MAIL\\SSALANI.NSF          6\n\
                \x20                        NAMES.NSF                 4\n\
                \x20 Alan Jones/Acme        NAMES.NSF                 4\n";
    let found = sessions(&run("domino", "unused", text, 0));
    let users: Vec<_> = found.iter().map(|session| session.user.as_str()).collect();
    assert_eq!(users, ["Susan Salani/Acme", "Alan Jones/Acme"]);
    assert!(!run("domino", "unused", "Server is not running\n", 0).status.success());
}

#[test]
fn a_file_that_nobody_writes_any_more_says_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("users");
    fs::write(&list, "{\"user\":\"alice\",\"id\":1}\n").unwrap();
    let from_file = || Command::new(program("from-file")).arg(&list).output().unwrap();
    assert_eq!(seen(&sessions(&from_file())), [("alice", "1", SessionState::Active)]);
    let file = fs::File::options().write(true).open(&list).unwrap();
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(120)).unwrap();
    assert!(!from_file().status.success());
    assert!(!Command::new(program("domino")).arg(&list).output().unwrap().status.success());
    fs::remove_file(&list).unwrap();
    assert!(!from_file().status.success());
}
