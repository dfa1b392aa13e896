use super::*;
use crate::sample::test_tree::tree;

fn row(id: &str, user: &str, class: &str, remote: bool, service: &str, state: &str) -> LogindRow {
    LogindRow {
        id: id.into(),
        user: user.into(),
        class: class.into(),
        state: state.into(),
        service: service.into(),
        remote,
        ..LogindRow::default()
    }
}

fn decided(rows: &[LogindRow], config: &SessionConfig) -> LogindDecision {
    decide(rows, config, None, &BTreeSet::new())
}

fn ids(decision: &LogindDecision) -> Vec<&str> {
    decision.sessions.iter().map(|session| session.id.as_str()).collect()
}

/// A host with logins, managers, and sessions that their users left.
fn host_with_ghosts() -> Vec<LogindRow> {
    vec![
        row("1", "alice", "user", false, "gdm-password", "active"),
        row("2", "alice", "manager", false, "systemd-user", "active"),
        row("14", "bob", "user", true, "sshd", "closing"),
        row("15", "git", "user", true, "sshd", "closing"),
        row("16", "carol", "user", true, "sshd", "online"),
        row("17", "carol", "manager", false, "systemd-user", "active"),
        row("18", "bob", "user", false, "lightdm", "closing"),
        row("19", "git", "user", true, "sshd", "closing"),
    ]
}

#[test]
fn case_023_sessions_that_their_users_left_do_not_count() {
    let decision = decided(&host_with_ghosts(), &SessionConfig::default());
    assert_eq!(ids(&decision), ["1", "16"]);
    assert_eq!(decision.warning, None);
}

#[test]
fn case_024_ignored_accounts_do_not_count() {
    let config = SessionConfig { ignore_users: vec!["probe".into()], ..SessionConfig::default() };
    let rows = [row("1", "probe", "user", true, "sshd", "active")];
    assert_eq!(decided(&rows, &config).sessions, []);
}

#[test]
fn case_025_managers_of_users_are_not_logins() {
    let rows = [
        row("1", "alice", "user", false, "login", "active"),
        row("2", "alice", "manager", false, "systemd-user", "active"),
        row("3", "bob", "manager-early", false, "systemd-user", "active"),
        row("4", "root", "user-early", false, "login", "active"),
        row("5", "dana", "user-light", true, "sshd", "active"),
        row("6", "gdm", "greeter", false, "gdm-launch-environment", "active"),
    ];
    assert_eq!(ids(&decided(&rows, &SessionConfig::default())), ["1", "4", "5"]);
}

#[test]
fn case_027_remote_background_sessions_are_warned_about_and_can_be_named() {
    let rows = [
        row("7", "dana", "background", true, "teleport", "active"),
        row("8", "root", "background", false, "crond", "active"),
    ];
    let by_default = decided(&rows, &SessionConfig::default());
    assert_eq!(by_default.sessions, []);
    assert_eq!(by_default.warning.as_deref(), Some("remote background sessions present: 1"));

    let config =
        SessionConfig { session_services_extra: vec!["teleport".into()], ..SessionConfig::default() };
    let named = decided(&rows, &config);
    assert_eq!((ids(&named), named.warning.clone()), (vec!["7"], None));
}

#[test]
fn the_age_is_counted_from_the_begin_and_absent_when_that_is_not_known() {
    let mut known = row("1", "alice", "user", false, "login", "active");
    known.since_monotonic = Some(Duration::from_secs(40));
    let mut ahead = row("2", "bob", "user", false, "login", "active");
    ahead.since_monotonic = Some(Duration::from_secs(101));
    let decision =
        decide(&[known, ahead], &SessionConfig::default(), Some(Duration::from_secs(100)), &BTreeSet::new());
    let ages: Vec<_> = decision.sessions.iter().map(|session| session.age).collect();
    assert_eq!(ages, [Some(Duration::from_secs(60)), None]);
}

