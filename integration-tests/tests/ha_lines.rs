//! What if the line to a host is slow, loses packets, or swallows everything and says nothing?
//!
//! A proxy of the test's own makes the weather; both ends are real.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use usher_integration_tests::{Agent, Farm, LONG, Proxy, Weather, place, reason, wait_for, wait_until};
use usher_proto::v1;

/// Whoever lost the other side must know within this time; a busy machine may take a moment more.
const NOTICED_WITHIN: Duration = Duration::from_secs(16);

/// An agent with one host, whose only way to the coordinator is the proxy.
async fn behind(farm: &Farm, proxy: &Proxy, name: &str, values: &str) -> Agent {
    let start = farm.agent(name).host(name, values).max_users(6).report_interval("1s");
    start.told_of(&[proxy.address().to_string()]).await
}

#[tokio::test]
async fn case_116_a_connection_that_swallows_everything_is_given_up_by_both_ends_and_made_anew() {
    let farm = Farm::start().await;
    let client = farm.client();
    let proxy = Proxy::start(farm.coordinator.grpc).await;
    let agent = behind(&farm, &proxy, "h1", "cpu=10,users=1").await;
    let _other = farm.agent("h2").host("h2", "cpu=90,users=5").report_interval("1s").await;
    let (logged, connections) = (agent.log().len(), proxy.accepted());

    proxy.weather(Weather::half_open());
    let since = Instant::now();
    let coordinator = async {
        wait_until("the coordinator to notice", LONG, async || !client.host("h1").await.unwrap().connected)
            .await;
        since.elapsed()
    };
    let agent_side = async {
        let named = proxy.address().to_string();
        wait_until("the agent to notice", LONG, async || agent.log()[logged..].contains(&named)).await;
        since.elapsed()
    };
    let (coordinator, agent_side) = tokio::join!(coordinator, agent_side);
    eprintln!("noticed after: coordinator {coordinator:?}, agent {agent_side:?}");
    assert!(coordinator <= NOTICED_WITHIN && agent_side <= NOTICED_WITHIN, "{coordinator:?}, {agent_side:?}");
    assert!(client.host("h2").await.unwrap().connected);

    proxy.weather(Weather::default());
    // A connection that is being made in the swallowing weather must be given up first.
    wait_until("a new connection that works", LONG, async || {
        let host = client.host("h1").await.unwrap();
        host.connected && host.state() == v1::HostState::Available
    })
    .await;
    assert!(proxy.accepted() > connections);
    assert_eq!(client.place(place("desk", "R1")).await.unwrap().host_name, "h1");
}

#[tokio::test]
async fn a_host_whose_consent_comes_too_late_is_passed_over_and_holds_nothing_that_nobody_was_told_of() {
    let farm = Farm::start().await;
    let client = farm.gateway("g1");
    let proxy = Proxy::start(farm.coordinator.grpc).await;
    let slow = behind(&farm, &proxy, "slow", "cpu=1,users=1").await;
    let quick = farm.agent("quick").host("quick", "cpu=80,users=1").max_users(6).report_interval("1s").await;
    assert_eq!(client.place(place("desk", "R0")).await.unwrap().host_name, "slow");

    // Its answer takes 600 ms; a login waits 250.
    proxy.weather(Weather { delay: Duration::from_millis(300), ..Weather::default() });
    let mut told = vec![("slow".to_owned(), "R0".to_owned())];
    for number in 1..=10 {
        let request_id = format!("R{number}");
        let begun = Instant::now();
        match client.place(place("desk", &request_id)).await {
            Ok(placed) => told.push((placed.host_name, request_id)),
            Err(status) => {
                assert!(["NO_CONSENT", "MAX_USERS"].contains(&reason(&status).as_str()), "{status:?}");
            }
        }
        assert!(begun.elapsed() < Duration::from_millis(2000), "{:?}", begun.elapsed());
    }
    assert_eq!(told.iter().filter(|(host, _)| host == "quick").count(), 5, "{told:?}");

    // A lossy line in its place: everything comes, late and in bursts.
    proxy.weather(Weather { loss: 0.2, ..Weather::default() });
    for number in 11..=30 {
        let request_id = format!("R{number}");
        if let Ok(placed) = client.place(place("desk", &request_id)).await {
            told.push((placed.host_name, request_id));
        }
    }
    proxy.weather(Weather::default());
    for (name, agent) in [("slow", &slow), ("quick", &quick)] {
        let mut of_it: Vec<&str> =
            told.iter().filter(|(host, _)| host == name).map(|(_, request)| request.as_str()).collect();
        of_it.sort_unstable();
        assert!(of_it.len() <= 5, "{name} has 5 places: {of_it:?}");
        wait_for("a book of what gateways were told of", LONG, async || {
            let mut held = agent.held(1);
            held.sort_unstable();
            if held == of_it { Ok(()) } else { Err(format!("{name} holds {held:?}, told were {of_it:?}")) }
        })
        .await;
    }
}
