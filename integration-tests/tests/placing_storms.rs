//! Do places stay right when many ask at once, ask twice, or go away before they have their answer?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::JoinSet;
use tonic::{Code, Request, Status};
use usher_integration_tests::{Client, FakeAgent, Farm, LONG, hello, load, place, reason, refusal, wait_for};
use usher_proto::error::retry_after;
use usher_proto::v1;
use usher_proto::v1::attach_response::Message as Heard;

/// Sends all requests at once, spread over the gateways; the answers in no order.
async fn storm(gateways: &[Client], requests: Vec<v1::PlaceRequest>) -> Vec<Result<v1::Placement, Status>> {
    let mut calls = JoinSet::new();
    for (request, gateway) in requests.into_iter().zip(gateways.iter().cycle()) {
        let gateway = gateway.clone();
        calls.spawn(async move { gateway.place(request).await });
    }
    calls.join_all().await
}

fn gateways(farm: &Farm, count: usize) -> Vec<Client> {
    (1..=count).map(|number| farm.gateway(&format!("gateway-{number}"))).collect()
}

fn requests(prefix: &str, count: usize) -> Vec<v1::PlaceRequest> {
    (0..count).map(|number| place("desk", &format!("{prefix}-{number}"))).collect()
}

/// Hosts that report once and then say nothing more.
async fn quiet_hosts(client: &Client, count: usize, users: u32) -> Vec<FakeAgent> {
    let mut hosts = Vec::new();
    for number in 1..=count {
        let mut fake = FakeAgent::attach(client, hello(&format!("h{number}"))).await.unwrap();
        fake.report(load(10.0, 20.0, users, 100)).await;
        hosts.push(fake);
    }
    hosts
}

fn count_by_host(placed: &[v1::Placement]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for placement in placed {
        *counts.entry(placement.host_name.clone()).or_insert(0) += 1;
    }
    counts
}

fn users_alone(limit: Option<u32>) -> v1::Policy {
    let weights = v1::Weights { users_percent: Some(100.0), ..Default::default() };
    let limit = limit.map(|users| v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(users)) });
    v1::Policy { weights: Some(weights), max_users: limit, ..Default::default() }
}

/// The host that never answers, in a pool with a limit: it is asked for each place.
async fn silent_host(farm: &Farm) -> FakeAgent {
    let client = farm.client();
    client.apply("desk", users_alone(Some(50))).await.unwrap();
    quiet_hosts(&client, 1, 0).await.remove(0)
}

