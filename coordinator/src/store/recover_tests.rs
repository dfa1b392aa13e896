//! Case 140: a store's file that is empty, full of zeros, or cut, with and without its copy.

use std::{fs, path::PathBuf};

use usher_types::{HostId, HostName, Policy, PoolName};

use super::{
    LastKnown, Meta, PoolRecord, RedbStore, STORE_FILE, Store, StoreError, StoreHandle, Stored, Write,
    redb_copy::copy_path,
};
use crate::metrics::Metrics;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join(STORE_FILE)
    }

    async fn open(&self) -> StoreHandle {
        StoreHandle::open(&self.file(), Metrics::new("0", "none")).await.unwrap()
    }

    /// A store with a pool in it, closed in order.
    async fn filled() -> (Self, Meta) {
        let folder = Self::new();
        let store = folder.open().await;
        store.put_pool(pool(), settings(1)).await.unwrap();
        let meta = store.load().await.unwrap().meta;
        store.close().await;
        (folder, meta)
    }

    async fn stored(&self) -> Stored {
        let store = self.open().await;
        let stored = store.load().await.unwrap();
        store.close().await;
        stored
    }

    /// Names of the files that were moved aside.
    fn aside(&self) -> Vec<String> {
        let names = fs::read_dir(self.0.path()).unwrap().map(|file| file.unwrap().file_name());
        let names = names.map(|name| name.to_string_lossy().into_owned());
        names.filter(|name| name.contains(".damaged-")).collect()
    }
}

fn pool() -> PoolName {
    PoolName::new("desk").unwrap()
}

fn settings(version: u64) -> PoolRecord {
    PoolRecord { version, policy: Policy::default(), author: "ann".to_owned(), applied_unix_ms: version }
}

/// The damage of the case, and more of its kind.
fn damaged(good: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let zeros_after = |at: usize| [&good[..at], &vec![0; good.len() - at]].concat();
    vec![
        ("no bytes", Vec::new()),
        ("zeros", vec![0; 1879]),
        ("zeros as long as it was", vec![0; good.len()]),
        ("cut at half", good[..good.len() / 2].to_vec()),
        ("cut in its header", good[..100].to_vec()),
        ("cut after its first page", good[..4096].to_vec()),
        ("zeros after its first page", zeros_after(4096)),
        ("zeros in its second half", zeros_after(good.len() / 2)),
    ]
}

#[tokio::test]
async fn case_140_a_damaged_file_is_moved_aside_and_its_copy_is_used() {
    let (folder, before) = Folder::filled().await;
    let good = fs::read(folder.file()).unwrap();
    for (count, (what, bytes)) in damaged(&good).into_iter().enumerate() {
        fs::write(folder.file(), &bytes).unwrap();
        let stored = folder.stored().await;
        // A half of zeros may hold nothing that was in use.
        let was_moved = folder.aside().len() > count;
        assert!(was_moved || what == "zeros in its second half", "{what}: {:?}", folder.aside());
        assert_eq!(stored.pools.get(&pool()), Some(&settings(1)), "{what}");
        assert_eq!(stored.meta.coordinator_id, before.coordinator_id, "{what}");
    }
}

#[tokio::test]
async fn case_140_without_a_copy_it_starts_empty_and_is_who_it_was() {
    let (folder, before) = Folder::filled().await;
    let good = fs::read(folder.file()).unwrap();
    for (what, bytes) in damaged(&good).into_iter().take(7) {
        fs::write(folder.file(), &bytes).unwrap();
        let _ = fs::remove_file(copy_path(&folder.file()));
        let stored = folder.stored().await;
        assert!(stored.pools.is_empty(), "{what}");
        assert_eq!(stored.meta.coordinator_id, before.coordinator_id, "{what}");
        assert_eq!(
            folder.stored().await.meta.instance,
            stored.meta.instance + 1,
            "{what}: it goes on from there"
        );
    }
    assert_eq!(folder.aside().len(), 7, "nothing is thrown away");
}

