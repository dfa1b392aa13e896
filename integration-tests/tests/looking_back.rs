//! Can an operator find the decision and the session that a user asks about?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tonic::Code;
use usher_integration_tests::{Client, FakeAgent, Farm, LONG, hello, load, place, refusal, wait_for};
use usher_proto::v1;

async fn attached(client: &Client, name: &str, users: u32) -> FakeAgent {
    let mut fake = FakeAgent::attach(client, hello(name)).await.unwrap();
    fake.report(load(10.0, 10.0, users, 10)).await;
    fake
}

fn session(id: &str, user: &str, state: v1::SessionState) -> v1::Session {
    v1::Session { id: id.into(), user: user.into(), state: state.into(), age_ms: Some(60_000) }
}

/// Request ids of the decisions that are found, newest first.
async fn found(client: &Client, filter: v1::ListDecisionsRequest) -> Vec<String> {
    let decisions = client.decisions(filter).await.unwrap();
    decisions.into_iter().map(|decision| decision.request_id).collect()
}

#[tokio::test]
async fn decisions_are_found_by_user_host_time_and_refusal_and_hold_no_name() {
    let farm = Farm::start().await;
    let client = farm.gateway("g1");
    let _one = attached(&client, "h1", 1).await;
    let _two = attached(&client, "h2", 50).await;
    let of = |user: &str, id: &str| v1::PlaceRequest { user: Some(user.into()), ..place("desk", id) };
    let first = client.place(of("CORP\\Alice", "A1")).await.unwrap();
    client.place(of("bob", "B1")).await.unwrap();
    let exclude = vec!["h1".to_owned(), "h2".to_owned()];
    client.place(v1::PlaceRequest { exclude, ..of("bob", "B2") }).await.unwrap_err();
    let failover = v1::FailoverRequest {
        request_id: "A2".into(),
        pool: "desk".into(),
        from_host: "h1".into(),
        failed_request_id: Some("A1".into()),
        user: Some("alice".into()),
        cause: v1::FailoverCause::Unreachable.into(),
        ..Default::default()
    };
    assert_eq!(client.failover(failover).await.unwrap().host_name, "h2");

    // Placements hand their records over without waiting.
    wait_for("all four decisions", LONG, async || {
        let ids = found(&client, v1::ListDecisionsRequest::default()).await;
        if ids == ["A2", "B2", "B1", "A1"] { Ok(()) } else { Err(format!("{ids:?}")) }
    })
    .await;
    let by_user = |user: &str| v1::ListDecisionsRequest { user: Some(user.into()), ..Default::default() };
    assert_eq!(found(&client, by_user("alice")).await, ["A2", "A1"]);
    assert_eq!(found(&client, by_user("BOB@corp")).await, ["B2", "B1"]);
    assert_eq!(found(&client, by_user("carol")).await, Vec::<String>::new());
    let by_host = |host: &str| v1::ListDecisionsRequest { host: Some(host.into()), ..Default::default() };
    assert_eq!(found(&client, by_host("h2")).await, ["A2"]);
    assert_eq!(found(&client, by_host("h1")).await, ["A2", "B1", "A1"], "also where it was passed over");
    let refused = v1::ListDecisionsRequest { refused_only: true, ..Default::default() };
    assert_eq!(found(&client, refused).await, ["B2"]);
    let recent = v1::ListDecisionsRequest { since_ms: Some(600_000), limit: Some(1), ..Default::default() };
    let answer = client.directory.clone().list_decisions(recent).await.unwrap().into_inner();
    assert!(answer.truncated && !answer.retention.is_empty());
    assert_eq!(answer.decisions[0].request_id, "A2");
    let redirect = answer.decisions[0].redirect.clone().unwrap();
    assert_eq!((redirect.host_name.as_str(), redirect.reason.as_str()), ("h1", "unreachable"));
    let elsewhere = v1::ListDecisionsRequest { pool: Some("mail".into()), ..Default::default() };
    let elsewhere = client.directory.clone().list_decisions(elsewhere).await;
    if let Ok(answer) = elsewhere {
        assert_eq!(answer.into_inner().decisions, []);
    }

    let all = client.decisions(v1::ListDecisionsRequest::default()).await.unwrap();
    assert!(!format!("{all:?}").to_lowercase().contains("alice"), "{all:?}");
    assert_eq!(all[3].decision_id, first.decision_id);
    assert_eq!((all[3].gateway.as_str(), all[3].host_name.as_deref()), ("g1", Some("h1")));
    assert_eq!(
        (all[3].reason(), all[1].refused_reason.as_str()),
        (v1::PlacementReason::LowestLoad, "ALL_EXCLUDED")
    );
    assert_eq!(all[0].user, all[3].user);
    assert_ne!(all[1].user, all[3].user);
    assert!(client.explain(&first.decision_id).await.is_ok());
}

#[tokio::test]
async fn sessions_of_a_user_are_found_and_the_one_they_return_to_is_named() {
    let farm = Farm::start().await;
    let client = farm.client();
    let mut one = attached(&client, "h1", 2).await;
    let mut two = attached(&client, "h2", 1).await;
    let (active, disconnected) = (v1::SessionState::Active, v1::SessionState::Disconnected);
    one.sessions(vec![session("1", "CORP\\Alice", active), session("2", "bob", active)]).await;
    two.sessions(vec![session("9", "alice", disconnected)]).await;
    let of = |user: &str| v1::ListSessionsRequest { user: Some(user.into()), ..Default::default() };
    let found = client.sessions(of("alice")).await.unwrap();
    let short = |info: &v1::SessionInfo| {
        (info.host_name.clone(), info.session.clone().unwrap().id, info.returns_here)
    };
    let expected = [("h1".to_owned(), "1".to_owned(), false), ("h2".to_owned(), "9".to_owned(), true)];
    assert_eq!(found.iter().map(short).collect::<Vec<_>>(), expected);
    assert!(found[1].session.as_ref().unwrap().age_ms.is_some_and(|age| age >= 60_000));
    let placed = client.place(v1::PlaceRequest { user: Some("ALICE".into()), ..place("desk", "R1") }).await;
    assert_eq!(placed.unwrap().host_name, "h2", "the list says what a login does");
    assert_eq!(client.sessions(v1::ListSessionsRequest::default()).await.unwrap().len(), 3);
    let on_h1 = v1::ListSessionsRequest { host: Some("h1".into()), ..Default::default() };
    assert_eq!(client.sessions(on_h1).await.unwrap().len(), 2);
    let nobody = v1::ListSessionsRequest { host: Some("h9".into()), ..Default::default() };
    refusal(client.sessions(nobody).await, Code::NotFound, "UNKNOWN_HOST");
}
