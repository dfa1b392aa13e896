//! What was written is read back the same or not at all, and a restore goes forwards.

use usher_types::{
    BootId, Drain, DrainMode, HostId, HostMarks, Policy, PoolName, ReplicaMark, ResourceId, SettingsHash,
    UserLimit,
};

use super::{file::Wrong, *};
use crate::store::{DrainRecord, HostMarksRecord, PoolRecord, ReplicaMarkRecord, SharedRows};

fn pool(version: u64, range: f64) -> PoolRecord {
    let policy = Policy { range, ..Policy::default() };
    PoolRecord { version, policy, author: "ann".to_owned(), applied_unix_ms: version * 1000 }
}

fn name(text: &str) -> PoolName {
    PoolName::new(text).unwrap()
}

fn host(text: &str) -> HostId {
    HostId::new(text).unwrap()
}

/// Pools, each with every version from 1 to its own.
fn pools(of: &[(&str, u64, f64)]) -> SharedRows {
    let mut rows = SharedRows::default();
    for (of, version, range) in of {
        let versions: Vec<PoolRecord> = (1..=*version).map(|version| pool(version, *range)).collect();
        rows.history.insert(name(of), versions);
        rows.pools.insert(name(of), pool(*version, *range));
    }
    rows
}

fn drained(reason: &str) -> DrainRecord {
    let (mode, author) = (DrainMode::Persistent, "ann".to_owned());
    let drain = Drain { mode, reason: reason.to_owned(), author, no_reconnect: false };
    DrainRecord { drain, boot_id: Some(BootId::new("b1").unwrap()), set_unix_ms: 7 }
}

fn everything() -> SharedRows {
    let mut rows = pools(&[("desk", 3, 7.0), ("web", 1, 100.0 / 3.0)]);
    rows.drains.insert(host("a"), drained("\"new\"\ndisks,\"row\":{}"));
    let marks =
        HostMarks { capacity: Some(2.0), max_users: Some(UserLimit::Users(9)), ..HostMarks::default() };
    rows.host_marks.insert(host("a"), HostMarksRecord { marks, author: "ann".to_owned(), set_unix_ms: 8 });
    let mark = ReplicaMarkRecord {
        mark: ReplicaMark::OutOfService,
        author: "ann".to_owned(),
        set_unix_ms: 9,
        gone_unix_ms: None,
    };
    rows.replica_marks.insert((host("a"), ResourceId::new("mail/\",\"row\":/x").unwrap()), mark);
    rows.bindings.insert("app1".to_owned(), host("a"));
    rows
}

fn file(rows: &SharedRows) -> Vec<u8> {
    write(&Header::new("north", "c1", "2026-11-30T12:00:00Z".to_owned(), "redb", 2), rows).unwrap()
}

fn by() -> By {
    By {
        author: "ben".to_owned(),
        created: "2026-11-30T12:00:00Z".to_owned(),
        now_unix_ms: 99,
        without_pools: false,
    }
}

/// What becomes of each row: what it is of, its name, what happens.
fn told(planned: &[Planned]) -> Vec<(Kind, &str, What)> {
    planned.iter().map(|row| (row.kind, row.name.as_str(), row.what)).collect()
}

#[test]
fn everything_comes_back_as_it_was_written() {
    let rows = everything();
    // A range beyond what may be applied is a row that cannot be read.
    let mut good = rows.clone();
    good.pools.insert(name("web"), pool(1, 20.0 / 3.0));
    good.history.insert(name("web"), vec![pool(1, 20.0 / 3.0)]);
    let backup = Backup::read(&file(&good)).unwrap();
    assert_eq!((backup.rows.clone(), backup.count), (good.clone(), 10));
    assert_eq!((backup.header.farm.as_str(), backup.header.set_aside), ("north", 2));
    let hash = |rows: &SharedRows| SettingsHash::of(&rows.pools[&name("web")].policy);
    assert_eq!(hash(&backup.rows), hash(&good), "to the last digit");
    let refused = Backup::read(&file(&rows)).unwrap_err().to_string();
    assert!(refused.contains("line 5: row \"web") && refused.contains("range = 33.3"), "{refused}");
    assert_eq!(Backup::read(&file(&SharedRows::default())).unwrap().count, 0);
}

#[test]
fn a_file_that_was_cut_anywhere_is_none() {
    let whole = file(&pools(&[("desk", 2, 7.0)]));
    for length in 0..whole.len() {
        assert!(Backup::read(&whole[..length]).is_err(), "{length} of {}", whole.len());
    }
    assert!(Backup::read(&[&whole[..], b"\n"].concat()).is_err());
    assert!(Backup::read(&[&whole[..], &whole[..]].concat()).is_err(), "two in one");
}

#[test]
fn a_file_in_which_a_byte_was_changed_is_none() {
    let whole = file(&pools(&[("desk", 2, 7.0)]));
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        assert!(Backup::read(&changed).is_err(), "byte {at}: {}", String::from_utf8_lossy(&changed));
    }
}

