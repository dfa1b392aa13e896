//! How do agents and coordinators behave when the network, or one of them, does not?
//!
//! Streams that hang, peers that do not read or never stop talking, messages that are too long, late or doubled, one
//! coordinator under two names, and a coordinator that goes down and says whom to ask instead.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use usher_integration_tests::{
    AgentStart, Client, CoordinatorStart, FakeAgent, Farm, LONG, Proxy, Weather, hello, load, place, refusal,
    wait_for, wait_until,
};
use usher_proto::v1;
use usher_proto::v1::attach_request::Message as Said;

/// A connection that swallows everything is given up after so long without a sign of life: 10 s until a ping, 5 s for its
/// answer.
const HALF_OPEN: Duration = Duration::from_secs(15);
/// What a busy machine may add.
const NOISE: Duration = Duration::from_secs(2);

#[tokio::test]
async fn case_116_a_stream_that_swallows_everything_is_given_up_within_15_seconds_on_both_sides() {
    let farm = Farm::start().await;
    let client = farm.client();
    let proxy = Proxy::start(farm.coordinator.grpc).await;
    let start = AgentStart::new(farm.folder(), "hosts", &[proxy.address()]).host("h1", "cpu=10,users=1");
    let agent = start.report_interval("1s").without_waiting().await;
    wait_until("the host to be heard", LONG, async || {
        client.host("h1").await.is_ok_and(|host| host.connected && host.load_age_ms.is_some())
    })
    .await;

    proxy.weather(Weather::half_open());
    let cut = Instant::now();
    let at_coordinator = async {
        wait_until("the coordinator to notice", LONG, async || !client.host("h1").await.unwrap().connected)
            .await;
        cut.elapsed()
    };
    let at_agent = async {
        wait_until("the agent to notice", LONG, async || agent.log().contains("not attached")).await;
        cut.elapsed()
    };
    let (coordinator, agent_noticed) = tokio::join!(at_coordinator, at_agent);
    eprintln!("noticed after: coordinator {coordinator:?}, agent {agent_noticed:?}");
    assert!(coordinator <= HALF_OPEN + NOISE, "{coordinator:?}");
    assert!(agent_noticed <= HALF_OPEN + NOISE, "{agent_noticed:?}");
}

#[tokio::test]
async fn one_coordinator_under_two_names_has_one_stream_and_counts_once() {
    let mut farm = Farm::start().on_fixed_ports().await;
    let client = farm.client();
    let names = [farm.coordinator.grpc.to_string(), format!("localhost:{}", farm.coordinator.grpc.port())];
    let start = AgentStart::new(farm.folder(), "hosts", &[]).host("h1", "cpu=10,users=1").max_users(3);
    let agent = start.told_of(&names).without_waiting().await;
    let rests = "it is another name of a coordinator that has a stream";
    let counted_once = async |what: &str, rested: usize| {
        wait_for(what, LONG, async || {
            let log = agent.log();
            if log.matches(rests).count() < rested {
                return Err(log);
            }
            // Nothing is kept free for a coordinator that is none.
            let request = v1::PlaceRequest { dry_run: true, ..place("desk", "dry") };
            client.place(request).await.map(drop).map_err(|status| status.to_string())
        })
        .await;
    };
    counted_once("the second name to rest", 1).await;
    for n in 1..=2 {
        // Whoever keeps a seat free for nobody has said so within one report.
        wait_for("a place", LONG, async || {
            client.place(place("desk", &format!("R{n}"))).await.map(drop).map_err(|status| status.to_string())
        })
        .await;
    }
    refusal(client.place(place("desk", "R3")).await, Code::ResourceExhausted, "MAX_USERS");
    let attached = farm.coordinator.log().matches("host attached").count();
    // Two calls in one moment cannot know of each other, and may end each other; from the first greeting on they do.
    assert!(attached <= 4, "{attached} streams were opened");

    client.outcome("R1", v1::Outcome::Cancelled).await.unwrap();
    wait_until("the host to know that", LONG, async || agent.held(1).len() == 1).await;
    farm.coordinator.kill();
    farm.coordinator.restart().await;
    counted_once("one of the names to rest after a restart", 2).await;
}

