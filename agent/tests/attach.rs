//! What does a coordinator see of an agent? Over real connections, with a coordinator that the test plays.

mod support;

use std::time::Duration;

use support::{Agent, Coordinator, LONG, config, lists, one_host, place, soon};
use usher_agent::config::UserLimitSetting;
use usher_proto::v1;
use usher_proto::v1::attach_request::Message as FromAgent;
use usher_proto::v1::attach_response::Message as ToAgent;

const VALUES: Option<&str> = Some("cpu=35,mem=55,users=10,procs=70");

#[tokio::test]
async fn a_real_host_says_hello_and_then_its_whole_state() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let agent = Agent::start(config(folder.path(), &[&coordinator]), None);
    let mut stream = coordinator.attached().await;
    let hello = stream.hello().await;
    assert_eq!((hello.protocol_version, hello.report_interval_ms), (1, 200));
    assert!(hello.cores.unwrap() >= 1 && !hello.endpoints.is_empty() && !hello.r#virtual);
    assert_eq!(hello.host_id, std::fs::read_to_string(folder.path().join("state/host_id")).unwrap().trim());

    let Some(FromAgent::Load(first)) = stream.next().await else { panic!("no Load after the Hello") };
    assert_eq!((first.sequence, first.tick_echo, first.streams_held), (1, None, 1));
    assert!(first.memory_used_bytes.is_some() && first.processes.is_some_and(|processes| processes > 0));
    let later = stream.load("a CPU share", |load| load.cpu_percent.is_some()).await;
    assert!((0.0..=100.0).contains(&later.cpu_percent.unwrap()));

    stream.send(ToAgent::Tick(v1::Tick { tick: 41, ..Default::default() })).await;
    stream.load("an echo", |load| load.tick_echo == Some(41)).await;
    stream.send(ToAgent::Ping(v1::Ping { nonce: 9 })).await;
    let is_pong = |message| matches!(message, FromAgent::Pong(v1::Pong { nonce: 9 })).then_some(());
    stream.wait_for("a pong", is_pong).await;
    agent.stop().await;
}

#[tokio::test]
async fn a_fixed_host_tells_exactly_its_values_and_its_latency() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let mut options = one_host(Some("cpu=35,mem=55,users=10,procs=70,ai-xf=4"));
    options.replicas = vec![(1, "crm".into())];
    let agent = Agent::start(config(folder.path(), &[&coordinator]), Some(options));
    let mut stream = coordinator.attached().await;
    let hello = stream.hello().await;
    assert!(hello.r#virtual);
    assert_eq!((hello.host_name.as_str(), hello.labels["virtual"].as_str()), ("virtual-1", "true"));
    assert_eq!((hello.cores, hello.endpoints[0].port), (Some(8), 2201));
    let load = stream.load("a Load", |_| true).await;
    assert_eq!((load.cpu_percent, load.users, load.processes), (Some(35.0), Some(10), Some(70)));
    let latency = stream
        .wait_for("a window", |message| match message {
            FromAgent::Latency(latency) => Some(latency),
            _ => None,
        })
        .await;
    let logon = &latency.operations[0];
    assert!((logon.sum_us / logon.ok / logon.baseline_us.unwrap() - 4.0).abs() < 1e-9, "{logon:?}");
    let page = stream
        .wait_for("the resources", |message| match message {
            FromAgent::InventoryPage(page) => Some(page),
            _ => None,
        })
        .await;
    assert!(page.last && page.page == 0 && page.replicas[0].resource_id == "crm");
    agent.stop().await;
}

#[tokio::test]
async fn the_limit_holds_and_the_book_is_on_disk_before_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let book = folder.path().join("run/virtual-1/places.json");
    let mut coordinator = Coordinator::start().await;
    let agent = Agent::start(config(folder.path(), &[&coordinator]), Some(one_host(VALUES)));
    let mut stream = coordinator.greeted().await;
    stream.load("a Load", |_| true).await;
    for n in 1..=4 {
        let request = format!("R{n}");
        assert_eq!(stream.ask(place(&request, &request), 14).await, Ok(()));
        assert!(std::fs::read_to_string(&book).unwrap().contains(&format!("\"{request}\"")));
    }
    assert_eq!(stream.ask(place("R5", "u5"), 14).await, Err(v1::RefusalReason::MaxUsers));
    assert!(!std::fs::read_to_string(&book).unwrap().contains("R5"));

    let end =
        v1::EndPlace { token: place("R1", "").token, attempt: 1, reason: v1::EndReason::Cancelled.into() };
    stream.send(ToAgent::EndPlace(end)).await;
    stream.load("the end", |load| !lists(load, "R1") && load.ended.len() == 1).await;
    assert_eq!(stream.ask(place("R1", "u1"), 14).await, Err(v1::RefusalReason::Ended));
    assert_eq!(stream.ask(place("R6", "u6"), 14).await, Ok(()));
    agent.stop().await;
}

