//! What is believed after a start or a freeze.

use std::time::Duration;

use usher_placement::{
    decision::{RefusalKind, Request},
    farm::{Effect, Restored},
    host::{HeldBack, Limits},
};
use usher_types::{EndReason, HostState, Load, PolicyChange, ResourceId};

use crate::support::*;

/// A coordinator that starts again with what this one stored.
fn restarted(sim: &Sim) -> Sim {
    let stored = Restored {
        pools: sim.farm.pool_records().map(|(record, _)| record.clone()).collect(),
        known: sim.farm.last_known(true),
        ..Restored::default()
    };
    let mut again = Sim::begun_at(sim.now + Duration::from_secs(3));
    again.farm.restore(stored, again.now);
    again
}

fn fifty() -> Sim {
    let mut sim = Sim::new();
    for n in 0..50 {
        sim.attach(&format!("h{n}"));
        sim.report(&format!("h{n}"), users(n));
    }
    sim.pass(1);
    sim
}

// rule: grace-begins
// rule: grace-unknown
// rule: grace-stale
#[test]
fn case_135_after_a_restart_nobody_is_lost_and_placements_wait_for_most_of_the_farm() {
    let mut sim = restarted(&fifty());
    assert_eq!(sim.place(&ask("r0")).refusal().kind, RefusalKind::Stale);
    let mut lost = Vec::new();
    for n in 0..50 {
        assert_eq!(sim.state("h49"), HostState::Unknown);
        sim.attach(&format!("h{n}"));
        sim.report(&format!("h{n}"), users(n));
        let stale = sim.pool().is_stale(sim.now);
        assert_eq!(stale, n < 39, "80 % of 50 hosts are heard with the 40th, not with number {}", n + 1);
        if n == 40 {
            break;
        }
    }
    assert!(sim.place(&ask("r1")).grant.is_some());
    let pool = sim.pool();
    let silent = pool.hosts[pool.members.position(&id("h49")).unwrap()].reading.clone().unwrap();
    assert_eq!(silent.users, Some(49), "last known, to be shown");
    assert_eq!(silent.age(sim.now), None, "and of unknown age");
    for _ in 0..60 {
        lost.extend(sim.pass(1));
        for n in 0..=40 {
            sim.report(&format!("h{n}"), users(n));
        }
    }
    let gone = |effect: &Effect| matches!(effect, Effect::StateChanged { to: HostState::Offline, .. });
    assert!(!lost.iter().any(gone), "nobody is lost within the grace");
    assert_eq!(sim.pass(1).iter().filter(|effect| gone(effect)).count(), 9);
    assert_eq!(sim.state("h49"), HostState::Offline);
    assert_eq!(sim.state("h0"), HostState::Available);
}

// rule: grace-stale
// rule: partial-view
#[test]
fn case_135_after_ten_seconds_it_chooses_among_those_it_has_heard() {
    let mut sim = restarted(&fifty());
    sim.attach("h7");
    sim.report("h7", users(7));
    sim.pass(10);
    sim.report("h7", users(7));
    assert_eq!(sim.place(&ask("r1")).refusal().kind, RefusalKind::Stale);
    sim.pass(1);
    let placed = sim.place(&ask("r2"));
    assert_eq!(placed.host(), "h7");
    assert!(placed.choice().flags.names().any(|name| name == "partial_view"));
}

// rule: grace-stale
// rule: grace-unknown
#[test]
fn when_nobody_is_heard_placements_are_stale_then_refused_and_all_are_offline_after_the_grace() {
    let mut sim = restarted(&Sim::of_users(&[("a", 1), ("b", 2)]));
    let gone = |effect: &Effect| matches!(effect, Effect::StateChanged { to: HostState::Offline, .. });
    for second in 0..=60 {
        assert_eq!(["a", "b"].map(|host| sim.state(host)), [HostState::Unknown; 2], "after {second} s");
        let refusal = sim.place(&ask("r1")).refusal().kind;
        let expected = if second <= 10 { RefusalKind::Stale } else { RefusalKind::AllOffline };
        assert_eq!(refusal, expected, "after {second} s");
        assert_eq!(
            sim.pass(1).iter().filter(|effect| gone(effect)).count(),
            if second == 60 { 2 } else { 0 }
        );
    }
    assert_eq!(["a", "b"].map(|host| sim.state(host)), [HostState::Offline; 2]);
    assert_eq!(sim.place(&ask("r1")).refusal().kind, RefusalKind::AllOffline);
    // One report brings a host back, as at any time.
    sim.attach("b");
    sim.report("b", users(2));
    assert_eq!(sim.place(&ask("r1")).host(), "b");
}

// rule: grace-stale
#[test]
fn hosts_that_were_gone_before_are_not_waited_for() {
    let mut sim = fifty();
    for n in 0..10 {
        for _ in 0..4 {
            sim.pass(5);
            for alive in 10..50 {
                sim.report(&format!("h{alive}"), users(n));
            }
        }
    }
    let mut sim = restarted(&sim);
    for n in 10..42 {
        sim.attach(&format!("h{n}"));
        sim.report(&format!("h{n}"), users(1));
    }
    assert!(!sim.pool().is_stale(sim.now), "32 of the 40 that were alive");
}

// rule: grace-none
#[test]
fn with_nothing_stored_there_is_no_grace() {
    let mut sim = restarted(&Sim::new());
    sim.attach("a");
    sim.report("a", users(1));
    assert_eq!(sim.place(&ask("r1")).host(), "a");
}

