//! Hosts whose agents are lost, and whose own doors are tried.

use std::time::Duration;

use usher_placement::decision::{Decision, Excluded, Flags, RefusalKind, Request, Tier};
use usher_types::{Goodbye, HostState, Load, PolicyChange, Readiness, WhenBlind};

use crate::support::*;

/// Four hosts, of which the agents of these are silent until they are OFFLINE.
fn silent(lost: &[&str]) -> Sim {
    let hosts = [("a", 1), ("b", 2), ("c", 3), ("d", 4)];
    let mut sim = Sim::of_users(&hosts);
    sim.pass(1);
    let alive: Vec<(&str, u32)> = hosts.into_iter().filter(|(host, _)| !lost.contains(host)).collect();
    sim.pass_with(20, &alive);
    sim
}

fn open(sim: &mut Sim, hosts: &[&str]) {
    sim.open_doors = hosts.iter().map(|host| id(host)).collect();
}

// rule: blind-nobody
// rule: blind-doors
#[test]
fn with_every_agent_lost_the_hosts_whose_doors_are_open_take_logins() {
    let mut sim = silent(&["a", "b", "c", "d"]);
    open(&mut sim, &["b", "c"]);
    let placed = sim.place(&ask("r1"));
    assert_eq!((placed.choice().tier, placed.choice().flags.has(Flags::BLIND)), (Tier::Blind, true));
    assert!(["b", "c"].contains(&placed.host()) && placed.choice().limits.is_none());
    assert_eq!(placed.doors.len(), 4, "each door was tried once");
    assert!(placed.grant.as_ref().unwrap().blind);
    let next = sim.place(&ask("r2"));
    assert_ne!(next.host(), placed.host(), "the fewest places on their way");
    // The explanation of the same inputs is the same decision.
    let explanation = sim.explain_with(&Request { dry_run: true, ..ask("r3") }, &next.doors);
    let tiers: Vec<_> = explanation.hosts.iter().map(|host| (host.tier, host.excluded)).collect();
    assert_eq!(tiers[..2], [(Some(Tier::Blind), None); 2]);
    assert_eq!(tiers[2..], [(None, Some(Excluded::DoorShut)); 2]);
    assert!(explanation.hosts[0].terms.is_none() && explanation.hosts[0].score.is_some());
}

// rule: blind-life
#[test]
fn a_place_given_blind_is_not_ended_because_its_host_is_offline() {
    let mut sim = silent(&["a", "b", "c", "d"]);
    open(&mut sim, &["a"]);
    let grant = sim.place(&ask_for("r1", "u1")).grant.unwrap();
    sim.pass(30);
    assert!(grant.counts() && sim.state("a") == HostState::Offline);
    // It is the user's place, too.
    open(&mut sim, &["a", "b"]);
    let again = sim.place(&ask_for("r2", "u1"));
    assert!(matches!(again.decision, Decision::OwnPlace { position: 0, .. }), "{:?}", again.decision);
}

// rule: blind-half
// rule: order-tier blind ones after all others
#[test]
fn with_over_half_lost_those_that_are_well_come_first_all_the_same() {
    let mut sim = silent(&["a", "b", "c"]);
    open(&mut sim, &["a", "b", "c"]);
    let placed = sim.place(&ask("r1"));
    assert_eq!((placed.host(), placed.doors.len()), ("d", 0), "no door is tried that is not needed");
    sim.apply(PolicyChange { max_users: limit(5), ..PolicyChange::default() });
    // d has its fifth user on the way now.
    let placed = sim.place(&ask("r2"));
    assert_eq!(placed.choice().tier, Tier::Blind);
}

