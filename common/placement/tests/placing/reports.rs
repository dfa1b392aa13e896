//! Numbers that come wrong, or not at all.

use std::time::Duration;

use usher_types::{
    EndReason, HostOverrides, HostState, Load, MountFullness, Percent, PolicyChange, UserLimit,
};

use crate::support::*;

fn without_cpu() -> Load {
    Load { cpu: None, ..load((0.0, 10, 1, 10)) }
}

fn cpu(sim: &mut Sim) -> (Option<f64>, Vec<&'static str>) {
    let reading = sim.pool().hosts[0].reading.clone().unwrap();
    (reading.cpu_percent, reading.stale.clone())
}

// rule: wrong-values
#[test]
fn a_wrong_value_is_replaced_by_the_last_good_one_for_three_intervals() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    sim.report("a", load((40.0, 10, 1, 10)));
    for _ in 0..15 {
        sim.pass(1);
        sim.report_faulty("a", without_cpu(), "cpu_percent");
        assert_eq!(cpu(&mut sim), (Some(40.0), vec!["cpu"]));
    }
    sim.pass(1);
    sim.report_faulty("a", without_cpu(), "cpu_percent");
    assert_eq!(cpu(&mut sim), (None, vec![]));
    assert_eq!(sim.pool().hosts[0].rejected_values, 16);
    sim.report("a", load((50.0, 10, 1, 10)));
    assert_eq!(cpu(&mut sim), (Some(50.0), vec![]));
}

/// What `look` sees at the last instant of the values that stand for wrong ones, and just after it.
fn just_after<T>(sim: &mut Sim, look: impl Fn(&mut Sim) -> T) -> (T, T) {
    let until = sim.farm.values_until().unwrap();
    sim.now = until;
    let before = look(sim);
    sim.now = until + Duration::from_millis(1);
    (before, look(sim))
}

// rule: wrong-values
#[test]
fn the_time_of_a_stale_value_ends_without_another_report() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    assert_eq!(sim.farm.values_until(), None);
    let began = sim.now;
    sim.report("a", load((40.0, 10, 1, 10)));
    sim.pass(9);
    sim.report_faulty("a", without_cpu(), "cpu_percent");
    let (before, after) = just_after(&mut sim, cpu);
    assert_eq!(before, (Some(40.0), vec!["cpu"]));
    assert_eq!(after, (None, vec![]));
    assert_eq!(sim.now.since(began), Duration::from_millis(15_001), "three intervals after the good value");
    assert_eq!(sim.farm.values_until(), None);
}

// rule: wrong-values
#[test]
fn users_whose_time_is_over_are_unknown_to_the_next_decision() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    sim.apply(PolicyChange { max_users: limit(5), ..PolicyChange::default() });
    sim.report("a", users(1));
    sim.pass(3);
    sim.report_faulty("a", Load { users: None, ..users(1) }, "users");
    let (before, after) = just_after(&mut sim, |sim| sim.state("a"));
    assert_eq!((before, after), (HostState::Available, HostState::MaxUsers));
    sim.report("a", users(1));
    assert_eq!(sim.state("a"), HostState::Available);
}

// rule: wrong-values
#[test]
fn of_a_list_of_mounts_the_good_ones_are_left_when_the_time_of_the_whole_is_over() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    let mount =
        |path: &str, used: f64| MountFullness { path: path.to_owned(), used: Percent::new(used).unwrap() };
    let mounted = |mounts: Vec<MountFullness>| Load { mounts, ..load((40.0, 10, 1, 10)) };
    sim.report("a", mounted(vec![mount("/", 99.0), mount("/home", 20.0)]));
    sim.pass(3);
    sim.report_faulty("a", mounted(vec![mount("/home", 21.0)]), "mounts[0].used_percent");
    let (before, after) = just_after(&mut sim, |sim| sim.state("a"));
    assert_eq!((before, after), (HostState::Busy, HostState::Available));
    assert_eq!(sim.pool().hosts[0].reading.as_ref().unwrap().mounts.len(), 1);
}

// rule: absent-values
#[test]
fn a_value_that_the_host_does_not_know_is_not_known() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    sim.report("a", load((40.0, 10, 1, 10)));
    sim.report("a", without_cpu());
    assert_eq!(cpu(&mut sim), (None, vec![]));
    sim.report_faulty("a", without_cpu(), "cpu_percent");
    assert_eq!(cpu(&mut sim), (None, vec![]), "an older one is not dug up");
    sim.report_faulty("a", load((30.0, 10, 1, 10)), "memory_used_bytes");
    assert_eq!(cpu(&mut sim), (Some(30.0), vec![]), "a fault elsewhere touches nothing");
}

#[test]
fn a_limit_that_comes_wrong_once_does_not_open_the_host() {
    let mut sim = Sim::of_users(&[("a", 5)]);
    let overrides = HostOverrides { max_users: Some(UserLimit::Users(5)), ..HostOverrides::default() };
    sim.report("a", Load { overrides, ..users(5) });
    sim.report_faulty("a", users(5), "max_users");
    assert_eq!(sim.state("a"), HostState::MaxUsers);
}

#[test]
fn a_host_that_nobody_knows_is_not_heard() {
    let mut sim = Sim::new();
    assert!(sim.report("ghost", users(1)).is_empty());
    sim.available("ghost", 10.0);
    sim.sessions("ghost", &[]);
    sim.serves("ghost", &["crm"]);
    assert!(sim.farm.snapshot(sim.now).pools.is_empty());
}

// rule: life-over-count
#[test]
fn a_user_is_seen_or_pending_at_every_instant() {
    let mut sim = Sim::of_users(&[("a", 0)]);
    sim.apply(PolicyChange { max_users: limit(1), ..PolicyChange::default() });
    sim.place(&ask("r1"));
    let cell = sim.pool().members.cells[0].clone();
    let counted = || cell.load().users().unwrap() + cell.load().pending_users();
    for load in [
        Load { pending: vec![listed("r1", None, 1, 100)], ..users(0) },
        // The session is there and its place not ended yet: too many rather than too few.
        Load { pending: vec![listed("r1", None, 1, 99)], ..users(1) },
        Load { ended: vec![ended("r1", 1, EndReason::Session)], ..users(1) },
    ] {
        sim.report("a", load);
        assert!(counted() >= 1);
    }
    assert_eq!(counted(), 1);
}
