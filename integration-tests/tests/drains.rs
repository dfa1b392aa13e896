//! Does a drain that an admin sets lie where it holds: on the host, whichever coordinator it was set through?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use tonic::Code;
use usher_integration_tests::{
    Client, Coordinator, CoordinatorStart, EtcdStart, FakeAgent, Farm, LONG, Proxy, SmallDisk, hello, load,
    refusal, run_ctl, wait_for, wait_until,
};
use usher_proto::v1;
use usher_proto::v1::attach_response::Message as Heard;

/// A drain is at every coordinator within this time.
const AT_ONCE: Duration = Duration::from_secs(1);

fn drain(host: &str, reason: &str) -> v1::DrainHostRequest {
    let mode = v1::DrainMode::Persistent.into();
    v1::DrainHostRequest { host: host.into(), mode, reason: reason.into(), ..Default::default() }
}

fn undrain(host: &str) -> v1::UndrainHostRequest {
    v1::UndrainHostRequest { host: host.into() }
}

async fn is_in(client: &Client, host: &str, state: v1::HostState, within: Duration) -> v1::HostInfo {
    wait_for(&format!("{host} to be {state:?}"), within, async || {
        let host = client.host(host).await.map_err(|status| status.to_string())?;
        if host.state() == state { Ok(host) } else { Err(format!("{host:?}")) }
    })
    .await
}

/// Two coordinators that share nothing.
async fn two() -> (Farm, Coordinator) {
    let farm = Farm::start().on_fixed_ports().await;
    let second = CoordinatorStart::new(farm.folder(), "second").on_fixed_ports().start().await;
    (farm, second)
}

#[tokio::test]
async fn a_drain_set_through_one_coordinator_is_at_the_other_at_once_and_ends_through_it() {
    let (farm, second) = two().await;
    let start = usher_integration_tests::AgentStart::new(
        farm.folder(),
        "hosts",
        &[farm.coordinator.grpc, second.grpc],
    );
    let _agent = start.host("h1", "cpu=10,users=1").await;
    let (ann, ben) = (farm.gateway("ann"), Client::new(second.grpc, Some("ben")));
    let set = Instant::now();
    let answer = ann.admin.clone().drain_host(drain("h1", "new disks")).await.unwrap().into_inner();
    assert_eq!(answer.kept(), v1::DrainKept::Host);
    // Through which it was set, before the host reports again.
    assert_eq!(ann.host("h1").await.unwrap().state(), v1::HostState::Restricted);
    let seen = is_in(&ben, "h1", v1::HostState::Restricted, AT_ONCE).await;
    eprintln!("a drain was at the other coordinator after {} ms", set.elapsed().as_millis());
    assert_eq!(seen.state_reason, "drained by ann: new disks");
    assert_eq!(seen.host_drain.unwrap().author, "ann");

    let ended = ben.admin.clone().undrain_host(undrain("h1")).await.unwrap().into_inner();
    assert!(ended.was_drained);
    assert_eq!((ended.ended.unwrap().author.as_str(), ended.holds), ("ann", None));
    assert_eq!(ben.host("h1").await.unwrap().state(), v1::HostState::Available);
    is_in(&ann, "h1", v1::HostState::Available, AT_ONCE).await;
    let again = ben.admin.clone().undrain_host(undrain("h1")).await.unwrap().into_inner();
    assert!(!again.was_drained && again.ended.is_none());
}

#[tokio::test]
async fn case_088_a_drain_outlives_the_agent_and_the_coordinator_that_it_was_set_through() {
    let (mut farm, second) = two().await;
    let start = usher_integration_tests::AgentStart::new(
        farm.folder(),
        "hosts",
        &[farm.coordinator.grpc, second.grpc],
    );
    let mut agent = start.host("h1", "cpu=10,users=1").await;
    let (ann, ben) = (farm.gateway("ann"), Client::new(second.grpc, Some("ben")));
    ann.admin.clone().drain_host(drain("h1", "fan")).await.unwrap();
    // Confirmed, so it is on the disk: nobody has time to do anything more.
    agent.kill();
    farm.coordinator.kill();
    wait_until("it to be missed", LONG, async || ben.host("h1").await.is_ok_and(|host| !host.connected))
        .await;
    agent.restart();
    wait_until("the agent to be back", LONG, async || {
        ben.host("h1")
            .await
            .is_ok_and(|host| host.connected && host.load_age_ms.is_some_and(|age| age < 5000))
    })
    .await;
    assert_eq!(ben.host("h1").await.unwrap().state(), v1::HostState::Restricted);
    farm.coordinator.restart().await;
    let seen = is_in(&ann, "h1", v1::HostState::Restricted, LONG).await;
    assert_eq!(seen.state_reason, "drained by ann: fan");
    // The coordinator has stored nothing of it, so nothing of it is left when it ends elsewhere.
    ben.admin.clone().undrain_host(undrain("h1")).await.unwrap();
    is_in(&ann, "h1", v1::HostState::Available, LONG).await;
    farm.coordinator.kill();
    farm.coordinator.restart().await;
    is_in(&ann, "h1", v1::HostState::Available, LONG).await;
}

