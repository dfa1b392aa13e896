//! Where logins succeeded, as hosts tell it.

use usher_types::{EndReason, Load, Outcome, ToldOutcome};

use crate::support::*;

fn told(request: &str, outcome: Outcome, age_s: u64) -> ToldOutcome {
    ToldOutcome { token: token(request), outcome, cause: None, age: secs(age_s), succeeded_elsewhere: false }
}

// rule: penalty-elsewhere a gateway's success on another host of the pool within 60 s, through whichever coordinator
#[test]
fn a_gateways_success_is_learned_from_the_host_that_was_told_of_it() {
    let mut sim = Sim::of(&["a", "b"]);
    let elsewhere =
        |sim: &Sim, host: &str| sim.ledger.successes().elsewhere(&desk(), &gateway("g1"), &id(host), sim.now);
    sim.report(
        "a",
        Load { outcomes: vec![told("r1", Outcome::Failed, 0), told("r2", Outcome::Ended, 0)], ..users(1) },
    );
    assert!(!elsewhere(&sim, "b"), "neither a failure nor an end is a success");
    sim.report("a", Load { outcomes: vec![told("r3", Outcome::Connected, 50)], ..users(1) });
    assert!(elsewhere(&sim, "b") && !elsewhere(&sim, "a"));
    sim.pass(10);
    assert!(elsewhere(&sim, "b"));
    sim.pass(1);
    assert!(!elsewhere(&sim, "b"), "a minute after it happened, not after it was told");
    sim.report("b", Load { ended: vec![ended("r4", 1, EndReason::Session, 0)], ..users(1) });
    assert!(elsewhere(&sim, "a"), "a place that became a session is a success");
}

// rule: penalty-unconfirmed a place on another host of the pool became a session
#[test]
fn hosts_learn_that_places_on_others_become_sessions() {
    let mut sim = Sim::of(&["a", "b"]);
    let web = usher_types::PoolName::new("web").unwrap();
    sim.farm.attach(&usher_types::Hello { pool: web, ..hello("w") }, None, false).unwrap();
    let confirmed = |sim: &Sim, host: &str| sim.farm.confirmed_elsewhere(&id(host), sim.now);
    sim.report("a", Load { ended: vec![ended("r1", 1, EndReason::Expired, 0)], ..users(1) });
    assert_eq!(["a", "b"].map(|host| confirmed(&sim, host)), [None; 2]);
    sim.report("a", Load { ended: vec![ended("r2", 1, EndReason::Session, 3)], ..users(2) });
    sim.pass(4);
    assert_eq!(["a", "b", "w", "x"].map(|host| confirmed(&sim, host)), [None, Some(secs(7)), None, None]);
    sim.report("b", Load { ended: vec![ended("r3", 1, EndReason::Session, 0)], ..users(2) });
    assert_eq!(["a", "b"].map(|host| confirmed(&sim, host)), [Some(secs(0)), Some(secs(7))]);
}