// rule: blind-nobody only if none of the call's candidates is eligible
#[test]
fn with_few_lost_a_candidate_that_is_well_keeps_all_doors_shut() {
    let mut sim = silent(&["a"]);
    open(&mut sim, &["a"]);
    let all_but =
        |host: &str| ["a", "b", "c", "d"].iter().filter(|h| **h != host).map(|h| (*h).into()).collect();
    let only_a = Request { exclude: all_but("a"), dry_run: true, ..ask("r1") };
    let placed = sim.place(&only_a);
    assert_eq!((placed.host(), placed.choice().tier), ("a", Tier::Blind));
    // b is a candidate that is well, though it is full: not blind, so MAX_USERS.
    sim.apply(PolicyChange { max_users: limit(2), ..PolicyChange::default() });
    sim.drain("c", usher_types::DrainMode::Persistent, false);
    assert_eq!(sim.state("b"), HostState::MaxUsers);
    let placed = sim.place(&Request { exclude: vec!["c".into(), "d".into()], dry_run: true, ..ask("r2") });
    assert_eq!(placed.host(), "a", "full is not eligible");
    sim.set_marks(
        "b",
        usher_types::HostMarks {
            max_users: Some(usher_types::UserLimit::Unlimited),
            busy: true,
            ..usher_types::HostMarks::default()
        },
    );
    let placed = sim.place(&Request { exclude: vec!["c".into(), "d".into()], dry_run: true, ..ask("r3") });
    assert_eq!((placed.host(), placed.doors.len()), ("b", 0), "BUSY is");
}

// rule: blind-never
#[test]
fn a_lost_host_that_was_drained_full_or_not_ready_stays_out() {
    let mut sim = silent(&[]);
    sim.apply(PolicyChange { max_users: limit(4), ..PolicyChange::default() });
    sim.report("a", Load { readiness: Readiness::NotReady("nologin".into()), ..users(1) });
    sim.drain("b", usher_types::DrainMode::Persistent, false);
    sim.pass(20);
    open(&mut sim, &["a", "b", "c", "d"]);
    let placed = sim.place(&ask("r1"));
    assert_eq!(placed.host(), "c");
    assert_eq!(placed.doors.len(), 2, "of d it must be known whether it is full or gone");
    let refused = sim.place(&ask("r2"));
    assert_eq!(refused.refusal().kind, RefusalKind::MaxUsers, "of 4 on c, 3 were there and 1 is on its way");
}

// rule: consent-share a blind host gives each coordinator its share
#[test]
fn a_blind_host_gives_no_more_than_its_share() {
    let mut sim = silent(&[]);
    sim.apply(PolicyChange { max_users: limit(8), ..PolicyChange::default() });
    for host in ["a", "b", "c", "d"] {
        sim.report(host, Load { streams_held: 2, ..users(4) });
    }
    sim.pass(20);
    open(&mut sim, &["a"]);
    assert_eq!([sim.place(&ask("r1")).host(), sim.place(&ask("r2")).host()], ["a", "a"]);
    let refused = sim.place(&ask("r3"));
    assert_eq!(refused.refusal().kind, RefusalKind::MaxUsers);
    assert!(refused.refusal().hosts.contains(&(0, Excluded::OutOfShare)));
}

// rule: blind-refuse
#[test]
fn a_pool_may_refuse_to_go_blind() {
    let mut sim = silent(&["a", "b", "c", "d"]);
    sim.apply(PolicyChange { when_blind: Some(WhenBlind::Refuse), ..PolicyChange::default() });
    open(&mut sim, &["a", "b", "c", "d"]);
    let refused = sim.place(&ask("r1"));
    assert_eq!((refused.refusal().kind, refused.doors.len()), (RefusalKind::AllOffline, 0));
    assert_eq!(refused.refusal().hosts[0].1, Excluded::State(HostState::Offline));
}

// rule: blind-lost
// rule: goodbye-counts-nowhere half
#[test]
fn hosts_that_said_goodbye_are_not_lost_and_count_in_no_share() {
    let mut sim = silent(&[]);
    for host in ["a", "b"] {
        sim.farm.detach(&id(host), 1, Some(Goodbye::HostShutdown), sim.now);
    }
    sim.pass_with(20, &[("d", 4)]);
    open(&mut sim, &["a", "b", "c"]);
    assert_eq!((sim.state("c"), sim.state("d")), (HostState::Offline, HostState::Available));
    let all = sim.place(&Request { dry_run: true, ..ask("r1") });
    assert_eq!((all.host(), all.doors.len()), ("d", 0), "one of two is not over half");
    let not_d = Request { exclude: vec!["d".into()], dry_run: true, ..ask("r2") };
    let placed = sim.place(&not_d);
    assert_eq!((placed.host(), placed.doors.len()), ("c", 1));
}

