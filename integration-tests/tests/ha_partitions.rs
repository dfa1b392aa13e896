//! What is seen, by whom and how soon, when cables are pulled and names lead elsewhere?
//!
//! Each part runs on a machine of its own, in a network namespace; a cable that is pulled takes packets away both ways
//! and tells nobody.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use tonic::Code;
use usher_integration_tests::{
    Agent, Authority, Client, CoordinatorStart, LONG, Machine, NAME, Site, place, reason, wait_for,
    wait_until,
};
use usher_proto::v1;

/// Whoever lost the other side must know within this time.
const NOTICED_WITHIN: Duration = Duration::from_secs(20);

/// A modelled host on a machine of its own, which is all that its agent serves.
async fn host(site: &Site, name: &str, values: &str, max_users: Option<u32>) -> (Machine, Agent) {
    let machine = site.machine(name);
    let start = site.agent_on(name, &machine).host(name, values).report_interval("2s");
    let start = max_users.into_iter().fold(start, |start, users| start.max_users(users));
    (machine, start.await)
}

async fn connected(client: &Client, host: &str) -> bool {
    client.host(host).await.unwrap().connected
}

#[tokio::test]
async fn case_116_both_sides_notice_a_power_cut_within_20_seconds_and_meet_again_when_it_ends() {
    let site = Site::start(2).on_network().await;
    let (cable, agent) = host(&site, "a1", "cpu=10,users=1", None).await;
    let (_other_cable, _other) = host(&site, "a2", "cpu=20,users=2", None).await;
    let clients = site.clients("operator");
    let heard_before = agent.log().len();

    cable.cut();
    let cut = Instant::now();
    let dead_at_coordinators = async {
        for client in &clients {
            wait_until("the stream to be dead", LONG, async || !connected(client, "a1").await).await;
        }
        cut.elapsed()
    };
    let dead_at_agent = async {
        wait_for("the agent to notice on both streams", LONG, async || {
            let log = agent.log()[heard_before..].to_owned();
            let noticed = |address: &std::net::SocketAddr| log.contains(&address.to_string());
            if site.addresses().iter().all(noticed) { Ok(cut.elapsed()) } else { Err(log) }
        })
        .await
    };
    let (coordinators, agents) = tokio::join!(dead_at_coordinators, dead_at_agent);
    eprintln!("noticed after: coordinators {coordinators:?}, agent {agents:?}");
    assert!(coordinators <= NOTICED_WITHIN, "{coordinators:?}");
    assert!(agents <= NOTICED_WITHIN, "{agents:?}");
    for client in &clients {
        assert!(connected(client, "a2").await, "nobody else felt it");
        assert_eq!(client.place(place("desk", "R1")).await.unwrap().host_name, "a2");
    }

    cable.heal();
    let healed = Instant::now();
    for client in &clients {
        wait_until("the host to be back", LONG, async || {
            let host = client.host("a1").await.unwrap();
            host.connected && host.state() == v1::HostState::Available
        })
        .await;
    }
    eprintln!("back after {:?}", healed.elapsed());
}

#[tokio::test]
async fn case_123_an_agent_follows_a_name_to_another_address_past_a_refusal_and_past_a_stranger() {
    let mut site = Site::start(2).on_network().await;
    let machine = site.machine("a1");
    let names = site.folder().join("hosts");
    // In place: the agent's mount is of this very file.
    let lead =
        |to: &Machine| std::fs::write(&names, format!("127.0.0.1 localhost\n{} {NAME}\n", to.ip())).unwrap();
    lead(site.coordinator_machine(0));
    let start = site.agent_on("a1", &machine).host("a1", "cpu=10,users=1").hosts_file(&names);
    let agent = start.told_of(&[format!("{NAME}:7443")]).without_waiting().await;
    let clients = site.clients("operator");
    let arrives = async |client: &Client| {
        let since = Instant::now();
        wait_until("the agent to arrive", LONG, async || {
            client.host("a1").await.is_ok_and(|host| host.connected)
        })
        .await;
        since.elapsed()
    };
    arrives(&clients[0]).await;

    // The old address refuses.
    site.coordinators[0].kill();
    lead(site.coordinator_machine(1));
    eprintln!("past a refusal: {:?}", arrives(&clients[1]).await);

    // The old address takes connections, and is somebody else.
    site.coordinators[1].kill();
    let stranger = Authority::new(site.folder());
    let at = site.coordinator_machine(1);
    let files = stranger.issue_for("usher://default/coordinator/c2", &[at.ip()]);
    let other = CoordinatorStart::new(site.folder(), "stranger").on_machine(at).table(&files.table());
    let _other = other.start().await;
    let seen = agent.log().len();
    wait_for("the agent to meet the stranger", LONG, async || {
        let log = agent.log()[seen..].to_lowercase();
        if log.contains("certificate") { Ok(()) } else { Err(log) }
    })
    .await;
    site.coordinators[0].restart().await;
    lead(site.coordinator_machine(0));
    eprintln!("past a stranger: {:?}", arrives(&clients[0]).await);
}

