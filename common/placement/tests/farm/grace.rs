//! What is known after a start, who is waited for, and who is missed.

use usher_placement::farm::LostShare;
use usher_types::{DrainMode, Goodbye, HostMarks, HostOverrides, HostState, Load, Readiness, UserLimit};

use crate::support::*;

// rule: goodbye-counts-nowhere hosts that said goodbye count in no share
#[test]
fn hosts_that_said_goodbye_are_neither_waited_for_nor_missed() {
    let mut sim = Sim::of(&["a", "b", "c", "d"]);
    sim.goodbye("c", Goodbye::HostShutdown);
    sim.goodbye("d", Goodbye::AgentStop);
    let pool = sim.pool();
    assert_eq!((pool.hosts_heard, pool.hosts_registered, pool.is_partial()), (2, 2, false));
    assert_eq!(
        sim.state("d"),
        HostState::Available,
        "only its agent stopped: nothing changes before its time"
    );
    let mut again = sim.restarted();
    assert!(again.pool().is_stale(again.now));
    again.attach("a");
    again.report("a", users(1));
    assert!(again.pool().is_stale(again.now), "half of the two that did not say goodbye");
    again.attach("b");
    again.report("b", users(1));
    assert!(!again.pool().is_stale(again.now));
    let pool = again.pool();
    assert_eq!((pool.hosts_heard, pool.hosts_registered), (2, 2));
    // One that comes back counts again.
    again.attach("d");
    assert_eq!(again.pool().hosts_registered, 3);
}

// rule: blind-lost heard before, and OFFLINE without a goodbye or UNKNOWN
#[test]
fn lost_is_who_was_heard_and_is_silent_without_a_word() {
    let mut sim = Sim::of(&["alive", "silent", "down", "stopped"]);
    sim.attach("new");
    sim.goodbye("down", Goodbye::HostShutdown);
    sim.goodbye("stopped", Goodbye::AgentStop);
    sim.pass_with(20, &["alive"]);
    let lost: Vec<String> = {
        let pool = sim.pool();
        pool.lost(sim.now).map(|position| pool.hosts[position].facts.name.to_string()).collect()
    };
    assert_eq!(lost, ["silent"]);
    assert_eq!(sim.pool().lost_share(sim.now), LostShare { lost: 1, counted: 3 });
    assert!(!sim.pool().lost_share(sim.now).is_over_half());
    let mut again = sim.restarted();
    assert_eq!(again.pool().lost_share(again.now), LostShare { lost: 2, counted: 3 }, "UNKNOWN in the grace");
    assert!(again.pool().lost_share(again.now).is_over_half());
}

#[test]
fn exactly_half_is_not_over_half() {
    assert!(!LostShare { lost: 2, counted: 4 }.is_over_half());
    assert!(LostShare { lost: 3, counted: 5 }.is_over_half());
    assert!(!LostShare { lost: 0, counted: 0 }.is_over_half());
}

// rule: last-known what is stored is enough to deal fairly with a host that cannot be heard
#[test]
fn what_a_host_said_last_is_known_after_a_restart() {
    let mut sim = Sim::of(&["a", "b"]);
    let overrides = HostOverrides {
        max_users: Some(UserLimit::Users(7)),
        capacity: Some(2.0),
        ..HostOverrides::default()
    };
    let own_drain = Some(drain(DrainMode::UntilRestart, "backup"));
    let pending = vec![listed("r1", 1, 60), listed("r2", 1, 60)];
    let load = Load { overrides, streams_held: 3, pending, drain: own_drain, ..users(5) };
    sim.report("a", load);
    sim.report("b", Load { readiness: Readiness::NotReady("nologin".into()), ..users(1) });
    sim.farm.set_marks(&id("a"), HostMarks { capacity: Some(4.0), ..HostMarks::default() });
    let mut again = sim.restarted();
    let pool = again.pool();
    let reading = pool.hosts[0].reading.clone().unwrap();
    assert_eq!((reading.streams_held, reading.listed_pending_users, reading.listed_places), (3, 2, 2));
    assert_eq!(pool.hosts[0].max_users(&pool.policy).finite(), Some(7));
    assert_eq!(
        (pool.hosts[0].capacity(), reading.overrides.capacity),
        (4.0, Some(2.0)),
        "each is who said it"
    );
    assert_eq!(pool.members.cells[0].load().users(), Some(5));
    assert_eq!(pool.members.cells[0].load().places(), 0, "places are counted once their host lists them");
    assert_eq!((again.state("a"), again.state("b")), (HostState::Restricted, HostState::NotReady));
    assert_eq!(reading.age(again.now), None, "nobody knows how old it is");
}

#[test]
fn with_nothing_stored_there_is_no_grace() {
    let mut sim = Sim::new().restarted();
    sim.attach("a");
    assert!(sim.pool().grace.is_none() && !sim.pool().is_stale(sim.now));
    assert_eq!(sim.state("a"), HostState::Unknown);
    sim.report("a", users(1));
    assert_eq!(sim.state("a"), HostState::Available);
}

// rule: grace-stale placements wait for 80 % of the capacity, marks of it included
#[test]
fn capacity_as_marked_decides_how_many_must_be_heard() {
    let mut sim = Sim::of(&["large", "small"]);
    sim.farm.set_marks(&id("large"), HostMarks { capacity: Some(8.0), ..HostMarks::default() });
    let mut again = sim.restarted();
    again.attach("small");
    again.report("small", users(1));
    assert!(again.pool().is_stale(again.now), "1 of 9");
    again.attach("large");
    again.report("large", users(1));
    assert!(!again.pool().is_stale(again.now));
}

// rule: state-streams losing streams changes no state before OFFLINE's time
#[test]
fn an_upgrade_of_all_agents_at_once_changes_no_state() {
    let hosts = ["a", "b", "c"];
    let mut sim = Sim::of(&hosts);
    for host in hosts {
        sim.goodbye(host, Goodbye::AgentStop);
    }
    assert!(changes(&sim.pass(10)).is_empty());
    assert_eq!(hosts.map(|host| sim.state(host)), [HostState::Available; 3]);
    assert!(!sim.pool().is_stale(sim.now) && !sim.pool().is_partial());
    for host in hosts {
        sim.farm.attach(&usher_types::Hello { stream_epoch: 2, ..hello(host) }, None, false).unwrap();
        sim.report(host, users(1));
    }
    assert!(changes(&sim.pass(10)).is_empty());
}
