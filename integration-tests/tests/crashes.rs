//! What is left of the farm when one of its processes is killed, frozen, or ends in order?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use tonic::{Code, Status};
use usher_integration_tests::{
    Agent, Client, FakeAgent, Farm, LONG, hello, http_get, load, place, reason, refusal, wait_for, wait_until,
};
use usher_proto::error::{error_info, retry_after};
use usher_proto::v1;
use usher_proto::v1::attach_response::Message as Heard;

/// How long a coordinator that has just started, or was frozen, may refuse to place.
const STALE_FOR: Duration = Duration::from_secs(10);

/// Commits of the store so far.
async fn commits(farm: &Farm) -> u64 {
    let text = http_get(farm.coordinator.http, "/metrics").await.body;
    let name = "usher_coordinator_store_commit_duration_seconds_count ";
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name}in {text}")).parse().unwrap()
}

/// Waits until what is known of the hosts now is on disk.
async fn stored(farm: &Farm) {
    let before = commits(farm).await;
    wait_until("the hosts to be stored", LONG, async || commits(farm).await > before).await;
}

/// Nobody is OFFLINE; who was heard.
async fn heard_hosts(client: &Client) -> Result<Vec<String>, Status> {
    let hosts = client.hosts().await?;
    for host in &hosts {
        assert_ne!(host.state(), v1::HostState::Offline, "{host:?}");
    }
    let heard = |host: &v1::HostInfo| host.state() != v1::HostState::Unknown;
    Ok(hosts.into_iter().filter(heard).map(|host| host.host_name).collect())
}

async fn hosts_of(farm: &Farm, agent: &str, first: usize, count: usize) -> Agent {
    let names = (first..first + count).map(|number| format!("h{number}"));
    names.fold(farm.agent(agent), |agent, name| agent.host(&name, "cpu=10,mem=20,users=1,procs=9")).await
}

#[tokio::test]
async fn a_killed_coordinator_has_its_agents_pools_marks_and_places_back_within_ten_seconds() {
    let mut farm = Farm::start().on_fixed_ports().await;
    let client = farm.gateway("g1");
    let policy = |threshold| v1::Policy { threshold_percent: Some(threshold), ..Default::default() };
    client.apply("desk", policy(10.0)).await.unwrap();
    client.apply("desk", policy(20.0)).await.unwrap();
    let agent = hosts_of(&farm, "hosts", 1, 4).await;
    for (host, mode) in [("h3", v1::DrainMode::Persistent), ("h4", v1::DrainMode::UntilRestart)] {
        let reason = format!("disks of {host}");
        let request =
            v1::DrainHostRequest { host: host.into(), mode: mode.into(), reason, ..Default::default() };
        client.admin.clone().drain_host(request).await.unwrap();
    }
    let placed = client.place(place("desk", "R1")).await.unwrap();
    wait_until("the agent to hold the place", LONG, async || {
        (1..=2).any(|number| agent.places(number).to_string().contains("\"R1\""))
    })
    .await;
    stored(&farm).await;

    farm.coordinator.kill();
    let killed = Instant::now();
    wait_until("a moment without a coordinator", LONG, async || killed.elapsed() > Duration::from_secs(1))
        .await;
    farm.coordinator.restart().await;
    let restarted = Instant::now();
    wait_for("all agents to be back", Duration::from_secs(10), async || {
        let heard = heard_hosts(&client).await.map_err(|status| status.to_string())?;
        if heard.len() == 4 { Ok(()) } else { Err(format!("{heard:?}")) }
    })
    .await;
    assert!(restarted.elapsed() < Duration::from_secs(10));

    let pool = client.pool("desk").await.unwrap();
    assert_eq!((pool.version, pool.policy.unwrap().threshold_percent), (2, Some(20.0)));
    for (host, mode) in [("h3", v1::DrainMode::Persistent), ("h4", v1::DrainMode::UntilRestart)] {
        let host = client.host(host).await.unwrap();
        assert_eq!(host.state(), v1::HostState::Restricted);
        let drain = host.drain.unwrap();
        assert_eq!(
            (drain.mode(), drain.reason.as_str()),
            (mode, format!("disks of {}", host.host_name).as_str())
        );
        assert_eq!(drain.author, "g1");
    }
    // The place is the host's: it has outlived the coordinator, and a retry finds it.
    assert_eq!(client.host(&placed.host_name).await.unwrap().pending_places, 1);
    let again = client.place(place("desk", "R1")).await.unwrap();
    assert_eq!((again.host_id, again.reservation), (placed.host_id, placed.reservation));
    assert_eq!(again.policy_version, 2);
    assert!(farm.coordinator.is_running());
    drop(agent);
}

