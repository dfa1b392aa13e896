//! Many logins between two reports.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use usher_placement::{
    decision::{Asked, RefusalKind},
    farm::Snapshot,
    reservation::Ledger,
};
use usher_types::PolicyChange;

use crate::support::*;

/// Places `count` logins from each of `threads` gateways at the same time; what each came to.
fn storm(sim: &mut Sim, threads: u64, count: u64) -> Vec<Result<String, RefusalKind>> {
    let snapshot: Arc<Snapshot> = sim.farm.snapshot(sim.now);
    let (ledger, now): (Arc<Ledger>, _) = (sim.ledger.clone(), sim.now);
    let seeds = AtomicU64::new(sim.seed);
    let gateway = |thread: u64| {
        let one = |n: u64| {
            let seed = seeds.fetch_add(0x9e37_79b9, Ordering::Relaxed);
            let request = ask(&format!("t{thread}-{n}"));
            let asked = Asked { request: &request, unwilling: &[], doors: &[], now, seed };
            let placed = place_in(&ledger, || snapshot.clone(), &asked);
            match &placed.decision {
                usher_placement::decision::Decision::Refused(refusal) => Err(refusal.kind),
                _ => Ok(placed.host().to_owned()),
            }
        };
        (0..count).map(one).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let gateways: Vec<_> = (0..threads).map(|thread| scope.spawn(move || gateway(thread))).collect();
        gateways.into_iter().flat_map(|gateway| gateway.join().unwrap()).collect()
    })
}

fn by_host(answers: &[Result<String, RefusalKind>]) -> BTreeMap<&str, u32> {
    let mut counts = BTreeMap::new();
    answers.iter().flatten().for_each(|host| *counts.entry(host.as_str()).or_default() += 1);
    counts
}

// rule: reserve-at-once
#[test]
fn case_095_500_logins_from_4_gateways_spread_over_10_hosts() {
    let names: Vec<String> = (0..10).map(|n| format!("h{n}")).collect();
    let hosts: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 0)).collect();
    let mut sim = Sim::of_users(&hosts);
    let answers = storm(&mut sim, 4, 125);
    let counts = by_host(&answers);
    assert_eq!((counts.len(), counts.values().sum::<u32>()), (10, 500));
    assert!(counts.values().all(|count| (40..=60).contains(count)), "{counts:?}");
    for name in &names {
        assert_eq!(sim.word(name).places(), counts[name.as_str()], "every place is counted in its cell");
    }
}

// rule: load-pending
#[test]
fn case_108_nine_logins_on_three_equal_hosts() {
    let mut sim = Sim::of_users(&[("a", 10), ("b", 10), ("c", 10)]);
    for n in 0..9 {
        sim.place(&ask(&format!("r{n}")));
    }
    for host in ["a", "b", "c"] {
        assert_eq!((sim.word(host).users(), sim.word(host).pending_users()), (Some(10), 3));
    }
}

#[test]
fn thirty_logins_at_once_are_ten_on_each_of_three_equal_hosts() {
    for threads in [1, 3, 5] {
        let mut sim = Sim::of_users(&[("a", 4), ("b", 4), ("c", 4)]);
        let answers = storm(&mut sim, threads, 30 / threads);
        assert_eq!(by_host(&answers), BTreeMap::from([("a", 10), ("b", 10), ("c", 10)]), "{threads} threads");
    }
}

// rule: never-over-limit
#[test]
fn two_hundred_at_once_fill_two_hosts_to_their_limit_and_no_further() {
    let mut sim = Sim::of_users(&[("a", 0), ("b", 0)]);
    sim.apply(PolicyChange { max_users: limit(50), ..PolicyChange::default() });
    let answers = storm(&mut sim, 4, 50);
    assert_eq!(by_host(&answers), BTreeMap::from([("a", 50), ("b", 50)]));
    let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert_eq!(refused.len(), 100);
    assert!(refused.iter().all(|kind| **kind == RefusalKind::MaxUsers));
}

/// Does `meanwhile` between the reading of the cells and the decision.
fn with_a_race(sim: &mut Sim, meanwhile: impl Fn()) -> Placed {
    let snapshot = sim.farm.snapshot(sim.now);
    let loads = AtomicU64::new(0);
    let load = || {
        // The first comes before the cells are read, the second after it.
        if loads.fetch_add(1, Ordering::Relaxed) == 1 {
            meanwhile();
        }
        snapshot.clone()
    };
    let request = ask("late");
    let asked = Asked { request: &request, unwilling: &[], doors: &[], now: sim.now, seed: 1 };
    place_in(&sim.ledger, load, &asked)
}

// rule: reserve-exact
#[test]
fn the_last_place_that_somebody_else_took_meanwhile_is_not_taken_again() {
    let mut sim = Sim::of_users(&[("a", 9)]);
    sim.apply(PolicyChange { max_users: limit(10), ..PolicyChange::default() });
    let cell = sim.pool().members.cells[0].clone();
    let placed = with_a_race(&mut sim, || assert!(cell.reserve(cell.load(), 1)));
    assert_eq!(placed.refusal().kind, RefusalKind::MaxUsers);
    assert_eq!(cell.load().pending_users(), 1);
}

// rule: reserve-exact
#[test]
fn a_report_that_came_meanwhile_makes_the_decision_anew() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 5)]);
    let cell = sim.pool().members.cells[0].clone();
    let report = usher_placement::farm::CellChange { users: Some(9), ..Default::default() };
    assert_eq!(with_a_race(&mut sim, || cell.apply(report)).host(), "b");
}
