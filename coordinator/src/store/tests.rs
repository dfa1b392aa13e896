//! What must hold when processes die, disks refuse and files are not what they should be.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use redb::{Database, ReadableTable, TableDefinition};
use usher_placement::farm::LearnedRecord;
use usher_types::{
    BootId, Drain, DrainMode, Endpoint, HostId, HostMarks, HostName, Percent, Policy, PolicyChange, PoolName,
    ReplicaMark, ResourceId, SessionCounts, UserLimit,
};

use super::*;
use crate::metrics::Metrics;

const RAW_POOLS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("pools");
const RAW_QUARANTINE: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("quarantine");

struct Folder {
    folder: tempfile::TempDir,
    metrics: Metrics,
}

impl Folder {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), metrics: Metrics::new("0", "none") }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("data").join(STORE_FILE)
    }

    async fn open(&self) -> Result<StoreHandle, StoreError> {
        StoreHandle::open(&self.file(), self.metrics.clone()).await
    }
}

fn pool(name: &str) -> PoolName {
    PoolName::new(name).unwrap()
}

fn host(name: &str) -> HostId {
    HostId::new(name).unwrap()
}

fn settings(version: u64) -> PoolRecord {
    let change = PolicyChange { max_users: Some(UserLimit::Users(50)), ..PolicyChange::default() };
    let policy = change.apply_to(&Policy::default()).unwrap();
    PoolRecord { version, policy, author: "ann".to_owned(), applied_unix_ms: 1_700_000_000_000 }
}

fn marks() -> HostMarksRecord {
    let marks = HostMarks {
        capacity: Some(2.0),
        max_users: Some(UserLimit::Users(7)),
        busy: true,
        ..HostMarks::default()
    };
    HostMarksRecord { marks, author: "ann".to_owned(), set_unix_ms: 6 }
}

fn replica_mark() -> ReplicaMarkRecord {
    let mark = ReplicaMark::OutOfService;
    ReplicaMarkRecord { mark, author: "ann".to_owned(), set_unix_ms: 7, gone_unix_ms: Some(8) }
}

fn mail() -> ResourceId {
    ResourceId::new("mail/a b.nsf").unwrap()
}

fn drain() -> DrainRecord {
    let drain = Drain {
        mode: DrainMode::UntilRestart,
        reason: "disk".to_owned(),
        author: "ann".to_owned(),
        no_reconnect: false,
    };
    DrainRecord { drain, boot_id: Some(BootId::new("boot-1").unwrap()), set_unix_ms: 5 }
}

fn last_known(id: &str) -> LastKnown {
    LastKnown {
        host_id: host(id),
        host_name: HostName::new(id).unwrap(),
        pool: pool("desk"),
        boot_id: BootId::new("boot-1").unwrap(),
        endpoints: vec![Endpoint { kind: "ssh".to_owned(), address: "192.0.2.1".to_owned(), port: 22 }],
        labels: BTreeMap::from([("rack".to_owned(), "7".to_owned())]),
        agent_version: "0.1.0".to_owned(),
        is_virtual: false,
        report_interval_ms: 5000,
        capacity: 1.5,
        was_offline: false,
        said_goodbye: false,
        agent_said_goodbye: true,
        never_heard: false,
        is_reporter: false,
        stored_unix_ms: 9,
        zone: None,
        cores: Some(4),
        cpu_model: None,
        cpu_percent: Some(Percent::new(12.5).unwrap()),
        memory_used_bytes: None,
        memory_total_bytes: Some(1 << 33),
        users: Some(0),
        processes: None,
        sessions: Some(SessionCounts { active: 3, disconnected: 2, lingering: 1 }),
        latency_period_ms: Some(15_000),
        streams_held: Some(3),
        listed_pending_users: 2,
        listed_places: 4,
        coordinators: Some(4),
        held_back_users: 5,
        held_back_places: 6,
        listed_replicas: true,
        given: Some((7, 8)),
        not_ready: Some("backup".to_owned()),
        drain: Some(drain().drain),
        max_users: Some(UserLimit::Users(9)),
        threshold: None,
        range: Some(8.0),
    }
}