#[tokio::test]
async fn case_140_a_copy_that_is_damaged_too_is_no_reason_not_to_start() {
    let (folder, _) = Folder::filled().await;
    fs::write(folder.file(), b"").unwrap();
    fs::write(copy_path(&folder.file()), vec![0; 5000]).unwrap();
    assert!(folder.stored().await.pools.is_empty());
    assert_eq!(folder.aside().len(), 3, "{:?}", folder.aside());
}

#[tokio::test]
async fn a_copy_is_made_soon_after_the_first_decision_and_again_at_the_end() {
    let folder = Folder::new();
    let store = folder.open().await;
    store.put_pool(pool(), settings(1)).await.unwrap();
    // The next answer comes after the copy.
    store.load().await.unwrap();
    let of_copy = || {
        let copied = folder.0.path().join("looked-at.redb");
        fs::copy(copy_path(&folder.file()), &copied).unwrap();
        RedbStore::open(&copied).unwrap().load().unwrap()
    };
    assert_eq!(of_copy().pools[&pool()], settings(1));
    store.put_pool(pool(), settings(2)).await.unwrap();
    store.load().await.unwrap();
    assert_eq!(of_copy().pools[&pool()], settings(1), "not at once again");
    store.close().await;
    assert_eq!(of_copy().history[&pool()], [settings(1), settings(2)]);
    assert_eq!(of_copy().meta.coordinator_id, folder.stored().await.meta.coordinator_id);
}

#[test]
fn what_is_not_a_store_is_nobodys_to_move() {
    let folder = Folder::new();
    fs::write(folder.file(), "my letters").unwrap();
    let error = super::recover::open_or_recover(&folder.file()).unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    assert_eq!(fs::read_to_string(folder.file()).unwrap(), "my letters");
}

fn known(id: &str, name: &str, stored_unix_ms: u64) -> LastKnown {
    let json = serde_json::json!({
        "host_id": id, "host_name": name, "pool": "desk", "boot_id": "b", "endpoints": [], "agent_version": "0.2.0",
        "is_virtual": false, "report_interval_ms": 5000, "capacity": 1.0, "was_offline": false,
        "said_goodbye": false, "stored_unix_ms": stored_unix_ms,
    });
    serde_json::from_value(json).unwrap()
}

#[tokio::test]
async fn case_142_names_that_differ_in_case_are_two_hosts_and_of_two_records_of_one_id_the_newer_counts() {
    let (folder, _) = Folder::filled().await;
    let store = folder.open().await;
    let hosts = vec![known("h1", "APP1", 5), known("h2", "app1", 5)];
    store.write(vec![Write::PutLastKnown(hosts)]).await.unwrap();
    store.close().await;
    {
        let database = redb::Database::open(folder.file()).unwrap();
        let transaction = database.begin_write().unwrap();
        let table = redb::TableDefinition::<&[u8], &[u8]>::new("last_known");
        let row = |host: &LastKnown| host.to_row().unwrap();
        let mut rows = transaction.open_table(table).unwrap();
        rows.insert(&b"h1-copied"[..], row(&known("h1", "APP1", 9)).as_slice()).unwrap();
        drop(rows);
        transaction.commit().unwrap();
    }
    let store = folder.open().await;
    let stored = store.load().await.unwrap();
    let name = |name: &str| HostName::new(name).unwrap();
    let hosts: Vec<_> =
        stored.last_known.iter().map(|host| (host.host_id.clone(), host.stored_unix_ms)).collect();
    assert_eq!(hosts, [(HostId::new("h1").unwrap(), 9), (HostId::new("h2").unwrap(), 5)]);
    assert_eq!(stored.last_known[0].host_name, name("APP1"));
    let aside = store.quarantine().await.unwrap();
    assert_eq!(aside.len(), 1);
    assert!(
        aside[0].table == "last_known" && aside[0].key == "h1" && aside[0].why.contains("newer"),
        "{aside:?}"
    );
    assert!(aside[0].since_unix_ms.is_some());
    assert!(store.drop_quarantined("last_known", "h1").await.unwrap());
    assert!(!store.drop_quarantined("last_known", "h1").await.unwrap());
    assert!(store.quarantine().await.unwrap().is_empty());
}