#[tokio::test]
async fn a_drain_that_a_coordinator_cannot_have_heard_of_is_not_ended_by_its_word() {
    let (farm, second) = two().await;
    let mut line = Proxy::start(second.grpc).await;
    let coordinators = [farm.coordinator.grpc, line.address()];
    let start = usher_integration_tests::AgentStart::new(farm.folder(), "hosts", &coordinators);
    let _agent = start.host("h1", "cpu=10,users=1").await;
    let (ann, ben) = (farm.gateway("ann"), Client::new(second.grpc, Some("ben")));
    is_in(&ben, "h1", v1::HostState::Available, LONG).await;
    line.refuse().await;
    line.reset();
    wait_until("the host to be away", LONG, async || ben.host("h1").await.is_ok_and(|host| !host.connected))
        .await;
    ann.admin.clone().drain_host(drain("h1", "disks")).await.unwrap();
    let refused = ben.admin.clone().undrain_host(undrain("h1")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("may have been drained through another coordinator"), "{refused:?}");
    is_in(&ann, "h1", v1::HostState::Restricted, AT_ONCE).await;
    // The next coordinator can tell.
    let both = format!("{},{}", second.grpc, farm.coordinator.grpc);
    run_ctl(farm.folder(), &["--coordinator", &both, "undrain", "h1"]).await.exited(0);
    is_in(&ann, "h1", v1::HostState::Available, AT_ONCE).await;
}

#[tokio::test]
async fn a_host_that_is_away_is_marked_and_takes_its_drain_over_when_it_is_back() {
    let farm = Farm::start().on_fixed_ports().await;
    let mut agent = farm.agent("hosts").host("h1", "cpu=10,users=1").await;
    let ann = farm.gateway("ann");
    agent.kill();
    wait_until("the host to be away", LONG, async || ann.host("h1").await.is_ok_and(|host| !host.connected))
        .await;
    let answer = ann.admin.clone().drain_host(drain("h1", "moved")).await.unwrap().into_inner();
    assert_eq!(answer.kept(), v1::DrainKept::Coordinators);
    let said =
        farm.ctl(&["drain", "h1", "--persistent", "--reason", "moved", "--gateway", "ann"]).await.exited(0);
    assert!(said.stdout.contains("has not confirmed it"), "{}", said.stdout);
    agent.restart();
    wait_for("the host to have taken it over", LONG, async || {
        let host = ann.host("h1").await.map_err(|status| status.to_string())?;
        let kept = host.host_drain.as_ref().is_some_and(|drain| drain.author == "ann");
        if kept && host.connected { Ok(()) } else { Err(format!("{host:?}")) }
    })
    .await;
    let file = agent.state_dir().join("virtual-1/drain.json");
    assert!(std::fs::read_to_string(&file).unwrap().contains("moved"));
    assert_eq!(ann.host("h1").await.unwrap().state_reason, "drained by ann: moved", "once, not twice");
    // It is the host's now: a host that is away cannot be undrained here, and says where it can.
    agent.kill();
    wait_until("the host to be away", LONG, async || ann.host("h1").await.is_ok_and(|host| !host.connected))
        .await;
    let refused = ann.admin.clone().undrain_host(undrain("h1")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("usher-agent undrain"), "{refused:?}");
    agent.restart();
    agent.heard().await;
    farm.ctl(&["undrain", "h1"]).await.exited(0);
    assert!(!file.exists());
    is_in(&ann, "h1", v1::HostState::Available, LONG).await;
}