#[tokio::test]
async fn nobody_is_admitted_while_the_book_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let in_the_way = folder.path().join("run/virtual-1/places.json.new");
    std::fs::create_dir_all(&in_the_way).unwrap();
    let mut coordinator = Coordinator::start().await;
    let agent = Agent::start(config(folder.path(), &[&coordinator]), Some(one_host(VALUES)));
    let mut stream = coordinator.greeted().await;
    let expect =
        v1::ExpectSession { place: Some(place("R1", "u1")), ask: true, ..v1::ExpectSession::default() };
    stream.send(ToAgent::ExpectSession(expect)).await;
    let mut answered = false;
    let listed = |message| match message {
        FromAgent::PlaceAnswer(_) => {
            answered = true;
            None
        }
        FromAgent::Load(load) => lists(&load, "R1").then_some(()),
        _ => None,
    };
    stream.wait_for("the place, which counts until it is cancelled", listed).await;
    assert!(!answered, "an answer before the book was kept");
    std::fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(stream.ask(place("R2", "u2"), 50).await, Ok(()));
    agent.stop().await;
}

#[tokio::test]
async fn a_burst_of_asks_is_decided_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let agent = Agent::start(config(folder.path(), &[&coordinator]), Some(one_host(Some("users=0"))));
    let mut stream = coordinator.greeted().await;
    stream.load("a Load", |_| true).await;
    let ask = async |n: usize| {
        let expect = v1::ExpectSession {
            place: Some(place(&format!("R{n}"), &format!("u{n}"))),
            ask: true,
            max_users: Some(50),
            ..v1::ExpectSession::default()
        };
        stream.send(ToAgent::ExpectSession(expect)).await;
    };
    for n in 0..60 {
        ask(n).await;
    }
    let (mut admitted, mut refused) = (0, 0);
    while admitted + refused < 60 {
        let count = |message| match message {
            FromAgent::PlaceAnswer(answer) => Some(answer.refused.is_none()),
            _ => None,
        };
        if stream.wait_for("an answer", count).await { admitted += 1 } else { refused += 1 }
    }
    assert_eq!((admitted, refused), (50, 10));
    agent.stop().await;
}

#[tokio::test]
async fn a_killed_agent_reports_its_places_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let settings = config(folder.path(), &[&coordinator]);
    let agent = Agent::start(settings.clone(), Some(one_host(VALUES)));
    let mut first = coordinator.attached().await;
    let before = first.hello().await;
    assert_eq!(first.ask(place("R1", "alice"), 50).await, Ok(()));
    agent.kill().await;

    let agent = Agent::start(settings, Some(one_host(VALUES)));
    let mut second = coordinator.attached().await;
    let after = second.hello().await;
    assert_eq!(after.host_id, before.host_id);
    assert!(after.stream_epoch > before.stream_epoch);
    let load = second.load("the first Load", |_| true).await;
    assert!(lists(&load, "R1"), "the very first report has it");
    assert!(load.pending[0].left_ms <= 120_000 && load.pending[0].admitted);
    agent.stop().await;
}

#[tokio::test]
async fn a_place_given_by_one_coordinator_is_told_to_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (Coordinator::start().await, Coordinator::start().await);
    let agent = Agent::start(config(folder.path(), &[&one, &two]), Some(one_host(VALUES)));
    let (mut first, mut second) = (one.greeted().await, two.greeted().await);
    second.load("both streams", |load| load.streams_held == 2).await;
    let told = v1::ExpectSession { place: Some(place("R1", "alice")), ..v1::ExpectSession::default() };
    first.send(ToAgent::ExpectSession(told)).await;
    second.load("the place at the other", |load| lists(load, "R1")).await;
    first.load("the place at the giver", |load| lists(load, "R1")).await;
    agent.stop().await;
}

#[tokio::test]
async fn case_122_a_coordinator_that_does_not_read_stops_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (mut stalled, mut reading) = (Coordinator::start().await, Coordinator::start().await);
    let mut settings = config(folder.path(), &[&stalled, &reading]);
    // A long list fills the stalled stream's window at once.
    let mut options = one_host(VALUES);
    options.replicas = (0..40_000).map(|n| (1, format!("{n}-{}", "x".repeat(100)))).collect();
    settings.report_interval = usher_runtime::config::HumanDuration::from_millis(100);
    let agent = Agent::start(settings, Some(options));
    let mut silent = stalled.attached().await;
    let mut stream = reading.greeted().await;
    for n in 0..20 {
        let request = format!("R{n}");
        assert_eq!(stream.ask(place(&request, &request), 100).await, Ok(()));
        stream.load("the place", |load| lists(load, &request)).await;
    }
    // When it reads again it gets the newest state soon, not all that it missed.
    let (mut loads, mut newest) = (0, false);
    let catch_up = async {
        while !newest {
            if let Some(FromAgent::Load(load)) = silent.next().await {
                loads += 1;
                newest = lists(&load, "R19");
            }
        }
    };
    soon("the newest state", catch_up).await;
    assert!(loads < 15, "{loads}");
    let newest = silent.load("what comes from now on", |_| true).await;
    assert!(newest.sequence < 100, "each number is of a message that was sent");
    agent.stop().await;
}