#[test]
fn case_142_a_value_of_a_later_version_is_unknown_and_the_host_is_kept() {
    let mut row = serde_json::to_value(known("h1", "app1", 5)).unwrap();
    row["format"] = 1.into();
    row["drain"] =
        serde_json::json!({"mode": "until_full_moon", "reason": "", "author": "", "no_reconnect": false});
    let (_, host) = LastKnown::from_row("h1", row.to_string().as_bytes()).unwrap();
    assert_eq!(host.drain, None);
    row["drain"]["mode"] = "persistent".into();
    let (_, host) = LastKnown::from_row("h1", row.to_string().as_bytes()).unwrap();
    assert!(host.drain.is_some());
}

#[tokio::test]
async fn case_140_a_start_that_broke_off_while_the_copy_was_put_in_place_is_finished_by_the_next() {
    let making = |folder: &Folder| folder.0.path().join(format!("{STORE_FILE}.new"));
    let (folder, before) = Folder::filled().await;
    // The damaged file was moved, and nothing else happened.
    fs::remove_file(folder.file()).unwrap();
    let stored = folder.stored().await;
    assert_eq!((&stored.pools[&pool()], &stored.meta.coordinator_id), (&settings(1), &before.coordinator_id));
    // What is to take its place is ready, and newer than the copy, which may be gone.
    fs::rename(folder.file(), making(&folder)).unwrap();
    fs::remove_file(copy_path(&folder.file())).unwrap();
    assert_eq!(folder.stored().await.pools[&pool()], settings(1));
    assert!(!making(&folder).exists());
    // As an earlier version left it: half made.
    let good = fs::read(folder.file()).unwrap();
    fs::rename(folder.file(), copy_path(&folder.file())).unwrap();
    fs::write(making(&folder), &good[..good.len() / 2]).unwrap();
    assert_eq!(folder.stored().await.pools[&pool()], settings(1));
    assert_eq!(folder.aside().len(), 1, "{:?}", folder.aside());
}

#[tokio::test]
async fn case_140_a_disk_without_room_for_a_second_copy_starts_with_the_one_there_is() {
    let (folder, _) = Folder::filled().await;
    fs::write(folder.file(), b"").unwrap();
    // Nothing can be made there.
    let making = folder.0.path().join(format!("{STORE_FILE}.new"));
    fs::create_dir(&making).unwrap();
    assert_eq!(folder.stored().await.pools[&pool()], settings(1));
    assert_eq!(folder.aside().len(), 1);
}

#[tokio::test]
async fn case_140_what_was_begun_beside_a_good_file_is_not_finished_later() {
    let (folder, _) = Folder::filled().await;
    let making = folder.0.path().join(format!("{STORE_FILE}.new"));
    fs::copy(folder.file(), &making).unwrap();
    drop(folder.stored().await);
    assert!(!making.exists());
}

#[tokio::test]
async fn a_drain_is_ended_only_if_it_is_the_one_that_was_set_then() {
    let folder = Folder::new();
    let store = folder.open().await;
    let host = HostId::new("a").unwrap();
    let drain = usher_types::Drain {
        mode: usher_types::DrainMode::Persistent,
        reason: "disk".to_owned(),
        author: "ann".to_owned(),
        no_reconnect: false,
    };
    let record = super::DrainRecord { drain, boot_id: None, set_unix_ms: 9 };
    store.put_drain(host.clone(), record).await.unwrap();
    store.write(vec![Write::DeleteDrainSetAt(host.clone(), 5)]).await.unwrap();
    assert_eq!(store.load().await.unwrap().drains.len(), 1);
    store.write(vec![Write::DeleteDrainSetAt(host, 9)]).await.unwrap();
    assert!(store.load().await.unwrap().drains.is_empty());
}
