//! What earlier builds wrote is read, what is damaged costs no more than it must, and history does not grow for ever.

use redb::{Database, ReadableTable, TableDefinition};
use usher_types::{
    Baseline, HostId, HostMarks, Method, PendingLimit, Policy, PoolName, ReplicaMark, ResourceId, UserLimit,
};

use super::*;
use crate::metrics::Metrics;

type Rows = TableDefinition<'static, &'static [u8], &'static [u8]>;

fn pool(name: &str) -> PoolName {
    PoolName::new(name).unwrap()
}

async fn open(folder: &tempfile::TempDir) -> StoreHandle {
    StoreHandle::open(&folder.path().join(STORE_FILE), Metrics::new("0", "none")).await.unwrap()
}

/// Writes rows as they are, into a file that nobody has open.
fn write_raw(folder: &tempfile::TempDir, rows: &[(&'static str, &str, &str)]) {
    let database = Database::create(folder.path().join(STORE_FILE)).unwrap();
    let transaction = database.begin_write().unwrap();
    for (table, key, value) in rows {
        let table = Rows::new(table);
        transaction.open_table(table).unwrap().insert(key.as_bytes(), value.as_bytes()).unwrap();
    }
    transaction.commit().unwrap();
}

/// A row of settings as version 0.1.0 wrote it.
const POOL_OF_0_1: &str = r#"{"version":7,"policy":{"method":"weighted_load","weights":{"cpu_percent":30.0,
    "memory_percent":30.0,"users_percent":25.0,"processes_percent":15.0},"users_full_scale":0.0,"range":6.0,
    "threshold_percent":40.0,"exit_margin_percent":5.0,"max_users":"unlimited","baseline":"minimum",
    "min_possible_us":1.0,"max_possible_us":20000000.0,"predict":false,"affinity":"session","allow_unknown":false,
    "reservation_ttl_ms":120000,"user_match":"folded","shared_accounts":["kiosk"]},"author":"ann",
    "applied_unix_ms":1700000000000}"#;

/// A row of a host as version 0.1.0 wrote it.
const HOST_OF_0_1: &str = r#"{"format":1,"host_id":"h1","host_name":"h1","pool":"desk","boot_id":"b1",
    "endpoints":[{"kind":"ssh","address":"192.0.2.1","port":22}],"labels":{},"agent_version":"0.1.0",
    "is_virtual":false,"report_interval_ms":5000,"capacity":1.0,"was_offline":false,"said_goodbye":false,
    "stored_unix_ms":9,"users":3}"#;

#[tokio::test]
async fn a_store_of_0_1_opens_with_what_its_pools_did_and_they_begin_the_history() {
    let folder = tempfile::tempdir().unwrap();
    write_raw(
        &folder,
        &[
            ("meta", "format", "1"),
            ("meta", "coordinator_id", "67e55044-10b1-426f-9247-bb680e5fe0c8"),
            ("meta", "instance", "4"),
            ("pools", "desk", POOL_OF_0_1),
            ("last_known", "h1", HOST_OF_0_1),
            ("bindings", "h1", "\"h1\""),
        ],
    );
    let store = open(&folder).await;
    let stored = store.load().await.unwrap();
    assert_eq!(stored.quarantined, []);
    assert_eq!(
        (stored.meta.instance, stored.meta.coordinator_id.as_str()),
        (5, "67e55044-10b1-426f-9247-bb680e5fe0c8")
    );
    let desk = &stored.pools[&pool("desk")];
    let policy = &desk.policy;
    assert_eq!((desk.version, policy.method, policy.baseline), (7, Method::WeightedLoad, Baseline::Minimum));
    assert_eq!((policy.threshold_percent, policy.max_pending), (40.0, PendingLimit::Unlimited));
    assert_eq!(policy.mem_critical, Policy::default().mem_critical);
    assert_eq!(stored.history[&pool("desk")], std::slice::from_ref(desk));
    let host = &stored.last_known[0];
    assert_eq!(
        (host.users, host.streams_held, host.listed_places, host.is_reporter),
        (Some(3), None, 0, false)
    );
    assert_eq!((host.coordinators, host.held_back_users, host.given), (None, 0, None));
    store.close().await;
    // From now on that build refuses the file, instead of taking these rows for damaged ones.
    let database = Database::open(folder.path().join(STORE_FILE)).unwrap();
    let transaction = database.begin_write().unwrap();
    let meta = transaction.open_table(Rows::new("meta")).unwrap();
    assert_eq!(meta.get(&b"format"[..]).unwrap().unwrap().value(), b"2");
}

fn version(version: u64) -> PoolRecord {
    PoolRecord { version, policy: Policy::default(), author: format!("a{version}"), applied_unix_ms: version }
}

#[tokio::test]
async fn the_newest_versions_are_kept_in_order_and_the_oldest_go() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let writes = (1..=VERSIONS_KEPT + 5).map(|number| Write::PutPool(pool("desk"), version(number)));
    store.write(writes.collect()).await.unwrap();
    store.put_pool(pool("desk-2"), version(1)).await.unwrap();
    store.close().await;
    let stored = open(&folder).await.load().await.unwrap();
    let versions: Vec<u64> = stored.history[&pool("desk")].iter().map(|record| record.version).collect();
    assert!(versions.iter().copied().eq(6..=VERSIONS_KEPT + 5), "{:?}", versions.first());
    assert_eq!(stored.history[&pool("desk-2")], [version(1)]);
}