/// Asks for places through one coordinator until it refuses, at most `most` times; which hosts they were on.
async fn drain_places(client: &Client, tag: &str, most: usize) -> (Vec<String>, Option<tonic::Status>) {
    let mut given = Vec::new();
    for number in 0..most {
        match client.place(place("desk", &format!("{tag}-{number}"))).await {
            Ok(placed) => given.push(placed.host_name),
            Err(status) => return (given, Some(status)),
        }
    }
    (given, None)
}

/// Users that each host has, and the most it may have: two places less than the limit are left.
const USERS: u32 = 2;
const LIMIT: u32 = 11;
const PLACES: usize = (LIMIT - USERS) as usize;

/// However many coordinators gave them, no host was given more places than it has: by what gateways were told, and by the
/// hosts' own books.
fn within_limits(given: &[String], agents: &[(Machine, Agent)], names: &[&str]) {
    for (name, (_, agent)) in names.iter().zip(agents) {
        let told = given.iter().filter(|host| host == name).count();
        assert!(
            told <= PLACES,
            "{told} places on {name}, {PLACES} are free, {} in its book: {given:?}",
            agent.held(1).len()
        );
        let held = agent.held(1).len();
        assert!(held <= PLACES, "{held} places in the book of {name}");
    }
}

#[tokio::test]
async fn agents_cut_from_one_coordinator_of_three_are_placed_on_rightly_by_the_others_and_within_limits_by_all()
 {
    const NAMES: [&str; 5] = ["a1", "a2", "a3", "a4", "a5"];
    let site = Site::start(3).on_network().await;
    let values = format!("cpu=10,users={USERS}");
    let mut agents = Vec::new();
    for name in NAMES {
        agents.push(host(&site, name, &values, Some(LIMIT)).await);
    }
    let (operators, gateways) = (site.clients("operator"), site.clients("gateway"));
    let c1 = site.coordinator_machine(0);
    let lost = &agents[1..4];
    lost.iter().for_each(|(machine, _)| machine.part(c1));

    // Before anybody has noticed: the streams look alive.
    let mut given = drain_places(&gateways[0], "early", 6).await.0;
    let lost_now = Instant::now();
    let placed = wait_for("c1 to have lost three of five", LONG, async || {
        let hosts = operators[0].hosts().await.map_err(|status| status.to_string())?;
        let is_lost = |host: &&v1::HostInfo| host.state() == v1::HostState::Offline;
        if hosts.iter().filter(is_lost).count() < 3 {
            return Err(format!("{hosts:?}"));
        }
        let number = lost_now.elapsed().as_millis();
        let request = v1::PlaceRequest { dry_run: true, ..place("desk", &format!("dry{number}")) };
        let placed = gateways[0].place(request).await.map_err(|status| status.to_string())?;
        if (placed.hosts_heard, placed.hosts_registered) == (2, 5) {
            Ok(placed)
        } else {
            Err(format!("{placed:?}"))
        }
    })
    .await;
    eprintln!("lost after {:?}", lost_now.elapsed());
    assert!(["a1", "a5"].contains(&placed.host_name.as_str()), "{placed:?}");
    assert!(placed.flags.contains(&"partial_view".to_owned()), "{placed:?}");
    for (number, client) in gateways[1..].iter().enumerate() {
        let placed = client.place(place("desk", &format!("whole{number}"))).await.unwrap();
        assert!(!placed.flags.contains(&"partial_view".to_owned()), "{placed:?}");
        assert_eq!((placed.hosts_heard, placed.hosts_registered), (5, 5));
        given.push(placed.host_name);
    }
    // Everything that all three will give, in turns and then to the end.
    for (number, client) in gateways.iter().enumerate() {
        given.extend(drain_places(client, &format!("turn{number}"), 5).await.0);
    }
    for (number, client) in gateways.iter().enumerate() {
        let (more, refused) = drain_places(client, &format!("end{number}"), 100).await;
        given.extend(more);
        let refused = refused.expect("the farm is full at some point");
        assert!(["MAX_USERS", "NO_CONSENT"].contains(&reason(&refused).as_str()), "{refused:?}");
    }
    within_limits(&given, &agents, &NAMES);
    // The others had all of what they hear, less what is kept for the one that does not hear.
    for name in &NAMES[1..4] {
        assert!(given.iter().filter(|host| host == name).count() >= PLACES / 2, "{given:?}");
    }

    lost.iter().for_each(|(machine, _)| machine.join(c1));
    wait_for("c1 to hear all again", LONG, async || {
        let hosts = operators[0].hosts().await.map_err(|status| status.to_string())?;
        let full = hosts.iter().filter(|host| host.connected && host.pending_places > 0).count();
        let seen = |host: &v1::HostInfo| (host.host_name.clone(), host.connected, host.pending_places);
        if full == NAMES.len() {
            Ok(())
        } else {
            Err(format!("{:?}", hosts.iter().map(seen).collect::<Vec<_>>()))
        }
    })
    .await;
    for (number, client) in gateways.iter().enumerate() {
        given.extend(drain_places(client, &format!("healed{number}"), 100).await.0);
    }
    within_limits(&given, &agents, &NAMES);
    // That c1 had lost a host is no reason to end what others gave on it.
    let lost_places = |agent: &Agent| agent.places(1)["book"]["ended"].to_string().contains("HOST_LOST");
    assert!(!agents.iter().any(|(_, agent)| lost_places(agent)));
}