#[tokio::test]
async fn case_135_after_a_restart_nothing_is_placed_until_enough_of_the_farm_was_heard() {
    let mut farm = Farm::start().on_fixed_ports().await;
    let client = farm.client();
    // 7 of 10: less than four fifths.
    let _heard = hosts_of(&farm, "heard", 1, 7).await;
    let mut lost = hosts_of(&farm, "lost", 8, 3).await;
    stored(&farm).await;
    farm.coordinator.kill();
    lost.kill();
    let before = Instant::now();
    farm.coordinator.restart().await;

    let mut refusals = 0;
    let placed = wait_for("the end of the wait", LONG, async || {
        // None of the silent hosts is reported dead, and what was known of them is shown.
        heard_hosts(&client).await.map_err(|status| status.to_string())?;
        let silent = client.host("h9").await.unwrap();
        assert_eq!((silent.state(), silent.connected), (v1::HostState::Unknown, false));
        match client.place(place("desk", "R1")).await {
            Ok(placed) => Ok(placed),
            Err(status) => {
                assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "STALE"));
                assert!(retry_after(&status).is_some_and(|after| after <= Duration::from_secs(2)));
                refusals += 1;
                Err(status.to_string())
            }
        }
    })
    .await;
    assert!(before.elapsed() >= STALE_FOR, "placed after {:?}", before.elapsed());
    assert!(refusals > 0);
    // Now it chooses among those that it hears, and says that it does not hear all.
    assert!(["h1", "h2", "h3", "h4", "h5", "h6", "h7"].contains(&placed.host_name.as_str()));
    assert!(placed.flags.contains(&"partial_view".to_owned()));
    assert_eq!((placed.hosts_heard, placed.hosts_registered), (7, 10));
    for number in 0..20 {
        let placed = client.place(place("desk", &format!("P{number}"))).await.unwrap();
        assert!(!["h8", "h9", "h10"].contains(&placed.host_name.as_str()));
    }
    lost.restart();
    lost.heard().await;
    assert_eq!(heard_hosts(&client).await.unwrap().len(), 10);
}

#[tokio::test]
async fn after_a_restart_four_fifths_of_the_farm_are_enough() {
    let mut farm = Farm::start().on_fixed_ports().await;
    let client = farm.client();
    let _heard = hosts_of(&farm, "heard", 1, 8).await;
    let mut lost = hosts_of(&farm, "lost", 9, 2).await;
    stored(&farm).await;
    farm.coordinator.kill();
    lost.kill();
    farm.coordinator.restart().await;
    wait_for("a place", LONG, async || match client.place(place("desk", "R1")).await {
        Ok(placed) => Ok(placed),
        Err(status) => {
            assert_eq!(reason(&status), "STALE");
            // Whether it is placed as soon as eight are heard, or after all the time, is the difference.
            let heard = heard_hosts(&client).await.map_err(|status| status.to_string())?.len();
            let enough = client.place(place("desk", "R1")).await.map_err(|status| reason(&status));
            assert!(heard < 8 || enough != Err("STALE".to_owned()), "{heard} were heard: {enough:?}");
            Err(status.to_string())
        }
    })
    .await;
}

