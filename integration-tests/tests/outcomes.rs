//! Does what gateways say of their logins count against the host that failed them, and only against that one?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use usher_integration_tests::{Agent, Client, Farm, LONG, place, wait_for};
use usher_proto::v1;

/// Two hosts, of which `h1` is far better.
async fn two_hosts() -> (Farm, Agent) {
    let farm = Farm::start().await;
    let agent = farm.agent("hosts").host("h1", "cpu=1,users=1").host("h2", "cpu=90,users=50").await;
    (farm, agent)
}

/// A login of this gateway on the host of that name, whichever is better.
async fn login_on(client: &Client, host: &str, request_id: &str) {
    let other = if host == "h1" { "h2" } else { "h1" };
    let request = v1::PlaceRequest { exclude: vec![other.into()], ..place("desk", request_id) };
    assert_eq!(client.place(request).await.unwrap().host_name, host);
}

async fn fails_on(client: &Client, host: &str, request_id: &str) {
    login_on(client, host, request_id).await;
    assert!(client.failed(request_id, v1::FailoverCause::Unreachable).await.unwrap());
}

async fn penalties(client: &Client, host: &str) -> Vec<v1::Penalty> {
    wait_for("a penalty", LONG, async || {
        let penalties = client.host(host).await.map_err(|status| status.to_string())?.penalties;
        if penalties.is_empty() { Err("none") } else { Ok(penalties) }.map_err(str::to_owned)
    })
    .await
}

#[tokio::test]
async fn a_host_that_fails_two_gateways_comes_last_and_the_explanation_says_so() {
    let (farm, _agent) = two_hosts().await;
    let (one, two) = (farm.gateway("g1"), farm.gateway("g2"));
    assert_eq!(one.place(place("desk", "R0")).await.unwrap().host_name, "h1");
    fails_on(&one, "h1", "R1").await;
    fails_on(&two, "h1", "R2").await;
    let penalty = penalties(&one, "h1").await.pop().unwrap();
    assert_eq!((penalty.cause(), penalty.gateway, penalty.times), (v1::PenaltyCause::Failed, None, 1));
    assert!((30_000..=60_000).contains(&penalty.left_ms), "{}", penalty.left_ms);

    let placed = farm.gateway("g3").place(place("desk", "R3")).await.unwrap();
    assert_eq!(placed.host_name, "h2");
    let explained = one.explain(&placed.decision_id).await.unwrap();
    let host = |name: &str| explained.hosts.iter().find(|host| host.host_name == name).unwrap();
    assert_eq!((host("h1").penalised.as_str(), host("h2").penalised.as_str()), ("failed", ""));
    assert_eq!((host("h2").rank, host("h1").rank), (Some(1), Some(2)));
    // Nobody else left: it is last, not gone. And one login that works clears it.
    login_on(&one, "h1", "R4").await;
    assert!(one.outcome("R4", v1::Outcome::Connected).await.unwrap());
    wait_for("the end of the penalty", LONG, async || {
        let penalties = one.host("h1").await.map_err(|status| status.to_string())?.penalties;
        if penalties.is_empty() { Ok(()) } else { Err(format!("{penalties:?}")) }
    })
    .await;
    assert_eq!(two.place(place("desk", "R5")).await.unwrap().host_name, "h1");
}

#[tokio::test]
async fn a_gateway_that_fails_everywhere_gets_the_host_last_for_itself_only() {
    let (farm, _agent) = two_hosts().await;
    let (sick, well) = (farm.gateway("sick"), farm.gateway("well"));
    fails_on(&sick, "h1", "R1").await;
    fails_on(&sick, "h1", "R2").await;
    let penalty = penalties(&sick, "h1").await.pop().unwrap();
    assert_eq!(penalty.gateway.as_deref(), Some("sick"));
    assert_eq!(sick.place(place("desk", "R3")).await.unwrap().host_name, "h2");
    assert_eq!(well.place(place("desk", "R3")).await.unwrap().host_name, "h1");
}

#[tokio::test]
async fn a_gateway_that_succeeds_elsewhere_is_believed_alone() {
    let (farm, _agent) = two_hosts().await;
    let one = farm.gateway("g1");
    login_on(&one, "h2", "R0").await;
    assert!(one.outcome("R0", v1::Outcome::Connected).await.unwrap());
    fails_on(&one, "h1", "R1").await;
    fails_on(&one, "h1", "R2").await;
    assert_eq!(penalties(&one, "h1").await.pop().unwrap().gateway, None);
    assert_eq!(farm.gateway("g2").place(place("desk", "R3")).await.unwrap().host_name, "h2");
}

#[tokio::test]
async fn a_wrong_password_and_a_busy_word_are_not_the_hosts_fault() {
    let (farm, agent) = two_hosts().await;
    for (gateway, cause) in [("g1", v1::FailoverCause::Auth), ("g2", v1::FailoverCause::Busy)] {
        let client = farm.gateway(gateway);
        login_on(&client, "h1", gateway).await;
        client.failed(gateway, cause).await.unwrap();
    }
    let client = farm.client();
    // Both have reached it: it holds no place any more.
    wait_for("the places to end", LONG, async || {
        let places = agent.places(1).to_string();
        let host = client.host("h1").await.map_err(|status| status.to_string())?;
        if host.pending_places == 0 && !places.contains("\"user\"") { Ok(host) } else { Err(places) }
    })
    .await;
    assert_eq!(client.host("h1").await.unwrap().penalties, []);
    assert_eq!(client.place(place("desk", "R9")).await.unwrap().host_name, "h1");
}
