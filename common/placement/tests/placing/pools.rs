//! Settings and snapshots.

use std::sync::Arc;

use usher_placement::farm::{ApplyRefused, PoolApply};
use usher_types::{Method, PolicyChange, PoolName};

use crate::support::*;

fn web() -> PoolName {
    PoolName::new("web").unwrap()
}

fn based_on(version: u64, change: PolicyChange) -> PoolApply {
    PoolApply { expected: Some(version), ..PoolApply::of(change) }
}

// rule: policy-versions
#[test]
fn of_two_changes_of_one_version_the_second_is_refused() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    assert_eq!(sim.pool().version, 1);
    let change = PolicyChange { range: Some(8.0), ..PolicyChange::default() };
    let record = sim.farm.prepare_pool(&desk(), &based_on(1, change.clone()), false).unwrap();
    assert_eq!(record.version, 2);
    let meanwhile = sim.farm.prepare_pool(&desk(), &based_on(1, change.clone()), false).unwrap_err();
    assert_eq!(meanwhile, ApplyRefused::InProgress);
    assert_eq!((sim.pool().version, sim.pool().policy.range), (1, 6.0), "not in force before it is stored");
    sim.farm.commit_pool(record);
    assert_eq!((sim.pool().version, sim.pool().policy.range), (2, 8.0));
    let late = sim.farm.prepare_pool(&desk(), &based_on(1, change.clone()), false).unwrap_err();
    assert_eq!(late, ApplyRefused::Version { current: 2, expected: 1 });
}

#[test]
fn a_pool_is_there_once_it_is_stored_and_gone_if_that_fails() {
    let mut sim = Sim::new();
    let seen = |sim: &mut Sim| {
        let listed = sim.farm.pool_records().count() == 1 && sim.farm.pool_record(&web()).is_some();
        assert_eq!(sim.farm.snapshot(sim.now).pools.contains_key(&web()), listed);
        listed
    };
    let record = sim.farm.prepare_pool(&web(), &based_on(0, PolicyChange::default()), false).unwrap();
    assert!(!seen(&mut sim), "it is only being stored");
    sim.farm.abandon_pool(&web());
    assert!(!seen(&mut sim));
    assert!(sim.farm.prepare_pool(&web(), &PoolApply::of(PolicyChange::default()), true).is_ok());
    assert!(!seen(&mut sim), "a dry run makes nothing");
    sim.farm.prepare_pool(&web(), &based_on(0, PolicyChange::default()), false).unwrap();
    sim.farm.commit_pool(record);
    assert!(seen(&mut sim));
    assert_eq!(sim.farm.snapshot(sim.now).pools[&web()].version, 1);
}

// rule: error-fields
#[test]
fn a_change_that_fails_leaves_the_settings_and_can_be_tried_again() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    let unbuilt = PolicyChange { method: Some(Method::FillFirst), ..PolicyChange::default() };
    let refused = sim.farm.prepare_pool(&desk(), &PoolApply::of(unbuilt.clone()), false).unwrap_err();
    assert!(refused.to_string().contains("method = fill_first"), "{refused}");
    sim.farm.prepare_pool(&desk(), &PoolApply::of(PolicyChange::default()), false).unwrap();
    sim.farm.abandon_pool(&desk());
    assert_eq!(sim.pool().version, 1);
    assert_eq!(
        sim.farm.prepare_pool(&desk(), &PoolApply::of(PolicyChange::default()), false).unwrap().version,
        2
    );
}

#[test]
fn without_a_change_the_snapshot_is_the_same_object() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 1)]);
    sim.pass(1);
    let before = sim.farm.snapshot(sim.now);
    assert!(Arc::ptr_eq(&before, &sim.farm.snapshot(sim.now)));
    sim.farm.prepare_pool(&web(), &PoolApply::of(PolicyChange::default()), false).unwrap();
    assert!(Arc::ptr_eq(&before, &sim.farm.snapshot(sim.now)), "a pool that is not there yet is no change");
    sim.farm.abandon_pool(&web());
    sim.report("a", users(2));
    let after = sim.farm.snapshot(sim.now);
    assert_eq!(after.revision, before.revision + 1);
    let (before, after) = (&before.pools[&desk()], &after.pools[&desk()]);
    assert!(Arc::ptr_eq(&before.members, &after.members));
    assert!(
        Arc::ptr_eq(&before.hosts[1], &after.hosts[1]) && !Arc::ptr_eq(&before.hosts[0], &after.hosts[0])
    );
}

// rule: partial-view
#[test]
fn below_nine_tenths_heard_the_view_is_partial() {
    let names: Vec<String> = (0..10).map(|n| format!("h{n}")).collect();
    let hosts: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 0)).collect();
    let mut sim = Sim::of_users(&hosts);
    let hear = |sim: &mut Sim, count: usize| {
        for _ in 0..4 {
            sim.pass(5);
            names[..count].iter().for_each(|name| _ = sim.report(name, users(0)));
        }
        let pool = sim.pool();
        (pool.hosts_heard, pool.hosts_registered, pool.is_partial())
    };
    assert_eq!(hear(&mut sim, 10), (10, 10, false));
    assert_eq!(hear(&mut sim, 9), (9, 10, false));
    assert_eq!(hear(&mut sim, 8), (8, 10, true));
}
