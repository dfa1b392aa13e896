//! Are the users of a host those that logind lists, over a real bus?
//!
//! The bus is a `dbus-daemon` of the test's own, which the agent takes for the system's. A container has no logind, so a
//! stand-in owns its name there: its answers have the form of logind's, and its people come and go as the test wants.

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use usher_integration_tests::{Client, Farm, LONG, MessageBus, Process, binary, wait_for};
use usher_proto::v1;
use zbus::connection::Builder;
use zbus::{Connection, ObjectPath, OwnedObjectPath};

const HOST: &str = "this-machine";

/// One session: its id, user, class, and a state that the test changes.
#[derive(Clone)]
struct Session {
    id: &'static str,
    user: &'static str,
    class: &'static str,
    state: Arc<Mutex<&'static str>>,
}

fn session(id: &'static str, user: &'static str, class: &'static str) -> Session {
    Session { id, user, class, state: Arc::new(Mutex::new("active")) }
}

impl Session {
    fn path(&self) -> OwnedObjectPath {
        ObjectPath::try_from(format!("/org/freedesktop/login1/session/_{}", self.id)).unwrap().into()
    }
}

#[zbus::interface(name = "org.freedesktop.login1.Session")]
impl Session {
    #[zbus(property)]
    fn class(&self) -> String {
        self.class.to_owned()
    }
    #[zbus(property)]
    fn state(&self) -> String {
        (*self.state.lock().unwrap()).to_owned()
    }
    #[zbus(property)]
    fn service(&self) -> String {
        "sshd".to_owned()
    }
    #[zbus(property)]
    fn remote(&self) -> bool {
        true
    }
    #[zbus(property)]
    fn timestamp_monotonic(&self) -> u64 {
        1_000_000
    }
}

/// The sessions, and how often they were listed.
struct Manager(Vec<Session>, Arc<AtomicUsize>);

#[zbus::interface(name = "org.freedesktop.login1.Manager")]
impl Manager {
    fn list_sessions(&self) -> Vec<(String, u32, String, String, OwnedObjectPath)> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let row = |s: &Session| (s.id.to_owned(), 1000, s.user.to_owned(), String::new(), s.path());
        self.0.iter().map(row).collect()
    }
}

/// A stand-in for logind on the bus, until it is dropped.
async fn logind(bus: &MessageBus, sessions: &[Session]) -> Connection {
    counting_logind(bus, sessions, &Arc::default()).await
}

async fn counting_logind(bus: &MessageBus, sessions: &[Session], lists: &Arc<AtomicUsize>) -> Connection {
    let mut builder = Builder::address(bus.address().as_str()).name("org.freedesktop.login1");
    for session in sessions {
        builder = builder.serve_at(session.path(), session.clone());
    }
    builder
        .serve_at("/org/freedesktop/login1", Manager(sessions.to_vec(), lists.clone()))
        .build()
        .await
        .unwrap()
}

fn start_agent(farm: &Farm, bus: &MessageBus, report_interval: &str) -> Process {
    let folder = farm.folder().join(HOST);
    std::fs::create_dir_all(&folder).unwrap();
    let settings = folder.join("agent.toml");
    std::fs::write(&settings, "[sessions]\nsource = \"logind\"\n").unwrap();
    let mut command = Command::new(binary("usher-agent"));
    command.env("DBUS_SYSTEM_BUS_ADDRESS", bus.address()).arg("--config").arg(settings);
    command.args(["--coordinators", &farm.coordinator.grpc.to_string(), "--pool", "desk", "--name", HOST]);
    command.args(["--report-interval", report_interval, "--statsd-listen", "none"]);
    command.arg("--state-dir").arg(folder.join("state")).arg("--runtime-dir").arg(folder.join("run"));
    Process::start(HOST, &mut command, &folder.join("agent.log"))
}

/// Waits until the host shows this many users, and returns how its count fares. Absent: unknown.
async fn shows(client: &Client, users: Option<u32>) -> v1::CollectorState {
    wait_for(&format!("{users:?} users"), LONG, async || {
        let host = client.host(HOST).await.map_err(|status| status.to_string())?;
        let count = host.collectors.iter().find(|collector| collector.name == "users").cloned();
        match count {
            Some(count) if host.users == users => Ok(count),
            count => Err(format!("{:?} users, {count:?}", host.users)),
        }
    })
    .await
}

#[tokio::test]
async fn users_follow_logind_and_are_unknown_without_it() {
    let farm = Farm::start().await;
    let bus = MessageBus::start(farm.folder()).await;
    let sessions =
        [session("1", "alice", "user"), session("2", "alice", "manager"), session("3", "bob", "user")];
    let stand_in = logind(&bus, &sessions).await;
    let _agent = start_agent(&farm, &bus, "200ms");
    let client = farm.client();
    let count = shows(&client, Some(2)).await;
    assert_eq!((count.source.as_str(), count.error), ("logind", None));

    // Case 023: a session that its user left stays on the list for as long as a process of it lives.
    *sessions[2].state.lock().unwrap() = "closing";
    shows(&client, Some(1)).await;

    // Case 034: nobody to ask is not nobody logged in.
    drop(stand_in);
    let count = shows(&client, None).await;
    assert!(count.error.is_some_and(|error| error.contains("logind")));
    let _again = logind(&bus, &sessions).await;
    assert_eq!(shows(&client, Some(1)).await.error, None);
}

#[tokio::test]
async fn what_logind_announces_is_looked_at_at_once_and_its_restart_costs_nothing() {
    let farm = Farm::start().await;
    let bus = MessageBus::start(farm.folder()).await;
    let sessions = [session("1", "alice", "user")];
    let lists = Arc::new(AtomicUsize::new(0));
    let stand_in = counting_logind(&bus, &sessions, &lists).await;
    let _agent = start_agent(&farm, &bus, "60s");
    shows(&farm.client(), Some(1)).await;
    follows(&stand_in, &lists).await;
    drop(stand_in);
    let again = counting_logind(&bus, &sessions, &lists).await;
    follows(&again, &lists).await;
}

/// Announces sessions one after the other, each when the one before was looked at, ten within what ten looks without
/// any word of logind would take.
async fn follows(logind: &Connection, lists: &AtomicUsize) {
    let announce = async || {
        let before = lists.load(Ordering::Relaxed);
        let (path, interface) = ("/org/freedesktop/login1", "org.freedesktop.login1.Manager");
        let session = ("1", ObjectPath::try_from("/org/freedesktop/login1/session/_1").unwrap());
        logind.emit_signal(None::<&str>, path, interface, "SessionNew", &session).await.unwrap();
        wait_for("the agent to look", LONG, async || {
            if lists.load(Ordering::Relaxed) > before { Ok(()) } else { Err("it has not".to_owned()) }
        })
        .await;
    };
    // The first may come before it listens.
    announce().await;
    let since = Instant::now();
    for _ in 0..10 {
        announce().await;
    }
    assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
}
