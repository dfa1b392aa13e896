//! Of the hosts of one class, the best: by each method.

use usher_placement::decision::{Flags, PlacementReason, RefusalKind, Request};
use usher_types::{
    EndReason, HostOverrides, Load, Method, OwnAvailability, Percent, PolicyChange, UserLimit,
};

use crate::support::*;

fn by(method: Method) -> PolicyChange {
    PolicyChange { method: Some(method), max_users: limit(100), ..PolicyChange::default() }
}

fn by_availability(hosts: &[(&str, u32, f64)]) -> Sim {
    let mut sim = Sim::new();
    sim.apply(by(Method::Availability));
    for (host, count, factor) in hosts {
        sim.attach(host);
        sim.report(host, users(*count));
        sim.farm.observe_latency(&id(host), latency(*factor), 0, sim.now);
    }
    sim
}

// rule: rank-availability
#[test]
fn the_lowest_expansion_factor_wins_and_users_do_not_matter() {
    let mut sim = by_availability(&[("a", 1, 4.0), ("b", 90, 2.0), ("c", 5, 3.0)]);
    let placed = sim.place(&ask("r1"));
    let choice = placed.choice();
    assert_eq!((placed.host(), choice.reason), ("b", PlacementReason::HighestAvailability));
    assert!((choice.score.unwrap() - 2.0).abs() < 1e-9 && choice.terms.is_none());
    assert_eq!(choice.alternatives.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [2, 0]);
}

// rule: rank-availability logins on their way make a host slower than it was measured
#[test]
fn logins_on_their_way_count_against_the_users_that_were_measured() {
    let mut sim = by_availability(&[("a", 10, 2.0), ("b", 0, 2.9)]);
    // 2 x (1 + n / 10) passes 2.9 with the fifth; an empty host counts as one user: 2.9 x (1 + n).
    let hosts: Vec<String> = (0..6).map(|n| sim.place(&ask(&format!("r{n}"))).host().to_owned()).collect();
    assert_eq!(hosts, ["a", "a", "a", "a", "a", "b"]);
    assert_eq!(sim.place(&ask("r6")).host(), "a", "one login doubles what one user was measured at");
}

// rule: rank-availability hosts of which nothing is measured come last, the fewest users first
#[test]
fn a_host_that_is_not_measured_comes_after_all_that_are() {
    let mut sim = by_availability(&[("slow", 50, 60.0)]);
    for (host, count) in [("many", 9), ("few", 3)] {
        sim.attach(host);
        sim.report(host, users(count));
    }
    assert_eq!(sim.place(&ask("r1")).host(), "slow");
    let unmeasured = Request { exclude: vec!["slow".into()], ..ask("r2") };
    assert_eq!(sim.place(&unmeasured).host(), "few");
    let explanation = sim.explain(&ask("r3"));
    assert_eq!(explanation.hosts.iter().map(|host| host.position).collect::<Vec<_>>(), [0, 2, 1]);
}

// rule: own-index its expansion factor is the one at which our index would have its value
#[test]
fn a_host_that_computes_its_own_index_is_compared_by_it() {
    let mut sim = by_availability(&[("a", 1, 4.5), ("b", 1, 3.5)]);
    let own = OwnAvailability { index: Percent::new(200.0 / 3.0).unwrap(), source: "domino".into() };
    sim.attach("domino");
    sim.report("domino", Load { own_availability: Some(own), ..users(1) });
    let explanation = sim.explain(&ask("r1"));
    let order: Vec<usize> = explanation.hosts.iter().map(|host| host.position).collect();
    assert_eq!(order, [1, 2, 0]);
    assert!((explanation.hosts[1].expansion_factor.unwrap() - 4.0).abs() < 1e-9, "index 66.7 at range 6");
}

// rule: rank-fill
#[test]
fn filling_takes_the_fullest_host_that_has_a_place() {
    let mut sim = Sim::of_users(&[("a", 3), ("b", 8), ("c", 5)]);
    sim.apply(PolicyChange {
        method: Some(Method::FillFirst),
        max_users: limit(10),
        ..PolicyChange::default()
    });
    let placed = sim.place(&ask("r0"));
    assert_eq!((placed.host(), placed.choice().reason), ("b", PlacementReason::Fill));
    let hosts: String = (1..14).map(|n| sim.place(&ask(&format!("r{n}"))).host().to_owned()).collect();
    assert_eq!(hosts, "bcccccaaaaaaa");
}

// rule: rank-fill a host without a limit of its own is never filled, so it comes last
#[test]
fn a_host_without_a_limit_is_filled_last() {
    let mut sim = Sim::of_users(&[("a", 1), ("endless", 90)]);
    sim.apply(PolicyChange {
        method: Some(Method::FillFirst),
        max_users: limit(2),
        ..PolicyChange::default()
    });
    let overrides = HostOverrides { max_users: Some(UserLimit::Unlimited), ..HostOverrides::default() };
    sim.report("endless", Load { overrides, ..users(90) });
    assert_eq!(sim.place(&ask("r1")).host(), "a");
    assert_eq!(sim.place(&ask("r2")).host(), "endless");
}

// rule: rank-fill the whole class is ranked, with peers too
#[test]
fn filling_does_not_draw_where_several_coordinators_decide() {
    let names: Vec<String> = (0..20).map(|n| format!("h{n}")).collect();
    let mut sim = Sim::new();
    sim.apply(by(Method::FillFirst));
    for (name, count) in names.iter().zip(1..) {
        sim.attach(name);
        sim.report(name, Load { streams_held: 2, ..users(count) });
    }
    for n in 0..50 {
        let request = format!("r{n}");
        assert_eq!(sim.place(&ask(&request)).host(), "h19");
        sim.end(&request, EndReason::Cancelled);
    }
}

