//! Are three equal coordinators one farm: does each count what the others gave, and is nothing given twice?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tonic::Code;
use usher_integration_tests::{
    Agent, Client, LONG, Proxy, Site, Weather, place, reason, wait_for, wait_until,
};
use usher_proto::v1;

/// Within this time a reservation counts at the coordinators that did not give it.
const SEEN_WITHIN: Duration = Duration::from_millis(200);
/// The machine of the tests has few cores and other work: one look of a hundred may come later.
const SEEN_AT_WORST: Duration = Duration::from_millis(600);

/// How long after `since` a coordinator counts this place. It looks without a pause: what is measured is short.
async fn counted(client: Client, host: String, token: v1::Token, since: Instant) -> Duration {
    loop {
        let details = client.host_details(&host).await.unwrap();
        if details.pending.iter().any(|pending| pending.token.as_ref() == Some(&token)) {
            return since.elapsed();
        }
        assert!(since.elapsed() < LONG, "{host} does not list {token:?}: {details:?}");
    }
}

#[tokio::test]
async fn alone_a_reservation_given_by_one_counts_at_the_others_within_200_ms() {
    let site = Site::start(3).await;
    let values = "cpu=10,mem=20,users=1,procs=9";
    // Their reports by the clock come too seldom to help.
    let free = site.agent("free").report_interval("5s").host("h1", values).host("h2", values);
    let _free = free.host("h3", values).await;
    let limited = site.agent("limited").report_interval("5s").max_users(900).host("h4", values);
    let _limited = limited.host("h5", values).host("h6", values).await;
    let clients = site.clients("g1");

    let mut seen = Vec::new();
    for number in 0..120 {
        let giver = number % clients.len();
        let placed = clients[giver].place(place("desk", &format!("R{number}"))).await.unwrap();
        let since = Instant::now();
        let mut looks = JoinSet::new();
        for (other, client) in clients.iter().enumerate() {
            if other != giver {
                let (host, token) = (placed.host_id.clone(), placed.reservation.clone().unwrap());
                looks.spawn(counted(client.clone(), host, token, since));
            }
        }
        seen.extend(looks.join_all().await);
    }
    seen.sort();
    let at = |share: f64| seen[((seen.len() - 1) as f64 * share) as usize];
    let (median, p99, worst) = (at(0.5), at(0.99), at(1.0));
    eprintln!("{} looks: median {median:?}, p99 {p99:?}, worst {worst:?}", seen.len());
    assert!(p99 <= SEEN_WITHIN && worst <= SEEN_AT_WORST, "median {median:?}, p99 {p99:?}, worst {worst:?}");
}

/// Rounds in which the last place of a host is asked for through all three at once.
const ROUNDS: usize = 1000;
/// Hosts that are asked side by side, each for the only place of its own resource.
const LANES: usize = 20;

#[tokio::test]
async fn the_last_place_asked_for_through_three_at_once_is_given_once_a_thousand_times() {
    let site = Site::start(3).await;
    let mut start = site.agent("hosts").max_users(2);
    for lane in 1..=LANES {
        start = start.host(&format!("h{lane}"), "cpu=10,users=1").replica(&format!("r{lane}"));
    }
    let agent = start.await;
    let clients = site.clients("g1");
    for client in &clients {
        for lane in 1..=LANES {
            // Until it hears all it keeps a share of its one free place for the others.
            wait_for("the host to hear all three", LONG, async || {
                let request = v1::PlaceRequest { dry_run: true, ..at(lane, "dry") };
                client.place(request).await.map_err(|status| status.to_string())
            })
            .await;
        }
    }
    let work = async |lane| {
        let (mut rounds, mut given) = (0, 0);
        while given < ROUNDS / LANES {
            given += usize::from(the_last_place(&clients, &agent, lane, rounds).await);
            rounds += 1;
        }
        rounds
    };
    let rounds: usize = futures::future::join_all((1..=LANES).map(work)).await.iter().sum();
    eprintln!(
        "{ROUNDS} times given once; {} times to nobody, as the host did not answer in time",
        rounds - ROUNDS
    );
    assert!(rounds <= 2 * ROUNDS, "{rounds} rounds");
}

fn at(lane: usize, request_id: &str) -> v1::PlaceRequest {
    v1::PlaceRequest { resource: Some(format!("r{lane}")), ..place("desk", request_id) }
}

