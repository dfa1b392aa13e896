//! Settings of pools: profiles, versions, and what hosts are told.

use usher_placement::farm::{ApplyRefused, Effect, PoolApply};
use usher_types::{Affinity, DrainMode, HostMarks, Method, PolicyChange, Profile, SettingsHash};

use crate::support::*;

// rule: policy-profile a profile's settings, and the change over them
#[test]
fn a_profile_is_applied_before_the_change() {
    let mut sim = Sim::new();
    let change = PolicyChange { affinity: Some(Affinity::Disconnected), ..PolicyChange::default() };
    let apply = PoolApply { profile: Some(Profile::Domino), must_be_new: true, ..PoolApply::of(change) };
    let record = sim.farm.prepare_pool(&desk(), &apply, false).unwrap();
    assert_eq!((record.version, record.policy.method), (1, Method::Availability));
    assert_eq!(record.policy.affinity, Affinity::Disconnected);
    sim.farm.commit_pool(record);
    let again = sim.farm.prepare_pool(&desk(), &apply, false).unwrap_err();
    assert_eq!(again, ApplyRefused::Exists { current: 1 });
    // Another profile later changes its own settings and no others.
    let identical = PoolApply { profile: Some(Profile::Identical), ..PoolApply::default() };
    let record = sim.farm.prepare_pool(&desk(), &identical, true).unwrap();
    assert_eq!((record.version, record.policy.method), (2, Method::WeightedLoad));
    assert_eq!(
        (record.policy.weights.users_percent, record.policy.affinity),
        (100.0, Affinity::Disconnected)
    );
}

#[test]
fn a_pool_in_which_there_are_only_hosts_was_never_applied() {
    let mut sim = Sim::of(&["a"]);
    let apply = PoolApply { must_be_new: true, expected: Some(0), ..PoolApply::default() };
    assert_eq!(sim.farm.prepare_pool(&desk(), &apply, false).unwrap().version, 1);
    assert_eq!(sim.farm.prepare_pool(&desk(), &apply, false).unwrap_err(), ApplyRefused::InProgress);
}

// rule: policy-versions of two writers from one version the second is refused
#[test]
fn of_two_changes_of_one_version_the_second_is_refused() {
    let mut sim = Sim::of(&["a"]);
    let apply = PoolApply { expected: Some(0), ..PoolApply::default() };
    let first = sim.farm.prepare_pool(&desk(), &apply, false).unwrap();
    sim.farm.commit_pool(first);
    let late = sim.farm.prepare_pool(&desk(), &apply, false).unwrap_err();
    assert_eq!(late, ApplyRefused::Version { current: 1, expected: 0 });
}

#[test]
fn a_host_is_told_its_pools_settings_its_drain_and_its_marks() {
    let mut sim = Sim::of(&["a"]);
    sim.apply(PolicyChange::default());
    sim.drain("a", drain(DrainMode::Persistent, "disk"));
    let marks = HostMarks { threshold: Some(percent(20.0)), ..HostMarks::default() };
    sim.farm.set_marks(&id("a"), marks);
    let told = sim.farm.settings_of(&id("a")).unwrap();
    assert_eq!((told.record.version, *told.marks), (1, marks));
    assert_eq!(told.drain.unwrap().drain.reason, "disk");
    assert!(sim.farm.settings_of(&id("b")).is_none());
}

#[test]
fn hosts_with_other_settings_are_told_once_they_have_had_them_for_long() {
    let mut sim = Sim::of(&["a", "b"]);
    sim.apply(PolicyChange { range: Some(7.0), ..PolicyChange::default() });
    let ours = sim.farm.settings_of(&id("a")).unwrap().hash;
    let theirs = SettingsHash(7);
    let of = |hash| usher_types::Load { settings_hash: Some(hash), ..users(1) };
    let mut told = Vec::new();
    let mut pass = |sim: &mut Sim, seconds, hash| {
        for _ in 0..seconds {
            sim.report("a", of(hash));
            sim.report("b", of(ours));
            told.extend(
                sim.pass(1).into_iter().filter(|effect| matches!(effect, Effect::SettingsDiffer { .. })),
            );
        }
        told.clone()
    };
    // Settings that were just applied travel; and what comes and goes is no other coordinator's.
    assert!(pass(&mut sim, 10, theirs).is_empty());
    assert!(pass(&mut sim, 1, ours).is_empty());
    assert!(pass(&mut sim, 11, theirs).is_empty());
    let differ = |hosts, theirs: &[SettingsHash]| Effect::SettingsDiffer {
        pool: desk(),
        ours,
        hosts,
        theirs: theirs.iter().copied().collect(),
    };
    assert_eq!(pass(&mut sim, 30, theirs), [differ(1, &[theirs])], "once");
    let position = sim.position("a");
    assert_eq!(sim.pool().hosts[position].settings_differ, Some(theirs));
    assert_eq!(pass(&mut sim, 5, ours)[1..], [differ(0, &[])]);
    assert_eq!(sim.pool().hosts[position].settings_differ, None);
    // A host that is away may long have others.
    pass(&mut sim, 15, theirs);
    sim.lose("a");
    let over = sim.pass(1);
    assert!(over.contains(&differ(0, &[])), "{over:?}");
}

#[test]
fn settings_that_this_coordinator_changes_count_anew() {
    let mut sim = Sim::of(&["a"]);
    let load = || usher_types::Load { settings_hash: Some(SettingsHash(7)), ..users(1) };
    for second in 0..40 {
        sim.apply(PolicyChange { range: Some(6.0 + f64::from(second % 10)), ..PolicyChange::default() });
        sim.report("a", load());
        assert!(sim.pass(5).iter().all(|effect| !matches!(effect, Effect::SettingsDiffer { .. })));
    }
}