#[tokio::test]
async fn settings_whose_row_is_damaged_are_taken_from_the_history() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    store.put_pool(pool("desk"), version(1)).await.unwrap();
    store.put_pool(pool("desk"), version(2)).await.unwrap();
    store.close().await;
    write_raw(
        &folder,
        &[("pools", "desk", "{\"version\": 2"), ("pool_history", "desk/00000000000000000001", "{}")],
    );
    let store = open(&folder).await;
    let stored = store.load().await.unwrap();
    let aside: Vec<&str> = stored.quarantined.iter().map(|row| row.table).collect();
    assert_eq!(aside, ["pools", "pool_history"]);
    assert_eq!(stored.pools[&pool("desk")], version(2));
    assert_eq!(stored.history[&pool("desk")], [version(2)]);
    let again = store.load().await.unwrap();
    assert_eq!((again.pools, again.quarantined), (stored.pools, Vec::new()));
}

#[tokio::test]
async fn marks_that_could_not_be_set_are_moved_aside() {
    let folder = tempfile::tempdir().unwrap();
    open(&folder).await.close().await;
    let host_row = |marks: &str| format!(r#"{{"marks":{marks},"author":"ann","set_unix_ms":1}}"#);
    let replica_row = r#"{"mark":"pending_delete","author":"ann","set_unix_ms":1}"#;
    write_raw(
        &folder,
        &[
            ("host_marks", "good", &host_row(r#"{"max_users":"unlimited","threshold":20.0}"#)),
            ("host_marks", "zero", &host_row(r#"{"capacity":0.0}"#)),
            ("host_marks", "later", &host_row(r#"{"colour":"red"}"#)),
            ("replica_marks", "h1/db/a", replica_row),
            ("replica_marks", "h1", replica_row),
        ],
    );
    let stored = open(&folder).await.load().await.unwrap();
    let aside: Vec<&str> = stored.quarantined.iter().map(|row| row.key.as_str()).collect();
    assert_eq!(aside, ["later", "zero", "h1"]);
    assert_eq!(stored.host_marks.len(), 1);
    let (host_id, resource) = stored.replica_marks.keys().next().unwrap();
    assert_eq!((host_id, resource.as_str()), (&HostId::new("h1").unwrap(), "db/a"));
}

fn host(id: &str) -> HostId {
    HostId::new(id).unwrap()
}

fn resource(id: &str) -> ResourceId {
    ResourceId::new(id).unwrap()
}

fn replica_mark(gone_unix_ms: Option<u64>) -> ReplicaMarkRecord {
    let mark = ReplicaMark::PendingDelete;
    ReplicaMarkRecord { mark, author: "ann".to_owned(), set_unix_ms: 1, gone_unix_ms }
}

#[tokio::test]
async fn marks_move_to_the_machine_that_took_the_place_and_its_own_stay() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let limit = |users| HostMarks { max_users: Some(UserLimit::Users(users)), ..HostMarks::default() };
    let marks = |users| HostMarksRecord { marks: limit(users), author: "ann".to_owned(), set_unix_ms: 1 };
    let writes = vec![
        Write::PutHostMarks(host("old"), marks(5)),
        Write::PutReplicaMark(host("old"), resource("a/b"), replica_mark(None)),
        Write::PutReplicaMark(host("old"), resource("c"), replica_mark(None)),
        Write::PutReplicaMark(host("new"), resource("c"), replica_mark(Some(9))),
        Write::PutReplicaMark(host("old-2"), resource("c"), replica_mark(None)),
        Write::MoveMarks(host("old"), host("new")),
        Write::MoveMarks(host("nobody"), host("new")),
    ];
    store.write(writes).await.unwrap();
    let stored = store.load().await.unwrap();
    assert_eq!(stored.host_marks, [(host("new"), marks(5))].into());
    let expected = [
        ((host("new"), resource("a/b")), replica_mark(None)),
        ((host("new"), resource("c")), replica_mark(Some(9))),
        ((host("old-2"), resource("c")), replica_mark(None)),
    ];
    assert_eq!(stored.replica_marks, expected.into());
}

#[tokio::test]
async fn a_mark_remembers_since_when_its_replica_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    store.write(vec![Write::PutReplicaMark(host("h"), resource("r"), replica_mark(None))]).await.unwrap();
    let amend = async |gone| {
        let all = vec![(host("h"), resource("r"), gone), (host("h"), resource("unmarked"), gone)];
        store.write(vec![Write::AmendReplicaMarks(all)]).await.unwrap();
        store.load().await.unwrap().replica_marks
    };
    let is = |gone| [((host("h"), resource("r")), replica_mark(gone))].into();
    assert_eq!(amend(Some(5)).await, is(Some(5)));
    assert_eq!(amend(Some(7)).await, is(Some(5)), "it went when it went");
    assert_eq!(amend(None).await, is(None));
}