#[tokio::test]
async fn a_killed_agent_keeps_its_places_and_they_count_before_and_after_its_restart() {
    let farm = Farm::start().await;
    let client = farm.gateway("g1");
    // OFFLINE only after 16 s: a restart takes less.
    let start = farm.agent("hosts").host("h1", "cpu=10,mem=20,users=3,procs=9").report_interval("5s");
    let mut agent = start.await;
    let placed =
        client.place(v1::PlaceRequest { user: Some("u1".into()), ..place("desk", "R1") }).await.unwrap();
    wait_until("the agent to hold the place", LONG, async || agent.places(1).to_string().contains("\"R1\""))
        .await;
    agent.kill();
    let host = client.host("h1").await.unwrap();
    assert_eq!((host.pending_places, host.pending_users, host.users), (1, 1, Some(3)));

    agent.restart();
    wait_for("the agent's new stream", LONG, async || {
        let host = client.host("h1").await.map_err(|status| status.to_string())?;
        assert_eq!((host.pending_places, host.pending_users), (1, 1), "{host:?}");
        let fresh = host.connected && host.load_age_ms.is_some_and(|age| age < 1000);
        if fresh { Ok(()) } else { Err(format!("{host:?}")) }
    })
    .await;
    let details = client.host_details("h1").await.unwrap();
    assert_eq!(details.pending.len(), 1);
    assert_eq!(details.pending[0].token, placed.reservation);
    assert_eq!(details.pending[0].user.as_deref(), Some("u1"));
    assert!(agent.places(1).to_string().contains("\"R1\""));
    let again =
        client.place(v1::PlaceRequest { user: Some("u1".into()), ..place("desk", "R1") }).await.unwrap();
    assert_eq!(again.reservation, placed.reservation);
}

#[tokio::test]
async fn case_119_a_coordinator_ends_within_ten_seconds_however_many_streams_are_open() {
    let mut farm = Farm::start().await;
    let client = farm.client();
    let mut agent = farm.agent("many").modelled(200).await;
    let fake = FakeAgent::attach(&client, hello("fake")).await.unwrap();
    // One that never reads what it is sent.
    let (unread, queue) = tokio::sync::mpsc::channel(8);
    let first = v1::attach_request::Message::Hello(hello("deaf"));
    unread.send(v1::AttachRequest { message: Some(first) }).await.unwrap();
    let stream = tokio_stream::wrappers::ReceiverStream::new(queue);
    let _deaf = client.agents.clone().attach(stream).await.unwrap();

    farm.coordinator.terminate();
    let status = farm.coordinator.ended(Duration::from_secs(10)).await;
    assert_eq!(status.code(), Some(0), "{status}");
    fake.hears("that it should go elsewhere", |heard| matches!(heard, Heard::GoElsewhere(_)).then_some(()))
        .await;
    assert!(matches!(fake.end(LONG).await, Ok(())), "a clean end: {:?}", fake.ended());
    assert!(!farm.coordinator.data_dir().join("listening.json").exists());
    // The agents live on and look for it.
    assert!(agent.is_running());
    agent.terminate();
    assert_eq!(agent.ended(Duration::from_secs(10)).await.code(), Some(0));
}

#[tokio::test]
async fn case_119_a_second_signal_does_not_wait_for_a_call_that_never_ends() {
    let settings = "[limits]\nmax_concurrent_calls = 1\ncall_deadline = \"1m\"\n";
    let mut farm = Farm::start().settings(settings).await;
    let client = farm.client();
    // A request whose message never comes: the shutdown gives such a call seconds to end.
    let mut grpc = tonic::client::Grpc::new(client.channel.clone());
    let endless = tokio::spawn(async move {
        loop {
            grpc.ready().await.unwrap();
            let path = "/usher.v1.PlacementService/Place".parse().unwrap();
            let codec: tonic_prost::ProstCodec<v1::PlaceRequest, v1::PlaceResponse> =
                tonic_prost::ProstCodec::default();
            let endless = tonic::Request::new(tokio_stream::pending());
            match grpc.client_streaming(endless, path, codec).await {
                // One of the calls below was there first.
                Err(status) if error_info(&status).is_some_and(|info| info.reason == "OVERLOADED") => {}
                ended => return ended,
            }
        }
    });
    wait_until("the call to be under way", LONG, async || {
        client.hosts().await.is_err_and(|status| reason(&status) == "OVERLOADED")
    })
    .await;

    let begun = Instant::now();
    farm.coordinator.terminate();
    let waits = async || farm.coordinator.log().contains("a second signal exits at once");
    wait_until("the first signal to be taken", LONG, waits).await;
    assert!(farm.coordinator.is_running(), "it waits for the call");
    farm.coordinator.terminate();
    assert_eq!(farm.coordinator.ended(LONG).await.code(), Some(143));
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(endless.await.unwrap().is_err());
}

