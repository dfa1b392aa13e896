//! What does an agent keep free for a coordinator that it cannot reach? Over real connections.

mod support;

use support::{Agent, Coordinator, Stream, config, lists, one_host, place};
use usher_agent::config::{AgentConfig, UserLimitSetting};
use usher_proto::v1;
use usher_proto::v1::attach_response::Message as ToAgent;
use usher_types::UserLimit;

/// Four of fourteen are free.
const VALUES: Option<&str> = Some("cpu=35,mem=55,users=10,procs=70");

fn limited(folder: &std::path::Path, coordinators: &[&Coordinator]) -> AgentConfig {
    let mut config = config(folder, coordinators);
    config.overrides.max_users = Some(UserLimitSetting(UserLimit::Users(14)));
    config
}

/// Ticks on this stream as a coordinator does, until the task is aborted.
fn keep_ticking(stream: &Stream) -> tokio::task::JoinHandle<()> {
    let to_agent = stream.sender();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(500));
        for tick in 1.. {
            ticks.tick().await;
            let message = Some(ToAgent::Tick(v1::Tick { tick, ..v1::Tick::default() }));
            if to_agent.send(Ok(v1::AttachResponse { message })).await.is_err() {
                return;
            }
        }
    })
}

async fn ask(stream: &mut Stream, request: &str) -> Result<(), v1::RefusalReason> {
    stream.ask(place(request, request), 14).await
}

// rule: held-back
// rule: held-back-until
// rule: held-back-kept
#[tokio::test]
async fn the_share_of_a_coordinator_that_went_away_is_kept_over_restarts_until_it_is_taken_out_of_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (Coordinator::start().await, Coordinator::start().await);
    let settings = limited(folder.path(), &[&one, &two]);
    let alone = limited(folder.path(), &[&one]);
    let agent = Agent::start(settings.clone(), Some(one_host(VALUES)));
    let (mut first, second) = (one.greeted().await, two.greeted().await);
    let ticking = [keep_ticking(&first), keep_ticking(&second)];
    let load = first.load("both are heard", |load| load.held_back_users == 0 && load.streams_held == 2).await;
    assert_eq!(load.coordinators, Some(2));
    // Until some intervals have passed, the second may still believe what it knew before this boot.
    let mut loads = 0;
    let enough = |_: &v1::Load| {
        loads += 1;
        loads > 10
    };
    first.load("more Loads", enough).await;

    ticking[1].abort();
    drop((second, two));
    first.load("the share of the second", |load| load.held_back_users == 2).await;
    assert_eq!(ask(&mut first, "R1").await, Ok(()));
    assert_eq!(ask(&mut first, "R2").await, Ok(()));
    assert_eq!(ask(&mut first, "R3").await, Err(v1::RefusalReason::MaxUsers));
    agent.kill().await;

    let agent = Agent::start(settings, Some(one_host(VALUES)));
    let mut first = one.greeted().await;
    let load = first.load("what was given", |load| lists(load, "R2")).await;
    assert_eq!(load.held_back_users, 2, "of the second's; whoever is told knows its own");
    assert_eq!(ask(&mut first, "R4").await, Err(v1::RefusalReason::MaxUsers));
    agent.kill().await;

    let agent = Agent::start(alone, Some(one_host(VALUES)));
    let mut first = one.greeted().await;
    first.load("what was given", |load| lists(load, "R2") && load.held_back_users == 0).await;
    assert_eq!(ask(&mut first, "R5").await, Ok(()));
    agent.stop().await;
}

// rule: retry-reused
#[tokio::test]
async fn a_token_of_another_request_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start().await;
    let agent = Agent::start(limited(folder.path(), &[&coordinator]), Some(one_host(VALUES)));
    let mut stream = coordinator.greeted().await;
    stream.load("a Load", |_| true).await;
    assert_eq!(ask(&mut stream, "R1").await, Ok(()));
    let other = v1::PendingPlace { content_hash: 8, ..place("R1", "u2") };
    assert_eq!(stream.ask(other, 14).await, Err(v1::RefusalReason::Reused));
    agent.stop().await;
}
