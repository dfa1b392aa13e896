//! When a coordinator has lost the agents, does it still send people to hosts whose doors are open, and only to those?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use tokio::net::TcpListener;
use tonic::Code;
use usher_integration_tests::{Client, FakeAgent, Farm, LONG, hello, load, place, refusal, wait_until};
use usher_proto::v1;

/// A host that is OFFLINE 1.3 s after its last report, and whose clients reach it at this port of loopback.
async fn host_at(client: &Client, name: &str, port: u16) -> FakeAgent {
    let endpoints = vec![v1::Endpoint { kind: "ssh".into(), address: "127.0.0.1".into(), port: port.into() }];
    let hello = v1::Hello { endpoints, report_interval_ms: 100, ..hello(name) };
    let mut fake = FakeAgent::attach(client, hello).await.unwrap();
    fake.report(load(10.0, 10.0, 1, 10)).await;
    fake
}

async fn lost(client: &Client, host: &str) {
    wait_until("the host to be lost", LONG, async || {
        client.host(host).await.unwrap().state() == v1::HostState::Offline
    })
    .await;
}

#[tokio::test]
async fn a_lost_host_whose_door_is_open_is_used_and_flagged_and_one_whose_door_is_shut_is_not() {
    let farm = Farm::start().await;
    let client = farm.client();
    let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let open = host_at(&client, "open", door.local_addr().unwrap().port()).await;
    let closed_port = {
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
        gone.local_addr().unwrap().port()
    };
    let shut = host_at(&client, "shut", closed_port).await;
    drop((open, shut));
    lost(&client, "open").await;
    lost(&client, "shut").await;
    for number in 0..3 {
        let placed = client.place(place("desk", &format!("R{number}"))).await.unwrap();
        assert_eq!(placed.host_name, "open");
        assert!(placed.flags.contains(&"blind".to_owned()), "{placed:?}");
    }
    let refuse = v1::Policy { when_blind: Some(v1::WhenBlind::Refuse.into()), ..Default::default() };
    client.apply("desk", refuse).await.unwrap();
    refusal(client.place(place("desk", "R9")).await, Code::Unavailable, "ALL_OFFLINE");
    assert!(tokio::time::timeout(Duration::from_secs(5), door.accept()).await.is_ok(), "it was tried");
}

#[tokio::test]
async fn hosts_that_said_goodbye_are_not_lost() {
    let farm = Farm::start().await;
    let client = farm.client();
    let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = host_at(&client, "h1", door.local_addr().unwrap().port()).await;
    host.goodbye(v1::GoodbyeReason::HostShutdown).await;
    lost(&client, "h1").await;
    refusal(client.place(place("desk", "R1")).await, Code::Unavailable, "ALL_OFFLINE");
}