#[tokio::test]
async fn a_host_that_says_goodbye_is_gone_and_an_agent_that_does_is_not() {
    let farm = Farm::start().await;
    let client = farm.client();
    let mut host = FakeAgent::attach(&client, hello("host")).await.unwrap();
    host.report(load(1.0, 1.0, 0, 1)).await;
    let mut stopped = farm.agent("stopped").host("agent", "cpu=10,users=1").report_interval("60s").await;
    let mut fake = FakeAgent::attach(&client, hello("fake")).await.unwrap();
    fake.report(load(20.0, 20.0, 1, 10)).await;

    assert_eq!(client.place(place("desk", "R1")).await.unwrap().host_name, "host");
    host.goodbye(v1::GoodbyeReason::HostShutdown).await;
    fake.goodbye(v1::GoodbyeReason::AgentStop).await;
    stopped.terminate();
    assert_eq!(stopped.ended(LONG).await.code(), Some(0));
    wait_for("all streams to be closed", LONG, async || {
        let hosts = client.hosts().await.map_err(|status| status.to_string())?;
        if hosts.iter().any(|host| host.connected) { Err(format!("{hosts:?}")) } else { Ok(()) }
    })
    .await;
    let gone = client.host("host").await.unwrap();
    assert_eq!((gone.state(), gone.pending_places), (v1::HostState::Offline, 0));
    for name in ["agent", "fake"] {
        assert_eq!(client.host(name).await.unwrap().state(), v1::HostState::Available, "{name}");
    }
    assert_ne!(client.place(place("desk", "R1")).await.unwrap().host_name, "host");
}

#[tokio::test]
async fn a_host_that_falls_silent_is_offline_after_three_intervals_and_a_second() {
    let farm = Farm::start().await;
    let client = farm.client();
    let mut agent = farm.agent("hosts").host("h1", "cpu=10,users=1").await;
    let _other = farm.agent("other").host("h2", "cpu=90,users=9").report_interval("60s").await;
    client.place(place("desk", "R1")).await.unwrap();
    // 1.6 s.
    let killed = Instant::now();
    agent.kill();
    let offline = wait_for("h1 to be OFFLINE", LONG, async || {
        let host = client.host("h1").await.map_err(|status| status.to_string())?;
        let elapsed = killed.elapsed();
        if host.state() == v1::HostState::Offline { Ok(elapsed) } else { Err(format!("{host:?}")) }
    })
    .await;
    // The last report was sent at most an interval before the kill.
    assert!(offline >= Duration::from_millis(1350), "{offline:?}");
    assert_eq!(client.place(place("desk", "R2")).await.unwrap().host_name, "h2");
    agent.restart();
    agent.heard().await;
    wait_until("h1 to be back", LONG, async || {
        client.host("h1").await.is_ok_and(|host| host.state() == v1::HostState::Available)
    })
    .await;
}

