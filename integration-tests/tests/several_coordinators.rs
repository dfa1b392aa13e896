//! Does it stay one farm when several coordinators serve it, and when all its agents restart?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tonic::Code;
use usher_integration_tests::{
    AgentStart, Client, CoordinatorStart, FakeAgent, Farm, LONG, hello, load, place, reason, refusal,
    wait_for,
};
use usher_proto::v1;
use usher_proto::v1::attach_response::Message as Heard;

#[tokio::test]
async fn the_last_place_asked_for_through_two_coordinators_at_once_is_given_once() {
    let farm = Farm::start().await;
    let second = CoordinatorStart::new(farm.folder(), "second").start().await;
    let coordinators = [farm.coordinator.grpc, second.grpc];
    let start = AgentStart::new(farm.folder(), "hosts", &coordinators).host("h1", "cpu=10,users=1");
    let agent = start.max_users(2).await;
    let clients = coordinators.map(|address| Client::new(address, Some("g1")));
    for client in &clients {
        // Until it hears both it keeps a share of its one free place for the other.
        wait_for("the host to be heard by both, and to hear both", LONG, async || {
            let request = v1::PlaceRequest { dry_run: true, ..place("desk", "dry") };
            client.place(request).await.map_err(|status| status.to_string())
        })
        .await;
    }
    for round in 0..10 {
        let mut calls = JoinSet::new();
        for (number, client) in clients.iter().cloned().enumerate() {
            let request = place("desk", &format!("R{round}-{number}"));
            calls.spawn(async move { (number, client.place(request).await) });
        }
        let answers = calls.join_all().await;
        let given: Vec<usize> =
            answers.iter().filter(|(_, answer)| answer.is_ok()).map(|(number, _)| *number).collect();
        assert_eq!(given.len(), 1, "round {round}: {answers:?}");
        for (_, answer) in answers {
            let Err(status) = answer else { continue };
            assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
            assert!(["MAX_USERS", "NO_CONSENT"].contains(&reason(&status).as_str()), "{status:?}");
        }
        assert_eq!(agent.places(1).to_string().matches("\"admitted\":true").count(), 1);
        // It is given back through the one that gave it; the host sees that, and both coordinators, which may never have
        // heard of the place.
        let won = given[0];
        clients[won].outcome(&format!("R{round}-{won}"), v1::Outcome::Cancelled).await.unwrap();
        wait_for("the place to leave the book", LONG, async || {
            let book = agent.places(1).to_string();
            if book.contains("\"admitted\":true") { Err(book) } else { Ok(()) }
        })
        .await;
        for client in &clients {
            wait_for("the place to be free again", LONG, async || {
                let host = client.host("h1").await.map_err(|status| status.to_string())?;
                if host.pending_places == 0 { Ok(()) } else { Err(format!("{host:?}")) }
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_place_given_through_one_coordinator_is_found_through_the_other() {
    let farm = Farm::start().await;
    let second = CoordinatorStart::new(farm.folder(), "second").start().await;
    let coordinators = [farm.coordinator.grpc, second.grpc];
    let start = AgentStart::new(farm.folder(), "hosts", &coordinators).host("h1", "cpu=10,users=1");
    let _agent = start.host("h2", "cpu=10,users=1").await;
    let clients = coordinators.map(|address| Client::new(address, Some("g1")));
    let placed = clients[0].place(place("desk", "R1")).await.unwrap();
    wait_for("the other coordinator to know the place", LONG, async || {
        let host = clients[1].host(&placed.host_name).await.map_err(|status| status.to_string())?;
        if host.pending_places == 1 { Ok(()) } else { Err(format!("{host:?}")) }
    })
    .await;
    let again = clients[1].place(v1::PlaceRequest { attempt: 2, ..place("desk", "R1") }).await.unwrap();
    assert_eq!((again.host_id, again.reservation), (placed.host_id, placed.reservation));
    assert!(clients[1].outcome("R1", v1::Outcome::Connected).await.unwrap());
}

#[tokio::test]
async fn while_all_agents_of_a_pool_restart_no_login_fails() {
    let farm = Farm::start().await;
    let client = farm.gateway("g1");
    // OFFLINE only after 10 s without a report: a restart takes less.
    let start = |name: &str| farm.agent(name).report_interval("3s");
    let mut upgraded = start("upgraded").host("h1", "cpu=10,users=1").host("h2", "cpu=20,users=2").await;
    let mut killed =
        start("killed").host("h3", "cpu=30,users=3").host("h4", "cpu=40,users=4").max_users(500).await;
    let logins = {
        let client = client.clone();
        let until = Instant::now() + Duration::from_secs(8);
        tokio::spawn(async move {
            let mut logins = 0;
            while Instant::now() < until {
                let request_id = format!("R{logins}");
                let placed = client.place(place("desk", &request_id)).await;
                placed.unwrap_or_else(|status| panic!("login {logins} failed: {status:?}"));
                client.outcome(&request_id, v1::Outcome::Cancelled).await.unwrap();
                logins += 1;
            }
            logins
        })
    };
    upgraded.terminate();
    upgraded.ended(LONG).await;
    killed.kill();
    wait_for("all streams to be gone", LONG, async || {
        let hosts = client.hosts().await.map_err(|status| status.to_string())?;
        if hosts.iter().all(|host| !host.connected) { Ok(()) } else { Err(format!("{hosts:?}")) }
    })
    .await;
    // They are listed as they were, and placed on.
    assert!(client.hosts().await.unwrap().iter().all(|host| host.state() == v1::HostState::Available));
    upgraded.restart();
    killed.restart();
    upgraded.heard().await;
    killed.heard().await;
    assert!(logins.await.unwrap() > 10);
}

#[tokio::test]
async fn a_reporter_with_a_limit_is_shared_out_by_two_coordinators_and_never_asked() {
    let farm = Farm::start().await;
    let second = CoordinatorStart::new(farm.folder(), "second").start().await;
    let clients = [farm.coordinator.grpc, second.grpc].map(|address| Client::new(address, Some("g1")));
    let reporter = v1::Hello { reporter: true, ..hello("h1") };
    let mut streams = Vec::new();
    for client in &clients {
        let limit = v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(10)) };
        client.apply("desk", v1::Policy { max_users: Some(limit), ..Default::default() }).await.unwrap();
        let mut fake = FakeAgent::attach(client, reporter.clone()).await.unwrap();
        let shown = fake.report(v1::Load { streams_held: 2, ..load(10.0, 10.0, 3, 10) }).await;
        assert!(shown.reporter);
        streams.push(fake);
    }
    // Seven places are left: three for each of the two, so that both together never pass the limit.
    for client in &clients {
        for number in 0..3 {
            client.place(place("desk", &format!("R{number}"))).await.unwrap();
        }
        refusal(client.place(place("desk", "R3")).await, Code::ResourceExhausted, "MAX_USERS");
    }
    let asked = |heard: &Heard| matches!(heard, Heard::ExpectSession(expect) if expect.ask);
    assert!(streams.iter().all(|stream| !stream.heard().iter().any(asked)));
}