#[tokio::test]
async fn a_coordinator_that_goes_down_says_so_to_agents_and_to_callers_with_whom_to_ask_instead() {
    let mut farm = Farm::start().await;
    let second = CoordinatorStart::new(farm.folder(), "second").start().await;
    let coordinators = [farm.coordinator.grpc, second.grpc];
    let start = AgentStart::new(farm.folder(), "hosts", &coordinators).modelled(20);
    let agent = start.report_interval("500ms").await;
    let (client, other) = (farm.client(), Client::new(second.grpc, None));
    for client in [&client, &other] {
        wait_until("every host to have both streams", LONG, async || {
            let hosts = client.hosts().await.unwrap();
            hosts.len() == 20 && hosts.iter().all(|host| host.connected && host.load_age_ms.is_some())
        })
        .await;
    }
    // So long until each has said in a report that it has a stream to the other one as well.
    tokio::time::sleep(Duration::from_millis(1500)).await;

    farm.coordinator.terminate();
    let hinted = wait_for("a call to be refused with a hint", LONG, async || {
        match client.place(v1::PlaceRequest { dry_run: true, ..place("desk", "x") }).await {
            Ok(_) => Err("it is still served".to_owned()),
            Err(status) => match usher_proto::error::error_info(&status) {
                Some(info) if info.reason == "SHUTTING_DOWN" => Ok(info),
                _ => panic!("another end: {status:?}"),
            },
        }
    })
    .await;
    assert_eq!(hinted.metadata["coordinators"], second.grpc.to_string());
    assert_eq!(farm.coordinator.ended(Duration::from_secs(10)).await.code(), Some(0));
    wait_until("the agents to hear it", LONG, async || {
        agent.log().matches("the coordinator sends us elsewhere: the coordinator is shutting down").count()
            >= 20
    })
    .await;
    // The other one goes on, and its hosts are heard as before.
    other.place(place("desk", "R1")).await.unwrap();
    let hosts = other.hosts().await.unwrap();
    assert!(hosts.iter().all(|host| host.connected && host.load_age_ms.is_some_and(|age| age < 5000)));
}

#[tokio::test]
async fn case_121_a_message_that_is_too_long_is_refused_with_a_clear_word() {
    let farm = Farm::start().await;
    let client = farm.client();
    let mut fake = FakeAgent::attach(&client, hello("long")).await.unwrap();
    fake.report(load(10.0, 10.0, 1, 1)).await;
    let path = "x".repeat(1000);
    let replica = |n| v1::Replica { resource_id: format!("r{n}"), path: Some(path.clone()), title: None };
    let replicas = (0..5000).map(replica).collect();
    fake.say(Said::InventoryPage(v1::InventoryPage { generation: 1, page: 0, last: true, replicas })).await;
    let status = fake.end(LONG).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    assert!(status.message().contains("too large"), "{status:?}");
    assert_eq!(client.host("long").await.unwrap().users, Some(1), "what came before counts");
}