#[tokio::test]
async fn an_agent_that_stops_says_good_bye_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (Coordinator::start().await, Coordinator::start().await);
    let agent = Agent::start(config(folder.path(), &[&one, &two]), Some(one_host(VALUES)));
    let mut stream = one.greeted().await;
    let _never_read = two.attached().await;
    stream.load("a Load", |_| true).await;
    let begun = std::time::Instant::now();
    let stopped = tokio::spawn(agent.stop());
    let goodbye = stream
        .wait_for("a good-bye", |message| match message {
            FromAgent::Goodbye(goodbye) => Some(goodbye),
            _ => None,
        })
        .await;
    assert_eq!(goodbye.reason(), v1::GoodbyeReason::AgentStop);
    assert_eq!(stream.next().await, None, "the stream ends with it");
    stopped.await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_lost_coordinator_is_called_again_with_a_higher_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let agent = Agent::start(config(folder.path(), &[&coordinator]), Some(one_host(VALUES)));
    let mut first = coordinator.attached().await;
    let epoch = first.hello().await.stream_epoch;
    first.load("a Load", |_| true).await;
    drop(first);
    let mut second = coordinator.attached().await;
    assert!(second.hello().await.stream_epoch > epoch);
    let load = second.load("a Load", |_| true).await;
    assert_eq!(load.sequence, 1, "each stream counts for itself");
    let elsewhere = v1::GoElsewhere { reason: "stopping".into(), back_in_ms: None };
    second.send(ToAgent::GoElsewhere(elsewhere)).await;
    coordinator.attached().await.hello().await;
    agent.stop().await;
}

#[tokio::test]
async fn settings_reach_the_host_and_those_of_another_pool_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let mut settings = config(folder.path(), &[&coordinator]);
    settings.overrides.max_users = UserLimitSetting::parse("40").ok();
    let agent = Agent::start(settings, Some(one_host(VALUES)));
    let mut stream = coordinator.greeted().await;
    let load = stream.load("a Load", |_| true).await;
    assert_eq!((load.settings_version, load.availability_latched), (None, false));
    assert!(load.max_users.is_some());
    let told = |pool: &str, version, threshold| {
        let policy = usher_types::Policy { threshold_percent: threshold, ..usher_types::Policy::default() };
        let policy = Some(usher_proto::write::policy(&policy));
        ToAgent::PoolSettings(v1::PoolSettings {
            pool: pool.into(),
            version,
            policy,
            ..v1::PoolSettings::default()
        })
    };
    stream.send(told("other", 9, 0.0)).await;
    stream.send(told("default", 3, 100.0)).await;
    let load = stream.load("the settings", |load| load.settings_version.is_some()).await;
    assert_eq!((load.settings_version, load.availability_latched), (Some(3), true));
    agent.stop().await;
}

#[tokio::test]
async fn a_placed_user_of_a_modelled_host_arrives_and_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let agent = Agent::start(config(folder.path(), &[&coordinator]), Some(one_host(None)));
    let mut stream = coordinator.greeted().await;
    let before = stream.load("a Load", |_| true).await.users.unwrap();
    for n in 0..3 {
        assert_eq!(stream.ask(place(&format!("R{n}"), &format!("alice{n}")), 1000).await, Ok(()));
    }
    let is_session_end = |ended: &v1::EndedPlace| ended.reason() == v1::EndReason::Session;
    // Each Load tells of those that are new.
    let mut arrivals = std::collections::BTreeSet::new();
    let arrived = stream
        .load("two arrivals", |load| {
            let ended = load.ended.iter().filter(|ended| is_session_end(ended));
            arrivals.extend(ended.map(|ended| ended.token.clone().unwrap().request_id));
            arrivals.len() >= 2
        })
        .await;
    assert!(arrived.users.unwrap() >= before + 2);
    let listed = |message| match message {
        FromAgent::SessionsPage(page) => {
            page.sessions.into_iter().find(|session| session.user.starts_with("alice"))
        }
        _ => None,
    };
    let session = stream.wait_for("the list with it", listed).await;
    let check = v1::SessionCheck { check_id: 5, session_id: session.id, user: session.user };
    stream.send(ToAgent::SessionCheck(check)).await;
    let confirmed = |message| match message {
        FromAgent::SessionCheckAnswer(answer) => Some((answer.check_id, answer.exists)),
        _ => None,
    };
    assert_eq!(stream.wait_for("the confirmation", confirmed).await, (5, Some(true)));
    agent.stop().await;
}

#[tokio::test]
async fn many_modelled_hosts_attach_each_for_itself() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let options = usher_agent::virtual_hosts::VirtualOptions { count: 20, ..one_host(None) };
    let agent = Agent::start(config(folder.path(), &[&coordinator]), Some(options));
    let (mut ids, mut streams) = (std::collections::BTreeSet::new(), Vec::new());
    for _ in 0..20 {
        let mut stream = coordinator.attached().await;
        ids.insert(stream.hello().await.host_id);
        streams.push(stream);
    }
    assert_eq!(ids.len(), 20);
    drop(streams);
    assert!(tokio::time::timeout(LONG, agent.stop()).await.is_ok());
}