async fn nothing_pending(client: &Client, host: &str) {
    wait_for("no place to be counted", LONG, async || {
        let host = client.host_details(host).await.map_err(|status| status.to_string())?;
        let info = host.host.unwrap();
        let none = info.pending_places == 0 && info.pending_users == 0 && host.pending.is_empty();
        if none { Ok(()) } else { Err(format!("{info:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn thirty_at_once_on_three_equal_hosts_are_ten_each_without_a_report_in_between() {
    let farm = Farm::start().await;
    let _hosts = quiet_hosts(&farm.client(), 3, 0).await;
    let gateways = gateways(&farm, 3);
    for round in 0..10 {
        let answers = storm(&gateways, requests(&format!("round-{round}"), 30)).await;
        let placed: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        let counts: Vec<usize> = count_by_host(&placed).into_values().collect();
        assert_eq!(counts, [10, 10, 10], "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_at_once_against_a_limit_of_fifty_on_two_hosts_admit_exactly_a_hundred() {
    let farm = Farm::start().await;
    farm.client().apply("desk", users_alone(Some(50))).await.unwrap();
    let agent = farm.agent("hosts").host("h1", "cpu=5,mem=5,users=0").host("h2", "cpu=5,mem=5,users=0").await;
    let answers = storm(&gateways(&farm, 4), requests("login", 200)).await;
    let (placed, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    let placed: Vec<_> = placed.into_iter().map(Result::unwrap).collect();
    let mut refusals = BTreeMap::new();
    for status in refused.into_iter().map(Result::unwrap_err) {
        assert!(retry_after(&status).is_some(), "{status:?}");
        *refusals.entry((status.code().to_string(), reason(&status))).or_insert(0) += 1;
    }
    let full = (Code::ResourceExhausted.to_string(), "MAX_USERS".to_owned());
    assert_eq!(refusals, BTreeMap::from([(full, 100)]), "{:?}", count_by_host(&placed));
    assert_eq!(count_by_host(&placed), BTreeMap::from([("h1".to_owned(), 50), ("h2".to_owned(), 50)]));
    for (number, name) in [(1, "h1"), (2, "h2")] {
        assert_eq!(places_in_book(&agent.places(number)), 50, "the agent's own book of {name}");
        let host = farm.client().host(name).await.unwrap();
        assert_eq!((host.users, host.pending_users, host.state()), (Some(0), 50, v1::HostState::MaxUsers));
    }
}

/// Live places of a book on disk.
fn places_in_book(book: &serde_json::Value) -> usize {
    book["book"]["places"].as_array().unwrap_or_else(|| panic!("{book}")).len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_112_one_request_id_is_one_place_however_often_and_however_fast_it_comes() {
    let farm = Farm::start().await;
    let client = farm.gateway("g1");
    let _hosts = quiet_hosts(&client, 3, 0).await;
    let request = v1::PlaceRequest { user: Some("u1".into()), ..place("desk", "R7") };
    let answers = storm(std::slice::from_ref(&client), vec![request.clone(); 20]).await;
    let placed: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    let first = &placed[0];
    assert!(placed.iter().all(|other| other.host_id == first.host_id));
    assert!(placed.iter().all(|other| other.reservation == first.reservation));
    assert_eq!(first.reservation.as_ref().unwrap().gateway, "g1");

    // A retry is not a new login, and its time is counted from the first.
    let later = client.place(v1::PlaceRequest { attempt: 2, ..request.clone() }).await.unwrap();
    assert_eq!((&later.host_id, &later.reservation), (&first.host_id, &first.reservation));
    assert!(later.reservation_left_ms.unwrap() <= first.reservation_left_ms.unwrap());
    let hosts = client.hosts().await.unwrap();
    assert_eq!(hosts.iter().map(|host| host.pending_places).sum::<u32>(), 1);

    // Other words under the same id are a mistake of the gateway.
    for other in [
        v1::PlaceRequest { user: Some("u2".into()), ..request.clone() },
        v1::PlaceRequest { cost: Some(2), ..request.clone() },
        v1::PlaceRequest { exclude: vec!["h1".into()], ..request.clone() },
    ] {
        refusal(client.place(other).await, Code::InvalidArgument, "REQUEST_ID_REUSED");
    }
    // Another gateway's ids are its own.
    let other = farm.gateway("g2").place(v1::PlaceRequest { user: None, ..request }).await.unwrap();
    assert_eq!(other.reservation.unwrap().gateway, "g2");
    let hosts = client.hosts().await.unwrap();
    assert_eq!(hosts.iter().map(|host| host.pending_places).sum::<u32>(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_id_at_once_with_other_content_is_refused_and_one_place_given() {
    let farm = Farm::start().await;
    let client = farm.gateway("g1");
    let _hosts = quiet_hosts(&client, 3, 0).await;
    let request = |number: u32| v1::PlaceRequest { cost: Some(number % 4 + 1), ..place("desk", "R1") };
    let answers = storm(std::slice::from_ref(&client), (0..20).map(request).collect()).await;
    let (placed, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((placed.len(), refused.len()), (5, 15));
    for answer in refused {
        refusal(answer, Code::InvalidArgument, "REQUEST_ID_REUSED");
    }
    let hosts = client.hosts().await.unwrap();
    assert_eq!(hosts.iter().map(|host| host.pending_places).sum::<u32>(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_095_five_hundred_from_four_gateways_spread_over_ten_hosts_between_two_reports() {
    let farm = Farm::start().await;
    let _hosts = quiet_hosts(&farm.client(), 10, 0).await;
    let answers = storm(&gateways(&farm, 4), requests("login", 500)).await;
    let placed: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    let counts = count_by_host(&placed);
    assert_eq!(counts.len(), 10);
    assert!(counts.values().all(|count| (40..=60).contains(count)), "{counts:?}");
}

#[tokio::test]
async fn case_108_places_count_before_any_report_shows_them() {
    let farm = Farm::start().await;
    let client = farm.client();
    client.apply("desk", users_alone(None)).await.unwrap();
    let values = "cpu=10,mem=20,users=10,procs=100";
    let hosts = ["a", "b", "c"];
    let start = hosts.iter().fold(farm.agent("hosts"), |agent, name| agent.host(name, values));
    let agent = start.report_interval("60s").await;
    for number in 0..9 {
        client.place(place("desk", &format!("R{number}"))).await.unwrap();
    }
    for name in hosts {
        let host = client.host(name).await.unwrap();
        assert_eq!((host.users, host.pending_users, host.pending_places), (Some(10), 3, 3), "{name}");
    }
    // The agents were told, and hold the same.
    for number in 1..=3 {
        wait_for("three places in the agent's book", LONG, async || {
            let book = agent.places(number);
            if places_in_book(&book) == 3 { Ok(()) } else { Err(book.to_string()) }
        })
        .await;
    }
}

#[tokio::test]
async fn a_login_that_ends_gives_its_place_back() {
    let farm = Farm::start().await;
    let client = farm.client();
    let agent = farm.agent("hosts").host("a", "cpu=10,mem=20,users=10,procs=100").await;
    for (id, outcome) in [("R1", v1::Outcome::Cancelled), ("R2", v1::Outcome::Failed)] {
        client.place(place("desk", id)).await.unwrap();
        assert_eq!(client.host("a").await.unwrap().pending_places, 1);
        assert!(client.outcome(id, outcome).await.unwrap());
        nothing_pending(&client, "a").await;
        wait_for("the agent's book to be empty", LONG, async || {
            let book = agent.places(1);
            if places_in_book(&book) == 0 { Ok(()) } else { Err(book.to_string()) }
        })
        .await;
    }
    assert!(!client.outcome("R9", v1::Outcome::Cancelled).await.unwrap(), "nobody knows R9");
}

#[tokio::test]
async fn a_call_whose_deadline_passes_grants_nothing() {
    let farm = Farm::start().await;
    let host = silent_host(&farm).await;
    let client = farm.client();
    let with_deadline = async |id: String, timeout: Duration| {
        let mut request = Request::new(place("desk", &id));
        request.set_timeout(timeout);
        client.placement.clone().place(request).await.unwrap_err()
    };
    for number in 0..20 {
        let status = with_deadline(format!("none-{number}"), Duration::from_nanos(1)).await;
        assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status:?}");
    }
    nothing_pending(&client, "h1").await;
    // Long enough to ask the host, not long enough for its silence to be one.
    with_deadline("asked".into(), Duration::from_millis(100)).await;
    let is_asked = |heard: &Heard| matches!(heard, Heard::ExpectSession(expect) if expect.ask).then_some(());
    host.hears("an ask", is_asked).await;
    nothing_pending(&client, "h1").await;
    host.hears("that the place is taken back", ends("asked")).await;
}

fn ends(request_id: &str) -> impl FnMut(&Heard) -> Option<v1::EndReason> {
    move |heard| match heard {
        Heard::EndPlace(end) if end.token.as_ref().is_some_and(|token| token.request_id == request_id) => {
            Some(end.reason())
        }
        _ => None,
    }
}

#[tokio::test]
async fn a_client_that_goes_away_while_the_host_is_asked_leaves_nothing() {
    let farm = Farm::start().await;
    let host = silent_host(&farm).await;
    let client = farm.client();
    let gone = farm.gateway("g1");
    let call = tokio::spawn(async move { gone.place(place("desk", "R1")).await });
    let asked = |heard: &Heard| match heard {
        Heard::ExpectSession(expect) if expect.ask => expect.place.clone(),
        _ => None,
    };
    let asked = host.hears("an ask", asked).await;
    call.abort();
    assert_eq!(host.hears("that the place is taken back", ends("R1")).await, v1::EndReason::Cancelled);
    nothing_pending(&client, "h1").await;
    // Its consent comes too late and counts for nothing.
    let answer = v1::PlaceAnswer { token: asked.token, attempt: asked.attempt, refused: None };
    host.say(v1::attach_request::Message::PlaceAnswer(answer)).await;
    nothing_pending(&client, "h1").await;
    host.admit_all();
    assert_eq!(client.place(place("desk", "R2")).await.unwrap().host_name, "h1");
}

#[tokio::test]
async fn a_host_that_does_not_answer_costs_a_quarter_of_a_second_and_no_place() {
    let farm = Farm::start().await;
    let host = silent_host(&farm).await;
    let client = farm.client();
    let status = refusal(client.place(place("desk", "R1")).await, Code::Unavailable, "NO_CONSENT");
    assert!(retry_after(&status).is_some_and(|after| after <= Duration::from_secs(2)), "{status:?}");
    host.hears("that the place is taken back", ends("R1")).await;
    nothing_pending(&client, "h1").await;
}
