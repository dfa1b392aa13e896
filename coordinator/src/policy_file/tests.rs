//! A file is taken over whole or not at all, and versions only grow.

use super::*;

fn load(text: &str) -> Result<PolicyFile, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pools.toml");
    std::fs::write(&path, text).unwrap();
    PolicyFile::load(&path).map_err(|errors| errors.to_string())
}

fn name(text: &str) -> PoolName {
    PoolName::new(text).unwrap()
}

/// The version and the exponent that each pool gets which changes.
fn changes(text: &str, stored: &[(&str, u64, f64)]) -> Result<Vec<(String, u64, f64)>, String> {
    let policy = |range| Policy { range, ..Policy::default() };
    let stored = stored.iter().map(|(pool, version, range)| (name(pool), (*version, policy(*range))));
    let changes = load(text).unwrap().changes(Path::new("/etc/usher/pools.toml"), &stored.collect(), 1);
    let shown = |change: Change| (change.name.to_string(), change.record.version, change.record.policy.range);
    changes.map(|changes| changes.into_iter().map(shown).collect()).map_err(|why| why.to_string())
}

#[test]
fn every_fault_is_named_with_its_line_and_a_suggestion() {
    let text = "[pools.desk]\nmax_user = 40\nthreshold_percent = 140\n[pools.desk.weights]\ncpu_percent = 50\n\
                [pools.\"a b\"]\n[pool.x]\n";
    let faults = load(text).unwrap_err();
    for part in
        ["pools.toml:2:", "did you mean max_users?", "pools.toml:6:", "pools.toml:7:", "did you mean pools?"]
    {
        assert!(faults.contains(part), "{part} not in {faults}");
    }
    let out_of_range = "[pools.desk]\nthreshold_percent = 140\n[pools.desk.weights]\ncpu_percent = 50\n";
    let faults = load(out_of_range).unwrap_err();
    for part in
        ["pools.toml:2:1: pools.desk.threshold_percent = 140", "0..=100", "pools.toml:3:", "add up to 50"]
    {
        assert!(faults.contains(part), "{part} not in {faults}");
    }
    assert!(load("[pools.desk]\nrange = \n").unwrap_err().contains("pools.toml:2:"));
    assert!(load("version = 0").unwrap_err().contains("at least 1"));
}

#[test]
fn what_a_coordinator_shows_can_be_put_into_the_file() {
    let policy = Policy { range: 8.0, shared_accounts: vec!["kiosk".into()], ..Policy::default() };
    let pools = [(name("desk"), PolicyChange::of(&policy))].into();
    let text = toml::to_string(&PolicyFile { version: Some(3), pools }).unwrap();
    let read = load(&text).unwrap();
    assert_eq!(read.pools[&name("desk")].apply_to(&Policy::default()).unwrap(), policy);
}

#[test]
fn versions_count_on_only_where_something_changes() {
    let file = "[pools.a]\nrange = 7\n[pools.b]\nrange = 8\n";
    assert_eq!(changes(file, &[]).unwrap(), [("a".into(), 1, 7.0), ("b".into(), 1, 8.0)]);
    assert_eq!(changes(file, &[("a", 4, 7.0), ("b", 2, 6.0)]).unwrap(), [("b".into(), 3, 8.0)]);
    assert!(changes(file, &[("a", 4, 7.0), ("b", 2, 8.0)]).unwrap().is_empty());
}

#[test]
fn a_pool_that_the_file_does_not_name_has_the_defaults() {
    assert_eq!(changes("", &[("gone", 4, 7.0)]).unwrap(), [("gone".into(), 5, 6.0)]);
    assert!(changes("", &[("gone", 5, 6.0)]).unwrap().is_empty());
}

#[test]
fn a_version_that_the_file_names_is_that_of_all_its_settings_and_never_used_twice() {
    let file = "version = 9\n[pools.a]\nrange = 7\n[pools.b]\nrange = 8\n";
    let both = [("a".into(), 9, 7.0), ("b".into(), 9, 8.0)];
    assert_eq!(changes(file, &[("a", 4, 7.0)]).unwrap(), both);
    assert!(changes(file, &[("a", 9, 7.0), ("b", 11, 8.0)]).unwrap().is_empty());
    let refused = changes(file, &[("a", 9, 7.5), ("b", 9, 8.0)]).unwrap_err();
    assert!(refused.contains("version = 9 is not allowed: pool a has had version 9"), "{refused}");
}
