use super::*;
use zbus::connection::Builder;

fn row(id: &str, user: &str, class: &str, remote: bool, service: &str, state: &str) -> LogindRow {
    LogindRow {
        id: id.into(),
        user: user.into(),
        class: class.into(),
        state: state.into(),
        service: service.into(),
        remote,
        since_monotonic: None,
    }
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
    let decision = decide(&host_with_ghosts(), &SessionConfig::default(), Duration::ZERO);
    assert_eq!(ids(&decision), ["1", "16"]);
    assert_eq!(decision.warning, None);
}

#[test]
fn case_024_ignored_accounts_do_not_count() {
    let config = SessionConfig { ignore_users: vec!["probe".into()], ..SessionConfig::default() };
    let rows = [row("1", "probe", "user", true, "sshd", "active")];
    assert_eq!(decide(&rows, &config, Duration::ZERO).sessions, []);
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
    assert_eq!(ids(&decide(&rows, &SessionConfig::default(), Duration::ZERO)), ["1", "4", "5"]);
}

#[test]
fn case_027_remote_background_sessions_are_warned_about_and_can_be_named() {
    let rows = [
        row("7", "dana", "background", true, "teleport", "active"),
        row("8", "root", "background", false, "crond", "active"),
    ];
    let by_default = decide(&rows, &SessionConfig::default(), Duration::ZERO);
    assert_eq!(by_default.sessions, []);
    assert_eq!(by_default.warning.as_deref(), Some("remote background sessions present: 1"));

    let config =
        SessionConfig { session_services_extra: vec!["teleport".into()], ..SessionConfig::default() };
    let named = decide(&rows, &config, Duration::ZERO);
    assert_eq!((ids(&named), named.warning.clone()), (vec!["7"], None));
}

#[test]
fn the_age_is_counted_from_the_begin_and_absent_when_that_is_not_known() {
    let mut known = row("1", "alice", "user", false, "login", "active");
    known.since_monotonic = Some(Duration::from_secs(40));
    let mut ahead = row("2", "bob", "user", false, "login", "active");
    ahead.since_monotonic = Some(Duration::from_secs(101));
    let decision = decide(&[known, ahead], &SessionConfig::default(), Duration::from_secs(100));
    let ages: Vec<_> = decision.sessions.iter().map(|session| session.age).collect();
    assert_eq!(ages, [Some(Duration::from_secs(60)), None]);
}

/// A stand-in for logind: its manager lists one session more than there are, as when one ends in between.
struct MockManager(Vec<LogindRow>);

fn path_of(id: &str) -> OwnedObjectPath {
    let path = zbus::ObjectPath::try_from(format!("/org/freedesktop/login1/session/_{id}")).expect("a path");
    path.into()
}

#[zbus::interface(name = "org.freedesktop.login1.Manager")]
impl MockManager {
    fn list_sessions(&self) -> Vec<(String, u32, String, String, OwnedObjectPath)> {
        let row = |id: &str, user: &str| (id.to_owned(), 1000, user.to_owned(), String::new(), path_of(id));
        self.0.iter().map(|known| row(&known.id, &known.user)).chain([row("99", "gone")]).collect()
    }
}

struct MockSession(LogindRow);

#[zbus::interface(name = "org.freedesktop.login1.Session")]
impl MockSession {
    #[zbus(property)]
    fn class(&self) -> String {
        self.0.class.clone()
    }
    #[zbus(property)]
    fn state(&self) -> String {
        self.0.state.clone()
    }
    #[zbus(property)]
    fn service(&self) -> String {
        self.0.service.clone()
    }
    #[zbus(property)]
    fn remote(&self) -> bool {
        self.0.remote
    }
    #[zbus(property)]
    fn timestamp_monotonic(&self) -> u64 {
        self.0.since_monotonic.map_or(0, |since| since.as_micros() as u64)
    }
}

/// Both ends of a connection without a bus; the first serves `rows` as logind does.
async fn mock_logind(rows: Vec<LogindRow>) -> (Connection, Connection) {
    let (server, client) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let mut builder = Builder::unix_stream(server).server(zbus::Guid::generate()).p2p();
    for row in &rows {
        builder = builder.serve_at(path_of(&row.id), MockSession(row.clone()));
    }
    let builder = builder.serve_at("/org/freedesktop/login1", MockManager(rows));
    tokio::try_join!(builder.build(), Builder::unix_stream(client).p2p().build()).expect("connected")
}

#[tokio::test]
async fn case_034_rows_come_over_the_bus_and_an_ended_session_is_skipped() {
    let mut rows = host_with_ghosts();
    rows[0].since_monotonic = Some(Duration::from_secs(5));
    let (_server, client) = mock_logind(rows.clone()).await;
    let mut client = LogindClient::over(client);
    for _ in 0..2 {
        assert_eq!(client.rows(Duration::from_secs(60)).await.expect("answered"), rows);
    }
    assert_eq!(ids(&decide(&rows, &SessionConfig::default(), Duration::ZERO)), ["1", "16"]);
}

/// Ends the daemon with the test.
struct Daemon(std::process::Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_bus_is_asked_by_its_address_whether_logind_is_on_it_or_not() {
    use std::io::{BufRead, BufReader};
    let child = std::process::Command::new("dbus-daemon")
        .args(["--session", "--nofork", "--nopidfile", "--print-address"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the program dbus-daemon starts; `cargo xtask peers` installs it");
    let mut daemon = Daemon(child);
    let mut address = String::new();
    BufReader::new(daemon.0.stdout.take().expect("a pipe")).read_line(&mut address).expect("an address");
    let address = address.trim();

    let mut client = LogindClient::new(BusAddress::At(address.to_owned()));
    let error = client.rows(Duration::from_secs(60)).await.expect_err("no logind");
    assert!(matches!(error, SampleError::Bus { operation: "list its sessions", .. }), "{error}");

    let rows = host_with_ghosts();
    let mut builder = Builder::address(address).name(SERVICE);
    for row in &rows {
        builder = builder.serve_at(path_of(&row.id), MockSession(row.clone()));
    }
    let _logind =
        builder.serve_at("/org/freedesktop/login1", MockManager(rows.clone())).build().await.expect("on it");
    assert_eq!(client.rows(Duration::from_secs(60)).await.expect("answered"), rows);
}

#[tokio::test]
async fn a_closed_connection_is_an_error_and_not_used_again() {
    let (server, client) = mock_logind(Vec::new()).await;
    drop(server);
    let mut client = LogindClient::over(client);
    client.rows(Duration::from_secs(60)).await.expect_err("closed");
    assert!(client.connection.is_none());
}

#[tokio::test]
async fn no_bus_fails_at_once() {
    let mut client = LogindClient::new(BusAddress::At("unix:path=/nonexistent/bus".into()));
    let error = client.rows(Duration::from_secs(3600)).await.expect_err("no bus");
    assert!(matches!(error, SampleError::Bus { operation: "connect", .. }), "{error}");
}

#[tokio::test]
async fn a_silent_bus_fails_at_the_deadline() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bus");
    let _silent = tokio::net::UnixListener::bind(&path).expect("bound");
    let mut client = LogindClient::new(BusAddress::At(format!("unix:path={}", path.display())));
    let error = client.rows(Duration::from_millis(50)).await.expect_err("silent");
    assert_eq!(error.to_string(), "logind: timed out after 50 ms");
}