#[tokio::test]
async fn case_136_a_coordinator_that_was_frozen_places_by_fresh_reports_only() {
    let mut farm = Farm::start().await;
    let client = farm.client();
    let mut gone = farm.agent("gone").host("gone", "cpu=1,mem=1,users=0,procs=1").await;
    let names = ["s1", "s2", "s3", "s4"];
    let survivors = names
        .iter()
        .fold(farm.agent("survivors"), |agent, name| agent.host(name, "cpu=80,mem=80,users=50,procs=500"));
    let _survivors = survivors.await;
    assert_eq!(client.place(place("desk", "R0")).await.unwrap().host_name, "gone");

    farm.coordinator.freeze();
    let frozen = Instant::now();
    // Longer than the age at which a buffered report counts as old. Its host dies last, so that all of them wait in
    // the coordinator's socket.
    wait_until("four frozen seconds", LONG, async || frozen.elapsed() > Duration::from_secs(4)).await;
    gone.kill();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.place(place("desk", "R1")).await }
    });
    farm.coordinator.thaw();
    let first = waiting.await.unwrap();
    let check = |answer: &Result<v1::Placement, Status>| match answer {
        Ok(placed) => assert!(names.contains(&placed.host_name.as_str()), "{placed:?}"),
        Err(status) => assert_eq!((status.code(), reason(status).as_str()), (Code::Unavailable, "STALE")),
    };
    check(&first);
    for number in 0..50 {
        check(&client.place(place("desk", &format!("P{number}"))).await);
    }
    wait_for("a place", LONG, async || {
        let answer = client.place(place("desk", "R1")).await;
        check(&answer);
        answer.map_err(|status| status.to_string())
    })
    .await;
    assert!(farm.coordinator.is_running());
}

#[tokio::test]
async fn case_081_the_late_end_of_an_old_stream_takes_nothing_from_the_new_one() {
    let farm = Farm::start().await;
    let client = farm.client();
    let first_hello = hello("h1");
    let mut first = FakeAgent::attach(&client, first_hello.clone()).await.unwrap();
    first.report(load(10.0, 10.0, 4, 10)).await;
    let second_hello = v1::Hello { stream_epoch: 2, ..first_hello.clone() };
    let mut second = FakeAgent::attach(&client, second_hello).await.unwrap();
    second.report(load(10.0, 10.0, 5, 10)).await;
    // What the old stream still says is not heard, and its end changes nothing.
    let _ = first.try_say(Some(v1::attach_request::Message::Load(load(10.0, 10.0, 77, 10)))).await;
    let _ = first
        .try_say(Some(v1::attach_request::Message::Goodbye(v1::Goodbye {
            reason: v1::GoodbyeReason::HostShutdown.into(),
        })))
        .await;
    drop(first);
    for users in 6..26 {
        let host = second.report(load(10.0, 10.0, users, 10)).await;
        assert_eq!((host.connected, host.users), (true, Some(users)));
        assert_eq!(host.state(), v1::HostState::Available);
    }
    assert!(second.ended().is_none());
    assert_eq!(client.hosts().await.unwrap().len(), 1);
    assert_eq!(client.place(place("desk", "R1")).await.unwrap().host_name, "h1");
    // An even older one is not let in again.
    let late = FakeAgent::attach(&client, first_hello).await.map(|_| ());
    refusal(late, Code::Aborted, "HOST_ID_IN_USE");
}

#[tokio::test]
async fn case_077_of_two_machines_with_one_id_the_second_is_refused_while_the_first_answers() {
    let farm = Farm::start().await;
    let client = farm.client();
    let mut first = FakeAgent::attach(&client, hello("a")).await.unwrap();
    first.report(load(50.0, 50.0, 9, 90)).await;
    let clone = v1::Hello { host_id: first.id().to_owned(), stream_epoch: 9, ..hello("b") };
    let second = FakeAgent::attach(&client, clone.clone()).await.map(|_| ());
    let refused = refusal(second, Code::AlreadyExists, "HOST_ID_IN_USE");
    assert!(refused.message().contains(" a") && refused.message().contains(" b "), "{refused:?}");
    let host = client.host(first.id()).await.unwrap();
    assert_eq!((host.host_name.as_str(), host.connected, host.users), ("a", true, Some(9)));
    assert_eq!(host.boot_id, first.hello().boot_id);
    for number in 0..5 {
        assert_eq!(client.place(place("desk", &format!("R{number}"))).await.unwrap().host_name, "a");
    }
    // A machine that is gone behind a connection that is not: whoever boots in its place gets in.
    first.ignore_pings();
    let started = Instant::now();
    let mut second = FakeAgent::attach(&client, clone).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(1900), "{:?}", started.elapsed());
    second.report(load(10.0, 10.0, 1, 10)).await;
    assert_eq!(client.host(second.id()).await.unwrap().host_name, "b");
    assert_eq!(client.hosts().await.unwrap().len(), 1);
}