/// Whether it was given. Where the machine is so busy that the host does not consent in time, nobody gets it.
async fn the_last_place(clients: &[Client], agent: &Agent, lane: usize, round: usize) -> bool {
    let mut calls = JoinSet::new();
    for (number, client) in clients.iter().cloned().enumerate() {
        let request = at(lane, &format!("R{lane}-{round}-{number}"));
        calls.spawn(async move { (number, client.place(request).await) });
    }
    let answers = calls.join_all().await;
    let given: Vec<usize> =
        answers.iter().filter(|(_, answer)| answer.is_ok()).map(|(number, _)| *number).collect();
    // What the host itself has given, and nobody's opinion of it.
    let book = || agent.places(lane).to_string().matches("\"admitted\":true").count();
    assert!(given.len() <= 1, "lane {lane}, round {round}: {answers:?}");
    let mut was_silent = false;
    for (_, answer) in &answers {
        let Err(status) = answer else { continue };
        match (status.code(), reason(status).as_str()) {
            (Code::ResourceExhausted, "MAX_USERS" | "NO_CONSENT") => {}
            (Code::Unavailable, "NO_CONSENT") => was_silent = true,
            _ => panic!("lane {lane}, round {round}: {status:?}"),
        }
    }
    if let Some(won) = given.first() {
        assert_eq!(book(), 1, "lane {lane}, round {round}: {answers:?}");
        clients[*won].outcome(&format!("R{lane}-{round}-{won}"), v1::Outcome::Cancelled).await.unwrap();
    } else {
        assert!(was_silent, "lane {lane}, round {round}: {answers:?}");
    }
    wait_until("the place to leave the book", LONG, async || book() == 0).await;
    for client in clients {
        wait_for("the place to be free again", LONG, async || {
            let host = client.host(&format!("h{lane}")).await.map_err(|status| status.to_string())?;
            if host.pending_places == 0 { Ok(()) } else { Err(format!("{host:?}")) }
        })
        .await;
    }
    !given.is_empty()
}

/// Hosts whose book holds a live place of this request.
fn holders(agent: &Agent, hosts: usize, request_id: &str) -> Vec<String> {
    let holds = |number: &usize| agent.held(*number).iter().any(|held| held == request_id);
    (1..=hosts).filter(holds).map(|number| format!("h{number}")).collect()
}

/// A second is what is promised; a machine that has other work to do may need more for a few.
const AT_THE_LATEST: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_request_tried_again_elsewhere_after_a_lost_answer_ends_with_one_reservation_within_a_second() {
    const HOSTS: usize = 5;
    let site = Site::start(3).await;
    let mut start = site.agent("hosts").report_interval("5s");
    for number in 1..=HOSTS {
        start = start.host(&format!("h{number}"), "cpu=10,users=1");
    }
    let agent = start.await;
    let clients = site.clients("g1");
    let proxy = Proxy::start(site.coordinators[0].grpc).await;

    let mut times = Vec::new();
    let mut moved = 0;
    for number in 0..40 {
        let request_id = format!("R{number}");
        // A client of its own: its connection is cut when the request has gone out and the answer has not come.
        let lossy = Client::new(proxy.address(), Some("g1"));
        lossy.hosts().await.unwrap();
        let before = proxy.swallowed();
        proxy.weather(Weather { swallows_answers: true, ..Weather::default() });
        let lost = tokio::spawn({
            let (lossy, request) = (lossy.clone(), place("desk", &request_id));
            async move { lossy.place(request).await }
        });
        wait_until("the answer to be swallowed", LONG, async || proxy.swallowed() > before).await;
        // From at once to long after every coordinator has heard of the first place.
        let pause = Duration::from_millis(15 * (number % 14));
        let since = Instant::now();
        wait_until("the gateway to give up", LONG, async || since.elapsed() >= pause).await;
        proxy.reset();
        proxy.weather(Weather::default());
        assert!(lost.await.unwrap().is_err(), "its answer was lost");

        let other = &clients[1 + usize::try_from(number).unwrap() % 2];
        let again = v1::PlaceRequest { attempt: 2, ..place("desk", &request_id) };
        let placed = other.place(again).await.unwrap();
        let tried = Instant::now();
        moved += usize::from(holders(&agent, HOSTS, &request_id) != [placed.host_name.clone()]);
        let settled = wait_for("one place for the request", AT_THE_LATEST, async || {
            // Looking takes eighteen calls: what they find was so when they began, or came to be while they looked.
            let looked = tried.elapsed();
            let holders = holders(&agent, HOSTS, &request_id);
            let is_one = holders == [placed.host_name.clone()];
            for client in &clients {
                let mut counted = Vec::new();
                for host in client.hosts().await.map_err(|status| status.to_string())? {
                    let details = client.host_details(&host.host_id).await;
                    let pending = details.map_err(|status| status.to_string())?.pending;
                    let of_it = |token: &v1::Token| token.request_id == request_id;
                    let here = pending.iter().filter_map(|pending| pending.token.as_ref()).any(of_it);
                    counted.extend(here.then_some(host.host_name));
                }
                if counted != [placed.host_name.clone()] {
                    return Err(format!("{counted:?} count it, not only {}", placed.host_name));
                }
            }
            if is_one { Ok(looked) } else { Err(format!("{holders:?}, not {}", placed.host_name)) }
        })
        .await;
        times.push(settled);
        other.outcome(&request_id, v1::Outcome::Cancelled).await.unwrap();
    }
    times.sort();
    let within = times.iter().filter(|time| **time <= Duration::from_secs(1)).count();
    let slowest = times[times.len() - 1];
    assert!(within >= 36, "{within} of 40 within a second: {times:?}");
    eprintln!(
        "slowest of 40: {slowest:?}; {moved} of the second tries found the first place elsewhere or not yet told"
    );
}
