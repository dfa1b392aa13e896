use super::*;
use zbus::connection::Builder;

fn row(id: &str, user: &str, class: &str, state: &str) -> LogindRow {
    LogindRow {
        id: id.into(),
        uid: Some(1000),
        user: user.into(),
        class: class.into(),
        state: state.into(),
        service: "sshd".into(),
        remote: true,
        scope: format!("session-{id}.scope"),
        since_monotonic: Some(Duration::from_secs(5)),
    }
}

fn rows() -> Vec<LogindRow> {
    vec![
        row("1", "alice", "user", "active"),
        row("2", "alice", "manager", "active"),
        row("14", "bob", "user", "closing"),
        LogindRow { since_monotonic: None, remote: false, ..row("16", "carol", "background", "online") },
    ]
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
    fn scope(&self) -> String {
        self.0.scope.clone()
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

/// As [`MockManager`], of a logind that lists classes.
struct NewManager(Vec<LogindRow>);

#[zbus::interface(name = "org.freedesktop.login1.Manager")]
impl NewManager {
    #[expect(clippy::type_complexity, reason = "logind's answer")]
    fn list_sessions_ex(
        &self,
    ) -> Vec<(String, u32, String, String, u32, String, String, bool, u64, OwnedObjectPath)> {
        let row = |row: &LogindRow| {
            let (id, user, class) = (row.id.clone(), row.user.clone(), row.class.clone());
            (id, 1000, user, String::new(), 1, class, String::new(), false, 0, path_of(&row.id))
        };
        self.0.iter().map(row).collect()
    }
}

#[tokio::test]
async fn case_025_a_logind_that_lists_classes_is_only_asked_about_people() {
    let (server, client) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let mut builder = Builder::unix_stream(server).server(zbus::Guid::generate()).p2p();
    // The manager's session cannot be described: asking would fail.
    for row in rows().iter().filter(|row| row.class != "manager") {
        builder = builder.serve_at(path_of(&row.id), MockSession(row.clone()));
    }
    let builder = builder.serve_at("/org/freedesktop/login1", NewManager(rows()));
    let (_server, client) =
        tokio::try_join!(builder.build(), Builder::unix_stream(client).p2p().build()).expect("connected");
    let found = LogindClient::over(client).rows(Duration::from_secs(60)).await.expect("answered");
    assert_eq!(found.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["1", "14", "16"]);
}

#[test]
fn the_bus_of_another_root_is_below_it() {
    assert_eq!(BusAddress::below(Path::new("/")), BusAddress::System);
    let below = BusAddress::below(Path::new("/my host,1"));
    assert_eq!(below, BusAddress::At("unix:path=/my%20host%2c1/run/dbus/system_bus_socket".into()));
}

#[tokio::test]
async fn case_034_rows_come_over_the_bus_and_an_ended_session_is_skipped() {
    let rows = rows();
    let (_server, client) = mock_logind(rows.clone()).await;
    let mut client = LogindClient::over(client);
    for _ in 0..2 {
        assert_eq!(client.rows(Duration::from_secs(60)).await.expect("answered"), rows);
    }
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

    let rows = rows();
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
