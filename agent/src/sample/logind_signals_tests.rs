use std::path::PathBuf;

use tokio::task::JoinSet;
use zbus::Connection;
use zbus::connection::Builder;

use super::*;
use crate::sample::test_bus::TestBus;

const LONG: Duration = Duration::from_secs(60);
const MANAGER: &str = "org.freedesktop.login1.Manager";
const PATH: &str = "/org/freedesktop/login1";

/// Somebody on the bus under logind's name.
async fn logind(bus: &TestBus) -> Connection {
    Builder::address(bus.address().as_str()).name(SERVICE).build().await.expect("on the bus")
}

async fn announce(logind: &Connection, signal: &str, id: &str) {
    let session = path(id);
    logind.emit_signal(None::<&str>, PATH, MANAGER, signal, &(id, session)).await.expect("sent");
}

fn path(id: &str) -> OwnedObjectPath {
    zbus::ObjectPath::try_from(format!("{PATH}/session/_{id}")).expect("a path").into()
}

async fn came(news: &SessionNews, why: &str) {
    tokio::time::timeout(LONG, news.came()).await.unwrap_or_else(|_| panic!("nothing came: {why}"));
}

/// Announces until the listener, which may still be subscribing, has heard it.
async fn heard(news: &SessionNews, logind: &Connection, signal: &str) {
    let heard = async {
        loop {
            announce(logind, signal, "1").await;
            if tokio::time::timeout(Duration::from_millis(50), news.came()).await.is_ok() {
                return;
            }
        }
    };
    tokio::time::timeout(LONG, heard).await.unwrap_or_else(|_| panic!("{signal} is not heard"));
}

fn listening(bus: &TestBus, news: &Arc<SessionNews>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(listen(BusAddress::At(bus.address()), news.clone()));
    tasks
}

#[tokio::test]
async fn sessions_that_come_and_go_are_reasons_to_look_and_a_bus_that_returns_is_heard_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket: PathBuf = folder.path().join("bus");
    let bus = TestBus::start_at(&socket);
    let news = Arc::new(SessionNews::default());
    let mut listener = JoinSet::new();
    // Without the number of the bus, which the next one has not.
    listener.spawn(listen(BusAddress::At(format!("unix:path={}", socket.display())), news.clone()));
    came(&news, "it is heard from now on").await;
    let logind_there = logind(&bus).await;
    heard(&news, &logind_there, "SessionNew").await;
    heard(&news, &logind_there, "SessionRemoved").await;

    drop((logind_there, bus));
    let bus = TestBus::start_at(&socket);
    came(&news, "the bus is back").await;
    let logind_again = logind(&bus).await;
    heard(&news, &logind_again, "SessionNew").await;
}

#[tokio::test]
async fn a_storm_of_signals_is_one_reason() {
    let news = SessionNews::default();
    for n in 0..2000 {
        news.tell_changed(path(&n.to_string()));
    }
    came(&news, "there was a storm").await;
    assert_eq!(news.take_changed().len(), MAX_CHANGED);
    assert!(tokio::time::timeout(Duration::from_millis(50), news.came()).await.is_err(), "one more reason");
}

#[tokio::test]
async fn logind_names_the_sessions_that_changed_in_what_matters() {
    let bus = TestBus::start();
    let news = Arc::new(SessionNews::default());
    let _listener = listening(&bus, &news);
    came(&news, "it is heard from now on").await;
    let logind = logind(&bus).await;
    let changed = async |id: &str, property: &str| {
        let changed = HashMap::from([(property, zbus::Variant::from("x"))]);
        let body = (SESSION_INTERFACE, changed, Vec::<&str>::new());
        let interface = "org.freedesktop.DBus.Properties";
        logind
            .emit_signal(None::<&str>, path(id), interface, "PropertiesChanged", &body)
            .await
            .expect("sent");
    };
    changed("idle", "IdleHint").await;
    changed("7", "State").await;
    let all = async {
        let mut seen = HashSet::new();
        while !seen.contains(&path("7")) {
            news.came().await;
            seen.extend(news.take_changed());
        }
        seen
    };
    let seen = tokio::time::timeout(LONG, all).await.expect("it is named");
    assert_eq!(seen, HashSet::from([path("7")]));
}

#[tokio::test]
async fn signals_of_somebody_else_than_logind_are_not_heard() {
    let bus = TestBus::start();
    let news = Arc::new(SessionNews::default());
    let _listener = listening(&bus, &news);
    came(&news, "it is heard from now on").await;
    let _logind = logind(&bus).await;
    let other = Builder::address(bus.address().as_str()).build().await.expect("on the bus");
    announce(&other, "SessionNew", "1").await;
    assert!(tokio::time::timeout(Duration::from_millis(200), news.came()).await.is_err());
}

#[tokio::test]
async fn the_signals_of_the_logind_that_dbusmock_plays_are_heard() {
    let bus = TestBus::start();
    let mut mock = std::process::Command::new("/usr/bin/python3");
    mock.args(["-m", "dbusmock", "--template", "logind"]).env("DBUS_SYSTEM_BUS_ADDRESS", bus.address());
    bus.with(mock.spawn().expect("dbusmock starts; `cargo xtask peers` installs it"));
    let news = Arc::new(SessionNews::default());
    let _listener = listening(&bus, &news);
    came(&news, "it is heard from now on").await;
    let client = Builder::address(bus.address().as_str()).build().await.expect("on the bus");
    let body = (MANAGER, "SessionNew", "so", vec![zbus::Variant::from("1"), zbus::Variant::from(path("1"))]);
    let told = async {
        loop {
            // It is not on the bus at once.
            let emit = ("org.freedesktop.DBus.Mock", "EmitSignal");
            let _ = client.call_method(Some(SERVICE), PATH, Some(emit.0), emit.1, &body).await;
            if tokio::time::timeout(Duration::from_millis(50), news.came()).await.is_ok() {
                return;
            }
        }
    };
    tokio::time::timeout(LONG, told).await.expect("heard");
}

#[tokio::test(start_paused = true)]
async fn a_bus_that_is_not_there_is_tried_ever_more_rarely() {
    let news = Arc::new(SessionNews::default());
    let nowhere = BusAddress::At("unix:path=/nonexistent/bus".into());
    let tried = tokio::time::timeout(Duration::from_secs(600), listen(nowhere, news.clone())).await;
    assert!(tried.is_err(), "it goes on");
    assert!(tokio::time::timeout(LONG, news.came()).await.is_err(), "and is no reason to look");
}
