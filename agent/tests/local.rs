//! What somebody does on the machine itself reaches every coordinator, whatever it is and however badly it is asked.

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use support::{Agent, Coordinator, config, soon};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixDatagram, UnixStream};
use usher_agent::config::{AgentConfig, UserLimitSetting};
use usher_agent::hooks::HookConfig;
use usher_agent::local::{Answer, Request, ask};
use usher_proto::v1;
use usher_proto::v1::attach_response::Message as ToAgent;
use usher_runtime::config::HumanDuration;
use usher_types::{DoorKind, Drain, DrainMode};

fn settings(folder: &Path, coordinators: &[&Coordinator]) -> AgentConfig {
    AgentConfig { name: Some("h1".into()), ..config(folder, coordinators) }
}

async fn asked(config: &AgentConfig, request: &Request) -> Answer {
    let socket = config.local_socket();
    soon("the socket", async {
        while !socket.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    ask(&socket, request).await.unwrap()
}

async fn status(config: &AgentConfig) -> Value {
    match asked(config, &Request::Status {}).await {
        Answer::Status(status) => status,
        other => panic!("no status: {other:?}"),
    }
}

fn drain_request(mode: DrainMode) -> Request {
    Request::Drain { mode, reason: "new disks".into(), no_reconnect: true }
}

#[tokio::test]
async fn a_drain_is_told_to_all_at_once_kept_over_a_restart_and_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (Coordinator::start().await, Coordinator::start().await);
    let with = settings(folder.path(), &[&one, &two]);
    let agent = Agent::start(with.clone(), None);
    let (mut first, mut second) = (one.greeted().await, two.greeted().await);
    first.load("no drain", |load| load.drain.is_none()).await;
    let answer = asked(&with, &drain_request(DrainMode::Persistent)).await;
    let Answer::Drained(Some(Drain { author, .. })) = answer else { panic!("{answer:?}") };
    for stream in [&mut first, &mut second] {
        let drain = stream.load("the drain", |load| load.drain.is_some()).await.drain.unwrap();
        assert_eq!((drain.mode(), drain.reason.as_str()), (v1::DrainMode::Persistent, "new disks"));
        assert!(drain.no_reconnect && drain.author == author && !author.is_empty());
    }
    agent.kill().await;

    let agent = Agent::start(with.clone(), None);
    let mut again = one.greeted().await;
    let load = again.load("the first Load", |_| true).await;
    assert!(load.drain.is_some(), "the very first report has it");
    // The socket of the killed agent was replaced.
    soon("an answer", async {
        while !matches!(ask(&with.local_socket(), &Request::Undrain {}).await, Ok(Answer::Drained(None))) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    again.load("no drain", |load| load.drain.is_none()).await;
    agent.stop().await;
    assert!(!with.local_socket().exists());
}

#[tokio::test]
async fn without_any_coordinator_the_host_is_drained_and_shows_how_it_fares() {
    let folder = tempfile::tempdir().unwrap();
    let mut with = settings(folder.path(), &[]);
    with.coordinators = vec!["127.0.0.1:1".into()];
    let agent = Agent::start(with.clone(), None);
    asked(&with, &drain_request(DrainMode::UntilRestart)).await;
    let status = soon("a measurement", async {
        loop {
            let status = status(&with).await;
            if status["load"]["memory_total_bytes"].is_u64() {
                return status;
            }
        }
    })
    .await;
    assert_eq!((&status["host_name"], &status["drain"]["mode"]), (&"h1".into(), &"until_restart".into()));
    assert_eq!(status["streams"][0]["attached"], Value::Bool(false));
    assert_eq!(status["queues"]["commands"], 0);
    let held = status["held_back"].as_array().unwrap();
    assert!(held.iter().any(|line| line == "reports: no coordinator is attached"), "{held:?}");
    let names: Vec<_> = status["collectors"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert!(names.contains(&&Value::from("cpu")) && names.contains(&&Value::from("users")), "{names:?}");
    let mode = std::fs::metadata(with.local_socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    agent.stop().await;
}

#[tokio::test]
async fn a_status_names_each_coordinator_that_is_not_heard_and_why_and_what_that_costs() {
    let folder = tempfile::tempdir().unwrap();
    let (mut refusing, mut good) = (Coordinator::start().await, Coordinator::start().await);
    let mut with = settings(folder.path(), &[&refusing, &good]);
    with.coordinators.push("127.0.0.1:1".into());
    with.overrides.max_users = UserLimitSetting::parse("9").ok();
    let agent = Agent::start(with.clone(), None);
    refusing.attached().await.refuse(tonic::Status::already_exists("the id is in use")).await;
    let stream = good.greeted().await;
    stream.send(ToAgent::Tick(v1::Tick { tick: 1, ..v1::Tick::default() })).await;
    let is_known = |status: &Value| {
        let streams = &status["streams"];
        streams[0]["state"] == "refused"
            && streams[2]["failures"].is_u64()
            && streams[1]["heard"] == true
            && streams[0]["held_back_users"].is_u64()
    };
    let status = soon("all three are known", async {
        loop {
            stream.send(ToAgent::Tick(v1::Tick { tick: 1, ..v1::Tick::default() })).await;
            let status = status(&with).await;
            if is_known(&status) {
                return status;
            }
        }
    })
    .await;
    let [refused, attached, gone] = [0, 1, 2].map(|number| &status["streams"][number]);
    assert!(refused["last_error"].as_str().unwrap().contains("the id is in use"), "{refused}");
    assert!(refused["next_call_seconds"].as_f64().unwrap() > 10.0, "{refused}");
    assert_eq!((&attached["state"], &attached["last_error"]), (&"attached".into(), &Value::Null));
    assert!(gone["since_seconds"].is_f64() && gone["last_error"].is_string(), "{gone}");
    // A third of nine users is what each of the two that are not heard may give.
    assert_eq!((&refused["held_back_users"], &gone["held_back_users"]), (&3.into(), &3.into()));
    assert_eq!(attached["held_back_users"], Value::Null);
    let held: Vec<_> = status["held_back"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let of = |coordinator: &str| {
        held.iter().filter(|line| line.contains(coordinator)).copied().collect::<Vec<_>>()
    };
    assert!(of(&refusing.address)[0].contains("it refuses this host: AlreadyExists"), "{held:?}");
    assert!(of("127.0.0.1:1 ")[0].ends_with("room for 3 users is kept free for it"), "{held:?}");
    assert_eq!(of(&good.address), [] as [&str; 0]);
    agent.stop().await;
}

/// Everything that a datagram said, in one look.
#[tokio::test]
async fn case_041_044_049_050_065_a_status_tells_what_became_of_every_timing() {
    let folder = tempfile::tempdir().unwrap();
    let mut with = settings(folder.path(), &[]);
    with.coordinators = vec!["127.0.0.1:1".into()];
    with.latency.max_names = 3;
    let agent = Agent::start(with.clone(), None);
    let timings = with.statsd_socket().unwrap();
    status(&with).await;
    let socket = UnixDatagram::unbound().unwrap();
    for datagram in [
        "open_db:NaN|ms\nopen_db:inf|ms\nopen_db:-Infinity|ms\nopen_db:1e400|ms\nopen_db:10|ms",
        "q:10|ms|@0.5\nq:20|ms|@0.1",
        "save:1|ms|#outcome:failed\nsave:20|ms\nsave:0|ms\nsave.in_flight:2|g|#oldest_ms:1500",
        "t1:5|ms\nt2:5|ms\n../../etc:5|ms\n:5|ms",
    ] {
        socket.send_to(datagram.as_bytes(), &timings).await.unwrap();
    }
    let status = soon("all four datagrams", async {
        loop {
            let status = status(&with).await;
            if status["timings"]["overflow_calls"] == 2 {
                return status;
            }
        }
    })
    .await;
    let lines = &status["timings"]["lines"];
    assert_eq!((&lines["rejected"]["value"], &lines["rejected"]["name"]), (&4.into(), &2.into()));
    assert_eq!((&lines["accepted"], &lines["below_resolution"]), (&8.into(), &1.into()));
    assert_eq!(status["timings"]["refused_calls"]["too_many_names"], 2);
    let operations = status["operations"].as_array().unwrap();
    let total = |name: &str| operations.iter().find(|one| one["name"] == name).unwrap()["total"].clone();
    let number = |value: &Value| value.as_f64().unwrap();
    let open = total("open_db");
    assert_eq!([&open["ok"], &open["mean_us"], &open["min_us"]].map(number), [1.0, 10_000.0, 10_000.0]);
    let q = total("q");
    assert!(
        (number(&q["ok"]) - 12.0).abs() < 1e-9 && (number(&q["mean_us"]) - 18_333.333).abs() < 0.01,
        "{q}"
    );
    assert_eq!(number(&q["min_us"]), 10_000.0);
    let save = total("save");
    assert_eq!([&save["ok"], &save["failed"], &save["mean_us"]].map(number), [1.0, 1.0, 20_000.0]);
    let in_flight = operations.iter().find(|one| one["name"] == "save").unwrap();
    assert_eq!(in_flight["in_flight"], 2);
    assert!(number(&in_flight["oldest_in_flight_seconds"]) >= 1.5);
    agent.stop().await;
}

async fn raw(socket: &Path, request: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    // Whoever is refused while still writing has its answer all the same.
    let _ = stream.write_all(request).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let _ = soon("an answer", stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn hostile_requests_are_answered_with_what_is_wrong_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut with = settings(folder.path(), &[]);
    with.coordinators = vec!["127.0.0.1:1".into()];
    let agent = Agent::start(with.clone(), None);
    status(&with).await;
    let socket = with.local_socket();
    for request in [&b""[..], b"\n", b"{", b"\xff\xfe\n", b"{\"command\":\"reboot\"}\n", b"[[[[[[[[[[[[\n"] {
        let answer = raw(&socket, request).await;
        assert!(answer.contains("cannot be understood"), "{request:?}: {answer}");
    }
    let answer = raw(&socket, &[b'x'; 4096]).await;
    assert!(answer.contains("longer than 4096 bytes"), "{answer}");
    for reason in ["x".repeat(201), "a\u{7}b".to_owned()] {
        let request = Request::Drain { mode: DrainMode::Persistent, reason, no_reconnect: false };
        assert!(matches!(asked(&with, &request).await, Answer::Error(_)));
    }
    // More than are heard at a time, and none of them says anything.
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(UnixStream::connect(&socket).await.unwrap());
    }
    drop(silent);
    let status = status(&with).await;
    assert_eq!(status["drain"], Value::Null);
    agent.stop().await;
}

#[tokio::test]
async fn a_dead_door_makes_the_host_not_ready_until_it_opens() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let mut with = settings(folder.path(), &[&coordinator]);
    let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = door.local_addr().unwrap();
    drop(door);
    with.door.kind = Some(DoorKind::Ssh);
    with.door.address = Some(address.to_string());
    with.door.interval = HumanDuration::from_millis(20);
    let agent = Agent::start(with.clone(), None);
    let mut stream = coordinator.greeted().await;
    let load = stream.load("not ready", |load| load.ready == Some(false)).await;
    assert!(load.not_ready_reason().starts_with("door: cannot connect to"), "{:?}", load.not_ready_reason);

    let door = TcpListener::bind(address).await.unwrap();
    let server = tokio::spawn(async move {
        while let Ok((mut stream, _)) = door.accept().await {
            stream.write_all(b"SSH-2.0-test\r\n").await.unwrap();
        }
    });
    stream.load("ready", |load| load.ready == Some(true)).await;
    let status = status(&with).await;
    let operations = status["operations"].as_array().unwrap();
    let door = operations.iter().find(|one| one["name"] == "door").unwrap();
    assert!(door["total"]["failed"].as_f64().unwrap() >= 3.0 && door["total"]["ok"].as_f64().unwrap() >= 1.0);
    server.abort();
    agent.stop().await;
}

#[tokio::test]
async fn a_hung_hook_delays_no_report_and_a_speaking_one_is_in_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let mut with = settings(folder.path(), &[&coordinator]);
    let hook = |script: &str| {
        let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let (interval, deadline) = (HumanDuration::from_millis(50), HumanDuration::from_secs(60));
        Some(HookConfig { command, interval, deadline })
    };
    with.hooks.readiness = hook("exec sleep 1000");
    with.hooks.warm_up = hook("exec sleep 1000");
    with.hooks.busy = hook("echo busy");
    let agent = Agent::start(with, None);
    let mut stream = coordinator.greeted().await;
    let user_set = "user_set".to_owned();
    let load = stream
        .load("busy", |load| load.latched.as_ref().is_some_and(|held| held.reasons.contains(&user_set)))
        .await;
    assert!(load.ready == Some(true) && load.warming_up);
    let mut reports = 0;
    tokio::time::timeout(Duration::from_secs(20), async {
        while reports < 10 {
            stream.load("another", |_| true).await;
            reports += 1;
        }
    })
    .await
    .expect("reports go on");
    agent.stop().await;
}
