//! What does a coordinator say that has just started or stood still, while others serve on?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tonic::Code;
use usher_integration_tests::{Agent, Client, LONG, Site, place, reason, refusal, wait_for, wait_until};
use usher_proto::v1;

/// How long a coordinator that has started, or stood still, may refuse to place.
const STALE_FOR: Duration = Duration::from_secs(10);
/// How long it holds hosts that it has not heard for UNKNOWN, and not for OFFLINE.
const GRACE: Duration = Duration::from_secs(60);

async fn pass(what: &str, until: Instant) {
    wait_until(what, LONG + GRACE, async || Instant::now() >= until).await;
}

#[tokio::test]
async fn case_135_of_fifty_hosts_none_is_called_lost_before_the_grace_is_over_and_the_silent_ones_are_then() {
    let mut site = Site::start(1).await;
    let client = site.clients("g1").remove(0);
    let _heard = site.agent("heard").modelled(45).report_interval("2s").await;
    let names: BTreeSet<String> = (46..=50).map(|number| format!("virtual-{number}")).collect();
    let silent = site.agent("silent").modelled(5).report_interval("2s").without_waiting();
    let mut silent = silent.argument("--virtual-first").argument("46").await;
    wait_until("fifty hosts", LONG, async || {
        let hosts = client.hosts().await.unwrap();
        hosts.len() == 50 && hosts.iter().all(|host| host.load_age_ms.is_some())
    })
    .await;
    site.coordinators[0].hosts_stored().await;

    let coordinator = &mut site.coordinators[0];
    coordinator.kill();
    silent.kill();
    let killed = Instant::now();
    pass("three seconds without a coordinator", killed + Duration::from_secs(3)).await;
    let logged = coordinator.log().len();
    coordinator.restart().await;
    let restarted = Instant::now();
    let placed = wait_for("a place", STALE_FOR + Duration::from_secs(2), async || {
        match client.place(place("desk", "R1")).await {
            Ok(placed) => Ok(placed),
            Err(status) => {
                refusal::<()>(Err(status.clone()), Code::Unavailable, "STALE");
                Err(status.to_string())
            }
        }
    })
    .await;
    assert!(!names.contains(&placed.host_name));
    let unknown = async || {
        let hosts = client.hosts().await.unwrap();
        assert!(hosts.iter().all(|host| host.state() != v1::HostState::Offline), "{hosts:?}");
        let unknown = hosts.into_iter().filter(|host| host.state() == v1::HostState::Unknown);
        // What was known of them is shown.
        unknown
            .inspect(|host| assert!(host.cores.is_some()))
            .map(|host| host.host_name)
            .collect::<BTreeSet<_>>()
    };
    wait_until("all but the silent ones to be heard", LONG, async || unknown().await == names).await;
    while restarted.elapsed() < GRACE - Duration::from_secs(3) {
        assert_eq!(unknown().await, names);
        pass("a second of the grace", Instant::now() + Duration::from_secs(1)).await;
    }
    assert!(!coordinator.log()[logged..].contains("to=OFFLINE"));
    wait_until("the silent ones to be OFFLINE", LONG, async || {
        let hosts = client.hosts().await.unwrap();
        let offline = hosts.into_iter().filter(|host| host.state() == v1::HostState::Offline);
        offline.map(|host| host.host_name).collect::<BTreeSet<_>>() == names
    })
    .await;
}

