//! Which of the candidates is chosen.

use std::collections::BTreeMap;

use usher_placement::decision::{Decision, Excluded, Flags, PlacementReason, RefusalKind, Request};
use usher_types::{
    EndReason, Hello, HostOverrides, HostState, Load, PolicyChange, ResourceId, WeightsChange, Zone,
};

use crate::support::*;

fn crm(request: &str) -> Request {
    Request { resource: Some(ResourceId::new("crm").unwrap()), ..ask(request) }
}

// rule: load-formula
#[test]
fn case_067_the_worked_example_through_a_placement() {
    let mut sim = Sim::new();
    let weights = WeightsChange {
        cpu_percent: Some(30.0),
        memory_percent: Some(30.0),
        users_percent: Some(25.0),
        processes_percent: Some(15.0),
    };
    sim.apply(PolicyChange { weights: Some(weights), ..PolicyChange::default() });
    for (host, numbers) in [("s1", (35.0, 55, 10, 70)), ("s2", (25.0, 45, 14, 89))] {
        sim.attach(host);
        sim.report(host, load(numbers));
    }
    let explanation = sim.explain(&ask("r1"));
    let loads: Vec<f64> = explanation.hosts.iter().map(|h| h.terms.unwrap().weighted_load()).collect();
    assert!((loads[0] - 56.6549).abs() < 0.0001 && (loads[1] - 61.0).abs() < 1e-9, "{loads:?}");
    let placed = sim.place(&ask("r1"));
    assert_eq!((placed.host(), placed.choice().reason), ("s1", PlacementReason::LowestLoad));
    assert_eq!(placed.choice().alternatives[0].0, 1);
}

// rule: load-zero-top
#[test]
fn case_068_nobody_logged_in_anywhere() {
    let mut sim = Sim::of_users(&[("a", 0), ("b", 0), ("c", 0)]);
    let explanation = sim.explain(&ask("r1"));
    assert!(explanation.hosts.iter().all(|host| host.terms.unwrap().weighted_load() == 0.0));
    assert_eq!(sim.place(&ask("r1")).choice().tied, 3);
}

// rule: rank-load
// rule: load-formula
#[test]
fn case_076_the_fewest_users_win() {
    let mut sim = Sim::of_users(&[("s1", 6), ("s2", 5)]);
    let placed = sim.place(&ask("r1"));
    assert_eq!(placed.host(), "s2");
    assert!((placed.choice().terms.unwrap().weighted_load() - 83.333).abs() < 0.001);
}

// rule: tie-random
#[test]
fn case_094_equals_are_settled_at_random_and_a_seed_repeats_them() {
    let run = |seed: u64| {
        let mut sim = Sim::of_users(&[("a", 1), ("b", 1), ("c", 1)]);
        sim.seed = seed;
        let mut order = Vec::new();
        for n in 0..300 {
            let request = format!("r{n}");
            order.push(sim.place(&ask(&request)).host().to_owned());
            sim.end(&request, EndReason::Cancelled);
        }
        order
    };
    let order = run(7);
    let mut counts = BTreeMap::<&str, u32>::new();
    order.iter().for_each(|host| *counts.entry(host).or_default() += 1);
    assert_eq!(counts.len(), 3);
    assert!(counts.values().all(|count| (70..=130).contains(count)), "{counts:?}");
    assert_eq!(order, run(7));
    assert_ne!(order, run(8_000));
}

// rule: tie-draw
#[test]
fn where_several_coordinators_decide_each_takes_the_best_of_a_few() {
    let hosts: Vec<String> = (0..20).map(|n| format!("h{n}")).collect();
    let mut sim = Sim::new();
    sim.apply(PolicyChange { weights: only_users(), ..PolicyChange::default() });
    for (host, count) in hosts.iter().zip(1..) {
        sim.attach(host);
        sim.report(host, Load { streams_held: 2, ..users(count) });
    }
    let mut chosen = BTreeMap::<String, u32>::new();
    for n in 0..400 {
        let request = format!("r{n}");
        *chosen.entry(sim.place(&ask(&request)).host().to_owned()).or_default() += 1;
        sim.end(&request, EndReason::Cancelled);
    }
    assert!((40..=160).contains(&chosen["h0"]), "the best is drawn in a fifth of the cases: {chosen:?}");
    assert!(chosen.keys().all(|host| hosts[..17].contains(host)), "the worst three never win: {chosen:?}");
}