// rule: grace-begins
#[test]
fn case_136_after_a_freeze_nothing_of_before_is_believed() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 1)]);
    sim.pass(1);
    let effects = sim.freeze(40);
    assert!(matches!(effects[0], Effect::Thawed { after } if after == Duration::from_secs(40)));
    assert_eq!(sim.state("a"), HostState::Unknown, "not OFFLINE: it was not the host that was away");
    assert_eq!(sim.place(&ask("r1")).refusal().kind, RefusalKind::Stale);
    sim.report("a", users(11));
    assert_eq!(sim.place(&ask("r2")).refusal().kind, RefusalKind::Stale, "half is not 80 %");
    sim.report("b", users(12));
    assert_eq!(sim.place(&ask("r3")).host(), "a");
}

// rule: grace-begins
#[test]
fn a_gap_of_a_report_interval_is_no_freeze_and_a_longer_one_is() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    sim.pass(1);
    assert!(sim.freeze(2).is_empty());
    assert!(sim.freeze(5).is_empty(), "nothing known is older than hosts report anyway");
    assert!(matches!(sim.freeze(6)[..], [Effect::Thawed { .. }, Effect::StateChanged { .. }]));
    assert_eq!(sim.place(&ask("r1")).refusal().kind, RefusalKind::Stale);
}

// rule: life-ttl
#[test]
fn case_131_places_of_before_a_suspension_end_with_the_first_report() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    let told = sim.place(&ask("r1")).grant.unwrap();
    let untold = sim.place(&ask("r2")).grant.unwrap();
    sim.report("a", Load { pending: vec![listed("r1", None, 1, 119)], ..users(1) });
    sim.freeze(600);
    assert!(told.counts() && untold.counts());
    sim.report("a", users(2));
    assert!(!told.counts() && !untold.counts());
    assert_eq!(sim.word("a").pending_users(), 0);
}

// rule: life-ttl
// rule: life-listed
#[test]
fn case_137_the_host_counts_the_time_to_live_whatever_coordinators_do() {
    let mut sim = Sim::of_users(&[("a", 0)]);
    sim.apply(PolicyChange { reservation_ttl_ms: Some(30_000), ..PolicyChange::default() });
    sim.place(&ask("r1"));
    let mut book = usher_placement::host::HostBook::new();
    book.observe(usher_placement::host::Occupancy::Counted(0), sim.now);
    book.expect(&listed("r1", None, 1, 30), false, Limits::default(), HeldBack::default(), true, sim.now)
        .unwrap();
    // 20 s later another coordinator, which has never heard of it, takes over.
    let began = sim.now;
    let mut sim = restarted(&Sim { now: began + Duration::from_secs(17), ..sim });
    sim.attach("a");
    for second in 20..=35u64 {
        sim.now = began + Duration::from_secs(second);
        sim.farm.tick(sim.now);
        book.expire(sim.now);
        sim.report("a", report_of(&book, sim.now));
        let counted = sim.word("a").pending_users();
        assert_eq!(counted, u32::from(second < 30), "after {second} s");
    }
    let ended = sim.ledger.get(&token("r1")).unwrap();
    assert_eq!(
        ended.state(),
        usher_placement::reservation::GrantState::Ended(EndReason::Expired),
        "and a retry is decided anew"
    );
}

#[test]
fn a_dead_host_is_not_waited_for_however_often_the_coordinator_starts_again() {
    let mut sim = Sim::of_users(&[("a", 1), ("dead", 1)]);
    for _ in 0..4 {
        sim.pass(5);
        sim.report("a", users(1));
    }
    assert_eq!(sim.state("dead"), HostState::Offline);
    let mut again = restarted(&sim);
    // In the grace it is shown as UNKNOWN, and stored so, and then the coordinator stands still and starts once more.
    again.pass(2);
    assert_eq!(again.state("dead"), HostState::Unknown);
    let mut frozen = restarted(&sim);
    frozen.pass(2);
    frozen.freeze(30);
    for mut later in [restarted(&again), frozen] {
        later.attach("a");
        later.report("a", users(1));
        assert!(later.place(&ask("r1")).grant.is_some());
    }
}

#[test]
fn a_resource_is_unknown_only_once_everybody_who_may_hold_it_was_heard() {
    let mut before = fifty();
    before.serves("h7", &["mail"]);
    before.serves("h8", &["news"]);
    before.pass(1);
    let mut sim = restarted(&before);
    let asked = |sim: &mut Sim, id: &str| {
        sim.place(&Request { resource: Some(ResourceId::new("mail").unwrap()), ..ask(id) })
    };
    for n in (0..50).filter(|n| *n != 8) {
        sim.attach(&format!("h{n}"));
        sim.report(&format!("h{n}"), users(n));
    }
    assert_eq!(asked(&mut sim, "r0").refusal().kind, RefusalKind::Stale, "h7 has not said what it holds");
    sim.serves("h7", &[]);
    assert_eq!(asked(&mut sim, "r1").refusal().kind, RefusalKind::Stale, "nor has h8, which may come yet");
    for _ in 0..61 {
        sim.pass(1);
        for n in (0..50).filter(|n| *n != 8) {
            sim.report(&format!("h{n}"), users(n));
        }
    }
    assert_eq!(sim.state("h8"), HostState::Offline);
    assert_eq!(asked(&mut sim, "r2").refusal().kind, RefusalKind::UnknownResource);
}