#[test]
fn greeters_lock_screens_and_sessions_that_are_being_set_up_are_nobody_yet() {
    let rows = [
        row("1", "gdm", "greeter", false, "gdm-launch-environment", "active"),
        row("2", "alice", "lock-screen", false, "lightdm", "active"),
        row("3", "bob", "user", true, "sshd", "opening"),
        row("4", "carol", "user-incomplete", true, "sshd", "active"),
        row("5", "dana", "none", true, "sshd", "active"),
    ];
    assert_eq!(decided(&rows, &SessionConfig::default()).sessions, []);
    let begun = begun(&rows, &SessionConfig::default(), Duration::from_secs(100));
    assert_eq!(
        begun.iter().map(|begun| (begun.id.as_str(), begun.is_opening)).collect::<Vec<_>>(),
        [("3", true)]
    );
}

#[test]
fn sessions_of_people_that_began_lately_may_be_logging_on() {
    let began = |id: &str, uid, class: &str, state: &str, since_s| LogindRow {
        uid: Some(uid),
        since_monotonic: Some(Duration::from_secs(since_s)),
        ..row(id, &format!("u{uid}"), class, true, "sshd", state)
    };
    let rows = [
        began("1", 1000, "user", "active", 990),
        began("2", 1000, "manager", "active", 990),
        began("3", 1001, "user", "online", 699),
        began("4", 1001, "user", "online", 700),
        began("5", 1002, "user", "closing", 990),
        began("6", 1003, "background", "active", 990),
        LogindRow { since_monotonic: None, ..began("7", 1004, "user", "active", 0) },
        began("8", 1002, "user", "active", 995),
    ];
    let config = SessionConfig::default();
    let begun = begun(&rows, &config, Duration::from_secs(1000));
    let seen: Vec<_> = begun.iter().map(|begun| (begun.id.as_str(), begun.is_alone)).collect();
    assert_eq!(seen, [("1", true), ("4", false), ("8", true)]);
    assert_eq!(begun[0].began, Duration::from_secs(990));
}

#[test]
fn the_operator_says_which_classes_are_people() {
    let rows = [
        row("1", "alice", "user", true, "sshd", "active"),
        row("2", "bob", "user-light", true, "sshd", "active"),
    ];
    let config = SessionConfig { session_classes: vec!["user".into()], ..SessionConfig::default() };
    assert_eq!(ids(&decided(&rows, &config)), ["1"]);
}

#[test]
fn accounts_of_services_do_not_count() {
    let mut rows =
        [row("1", "git", "user", true, "sshd", "active"), row("2", "bob", "user", true, "sshd", "active")];
    (rows[0].uid, rows[1].uid) = (Some(998), Some(1002));
    let config = SessionConfig { ignore_uids_below: 1000, ..SessionConfig::default() };
    assert_eq!(ids(&decided(&rows, &config)), ["2"]);
}

#[test]
fn case_023_a_left_session_of_which_processes_live_on_is_lingering() {
    let closing = |id: &str, uid| LogindRow {
        uid: Some(uid),
        scope: format!("session-{id}.scope"),
        ..row(id, "bob", "user", true, "sshd", "closing")
    };
    let mut hostile = closing("9", 1002);
    hostile.scope = "../../session-14.scope".into();
    let rows = [closing("14", 1002), closing("15", 1002), closing("16", 1002), closing("17", 1003), hostile];
    let slice = "user.slice/user-1002.slice";
    let root = tree(&[
        (&format!("sys/fs/cgroup/{slice}/session-14.scope/cgroup.events"), "populated 1\nfrozen 0\n"),
        (&format!("sys/fs/cgroup/{slice}/session-15.scope/cgroup.events"), "populated 0\nfrozen 0\n"),
        (&format!("sys/fs/cgroup/systemd/{slice}/session-16.scope/cgroup.procs"), "4711\n"),
    ]);
    let config = SessionConfig::default();
    let living = living(root.path(), &rows, &config);
    let decision = decide(&rows, &config, None, &living);
    assert_eq!(ids(&decision), ["14", "16"]);
    assert!(decision.sessions.iter().all(|session| session.state == SessionState::Lingering));
}