// rule: candidate-replica
// rule: candidate-exclude
// rule: error-unknown-resource
// rule: error-all-excluded
#[test]
fn case_104_only_hosts_that_hold_the_resource() {
    let mut sim = Sim::of_users(&[("a", 9), ("b", 5), ("c", 0)]);
    sim.apply(PolicyChange { threshold_percent: Some(30.0), ..PolicyChange::default() });
    for (host, index) in [("a", 10.0), ("b", 40.0), ("c", 100.0)] {
        sim.available(host, index);
    }
    sim.serves("a", &["crm", "mail"]);
    sim.serves("b", &["crm"]);
    assert_eq!(sim.place(&crm("r1")).host(), "b", "BUSY sends the user to another holder");
    let refused = sim.place(&Request { exclude: vec!["b".into(), "A.".into()], ..crm("r2") });
    assert_eq!(refused.refusal().kind, RefusalKind::AllExcluded);
    let nowhere = Request { resource: Some(ResourceId::new("nowhere").unwrap()), ..ask("r3") };
    assert_eq!(sim.place(&nowhere).refusal().kind, RefusalKind::UnknownResource);
    sim.serves("b", &[]);
    let placed = sim.place(&crm("r4"));
    assert_eq!((placed.host(), placed.choice().flags), ("a", Flags::NONE.with(Flags::ALL_BUSY, true)));
}

// rule: all-busy
#[test]
fn case_086_all_busy_serves_the_lowest_load() {
    let mut sim = Sim::of_users(&[("a", 3), ("b", 1), ("c", 2)]);
    sim.apply(PolicyChange { threshold_percent: Some(30.0), ..PolicyChange::default() });
    for (host, index) in [("a", 10.0), ("b", 20.0), ("c", 15.0)] {
        sim.available(host, index);
    }
    let placed = sim.place(&ask("r1"));
    assert_eq!((placed.host(), placed.choice().flags.has(Flags::ALL_BUSY)), ("b", true));
}

// rule: candidate-exclude a name that two hosts have
// rule: directory-ambiguous
#[test]
fn an_excluded_name_that_two_hosts_have_excludes_both() {
    let mut sim = Sim::of_users(&[("a", 9)]);
    for host_id in ["n1", "n2"] {
        let twin = Hello { host_id: usher_types::HostId::new(host_id).unwrap(), ..hello("twin") };
        sim.farm.attach(&twin, None, false).unwrap();
        sim.farm.observe_load(&twin.host_id, users(0), &[], sim.now, 0);
    }
    assert_eq!(sim.place(&Request { exclude: vec!["TWIN".into()], ..ask("r1") }).host(), "a");
    assert_eq!(sim.place(&Request { exclude: vec!["n1".into()], ..ask("r2") }).host(), "twin");
    assert_eq!(sim.place(&failover("r3", "twin", &[], usher_types::FailureCause::Busy)).host(), "a");
}

// rule: order-zone
#[test]
fn hosts_of_the_clients_zone_come_first_within_their_state() {
    let mut sim = Sim::of_users(&[("far", 0)]);
    let zone = |name: &str| Some(Zone::new(name).unwrap());
    sim.farm.attach(&Hello { zone: zone("north"), ..hello("near") }, None, false).unwrap();
    sim.report("near", users(50));
    let from = |request: &str, name: &str| Request { client_zone: zone(name), ..ask(request) };
    assert_eq!(sim.place(&from("r1", "north")).host(), "near");
    assert_eq!(sim.place(&from("r2", "south")).host(), "far");
    assert_eq!(sim.place(&ask("r3")).host(), "far");
    sim.apply(PolicyChange { threshold_percent: Some(30.0), ..PolicyChange::default() });
    sim.available("near", 10.0);
    assert_eq!(sim.place(&from("r4", "north")).host(), "far", "state comes before zone");
}

// rule: preferred
#[test]
fn the_home_server_is_preferred_while_none_is_in_a_better_state() {
    let mut sim = Sim::of_users(&[("home", 90), ("other", 0)]);
    let home = |request: &str| Request { prefer_host: Some("HOME.".into()), ..ask(request) };
    let placed = sim.place(&home("r1"));
    assert_eq!((placed.host(), placed.choice().reason), ("home", PlacementReason::Preferred));
    sim.apply(PolicyChange { threshold_percent: Some(30.0), ..PolicyChange::default() });
    sim.available("home", 10.0);
    assert_eq!(sim.place(&home("r2")).host(), "other");
    sim.available("other", 10.0);
    let placed = sim.place(&home("r3"));
    assert_eq!((placed.host(), placed.choice().reason), ("home", PlacementReason::Preferred));
    assert!(placed.choice().flags.has(Flags::ALL_BUSY));
    // A silent host does not raise the tier that the home server is held against.
    sim.available("other", 100.0);
    sim.word("other");
    sim.pool().members.cells[1].set_silent(true);
    assert_eq!(sim.place(&home("r4")).host(), "home");
}