#[tokio::test]
async fn a_mark_that_its_host_has_not_taken_over_can_be_taken_back() {
    let farm = Farm::start().await;
    let mut agent = farm.agent("hosts").host("h1", "cpu=10,users=1").await;
    let ann = farm.gateway("ann");
    agent.kill();
    wait_until("the host to be away", LONG, async || ann.host("h1").await.is_ok_and(|host| !host.connected))
        .await;
    ann.admin.clone().drain_host(drain("h1", "moved")).await.unwrap();
    let ended = ann.admin.clone().undrain_host(undrain("h1")).await.unwrap().into_inner();
    assert!(ended.was_drained);
    agent.restart();
    agent.heard().await;
    is_in(&ann, "h1", v1::HostState::Available, LONG).await;
}

#[tokio::test]
async fn an_agent_that_keeps_no_drain_has_a_mark_and_a_silent_one_too() {
    let farm = Farm::start().await;
    let client = farm.gateway("ann");
    // One of 0.1 says nothing of it; and one that says so and then does not answer.
    for (name, keeps_drain) in [("old", false), ("silent", true)] {
        let mut fake = FakeAgent::attach(&client, v1::Hello { keeps_drain, ..hello(name) }).await.unwrap();
        fake.report(load(10.0, 10.0, 1, 10)).await;
        let answer = client.admin.clone().drain_host(drain(name, "x")).await.unwrap().into_inner();
        assert_eq!(answer.kept(), v1::DrainKept::Coordinators, "{name}");
        let shown = fake.report(load(10.0, 10.0, 1, 10)).await;
        assert_eq!(shown.state(), v1::HostState::Restricted, "{name}");
        let told = |heard: &Heard| matches!(heard, Heard::SetDrain(_)).then_some(());
        if keeps_drain {
            fake.hears("the drain that it is to keep", told).await;
            let refused = client.admin.clone().undrain_host(undrain(name)).await.unwrap_err();
            assert_eq!(refused.code(), Code::Unavailable, "it may have kept it: {refused:?}");
        } else {
            let ended = client.admin.clone().undrain_host(undrain(name)).await.unwrap().into_inner();
            assert!(ended.was_drained);
            assert_eq!(fake.report(load(10.0, 10.0, 1, 10)).await.state(), v1::HostState::Available);
        }
    }
}

#[tokio::test]
async fn a_drain_that_the_hosts_disk_refuses_is_an_error_and_is_kept_once_there_is_room() {
    let farm = Farm::start().await;
    let disk = SmallDisk::mount(&farm.folder().join("hosts/state"), 256);
    let _agent = farm.agent("hosts").host("h1", "cpu=10,users=1").await;
    let ann = farm.gateway("ann");
    disk.fill();
    let refused = ann.admin.clone().drain_host(drain("h1", "x")).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("No space left on device"), "{refused:?}");
    assert_eq!(ann.host("h1").await.unwrap().state(), v1::HostState::Available);
    disk.free();
    ann.admin.clone().drain_host(drain("h1", "x")).await.unwrap();
    assert_eq!(ann.host("h1").await.unwrap().state(), v1::HostState::Restricted);
}

#[tokio::test]
async fn with_the_shared_store_away_hosts_that_are_there_are_drained_and_undrained() {
    let start = Farm::start().on_fixed_ports();
    let mut etcd = EtcdStart::new(start.folder(), 1).start().await;
    let farm = start.coordinator(|coordinator| coordinator.store_in(&etcd, None)).await;
    let _agent = farm.agent("hosts").host("h1", "cpu=10,users=1").await;
    let mut away = farm.agent("away").host("h2", "cpu=10,users=1").await;
    let ann = farm.gateway("ann");
    away.kill();
    wait_until("h2 to be away", LONG, async || ann.host("h2").await.is_ok_and(|host| !host.connected)).await;
    etcd.kill(0);
    let answer = ann.admin.clone().drain_host(drain("h1", "disks")).await.unwrap().into_inner();
    assert_eq!(answer.kept(), v1::DrainKept::Host);
    assert_eq!(ann.host("h1").await.unwrap().state(), v1::HostState::Restricted);
    let ended = ann.admin.clone().undrain_host(undrain("h1")).await.unwrap().into_inner();
    assert!(ended.was_drained);
    // A host that is not there would need the store.
    let refused = ann.admin.clone().drain_host(drain("h2", "disks")).await;
    refusal(refused, Code::Unavailable, "STORE_UNAVAILABLE");
}