async fn fill(store: &StoreHandle) {
    store.put_pool(pool("desk"), settings(2)).await.unwrap();
    store.put_pool(pool("desk"), settings(3)).await.unwrap();
    store.put_drain(host("h1"), drain()).await.unwrap();
    store.put_drain(host("h2"), drain()).await.unwrap();
    store.delete_drain(host("h2"), drain().set_unix_ms).await.unwrap();
    store.write(vec![Write::PutHostMarks(host("h1"), marks())]).await.unwrap();
    store
        .write(vec![Write::PutHostMarks(host("h2"), marks()), Write::DeleteHostMarks(host("h2"))])
        .await
        .unwrap();
    store.write(vec![Write::PutReplicaMark(host("h1"), mail(), replica_mark())]).await.unwrap();
    store.write(vec![Write::PutReplicaMark(host("h2"), mail(), replica_mark())]).await.unwrap();
    store.write(vec![Write::DeleteReplicaMark(host("h2"), mail())]).await.unwrap();
    store.write(vec![Write::PutBinding("app1".to_owned(), host("h1"))]).await.unwrap();
    store.put_last_known(vec![last_known("h1"), last_known("h2")]).await.unwrap();
    store.put_last_known(vec![last_known("h1"), last_known("h3")]).await.unwrap();
    store.write(vec![Write::PutLearned(vec![learned()])]).await.unwrap();
}

fn learned() -> LearnedRecord {
    let anchors = serde_json::json!({"logon_cores": {"value": 1.5, "seconds": 60.0, "is_learned": true}});
    LearnedRecord { pool: pool("desk"), anchors: serde_json::from_value(anchors).unwrap() }
}

fn assert_filled(stored: &Stored) {
    assert_eq!(stored.pools, BTreeMap::from([(pool("desk"), settings(3))]));
    assert_eq!(stored.history, BTreeMap::from([(pool("desk"), vec![settings(2), settings(3)])]));
    assert_eq!(stored.host_marks, BTreeMap::from([(host("h1"), marks())]));
    assert_eq!(stored.replica_marks, BTreeMap::from([((host("h1"), mail()), replica_mark())]));
    assert_eq!(stored.drains, BTreeMap::from([(host("h1"), drain())]));
    assert_eq!(stored.bindings, BTreeMap::from([("app1".to_owned(), host("h1"))]));
    assert_eq!(stored.last_known, [last_known("h1"), last_known("h3")]);
    assert_eq!(stored.learned, [learned()]);
    assert_eq!(stored.quarantined, []);
}

#[tokio::test]
async fn what_was_written_is_there_after_a_restart() {
    let folder = Folder::new();
    let store = folder.open().await.unwrap();
    let first = store.load().await.unwrap().meta;
    fill(&store).await;
    store.close().await;

    let stored = folder.open().await.unwrap().load().await.unwrap();
    assert_filled(&stored);
    assert_eq!(stored.meta.coordinator_id, first.coordinator_id);
    assert_eq!((first.instance, stored.meta.instance), (1, 2));
}

#[tokio::test]
async fn an_answered_write_survives_a_process_that_dies_without_closing() {
    let folder = Folder::new();
    let store = folder.open().await.unwrap();
    fill(&store).await;
    // What another process would find if this one were killed now.
    let copy = folder.folder.path().join("copy.redb");
    std::fs::copy(folder.file(), &copy).unwrap();
    let stored = StoreHandle::open(&copy, folder.metrics.clone()).await.unwrap().load().await.unwrap();
    assert_filled(&stored);
}

#[tokio::test]
async fn a_second_coordinator_on_one_file_is_told_so() {
    let folder = Folder::new();
    let store = folder.open().await.unwrap();
    let error = folder.open().await.unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    assert_eq!(error.to_string(), format!("{} is in use by another coordinator", folder.file().display()));
    store.close().await;
    folder.open().await.unwrap();
}

#[tokio::test]
async fn clones_write_to_one_store_at_once_and_every_write_is_kept() {
    let folder = Folder::new();
    let store = folder.open().await.unwrap();
    let writers: Vec<_> = (0..200)
        .map(|number| {
            let store = store.clone();
            let write =
                async move { store.write(vec![Write::PutBinding(format!("app{number}"), host("h1"))]).await };
            tokio::spawn(write)
        })
        .collect();
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
    assert_eq!(store.load().await.unwrap().bindings.len(), 200);
}

