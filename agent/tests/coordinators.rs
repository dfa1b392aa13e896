//! Whom does an agent report to, when DNS says so, and when one coordinator has two names?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/dns.rs"]
mod dns;
mod support;

use std::time::{Duration, Instant};

use dns::{Dns, Target};
use support::{Agent, Coordinator, config, one_host};
use usher_agent::config::AgentConfig;
use usher_agent::coordinators::{DnsLookup, Lookup, LookupError};
use usher_proto::v1;
use usher_proto::v1::attach_response::Message as ToAgent;

const SERVICE: &str = "_usher._tcp.example.org";
const VALUES: Option<&str> = Some("cpu=35,mem=55,users=10,procs=70");

fn target(coordinator: &Coordinator) -> Target {
    let (_, port) = coordinator.address.rsplit_once(':').unwrap();
    ("localhost".to_owned(), port.parse().unwrap())
}

fn by_service(folder: &std::path::Path, dns: &Dns) -> AgentConfig {
    AgentConfig {
        coordinators: vec![format!("srv:{SERVICE}")],
        nameservers: vec![dns.address.to_string()],
        ..config(folder, &[])
    }
}

#[tokio::test]
async fn a_service_is_looked_up_with_its_ports_and_the_age_that_its_answer_may_reach() {
    let dns = Dns::start(&[("c1.Example.org".into(), 7443), ("c2.example.org".into(), 7444)], 77).await;
    let lookup = DnsLookup { nameservers: vec![dns.address] };
    let found = lookup.look_up(SERVICE).await.unwrap();
    assert_eq!(found.targets, ["c1.example.org:7443", "c2.example.org:7444"]);
    assert_eq!(found.ttl, Duration::from_secs(77));
    lookup.look_up(SERVICE).await.unwrap();
    assert_eq!(dns.asked(), 2, "no answer is kept beyond what its age allows");

    dns.says(&[(String::new(), 0)]);
    let nobody = lookup.look_up(SERVICE).await.unwrap_err();
    assert!(matches!(nobody, LookupError::Nobody { .. }), "the root is nobody: {nobody}");
    for (code, is_nobody) in [(3, true), (2, false)] {
        dns.fails_with(code);
        let error = lookup.look_up(SERVICE).await.unwrap_err();
        assert_eq!(matches!(error, LookupError::Nobody { .. }), is_nobody, "{code}: {error}");
    }
    let address = dns.address;
    drop(dns);
    let begun = Instant::now();
    let silent = DnsLookup { nameservers: vec![address] }.look_up(SERVICE).await.unwrap_err();
    assert!(matches!(silent, LookupError::NoAnswer { .. }), "{silent}");
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn coordinators_that_dns_names_are_reported_to_and_remembered_for_a_start_without_dns() {
    let folder = tempfile::tempdir().unwrap();
    let (mut first, mut second) = (Coordinator::start().await, Coordinator::start().await);
    let dns = Dns::start(&[target(&first), target(&second)], 3600).await;
    let settings = by_service(folder.path(), &dns);
    let agent = Agent::start(settings.clone(), Some(one_host(VALUES)));
    let mut stream = first.greeted().await;
    let _other = second.greeted().await;
    stream.load("both are reported to", |load| load.coordinators == Some(2) && load.streams_held == 2).await;
    agent.stop().await;

    drop(dns);
    let agent = Agent::start(settings, Some(one_host(VALUES)));
    let mut stream = first.greeted().await;
    let _other = second.greeted().await;
    stream.load("both are remembered", |load| load.coordinators == Some(2) && load.streams_held == 2).await;
    agent.stop().await;
}

#[tokio::test]
async fn a_coordinator_that_appears_in_dns_after_a_loss_is_reported_to() {
    let folder = tempfile::tempdir().unwrap();
    let (mut first, mut second) = (Coordinator::start().await, Coordinator::start().await);
    let dns = Dns::start(&[target(&first)], 3600).await;
    let agent = Agent::start(by_service(folder.path(), &dns), Some(one_host(VALUES)));
    let stream = first.greeted().await;
    dns.says(&[target(&second)]);
    drop((stream, first));
    // The one that is gone from DNS may still give its share, for a while.
    let mut stream = second.greeted().await;
    stream.load("both are counted", |load| load.coordinators == Some(2) && load.streams_held == 1).await;
    agent.stop().await;
}

/// Two names of one coordinator.
fn under_two_names(folder: &std::path::Path, coordinator: &Coordinator) -> AgentConfig {
    let (_, port) = coordinator.address.rsplit_once(':').unwrap();
    AgentConfig {
        coordinators: vec![coordinator.address.clone(), format!("localhost:{port}")],
        ..config(folder, &[])
    }
}

#[tokio::test]
async fn a_coordinator_of_before_that_ends_one_stream_for_the_other_gets_one_in_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let agent = Agent::start(under_two_names(folder.path(), &coordinator), Some(one_host(VALUES)));
    let instance_id = format!("run of {}", coordinator.address);
    let welcome = || v1::Welcome { instance_id: instance_id.clone(), ..Default::default() };
    let (mut older, mut newer) = (coordinator.attached().await, coordinator.attached().await);
    let epochs = (older.hello().await.stream_epoch, newer.hello().await.stream_epoch);
    if epochs.0 > epochs.1 {
        std::mem::swap(&mut older, &mut newer);
    }
    for stream in [&older, &newer] {
        stream.send(ToAgent::Welcome(welcome())).await;
    }
    older.refuse(tonic::Status::aborted("a newer stream of this host took over")).await;
    newer.load("it counts once", |load| load.coordinators == Some(1) && load.streams_held == 1).await;
    // Nothing more comes for as long as two waits before a reconnect take.
    let more = tokio::time::timeout(Duration::from_secs(5), coordinator.attached()).await;
    assert!(more.is_err(), "the name that rests was called again");
    agent.stop().await;
}

#[tokio::test]
async fn a_second_name_of_a_coordinator_is_refused_by_it_and_looked_at_again_when_the_first_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let agent = Agent::start(under_two_names(folder.path(), &coordinator), Some(one_host(VALUES)));
    let mut first = coordinator.greeted().await;
    let instance = format!("run of {}", coordinator.address);
    let mut second = coordinator.attached().await;
    assert_eq!(second.hello().await.held_instance_ids, [instance.as_str()]);
    let same = |instance: &str| {
        let metadata = [("instance_id".to_owned(), instance.to_owned())].into();
        let (code, reason) = (tonic::Code::AlreadyExists, usher_proto::error::reason::SAME_COORDINATOR);
        usher_proto::error::status(code, reason, "the same", metadata, None)
    };
    second.refuse(same(&instance)).await;
    first.load("it counts once", |load| load.coordinators == Some(1) && load.streams_held == 1).await;
    // Its stream is lost: both names are tried, whoever comes first has the stream.
    first.refuse(tonic::Status::unavailable("gone")).await;
    let mut stream = coordinator.attached().await;
    assert_eq!(stream.hello().await.held_instance_ids, [""; 0]);
    let welcome =
        v1::Welcome { instance_id: "a new run".into(), reconnect_spread_ms: 2000, ..Default::default() };
    stream.send(ToAgent::Welcome(welcome)).await;
    let mut other = coordinator.attached().await;
    let hello = other.hello().await;
    if hello.held_instance_ids == ["a new run"] {
        other.refuse(same("a new run")).await;
        stream.load("one again", |load| load.coordinators == Some(1) && load.streams_held == 1).await;
    }
    agent.stop().await;
}