fn ramping(age_s: u64, count: u32) -> Load {
    Load { ready_age: Some(std::time::Duration::from_secs(age_s)), ..users(count) }
}

// rule: ramp-capacity
// rule: load-bounds a term of a ramping host may exceed its weight
// rule: load-tops a ramping host takes no part in them
#[test]
fn case_092_a_host_that_has_just_booted_takes_its_share_slowly() {
    let mut sim = Sim::of_users(&[("a", 80), ("b", 80)]);
    sim.attach("new");
    sim.report("new", ramping(12, 4));
    // A tenth of its capacity counts: 4 users are as many as 40.
    let explanation = sim.explain(&ask("r"));
    let new = explanation.hosts.iter().find(|host| host.position == 2).unwrap();
    assert!((new.score.unwrap() - 50.0).abs() < 1e-9, "{new:?}");
    assert_eq!(new.ramp, Some(0.1));
    assert_eq!(explanation.top_users, Some(80.0));
    for n in 0..4 {
        let placed = sim.place(&ask(&format!("r{n}")));
        assert_eq!((placed.host(), placed.choice().flags.has(Flags::RAMPING)), ("new", true));
    }
    // 8 users as 80: as full as the others; with 9 it has more than its weight.
    sim.report("new", ramping(12, 9));
    assert_ne!(sim.place(&ask("r5")).host(), "new");
    let explanation = sim.explain(&ask("r"));
    let new = explanation.hosts.iter().find(|host| host.position == 2).unwrap();
    assert!(new.terms.unwrap().users > 100.0, "{new:?}");
    // It has grown up by itself, with no report of anything new.
    sim.pass_with(110, &[("a", 80), ("b", 80)]);
    sim.report("new", ramping(122, 9));
    let placed = sim.place(&ask("r6"));
    assert_eq!((placed.host(), placed.choice().flags.has(Flags::RAMPING)), ("new", false));
}

// rule: load-median of a ramping host too, whose numbers do not count
#[test]
fn what_a_ramping_host_does_not_know_is_not_zero() {
    let mut sim = Sim::new();
    for host in ["a", "b"] {
        sim.attach(host);
        sim.report(host, load((50.0, 50, 10, 100)));
    }
    sim.attach("new");
    sim.report("new", Load { cpu: None, ..ramping(119, 10) });
    let explanation = sim.explain(&ask("r"));
    let new = explanation.hosts.iter().find(|host| host.position == 2).unwrap();
    assert_eq!(new.terms.unwrap().cpu, 7.5, "the median of 50 %, at 15 points");
    assert!(new.flags.has(Flags::INCOMPLETE));
}

// rule: load-tops if all hosts are ramping up, all of them count
#[test]
fn a_pool_that_boots_together_is_compared_with_itself() {
    let mut sim = Sim::of_users(&[("a", 0), ("b", 0)]);
    sim.report("a", ramping(12, 4));
    sim.report("b", ramping(60, 4));
    let explanation = sim.explain(&ask("r"));
    let scores: Vec<f64> = explanation.hosts.iter().map(|host| host.score.unwrap()).collect();
    assert_eq!((explanation.hosts[0].position, scores), (1, vec![20.0, 100.0]));
}

// rule: ramp-users
#[test]
fn ramping_up_makes_logins_on_their_way_weigh_more_in_availability() {
    let mut sim = by_availability(&[("a", 10, 2.0), ("new", 10, 1.0)]);
    sim.report("new", ramping(12, 10));
    assert_eq!(sim.place(&ask("r1")).host(), "new");
    // 1 x (1 + 1 / (10 x 0.1)) is as much as 2.
    let explanation = sim.explain(&ask("r"));
    let new = explanation.hosts.iter().find(|host| host.position == 1).unwrap();
    assert!((new.score.unwrap() - 2.0).abs() < 1e-9);
    sim.place(&Request { exclude: vec!["a".into()], ..ask("r2") });
    assert_eq!(sim.place(&ask("r3")).host(), "a");
}

// rule: ramp-last
#[test]
fn filling_takes_a_ramping_host_last() {
    let mut sim = Sim::of_users(&[("a", 1), ("new", 9)]);
    sim.apply(PolicyChange {
        method: Some(Method::FillFirst),
        max_users: limit(10),
        ..PolicyChange::default()
    });
    sim.report("new", ramping(12, 9));
    assert_eq!(sim.place(&ask("r1")).host(), "a");
    let only = Request { exclude: vec!["a".into()], ..ask("r2") };
    assert_eq!(sim.place(&only).host(), "new");
}

// rule: never-over-limit
#[test]
fn filling_never_passes_a_limit() {
    let mut sim = Sim::of_users(&[("a", 0), ("b", 0)]);
    sim.apply(PolicyChange {
        method: Some(Method::FillFirst),
        max_users: limit(5),
        ..PolicyChange::default()
    });
    for n in 0..10 {
        sim.place(&ask(&format!("r{n}")));
    }
    assert_eq!(sim.place(&ask("late")).refusal().kind, RefusalKind::MaxUsers);
    assert_eq!(["a", "b"].map(|host| sim.word(host).pending_users()), [5, 5]);
}
