use super::*;
use crate::sample::test_bus::TestBus;
use crate::sample::test_logind::{ManySessions, many_sessions};
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

#[tokio::test]
async fn a_bus_is_asked_by_its_address_whether_logind_is_on_it_or_not() {
    let bus = TestBus::start();
    let address = bus.address();

    let mut client = LogindClient::new(BusAddress::At(address.clone()));
    let error = client.rows(Duration::from_secs(60)).await.expect_err("no logind");
    assert!(matches!(error, SampleError::Bus { operation: "list its sessions", .. }), "{error}");

    let rows = rows();
    let mut builder = Builder::address(address.as_str()).name(SERVICE);
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

/// The questions of a look, and the rows that it found.
async fn look(client: &mut LogindClient, logind: &ManySessions) -> (usize, Vec<LogindRow>) {
    let before = logind.calls();
    let rows = client.rows(Duration::from_secs(60)).await.expect("answered");
    (logind.calls() - before, rows)
}

#[tokio::test]
async fn eight_thousand_sessions_are_described_once_and_their_states_asked_in_turn() {
    let (logind, connection) = many_sessions(8000).await;
    let mut client = LogindClient::over(connection);
    let (calls, rows) = look(&mut client, &logind).await;
    // It does not know the newer list.
    assert_eq!((calls, rows.len()), (2 + 8000, 8000));
    assert_eq!(look(&mut client, &logind).await.0, 1 + 8000_usize.div_ceil(30));

    // A new one is asked about at once, one that logind names too, and one that was left in its turn.
    logind.add("new");
    logind.leave("5");
    logind.leave("6");
    client.news().tell_changed(logind.path("6"));
    let (calls, rows) = look(&mut client, &logind).await;
    assert_eq!((calls, rows.len()), (1 + 1 + 1 + 267, 8001));
    let state = |rows: &[LogindRow], id: &str| rows.iter().find(|row| row.id == id).unwrap().state.clone();
    assert_eq!(state(&rows, "6"), "closing");
    let mut turn = rows;
    for _ in 0..30 {
        turn = look(&mut client, &logind).await.1;
    }
    assert_eq!(state(&turn, "5"), "closing");

    // One that has gone is gone with the list.
    logind.remove("5");
    assert!(look(&mut client, &logind).await.1.iter().all(|row| row.id != "5"));
}

#[tokio::test]
async fn case_024_a_hundred_looks_only_ask_and_make_no_session() {
    let (logind, connection) = many_sessions(3).await;
    let mut client = LogindClient::over(connection);
    for _ in 0..100 {
        assert_eq!(look(&mut client, &logind).await.1.len(), 3);
    }
    assert_eq!(logind.methods(), ["Get", "GetAll", "ListSessions", "ListSessionsEx"]);
}

#[tokio::test]
async fn what_was_answered_before_the_deadline_is_not_asked_again() {
    let (logind, connection) = many_sessions(100).await;
    let mut client = LogindClient::over(connection.clone());
    logind.fall_silent_after(52);
    let error = client.rows(Duration::from_millis(300)).await.expect_err("silent");
    assert!(matches!(error, SampleError::TimedOut { .. }), "{error}");
    logind.fall_silent_after(usize::MAX);
    client.connection = Some(connection);
    let (calls, rows) = look(&mut client, &logind).await;
    assert_eq!(rows.len(), 100);
    // The burst in which it fell silent is asked anew, the one before is known: its states are asked.
    assert_eq!(calls, 1 + 68 + 8);
}

#[tokio::test]
async fn a_session_that_is_set_up_is_asked_about_until_it_is() {
    let (logind, connection) = many_sessions(0).await;
    let mut client = LogindClient::over(connection);
    logind.add("1");
    logind.set_state("1", "opening");
    assert_eq!(look(&mut client, &logind).await.1[0].state, "opening");
    logind.set_state("1", "online");
    assert_eq!(look(&mut client, &logind).await.1[0].state, "online");
}