#[tokio::test]
async fn a_coordinator_that_was_cut_from_everything_passes_no_limit_when_it_is_back() {
    const NAMES: [&str; 3] = ["a1", "a2", "a3"];
    let site = Site::start(3).on_network().await;
    let values = format!("cpu=10,users={USERS}");
    let mut agents = Vec::new();
    for name in NAMES {
        agents.push(host(&site, name, &values, Some(LIMIT)).await);
    }
    let (operators, gateways) = (site.clients("operator"), site.clients("gateway"));
    let cut = site.coordinator_machine(2);
    cut.cut();
    let mut given = Vec::new();
    let since = Instant::now();
    // No login waits for it: the others place from the first moment on.
    let placed = gateways[0].place(place("desk", "R0")).await.unwrap();
    given.push(placed.host_name);
    wait_until("the agents to have given it up", LONG, async || since.elapsed() > Duration::from_secs(20))
        .await;
    for (number, client) in gateways[..2].iter().enumerate() {
        given.extend(drain_places(client, &format!("without{number}"), 100).await.0);
    }
    within_limits(&given, &agents, &NAMES);

    cut.heal();
    // A gateway that still knows it asks at once, and goes on asking.
    let back = Instant::now();
    let mut told = Vec::new();
    wait_for("it to hear all hosts again", LONG, async || {
        let number = told.len();
        match gateways[2].place(place("desk", &format!("back{number}"))).await {
            Ok(placed) => {
                told.push(placed.host_name.clone());
                given.push(placed.host_name);
            }
            Err(status) => {
                let codes =
                    [Code::Unavailable, Code::ResourceExhausted, Code::DeadlineExceeded, Code::Cancelled];
                assert!(codes.contains(&status.code()), "{status:?}");
            }
        }
        let hosts = operators[2].hosts().await.map_err(|status| status.to_string())?;
        if hosts.iter().all(|host| host.connected) { Ok(()) } else { Err(format!("{hosts:?}")) }
    })
    .await;
    eprintln!("it hears all again after {:?}; before that it gave {}", back.elapsed(), told.len());
    for (number, client) in gateways.iter().enumerate() {
        given.extend(drain_places(client, &format!("healed{number}"), 100).await.0);
    }
    within_limits(&given, &agents, &NAMES);
}