#[test]
fn what_is_wrong_with_a_file_is_said_in_a_line_that_can_be_shown() {
    let kind = |text: &str| Backup::read(text.as_bytes()).unwrap_err();
    assert!(matches!(kind(""), Wrong::Foreign(_)));
    assert!(matches!(
        kind("{\"usher_backup\":2,\"version\":\"0.9\",\"x\":1}\n"),
        Wrong::Newer { found: 2, .. }
    ));
    let hostile = kind(&format!("\u{1b}[31m{}\n", "x".repeat(99_999))).to_string();
    assert!(hostile.len() < 200 && !hostile.contains('\u{1b}'), "{hostile}");
    // Whole and unchanged, but not of this version.
    let later = String::from_utf8(file(&SharedRows::default())).unwrap();
    let first = later.lines().next().unwrap();
    let body = format!("{first}\n{{\"table\":\"moons\",\"key\":\"io\",\"row\":{{}}}}\n");
    let sum = <sha2::Sha256 as sha2::Digest>::digest(body.as_bytes());
    let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    let text = format!("{body}{{\"end\":{{\"rows\":1,\"sha256\":\"{sum}\"}}}}\n");
    let why = kind(&text).to_string();
    assert_eq!(why, "line 2: row \"io\" of table \"moons\": this version has no such table");
}

#[test]
fn an_empty_store_becomes_what_the_backup_holds() {
    let mut then = everything();
    // What is in force is a version that is kept, whatever the file says.
    then.history.remove(&name("web"));
    let (rows, planned) = plan(&SharedRows::default(), &then, &by());
    assert_eq!(rows.history[&name("web")], [then.pools[&name("web")].clone()]);
    then.history.clone_from(&rows.history);
    assert_eq!(rows, then);
    assert!(planned.iter().all(|row| row.what == What::Added));
    assert_eq!(plan(&then, &then, &by()), (then.clone(), Vec::new()), "a second time nothing changes");
}

#[test]
fn settings_that_differ_come_back_as_a_version_that_nobody_has_seen() {
    let now =
        pools(&[("same", 5, 7.0), ("older", 5, 7.0), ("newer", 2, 7.0), ("ahead", 2, 7.0), ("kept", 1, 7.0)]);
    let then = pools(&[("same", 3, 7.0), ("older", 3, 9.0), ("newer", 4, 9.0), ("ahead", 4, 7.0)]);
    let (rows, planned) = plan(&now, &then, &by());
    let expected =
        [("ahead", What::Changed), ("newer", What::Changed), ("older", What::Changed), ("kept", What::Kept)];
    assert_eq!(told(&planned), expected.map(|(name, what)| (Kind::Pool, name, what)));
    let version = |of: &str| (rows.pools[&name(of)].version, rows.pools[&name(of)].policy.range);
    assert_eq!(
        ["same", "older", "newer", "ahead", "kept"].map(version),
        [(5, 7.0), (6, 9.0), (5, 9.0), (5, 7.0), (1, 7.0)]
    );
    assert_eq!(rows.history[&name("older")].len(), 6, "every version is still known");
    assert_eq!(rows.pools[&name("older")].author, "ben, from a backup of 2026-11-30T12:00:00Z");
    assert_eq!(planned[2].detail, "version 6, after 5: range 7 -> 9");
}

#[test]
fn marks_become_those_of_the_backup_and_certificates_stay_with_their_hosts() {
    let mut now = everything();
    let mut then = everything();
    now.drains.insert(host("b"), drained("later"));
    then.drains.insert(host("a"), drained("earlier"));
    now.host_marks.clear();
    now.bindings.insert("app2".to_owned(), host("new"));
    then.bindings.insert("app2".to_owned(), host("old"));
    then.bindings.insert("app3".to_owned(), host("c"));
    let (rows, planned) = plan(&now, &then, &by());
    let expected = [
        (Kind::Drain, "a", What::Changed),
        (Kind::Drain, "b", What::Removed),
        (Kind::HostMarks, "a", What::Added),
        (Kind::Binding, "app2", What::Kept),
        (Kind::Binding, "app3", What::Added),
    ];
    assert_eq!(told(&planned), expected);
    assert_eq!((rows.drains, rows.host_marks), (then.drains, then.host_marks));
    let belongs = |certificate: &str| rows.bindings[certificate].to_string();
    assert_eq!(["app1", "app2", "app3"].map(belongs), ["a", "new", "c"]);
}

#[test]
fn settings_that_come_from_a_file_are_left_alone() {
    let now = pools(&[("desk", 2, 7.0)]);
    let from_file = By { without_pools: true, ..by() };
    assert_eq!(plan(&now, &pools(&[("desk", 5, 9.0), ("web", 1, 9.0)]), &from_file), (now, Vec::new()));
}
