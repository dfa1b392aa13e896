//! A thousand agents lose every coordinator in the same instant: do they come back as a crowd, and is the first host
//! that was heard then given everybody?
//!
//! `USHER_STABLE=61` lets the streams stand for so many seconds before the loss. After a minute each agent's first wait
//! is drawn from half the window, so the crowd is denser: that is the worst case, and takes a minute longer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tonic::Code;
use usher_integration_tests::{Coordinator, LONG, Site, metric, place, reason, wait_for, wait_until};

const AGENTS: usize = 1000;
/// No second may hold more of the connects.
const MOST_IN_A_SECOND: usize = AGENTS / 10;
/// How long no coordinator is there.
const AWAY: Duration = Duration::from_secs(5);
const BACK_WITHIN: Duration = Duration::from_secs(60);
/// Placements that are asked for as soon as a coordinator gives any, through all three in turn.
const FIRST_PLACEMENTS: usize = 300;
/// Of them a host may get so many. With 17 % of the hosts heard when the first is given, an even share is two.
const MOST_ON_A_HOST: usize = 8;

async fn streams(coordinator: &Coordinator) -> usize {
    metric(&coordinator.metrics().await, "usher_coordinator_streams_open").unwrap() as usize
}

async fn all_attached(site: &Site, within: Duration) {
    for coordinator in &site.coordinators {
        wait_for("all agents to be attached", within, async || match streams(coordinator).await {
            AGENTS => Ok(()),
            open => Err(format!("{open} streams")),
        })
        .await;
    }
}

async fn pass(what: &str, time: Duration) {
    let since = Instant::now();
    wait_until(what, time + LONG, async || since.elapsed() >= time).await;
}

/// Attaches by the second in which the coordinator logged them, from this byte of its log.
fn attaches(coordinator: &Coordinator, from: usize) -> BTreeMap<String, usize> {
    let mut seconds = BTreeMap::new();
    for line in coordinator.log()[from..].lines().filter(|line| line.contains("host attached")) {
        *seconds.entry(line[..19].to_owned()).or_default() += 1;
    }
    seconds
}

/// Places people through all three in turn, each from the moment when it gives any; how many each host got, and how many
/// hosts had been heard by whoever placed first.
async fn first_placements(site: &Site) -> (BTreeMap<String, usize>, u32) {
    let clients = site.clients("g1");
    for client in &clients {
        wait_for("an end of STALE", LONG, async || match client.place(place("desk", "first")).await {
            Ok(_) => Ok(()),
            Err(status) => {
                assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "STALE"));
                Err(status.to_string())
            }
        })
        .await;
    }
    let (mut on_host, mut heard) = (BTreeMap::new(), None);
    for number in 0..FIRST_PLACEMENTS {
        let client = &clients[number % clients.len()];
        let placed = wait_for("a place", LONG, async || {
            let answer = client.place(place("desk", &format!("R{number}"))).await;
            // On a machine that is too busy for all of this a coordinator may find that it stood still.
            answer
                .inspect_err(|status| assert_eq!(reason(status), "STALE", "{status:?}"))
                .map_err(|status| status.to_string())
        })
        .await;
        heard.get_or_insert(placed.hosts_heard);
        *on_host.entry(placed.host_name).or_default() += 1;
    }
    (on_host, heard.unwrap())
}

#[tokio::test]
async fn alone_case_124_a_thousand_agents_come_back_to_three_killed_coordinators_spread_out_and_do_not_herd()
{
    let mut site = Site::start(3).await;
    let mut agents = site
        .agent("agents")
        .modelled(AGENTS)
        .report_interval("15s")
        .latency_period("60s")
        .without_waiting()
        .await;
    // A thousand identities are made durable first, one after the other.
    all_attached(&site, Duration::from_secs(150)).await;
    for coordinator in &site.coordinators {
        coordinator.hosts_stored().await;
    }
    let stable = std::env::var("USHER_STABLE").map_or(0, |seconds| seconds.parse().unwrap());
    pass("the streams to stand", Duration::from_secs(stable)).await;

    let logged: Vec<usize> = site.coordinators.iter().map(|coordinator| coordinator.log().len()).collect();
    site.coordinators.iter_mut().for_each(|coordinator| coordinator.kill());
    pass("the time without a coordinator", AWAY).await;
    for coordinator in &mut site.coordinators {
        coordinator.restart().await;
    }
    let restarted = Instant::now();
    let (on_host, heard) = first_placements(&site).await;
    all_attached(&site, BACK_WITHIN.saturating_sub(restarted.elapsed())).await;
    let back = restarted.elapsed();

    let mut fullest = Vec::new();
    for (coordinator, from) in site.coordinators.iter().zip(logged) {
        let seconds = attaches(coordinator, from);
        assert!(seconds.values().sum::<usize>() >= AGENTS, "{seconds:?}");
        fullest.push((seconds.values().copied().max().unwrap(), seconds));
    }
    let most = on_host.values().copied().max().unwrap();
    eprintln!(
        "all back after {back:?}; fullest seconds {:?}; {FIRST_PLACEMENTS} placements from {heard} hosts heard went to \
         {} hosts, at most {most} to one",
        fullest.iter().map(|(most, _)| most).collect::<Vec<_>>(),
        on_host.len()
    );
    for (most, seconds) in &fullest {
        assert!(*most <= MOST_IN_A_SECOND, "{most} of {AGENTS} in one second: {seconds:?}");
    }
    assert!(most <= MOST_ON_A_HOST, "{most} of {FIRST_PLACEMENTS} placements on one host: {on_host:?}");
    assert!(agents.is_running());
}
