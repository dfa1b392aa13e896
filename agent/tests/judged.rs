//! What gateways and admins say of a host, over a real stream: it judges itself, keeps limits and forgets baselines.

mod support;

use support::{Agent, Coordinator, Stream, config, one_host, place};
use usher_proto::v1;
use usher_proto::v1::attach_request::Message as FromAgent;
use usher_proto::v1::attach_response::Message as ToAgent;
use usher_types::{HostMarks, Policy, UserLimit};

const VALUES: Option<&str> = Some("cpu=10,mem=20,users=0,procs=30");

fn failed(gateway: &str, request: &str) -> ToAgent {
    ToAgent::OutcomeNotice(v1::OutcomeNotice {
        token: Some(v1::Token { gateway: gateway.into(), request_id: request.into() }),
        outcome: v1::Outcome::Failed.into(),
        cause: Some(v1::FailoverCause::Refused.into()),
        succeeded_elsewhere: false,
    })
}

fn settings(version: u64, policy: &Policy, marks: Option<HostMarks>) -> ToAgent {
    ToAgent::PoolSettings(v1::PoolSettings {
        pool: "default".into(),
        version,
        policy: Some(usher_proto::write::policy(policy)),
        marks: marks.as_ref().map(usher_proto::write::host_marks),
        ..v1::PoolSettings::default()
    })
}

async fn in_force(stream: &mut Stream, version: u64) {
    stream.load("the settings", |load| load.settings_version == Some(version)).await;
}

// rule: penalty-travels
#[tokio::test]
async fn a_host_that_fails_two_gateways_says_so_to_every_coordinator_and_after_its_agent_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (Coordinator::start().await, Coordinator::start().await);
    let with = config(folder.path(), &[&one, &two]);
    let agent = Agent::start(with.clone(), Some(one_host(VALUES)));
    let (mut first, mut second) = (one.greeted().await, two.greeted().await);
    first.send(failed("g1", "R1")).await;
    second.load("the outcome", |load| load.outcomes.len() == 1 && load.penalties.is_empty()).await;
    second.send(failed("g2", "R2")).await;
    let load = first.load("the penalty", |load| !load.penalties.is_empty()).await;
    let penalty = &load.penalties[0];
    assert_eq!((penalty.cause(), penalty.times, &penalty.gateway), (v1::PenaltyCause::Failed, 1, &None));
    assert!((1..=60_000).contains(&penalty.left_ms), "{}", penalty.left_ms);
    agent.kill().await;

    let agent = Agent::start(with, Some(one_host(VALUES)));
    let mut again = one.greeted().await;
    let load = again.load("the first Load", |_| true).await;
    assert_eq!(load.penalties.len(), 1, "the very first report has it");
    let connected = v1::OutcomeNotice {
        token: Some(v1::Token { gateway: "g1".into(), request_id: "R3".into() }),
        outcome: v1::Outcome::Connected.into(),
        ..v1::OutcomeNotice::default()
    };
    again.send(ToAgent::OutcomeNotice(connected)).await;
    again.load("the end of it", |load| load.penalties.is_empty()).await;
    agent.stop().await;
}

#[tokio::test]
async fn places_that_expire_while_others_become_sessions_are_held_against_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let agent = Agent::start(config(folder.path(), &[&coordinator]), Some(one_host(VALUES)));
    let mut stream = coordinator.greeted().await;
    for request in ["R1", "R2", "R3"] {
        let short = v1::PendingPlace { left_ms: 100, ..place(request, request) };
        assert_eq!(stream.ask(short, 50).await, Ok(()));
    }
    stream.load("their ends", |load| load.ended.len() == 3).await;
    let tick = v1::Tick { tick: 1, confirmed_elsewhere_ms: Some(0), ..v1::Tick::default() };
    stream.send(ToAgent::Tick(tick)).await;
    let load = stream.load("the penalty", |load| !load.penalties.is_empty()).await;
    assert_eq!(load.penalties[0].cause(), v1::PenaltyCause::Unconfirmed);
    agent.stop().await;
}

// rule: settings-precedence
#[tokio::test]
async fn an_admins_limit_of_the_host_holds_against_a_coordinator_that_does_not_know_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let agent = Agent::start(config(folder.path(), &[&coordinator]), Some(one_host(VALUES)));
    let mut stream = coordinator.greeted().await;
    let marks = HostMarks { max_users: Some(UserLimit::Users(1)), ..HostMarks::default() };
    stream.send(settings(1, &Policy::default(), Some(marks))).await;
    in_force(&mut stream, 1).await;
    assert_eq!(stream.ask(place("R1", "u1"), 50).await, Ok(()));
    assert_eq!(stream.ask(place("R2", "u2"), 50).await, Err(v1::RefusalReason::MaxUsers));
    agent.stop().await;
}

// rule: pending-hard
#[tokio::test]
async fn a_limit_of_logons_in_progress_is_kept_by_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let agent = Agent::start(config(folder.path(), &[&coordinator]), Some(one_host(VALUES)));
    let mut stream = coordinator.greeted().await;
    stream.load("a Load", |_| true).await;
    let mut refused = Vec::new();
    for request in ["R1", "R2", "R3"] {
        let expect = v1::ExpectSession {
            place: Some(place(request, request)),
            ask: true,
            max_pending: Some(2),
            ..v1::ExpectSession::default()
        };
        stream.send(ToAgent::ExpectSession(expect)).await;
        let answer = |message| match message {
            FromAgent::PlaceAnswer(answer) => Some(answer),
            _ => None,
        };
        refused.push(stream.wait_for("an answer", answer).await.refused);
    }
    assert_eq!(refused, [None, None, Some(v1::RefusalReason::MaxPending.into())]);
    let load = stream.load("both", |load| load.pending.len() == 2).await;
    assert_eq!(load.logons_in_progress, None, "a place is no logon, and this host names no sessions");
    agent.stop().await;
}

// rule: baseline-keeps
#[tokio::test]
async fn baselines_are_forgotten_on_demand_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let agent = Agent::start(config(folder.path(), &[&coordinator]), Some(one_host(Some("ai-xf=4"))));
    let mut stream = coordinator.greeted().await;
    let baseline = |message| match message {
        FromAgent::Latency(latency) => latency.operations.first().map(|operation| operation.baseline_us),
        _ => None,
    };
    assert_eq!(stream.wait_for("the window", baseline).await, Some(10_000.0));
    stream.send(ToAgent::ResetBaselines(v1::ResetBaselines { operation: Some("logon".into()) })).await;
    let forgotten = |message| baseline(message).filter(|us| *us != Some(10_000.0)).map(drop);
    stream.wait_for("another baseline", forgotten).await;
    agent.stop().await;
}

// rule: state-busy-latched
#[tokio::test]
async fn what_holds_the_host_busy_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let full = Some("cpu=10,mem=97,users=0,procs=30");
    let agent = Agent::start(config(folder.path(), &[&coordinator]), Some(one_host(full)));
    let mut stream = coordinator.greeted().await;
    let load = stream.load("a Load", |_| true).await;
    assert_eq!(load.latched.unwrap().reasons, ["memory"]);
    let off = Policy { mem_critical: usher_types::CriticalLevel::Off, ..Policy::default() };
    stream.send(settings(1, &off, None)).await;
    stream.load("no reason", |load| load.latched.as_ref().is_some_and(|held| held.reasons.is_empty())).await;
    agent.stop().await;
}
