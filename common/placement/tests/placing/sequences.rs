//! What must not move.

use usher_types::{BusyReasons, HostState, Load, PolicyChange};

use crate::support::*;

// rule: unchanged-moves-nothing
#[test]
fn unchanged_reports_change_no_state_and_make_no_effect() {
    let mut sim = Sim::of_users(&[("a", 3), ("b", 4), ("c", 5)]);
    sim.apply(PolicyChange { threshold_percent: Some(30.0), max_users: limit(5), ..PolicyChange::default() });
    sim.pass(1);
    let mut answers = Vec::new();
    for second in 0..600u64 {
        assert!(sim.pass(1).is_empty(), "second {second}");
        if second % 5 == 0 {
            for (host, count) in [("a", 3), ("b", 4), ("c", 5)] {
                assert!(sim.report(host, users(count)).is_empty());
                sim.available(host, 60.0);
            }
        }
        let dry = usher_placement::decision::Request { dry_run: true, ..ask("r") };
        answers.push(sim.place(&dry).host().to_owned());
    }
    assert!(answers.iter().all(|host| host == "a"));
    assert_eq!(sim.state("c"), HostState::MaxUsers);
}

// rule: state-exit-margin
#[test]
fn case_102_a_host_at_its_threshold_does_not_flap() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    sim.apply(PolicyChange { threshold_percent: Some(30.0), ..PolicyChange::default() });
    sim.pass(1);
    let (mut latched, mut changes) = (BusyReasons::NONE, 0);
    for round in 0..60 {
        // The agent computes the same index and keeps the latch.
        let index = if round % 2 == 0 { 31.0 } else { 29.0 };
        sim.available("a", index);
        latched = sim.pool().hosts[0].busy_reasons(&sim.pool().policy, sim.now);
        sim.report("a", Load { latched: Some(latched), ..users(1) });
        changes += sim.pass(5).len();
    }
    assert!(latched.has(BusyReasons::AVAILABILITY));
    assert_eq!(changes, 1, "it became busy once");
}