// rule: blind-stale
#[test]
fn while_stale_is_answered_no_door_is_tried() {
    let mut sim = silent(&[]);
    sim.freeze(40);
    open(&mut sim, &["a", "b", "c", "d"]);
    let refused = sim.place(&ask("r1"));
    assert_eq!(refused.refusal().kind, RefusalKind::Stale);
    assert!(refused.refusal().retry_after.unwrap() <= Duration::from_secs(2));
    sim.pass(11);
    assert_eq!(sim.state("a"), HostState::Unknown);
    assert_eq!(sim.place(&ask("r2")).choice().tier, Tier::Blind, "and then UNKNOWN ones are tried");
}

// rule: order-penalised before a lost host
#[test]
fn doors_are_tried_where_only_hosts_are_left_that_logins_fail_on() {
    let mut sim = silent(&["a", "b", "c"]);
    let penalty = usher_types::Penalty {
        gateway: None,
        cause: usher_types::PenaltyCause::Failed,
        left: Duration::from_secs(60),
        times: 1,
    };
    sim.report("d", Load { penalties: vec![penalty], ..users(4) });
    assert_eq!(sim.place(&ask("r1")).host(), "d", "no door is open");
    open(&mut sim, &["b"]);
    assert_eq!(sim.place(&ask("r2")).host(), "b");
}

// rule: blind-half exactly half is not over half, and those that said goodbye count in no share
#[test]
fn with_half_of_a_pool_lost_a_login_goes_where_logins_fail_rather_than_to_a_door() {
    let penalty = usher_types::Penalty {
        gateway: None,
        cause: usher_types::PenaltyCause::Failed,
        left: Duration::from_secs(60),
        times: 1,
    };
    let mut sim = silent(&["a", "b"]);
    for host in ["c", "d"] {
        sim.report(host, Load { penalties: vec![penalty.clone()], ..users(4) });
    }
    open(&mut sim, &["a", "b"]);
    let placed = sim.place(&Request { dry_run: true, ..ask("r1") });
    assert_eq!((placed.choice().tier, placed.doors.len()), (Tier::Available, 0));
    let open_doors = [(id("a"), true), (id("b"), true)];
    let explained = sim.explain_with(&Request { dry_run: true, ..ask("r1") }, &open_doors);
    assert!(matches!(&explained.decision, Decision::Take(choice) if choice.tier == Tier::Available));
    // Of the three that are left when one has said goodbye, two are lost.
    sim.farm.detach(&id("d"), 1, Some(Goodbye::HostShutdown), sim.now);
    let placed = sim.place(&Request { dry_run: true, ..ask("r2") });
    assert_eq!((placed.choice().tier, placed.doors.len()), (Tier::Blind, 2));
    // Its explanation counts who is lost by itself.
    let explained = sim.explain_with(&Request { dry_run: true, ..ask("r2") }, &placed.doors);
    assert!(matches!(&explained.decision, Decision::Take(choice) if choice.tier == Tier::Blind));
    // A lost host that the login may not use opens no door either, whatever else is lost.
    let mut sim = silent(&["a"]);
    let only_lost_is_excluded = Request { exclude: vec!["a".into()], dry_run: true, ..ask("r3") };
    open(&mut sim, &["a"]);
    assert_eq!(sim.place(&only_lost_is_excluded).doors.len(), 0);
    let none_left = ["a", "b", "c", "d"].map(Into::into).to_vec();
    let refused = sim.place(&Request { exclude: none_left, dry_run: true, ..ask("r4") });
    assert_eq!((refused.refusal().kind, refused.doors.len()), (RefusalKind::AllExcluded, 0));
}

/// Doors of a thousand lost hosts are not tried for one login.
#[test]
fn of_many_doors_some_are_tried_and_more_only_while_none_opens() {
    let names: Vec<String> = (0..150).map(|n| format!("h{n}")).collect();
    let hosts: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let mut sim = Sim::of_users(&hosts);
    sim.pass(20);
    let refused = sim.place(&ask("r1"));
    assert_eq!((refused.refusal().kind, refused.doors.len()), (RefusalKind::AllOffline, 150));
    sim.open_doors = names.iter().map(|name| id(name)).collect();
    assert_eq!(sim.place(&ask("r2")).doors.len(), 64);
}