#[tokio::test]
async fn a_load_that_was_held_up_is_as_old_as_the_tick_that_it_echoes() {
    let farm = Farm::start().await;
    let client = farm.client();
    // Two intervals, but no less than some seconds.
    let quick = v1::Hello { report_interval_ms: 1000, ..hello("held-up") };
    let mut fake = FakeAgent::attach(&client, quick).await.unwrap();
    // One that says nothing is not ticked to.
    while fake.tick().is_none_or(|tick| tick < 10) {
        fake.report(load(10.0, 10.0, 1, 1)).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let age = async |load: v1::Load| {
        let cpu = load.cpu_percent;
        fake.say(Said::Load(load)).await;
        fake.seen("the load", |host| host.cpu_percent == cpu).await.load_age_ms.unwrap()
    };
    let echoing = |cpu: f64, tick_echo| v1::Load { tick_echo, ..load(cpu, 10.0, 1, 1) };
    let newest = fake.tick();
    let fresh = age(echoing(20.0, newest)).await;
    assert!(fresh < 1000, "{fresh}");
    let old = age(echoing(30.0, Some(2))).await;
    assert!(old >= 6000, "as old as the second tick: {old}");
    // An echo that this stream never sent is of another stream, and says nothing about this one.
    let foreign = age(echoing(40.0, Some(1 << 40))).await;
    assert!(foreign < 1000, "{foreign}");
    let none = age(echoing(50.0, None)).await;
    assert!(none < 1000, "{none}");
}

#[tokio::test]
async fn a_load_that_comes_twice_or_on_an_older_stream_changes_nothing() {
    let farm = Farm::start().await;
    let client = farm.client();
    let first_hello = hello("twice");
    let mut first = FakeAgent::attach(&client, first_hello.clone()).await.unwrap();
    let place = v1::PendingPlace {
        token: Some(v1::Token { gateway: "g".into(), request_id: "R1".into() }),
        attempt: 1,
        pool: "desk".into(),
        endpoint: first_hello.endpoints.first().cloned(),
        cost: 1,
        counted_users: 1,
        left_ms: 100_000,
        ..Default::default()
    };
    let with_place = v1::Load { sequence: 1, pending: vec![place], ..load(10.0, 10.0, 1, 1) };
    first.report(with_place.clone()).await;
    for _ in 0..10 {
        first.say(Said::Load(with_place.clone())).await;
    }
    first.report(v1::Load { pending: with_place.pending.clone(), ..load(10.0, 10.0, 2, 1) }).await;
    let host = client.host("twice").await.unwrap();
    assert_eq!((host.pending_places, host.users), (1, Some(2)), "{host:?}");

    // A newer stream of the same boot takes over; what the older one still says is not heard.
    let newer = v1::Hello { stream_epoch: 2, ..first_hello };
    let mut second = FakeAgent::attach(&client, newer).await.unwrap();
    second.report(v1::Load { pending: with_place.pending.clone(), ..load(10.0, 10.0, 7, 1) }).await;
    first.try_say(Some(Said::Load(load(10.0, 10.0, 99, 1)))).await;
    assert_eq!(first.end(LONG).await.unwrap_err().code(), Code::Aborted);
    let host = client.host("twice").await.unwrap();
    assert_eq!((host.pending_places, host.users), (1, Some(7)), "{host:?}");
}

/// Agents that attach and never read a word.
const STALLED: usize = 100;
/// Agents that report as fast as they can.
const FLOODING: usize = 20;

#[tokio::test]
async fn alone_a_hundred_agents_that_do_not_read_and_twenty_that_never_stop_are_felt_by_nobody_else() {
    let farm = Farm::start().await;
    let client = farm.client();
    let usual = farm.agent("usual").modelled(20).report_interval("500ms").pool("desk").await;
    let mut stalled = Vec::new();
    for number in 0..STALLED {
        // Each on a connection of its own, as agents are.
        let own = farm.client();
        let (said, queue) = tokio::sync::mpsc::channel(8);
        let elsewhere = v1::Hello { pool: "stalled".into(), ..hello(&format!("stalled-{number}")) };
        said.send(v1::AttachRequest { message: Some(Said::Hello(elsewhere)) }).await.unwrap();
        let stream = own.agents.clone().attach(ReceiverStream::new(queue)).await.unwrap();
        stalled.push((said, stream));
    }
    let mut flooding = tokio::task::JoinSet::new();
    for number in 0..FLOODING {
        let own = farm.client();
        let elsewhere = v1::Hello { pool: "flooding".into(), ..hello(&format!("flood-{number}")) };
        let fake = FakeAgent::attach(&own, elsewhere).await.unwrap();
        flooding.spawn(async move {
            for users in 0.. {
                if !fake.try_say(Some(Said::Load(load(10.0, 10.0, users % 50, 1)))).await {
                    return;
                }
            }
        });
    }
    // The burst that each of them may use is over.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut took = Vec::new();
    let mut oldest = 0;
    for number in 0..300 {
        let begun = Instant::now();
        let request = v1::PlaceRequest { dry_run: true, ..place("desk", &format!("R{number}")) };
        client.place(request).await.unwrap();
        took.push(begun.elapsed());
        if number % 30 == 0 {
            let hosts = client.hosts().await.unwrap();
            let usual = hosts.iter().filter(|host| host.pool == "desk");
            oldest = oldest.max(usual.map(|host| host.load_age_ms.unwrap_or(u64::MAX)).max().unwrap());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    took.sort();
    let (median, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    eprintln!("place median {median:?}, p99 {p99:?}, oldest report of the others {oldest} ms");
    // The test itself floods, on the same two cores: what is to be seen is that nobody waits for those who hang or flood.
    assert!(p99 < Duration::from_millis(500), "{p99:?}");
    assert!(oldest < 4000, "{oldest} ms");
    flooding.abort_all();
    drop((stalled, usual));
}