// rule: order-silent
#[test]
fn a_host_that_did_not_answer_ranks_last_until_it_is_heard() {
    let mut sim = Sim::of_users(&[("a", 0), ("b", 50)]);
    sim.apply(PolicyChange { threshold_percent: Some(30.0), ..PolicyChange::default() });
    sim.available("b", 10.0);
    sim.pool().members.cells[0].set_silent(true);
    assert_eq!(sim.place(&ask("r1")).host(), "b", "even behind a busy one");
    assert_eq!(sim.place(&Request { exclude: vec!["b".into()], ..ask("r2") }).host(), "a");
    sim.report("a", users(0));
    assert_eq!(sim.place(&ask("r3")).host(), "a");
}

// rule: consent-refused
// rule: error-no-consent
#[test]
fn within_a_call_no_host_is_asked_twice() {
    let mut sim = Sim::of_users(&[("a", 0), ("b", 1)]);
    let unwilling = [(id("a"), Excluded::RefusedConsent)];
    assert_eq!(sim.decide(&ask("r1"), &unwilling).host(), "b");
    let both = [(id("a"), Excluded::NoAnswer), (id("b"), Excluded::NoAnswer)];
    assert_eq!(sim.decide(&ask("r2"), &both).refusal().kind, RefusalKind::NoConsentSilent);
    let both = [(id("a"), Excluded::NoAnswer), (id("b"), Excluded::RefusedConsent)];
    assert_eq!(sim.decide(&ask("r3"), &both).refusal().kind, RefusalKind::NoConsentRefused);
}

// rule: error-all-restricted
// rule: error-max-users
// rule: error-reasons
#[test]
fn all_drained_is_named_so_and_full_comes_before_all_else() {
    let mut sim = Sim::of_users(&[("a", 5), ("b", 5)]);
    sim.drain("a", usher_types::DrainMode::Persistent, false);
    sim.drain("b", usher_types::DrainMode::Persistent, false);
    assert_eq!(sim.place(&ask("r1")).refusal().kind, RefusalKind::AllRestricted);
    sim.farm.set_drain(&id("b"), None);
    sim.apply(PolicyChange { max_users: limit(5), ..PolicyChange::default() });
    let placed = sim.place(&ask("r2"));
    assert_eq!(placed.refusal().kind, RefusalKind::MaxUsers);
    assert_eq!(placed.refusal().hosts[0].1, Excluded::State(HostState::Restricted));
    let excluded = Request { exclude: vec!["b".into()], ..ask("r3") };
    assert_eq!(
        sim.place(&excluded).refusal().kind,
        RefusalKind::AllRestricted,
        "a full host that is excluded"
    );
}

// rule: load-tops per unit of capacity
// rule: reserve-dry-run
#[test]
fn a_larger_host_takes_more_and_a_dry_run_takes_nothing() {
    let mut sim = Sim::of_users(&[("small", 10)]);
    sim.attach("large");
    let overrides = HostOverrides { capacity: Some(4.0), ..HostOverrides::default() };
    sim.report("large", Load { overrides, ..users(30) });
    let dry = sim.place(&Request { dry_run: true, ..ask("r1") });
    assert_eq!(dry.host(), "large");
    assert!(matches!(dry.decision, Decision::Take(_)) && dry.grant.is_none());
    assert_eq!((sim.word("large").pending_users(), sim.ledger.live()), (0, 0));
}

// rule: load-median
// rule: absent-values
#[test]
fn an_unknown_metric_is_named_and_does_not_make_a_host_the_best() {
    let mut sim = Sim::new();
    for (host, cpu) in [("a", Some(20.0)), ("b", Some(60.0)), ("c", None)] {
        sim.attach(host);
        let cpu = cpu.map(|cpu| usher_types::Percent::new(cpu).unwrap());
        sim.report(host, Load { cpu, ..load((0.0, 10, 5, 50)) });
    }
    assert_eq!(sim.place(&ask("r1")).host(), "a");
    let placed = sim.place(&Request { exclude: vec!["a".into(), "b".into()], ..ask("r2") });
    assert_eq!(placed.host(), "c");
    assert!(placed.choice().flags.has(Flags::INCOMPLETE));
}