#[tokio::test]
async fn an_unreadable_row_is_moved_aside_and_the_rest_is_loaded() {
    let folder = Folder::new();
    let store = folder.open().await.unwrap();
    fill(&store).await;
    store.close().await;
    let database = Database::open(folder.file()).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut table = transaction.open_table(RAW_POOLS).unwrap();
        table.insert(&b"cut"[..], &b"{\"version\": 1"[..]).unwrap();
        table.insert(&b"\xff\xfe"[..], &b"{}"[..]).unwrap();
        let refused = br#"{"version":1,"policy":{"range":99.0},"author":"","applied_unix_ms":0}"#;
        table.insert(&b"refused"[..], &refused[..]).unwrap();
    }
    transaction.commit().unwrap();
    drop(database);

    let store = folder.open().await.unwrap();
    let stored = store.load().await.unwrap();
    let whys: Vec<_> = stored.quarantined.iter().map(|row| (row.key.as_str(), row.why.as_str())).collect();
    assert_eq!(whys.len(), 3, "{whys:?}");
    assert!(whys.iter().any(|(key, why)| *key == "refused" && why.contains("range = 99")), "{whys:?}");
    assert!(folder.metrics.encode().contains("store_rows_quarantined_total 3"));
    assert_filled(&Stored { quarantined: Vec::new(), ..stored });
    assert_filled(&store.load().await.unwrap());

    store.close().await;
    let database = Database::open(folder.file()).unwrap();
    let table = database.begin_write().unwrap();
    let aside = table.open_table(RAW_QUARANTINE).unwrap();
    let kept = aside.get(&b"pools/cut"[..]).unwrap().map(|row| row.value().to_vec());
    assert_eq!(kept.as_deref(), Some(&b"{\"version\": 1"[..]), "nothing is thrown away");
}

#[tokio::test]
async fn a_file_that_is_no_store_is_named_and_left_as_it_was() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.file().parent().unwrap()).unwrap();
    for content in ["hello".to_owned(), "x".repeat(100_000)] {
        std::fs::write(folder.file(), &content).unwrap();
        let message = folder.open().await.unwrap_err().to_string();
        assert!(message.contains(STORE_FILE) && message.contains("move it away"), "{message}");
        assert_eq!(std::fs::read_to_string(folder.file()).unwrap(), content);
    }
}

#[tokio::test]
async fn a_redb_file_of_another_program_is_refused() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.file().parent().unwrap()).unwrap();
    let database = Database::create(folder.file()).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(TableDefinition::<u64, u64>::new("theirs")).unwrap().insert(1, 2).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = folder.open().await.unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
}

#[tokio::test]
async fn a_later_format_is_refused_and_both_versions_are_named() {
    let folder = Folder::new();
    folder.open().await.unwrap().close().await;
    let database = Database::open(folder.file()).unwrap();
    let transaction = database.begin_write().unwrap();
    let meta: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("meta");
    transaction.open_table(meta).unwrap().insert(&b"format"[..], &b"3"[..]).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let message = folder.open().await.unwrap_err().to_string();
    assert!(message.contains("has format 3, this version reads format 2"), "{message}");
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let folder = Folder::new();
    let store = folder.open().await.unwrap();
    let other = store.clone();
    store.close().await;
    store.close().await;
    let error = other.write(vec![Write::PutBinding("app1".to_owned(), host("h1"))]).await.unwrap_err();
    assert!(matches!(error, StoreError::Closed { .. }), "{error}");
}

/// Counts commits, and refuses them while told to.
struct Fake {
    refuse: Arc<AtomicBool>,
    commits: Arc<AtomicUsize>,
    held: std::sync::mpsc::Receiver<()>,
}

impl Store for Fake {
    fn load(&mut self) -> Result<Stored, StoreError> {
        // Holds the thread until the test lets go, so that writes queue up.
        let _ = self.held.recv();
        Err(StoreError::Closed { path: PathBuf::from("fake") })
    }

    fn commit(&mut self, _: &[Write]) -> Result<(), StoreError> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        if self.refuse.load(Ordering::Relaxed) {
            let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(StoreError::failed("write to", Path::new("fake"), full));
        }
        Ok(())
    }
}

#[tokio::test]
async fn writes_that_queue_up_share_a_commit_and_its_failure_and_the_next_one_is_tried() {
    let refuse = Arc::new(AtomicBool::new(true));
    let commits = Arc::new(AtomicUsize::new(0));
    let (release, held) = std::sync::mpsc::channel();
    let fake = Fake { refuse: refuse.clone(), commits: commits.clone(), held };
    let metrics = Metrics::new("0", "none");
    let store = StoreHandle::start(Path::new("fake"), metrics.clone(), || Ok(fake)).await.unwrap();

    let loading = {
        let store = store.clone();
        tokio::spawn(async move { store.load().await })
    };
    tokio::task::yield_now().await;
    let writes = futures::future::join_all(
        (0..50).map(|_| store.write(vec![Write::PutBinding("a".to_owned(), host("h1"))])),
    );
    let (outcomes, ()) = tokio::join!(writes, async {
        tokio::task::yield_now().await;
        release.send(()).unwrap();
    });
    assert!(loading.await.unwrap().is_err());
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Err(StoreError::Failed { .. }))));
    assert_eq!(commits.load(Ordering::Relaxed), 1);
    assert!(metrics.encode().contains("store_commit_failures_total 1"));

    refuse.store(false, Ordering::Relaxed);
    store.write(vec![Write::PutBinding("a".to_owned(), host("h1"))]).await.unwrap();
}
