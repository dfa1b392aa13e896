//! Pools too large to be looked at as a whole.

use std::time::Duration;

use usher_placement::decision::{
    Asked, Decision, Excluded, Inputs, PlacementReason, RefusalKind, Request, explain, reserve_best,
};
use usher_types::{
    DrainMode, FailureCause, Hello, HostState, Load, Method, Penalty, PenaltyCause, PolicyChange, ResourceId,
    SessionState, UserLimit, Zone,
};

use crate::support::*;

/// A pool in which only users count; host `h{n}` has as many as `users_of` says.
fn crowd(hosts: usize, policy: PolicyChange, users_of: impl Fn(usize) -> u32) -> Sim {
    let mut sim = Sim::new();
    sim.apply(PolicyChange { weights: only_users(), ..policy });
    for n in 0..hosts {
        let zone = Some(Zone::new(if n.is_multiple_of(50) { "near" } else { "far" }).unwrap());
        sim.farm.attach(&Hello { zone, ..hello(&format!("h{n}")) }, None, false).unwrap();
        sim.report(&format!("h{n}"), users(users_of(n)));
    }
    sim
}

fn number(host: &str) -> usize {
    host[1..].parse().unwrap()
}

// rule: tie-draw-large
#[test]
fn of_two_thousand_hosts_one_of_the_best_is_chosen_without_looking_at_all() {
    let mut sim = crowd(2000, PolicyChange::default(), |n| n as u32);
    let mut ranks = Vec::new();
    for n in 0..200 {
        let placed = sim.decide(&ask(&format!("r{n}")), &[]);
        assert_eq!(placed.choice().reason, PlacementReason::LowestLoad);
        assert_eq!(placed.choice().alternatives.len(), 4);
        ranks.push(number(placed.host()));
    }
    let mean = ranks.iter().sum::<usize>() / ranks.len();
    assert!((60..200).contains(&mean), "the best of 16 is one of the best 6 % on average: {mean}");
    assert!(ranks.iter().all(|rank| *rank < 1500));
}

// rule: tie-draw-large
// rule: explain-same
#[test]
fn a_decision_on_a_draw_is_explained_by_what_was_drawn() {
    let mut sim = crowd(1500, PolicyChange::default(), |n| n as u32 % 40);
    let (snapshot, request) = (sim.farm.snapshot(sim.now), Request { dry_run: true, ..ask("r") });
    let asked = Asked { request: &request, unwilling: &[], doors: &[], now: sim.now, seed: 5 };
    let placed = reserve_best(|| snapshot.clone(), &sim.ledger, &asked).unwrap();
    let explanation = explain(&Inputs {
        pool: &placed.pool,
        words: placed.words.as_words(),
        request: &request,
        user: &placed.user,
        unwilling: &[],
        doors: &[],
        now: sim.now,
        seed: 5,
    });
    let drawn = explanation.drawn.unwrap();
    assert_eq!((drawn.of, drawn.best_class), (1500, 1500));
    assert_eq!(drawn.looked_at, 16);
    assert_eq!(explanation.hosts.len(), drawn.looked_at);
    assert_eq!(explanation.decision, placed.decision);
    assert_eq!(explanation.hosts[0].position, placed.decision.position().unwrap() as usize);
    assert_eq!(explanation.top_users, Some(39.0), "compared with the largest of the pool, drawn or not");
    assert!(placed.words.len() == drawn.looked_at && placed.words.bytes() < 1000);
}

// rule: tie-draw-large
#[test]
fn nobody_of_a_worse_class_is_chosen_while_there_is_one_of_a_better() {
    let mut sim = crowd(1100, PolicyChange::default(), |_| 0);
    for n in (0..1100).filter(|n| ![17, 900].contains(n)) {
        sim.drain(&format!("h{n}"), DrainMode::Persistent, false);
    }
    for n in 0..20 {
        let placed = sim.decide(&ask(&format!("r{n}")), &[]);
        assert!([17, 900].contains(&number(placed.host())));
    }
    let mut sim = crowd(1100, PolicyChange::default(), |_| 5);
    let failing = |n: usize| n >= 2;
    let penalty =
        Penalty { gateway: None, cause: PenaltyCause::Failed, left: Duration::from_secs(300), times: 1 };
    for n in (0..1100).filter(|n| failing(*n)) {
        sim.report(&format!("h{n}"), Load { penalties: vec![penalty.clone()], ..users(0) });
    }
    let placed = sim.decide(&ask("r"), &[]);
    assert!(!failing(number(placed.host())));
}

