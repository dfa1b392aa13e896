//! Can an operator find by hand what a user asks about: the decision, the session, the failures, the baselines?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use usher_integration_tests::{FakeAgent, Farm, LONG, hello, holds, load, page, row, wait_for};
use usher_proto::v1;

async fn attached(farm: &Farm, name: &str, users: u32) -> FakeAgent {
    let mut fake = FakeAgent::attach(&farm.client(), hello(name)).await.unwrap();
    fake.report(load(10.0, 10.0, users, 10)).await;
    fake
}

/// Requests of the decisions that are listed, newest first. Placements hand their records over without waiting.
async fn listed(farm: &Farm, options: &str, expected: &[&str]) {
    wait_for("the decisions", LONG, async || {
        let words: Vec<&str> = options.split_whitespace().collect();
        let answer = farm.ctl(&[&["--json", "decisions"], &words[..]].concat()).await.exited(0).json();
        let decisions = answer["decisions"].as_array().cloned().unwrap_or_default();
        let found: Vec<_> =
            decisions.iter().map(|decision| decision["request_id"].as_str().unwrap().to_owned()).collect();
        if found == expected { Ok(()) } else { Err(format!("{options}: {found:?}")) }
    })
    .await;
}

#[tokio::test]
async fn decisions_are_listed_by_user_host_and_refusal_without_names() {
    let farm = Farm::start().await;
    let _one = attached(&farm, "h1", 1).await;
    let _two = attached(&farm, "h2", 50).await;
    page(&farm, "place desk --user CORP\\Alice --request-id A1").await;
    page(&farm, "place desk --user bob --request-id B1").await;
    farm.ctl(&["place", "desk", "--user", "bob", "--request-id", "B2", "--exclude", "h1,h2"]).await.exited(1);
    let failover =
        "failover desk --from h1 --cause unreachable --failed-request A1 --user alice --request-id A2";
    page(&farm, failover).await;

    listed(&farm, "", &["A2", "B2", "B1", "A1"]).await;
    listed(&farm, "--user alice", &["A2", "A1"]).await;
    listed(&farm, "--user BOB@corp --refused", &["B2"]).await;
    listed(&farm, "--host h2 --since 10m", &["A2"]).await;
    listed(&farm, "--limit 1 --pool desk", &["A2"]).await;

    let shown = page(&farm, "decisions").await;
    assert!(!shown.to_lowercase().contains("alice"), "{shown}");
    holds(&shown, &["h1 (unreachable)", "ALL_EXCLUDED", "kept: "]);
    let decision = shown.lines().nth(1).unwrap().split_whitespace().last().unwrap().to_owned();
    let explained = page(&farm, &format!("explain {decision}")).await;
    holds(&explained, &["method", "WEIGHTED_LOAD", "not sent to", "h1 (unreachable)"]);
    assert_eq!(row(&explained, "chosen")[1], "h2");
}

#[tokio::test]
async fn sessions_are_found_by_user_and_say_where_the_user_would_return() {
    let farm = Farm::start().await;
    let mut one = attached(&farm, "h1", 2).await;
    let mut two = attached(&farm, "h2", 1).await;
    let session = |id: &str, user: &str, state: v1::SessionState| v1::Session {
        id: id.into(),
        user: user.into(),
        state: state.into(),
        age_ms: Some(60_000),
    };
    one.sessions(vec![
        session("c1", "alice", v1::SessionState::Active),
        session("c2", "bob", v1::SessionState::Active),
    ])
    .await;
    two.sessions(vec![session("c3", "CORP\\Alice", v1::SessionState::Disconnected)]).await;
    let of_alice = wait_for("both sessions", LONG, async || {
        let sessions = page(&farm, "sessions --user ALICE").await;
        if sessions.lines().count() == 3 { Ok(sessions) } else { Err(sessions) }
    })
    .await;
    assert_eq!(row(&of_alice, "alice")[..4], ["alice", "h1", "desk", "ACTIVE"]);
    assert_eq!(row(&of_alice, "alice")[5..], ["no", "c1"]);
    assert_eq!(row(&of_alice, "CORP\\Alice")[5..], ["yes", "c3"]);
    assert_eq!(row(&page(&farm, "place desk --user alice").await, "host")[1], "h2");
    assert_eq!(page(&farm, "sessions --host h1 --pool desk").await.lines().count(), 3);
    assert_eq!(page(&farm, "sessions --user carol").await.trim(), "no sessions");
}

#[tokio::test]
async fn what_became_of_logins_is_told_by_hand_and_baselines_are_shown_and_reset() {
    let farm = Farm::start().await;
    let _agent = farm.agent("hosts").host("s1", "cpu=10,users=1,ai-xf=4").await;
    page(&farm, "pool create desk --dry-run").await;
    page(&farm, "place desk --request-id R1").await;
    page(&farm, "outcome R1 connected").await;
    holds(&page(&farm, "outcome R1 ended").await, &["noted for R1"]);
    farm.ctl(&["outcome", "R1", "ended", "--cause", "refused"]).await.exited(2);

    let shown = wait_for("the baselines", LONG, async || {
        let shown = page(&farm, "baseline show s1").await;
        if shown.contains("OPERATION") { Ok(shown) } else { Err(shown) }
    })
    .await;
    assert_eq!(row(&shown, "estimator"), ["estimator", "ROBUST"]);
    let operation = shown.lines().last().unwrap().split_whitespace().next().unwrap().to_owned();
    let rehearsed = page(&farm, &format!("baseline reset s1 --operation {operation} --dry-run")).await;
    holds(&rehearsed, &["would forget:", &operation]);
    let reset = page(&farm, &format!("baseline reset s1 --operation {operation}")).await;
    holds(&reset, &["s1 learns anew", &operation]);
    page(&farm, "baseline reset s1").await;
    farm.ctl(&["baseline", "show", "nowhere"]).await.exited(1);
}