#[tokio::test]
async fn case_136_a_coordinator_that_stood_still_while_another_placed_says_stale_and_passes_no_limit() {
    // 20 s instead of 40: longer than anything after which agents give a stream up.
    const STOPPED: Duration = Duration::from_secs(20);
    const HOSTS: usize = 4;
    let site = Site::start(2).await;
    let mut start = site.agent("hosts").max_users(7);
    for number in 1..=HOSTS {
        start = start.host(&format!("h{number}"), "cpu=10,users=2");
    }
    let agent = start.await;
    let clients = site.clients("g1");
    clients[0].place(place("desk", "R0")).await.unwrap();

    site.coordinators[0].freeze();
    let stopped = Instant::now();
    for number in 0..10 {
        clients[1].place(place("desk", &format!("S{number}"))).await.unwrap();
    }
    pass("the stop to end", stopped + STOPPED).await;
    // A gateway that is still connected to it asks at once, and many times.
    let mut waiting = JoinSet::new();
    for number in 0..40 {
        let client = clients[0].clone();
        waiting.spawn(async move { client.place(place("desk", &format!("T{number}"))).await });
    }
    site.coordinators[0].thaw();
    let thawed = Instant::now();
    let answers = waiting.join_all().await;
    let first_stale = answers.iter().filter(|answer| {
        answer.as_ref().is_err_and(|status| status.code() == Code::Unavailable && reason(status) == "STALE")
    });
    let stale = first_stale.count();
    let allowed = |status: &tonic::Status| {
        let reasons = ["STALE", "MAX_USERS", "NO_CONSENT"];
        status.code() == Code::DeadlineExceeded || reasons.contains(&reason(status).as_str())
    };
    let check = |answer: Result<v1::Placement, tonic::Status>| {
        answer.inspect_err(|status| assert!(allowed(status), "{status:?}")).is_ok()
    };
    let given = answers.into_iter().map(check).filter(|given| *given).count();
    eprintln!("of 40 waiting calls {stale} were answered STALE, {given} got a place");
    assert!(stale > 0, "it must know that it stood still");
    let within = |agent: &Agent| {
        for number in 1..=HOSTS {
            let held = agent.held(number);
            assert!(held.len() <= 5, "h{number} holds {held:?}, 5 places are free");
        }
    };
    within(&agent);
    wait_until("the end of STALE", STALE_FOR + Duration::from_secs(5), async || {
        let answer = clients[0].place(place("desk", &format!("U{}", thawed.elapsed().as_millis()))).await;
        let stale = answer.as_ref().is_err_and(|status| reason(status) == "STALE");
        check(answer);
        !stale
    })
    .await;
    for (number, client) in clients.iter().enumerate() {
        for try_number in 0..30 {
            check(client.place(place("desk", &format!("V{number}-{try_number}"))).await);
        }
    }
    within(&agent);
    let held: usize = (1..=HOSTS).map(|number| agent.held(number).len()).sum();
    assert!(held >= 16, "{held} of 20 places are given in the end");
}

#[tokio::test]
async fn case_137_a_reservation_ends_on_time_although_every_coordinator_was_restarted_meanwhile() {
    // The case's own times: what is between them is what a busy machine needs for a restart and for the agent to come back.
    const TTL: Duration = Duration::from_secs(30);
    let mut site = Site::start(2).await;
    let clients = site.clients("g1");
    let policy = v1::Policy { reservation_ttl_ms: Some(30_000), ..Default::default() };
    for client in &clients {
        client.apply("desk", policy.clone()).await.unwrap();
    }
    let agent = site.agent("hosts").host("h1", "cpu=10,users=1").await;
    let counted = async |client: &Client| {
        let host = client.host("h1").await.ok().filter(|host| host.connected)?;
        Some(host.pending_places)
    };
    let given = Instant::now();
    clients[0].place(place("desk", "R1")).await.unwrap();
    wait_until("both to count it", LONG, async || {
        counted(&clients[0]).await == Some(1) && counted(&clients[1]).await == Some(1)
    })
    .await;
    for (number, at) in [(0, 15.0), (1, 20.0)] {
        pass("the time of the restart", given + Duration::from_secs_f64(at)).await;
        site.coordinators[number].kill();
        site.coordinators[number].restart().await;
    }
    let mut has_counted = [false; 2];
    while given.elapsed() < TTL - Duration::from_millis(300) {
        assert_eq!(agent.held(1), ["R1"], "after {:?}", given.elapsed());
        for (client, has_counted) in clients.iter().zip(&mut has_counted) {
            // Its first report comes a moment after its stream.
            *has_counted |= counted(client).await == Some(1);
        }
        pass("a moment", Instant::now() + Duration::from_millis(50)).await;
    }
    assert_eq!(has_counted, [true; 2], "the restarted ones have counted it");
    let rest = Duration::from_secs(35).saturating_sub(given.elapsed());
    for client in &clients {
        wait_until("it to be gone everywhere", rest, async || counted(client).await == Some(0)).await;
    }
    assert!(agent.held(1).is_empty());
    eprintln!("gone everywhere after {:?}", given.elapsed());
}