// rule: tie-draw-large
// rule: reserve-exact
#[test]
fn hosts_that_fill_up_between_two_snapshots_are_drawn_for_nobody() {
    let limit = PolicyChange { max_users: Some(UserLimit::Users(1)), ..PolicyChange::default() };
    let mut sim = crowd(1030, limit, |_| 0);
    let mut given = vec![0; 1030];
    for n in 0..1030 {
        let placed = sim.decide(&ask(&format!("r{n}")), &[]);
        given[number(placed.host())] += 1;
    }
    assert!(given.iter().all(|places| *places == 1), "each of them once");
    let refused = sim.decide(&ask("one-too-many"), &[]);
    assert_eq!(refused.refusal().kind, RefusalKind::MaxUsers);
    assert_eq!(refused.refusal().hosts[0].1, Excluded::State(HostState::MaxUsers));
}

// rule: order-zone
#[test]
fn of_a_large_pool_the_hosts_of_the_clients_zone_come_first() {
    let mut sim = crowd(2000, PolicyChange::default(), |n| n as u32);
    for zone in ["near", "far", "elsewhere"] {
        let client_zone = Some(Zone::new(zone).unwrap());
        let placed = sim.decide(&Request { client_zone, ..ask(zone) }, &[]);
        let is_near = number(placed.host()).is_multiple_of(50);
        assert!(zone == "elsewhere" || is_near == (zone == "near"), "{zone}");
    }
}

// rule: tie-draw-large
// rule: candidate-replica
#[test]
fn of_a_large_pool_only_holders_are_drawn_however_few_they_are() {
    let mut sim = crowd(1500, PolicyChange::default(), |_| 3);
    for n in [3, 700] {
        sim.serves(&format!("h{n}"), &["crm"]);
    }
    for n in 0..1400 {
        sim.serves(&format!("h{n}"), if [3, 700].contains(&n) { &["crm", "mail"] } else { &["mail"] });
    }
    for (resource, fits) in
        [("crm", &|n| [3, 700].contains(&n)), ("mail", &|n| n < 1400)] as [(&str, &dyn Fn(usize) -> bool); 2]
    {
        let wanted = Request { resource: Some(ResourceId::new(resource).unwrap()), ..ask(resource) };
        let placed = sim.decide(&wanted, &[]);
        assert!(fits(number(placed.host())), "{resource}");
    }
}

// rule: own-session
// rule: preferred
#[test]
fn in_a_large_pool_users_find_their_own_session_and_their_home() {
    let mut sim = crowd(1500, PolicyChange::default(), |n| n as u32);
    sim.sessions("h1499", &[session("1", "ann", SessionState::Disconnected, 60)]);
    let placed = sim.decide(&ask_for("r1", "ann"), &[]);
    assert!(matches!(placed.decision, Decision::OwnSession { position: 1499, .. }));
    let home = Request { prefer_host: Some("h1400".into()), ..ask("r2") };
    let placed = sim.decide(&home, &[]);
    assert_eq!((placed.host(), placed.choice().reason), ("h1400", PlacementReason::Preferred));
    let placed = sim.decide(&failover("r3", "h1400", &[], FailureCause::Unreachable), &[]);
    assert_eq!(placed.choice().redirect.map(|redirect| redirect.position), Some(1400));
}

// rule: rank-fill
#[test]
fn filling_up_ranks_a_large_pool_as_a_whole() {
    let policy = PolicyChange {
        method: Some(Method::FillFirst),
        max_users: Some(UserLimit::Users(10)),
        ..PolicyChange::default()
    };
    let mut sim = crowd(1500, policy, |n| u32::from(n == 1234) * 7);
    for n in 0..3 {
        assert_eq!(sim.decide(&ask(&format!("r{n}")), &[]).host(), "h1234");
    }
    assert_ne!(sim.decide(&ask("r"), &[]).host(), "h1234", "it is full");
}

// rule: blind-half
#[test]
fn where_most_of_a_large_pool_is_lost_it_is_looked_at_as_a_whole() {
    let mut sim = crowd(1100, PolicyChange::default(), |_| 0);
    for _ in 0..5 {
        sim.pass(5);
        (0..300).for_each(|n| _ = sim.report(&format!("h{n}"), users(1)));
    }
    let placed = sim.decide(&ask("r"), &[]);
    assert!(number(placed.host()) < 300, "those that are heard come first");
    assert_eq!(placed.pool.lost_share(sim.now).lost, 800);
}
