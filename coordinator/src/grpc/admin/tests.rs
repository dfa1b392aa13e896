//! Changes are stored before they are in force, whole or not at all, and each begins from what the one before has made.

use std::time::Duration;

use futures::poll;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use usher_proto::v1::Policy;
use usher_runtime::identity::PeerIdentity;
use usher_types::{Drain, DrainMode, PolicyChange, Replica, ResourceId};

use super::*;
use crate::{
    farm_task,
    placing::testing,
    store::{DrainRecord, MemoryShared, STORE_FILE},
};

fn by_ann<T>(msg: T) -> Request<T> {
    let mut request = Request::new(msg);
    request.extensions_mut().insert(std::sync::Arc::new(PeerIdentity::loopback(Some("ann")).unwrap()));
    request
}

fn apply(dry_run: bool) -> Request<v1::ApplyPoolRequest> {
    let policy = Some(Policy { range: Some(7.0), ..Policy::default() });
    by_ann(v1::ApplyPoolRequest { pool: "desk".to_owned(), policy, dry_run, ..Default::default() })
}

/// The service on a farm that runs, with hosts `a` and `b`; `a` holds resource `mail`.
struct Served {
    admin: Admin,
    stop: CancellationToken,
    farm_task: tokio::task::JoinHandle<()>,
}

impl Served {
    fn on(store: StoreHandle) -> Self {
        let (mut farm, ledger) = testing::farm(&PolicyChange::default(), &[("a", 1), ("b", 2)]);
        let mail = Replica { resource_id: ResourceId::new("mail").unwrap(), path: None, title: None };
        farm.observe_replicas(&HostId::new("a").unwrap(), vec![mail]);
        let (shared, commands) = testing::shared(&mut farm, ledger);
        let stop = CancellationToken::new();
        let run = farm_task::run(farm, shared.clone(), store.clone(), commands, stop.clone(), stop.clone());
        let farm_task = tokio::spawn(run);
        Self { admin: Admin::new(shared, store, Arc::default()), stop, farm_task }
    }

    async fn version(&self) -> u64 {
        let request = v1::GetPoolRequest { pool: "desk".to_owned() };
        self.admin.get_pool(Request::new(request)).await.unwrap().into_inner().pool.unwrap().version
    }

    async fn end(self) {
        self.stop.cancel();
        self.farm_task.await.unwrap();
    }
}

async fn on_disk(folder: &tempfile::TempDir) -> StoreHandle {
    let metrics = crate::metrics::Metrics::new("0", "none");
    StoreHandle::open(&folder.path().join(STORE_FILE), metrics).await.unwrap()
}

#[tokio::test]
async fn a_change_whose_caller_goes_away_is_in_force_once_it_is_stored() {
    let (store, release) = testing::stuck_store().await;
    let served = Served::on(store);
    let mut call = Box::pin(served.admin.apply_pool(apply(false)));
    assert!(poll!(&mut call).is_pending());
    let story = async {
        while served.admin.apply_pool(apply(true)).await.map_err(|refused| refused.code()).err()
            != Some(Code::Aborted)
        {
            tokio::task::yield_now().await;
        }
        drop(call);
        assert_eq!(served.version().await, 1, "not stored, not in force");
        drop(release);
        while served.version().await != 2 {
            tokio::task::yield_now().await;
        }
        let next = served.admin.apply_pool(apply(false)).await.unwrap().into_inner();
        assert_eq!(next.pool.unwrap().version, 3, "and the pool can be changed again");
    };
    tokio::time::timeout(Duration::from_secs(20), story).await.unwrap();
    served.end().await;
}

#[tokio::test]
async fn changes_of_a_host_at_the_same_time_lose_nothing_of_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = on_disk(&folder).await;
    let served = Served::on(store.clone());
    let set = |marks: v1::HostMarks| {
        by_ann(v1::SetHostMarksRequest { host: "a".to_owned(), marks: Some(marks), ..Default::default() })
    };
    let capacity = set(v1::HostMarks { capacity: Some(2.0), ..Default::default() });
    let range = set(v1::HostMarks { range: Some(9.0), ..Default::default() });
    let (one, two) = tokio::join!(served.admin.set_host_marks(capacity), served.admin.set_host_marks(range));
    one.unwrap();
    two.unwrap();
    let stored = store.load().await.unwrap().host_marks;
    let record = &stored[&HostId::new("a").unwrap()];
    assert_eq!((record.marks.capacity, record.marks.range), (Some(2.0), Some(9.0)));
    assert_eq!((record.author.as_str(), stored.len()), ("ann", 1));
    let found = served.admin.find_host("a").unwrap();
    assert_eq!(found.pool.hosts[found.position].marks, record.marks, "in force");

    let clear = v1::SetHostMarksRequest {
        host: "a".to_owned(),
        clear: vec!["capacity".to_owned(), "range".to_owned()],
        ..Default::default()
    };
    served.admin.set_host_marks(by_ann(clear)).await.unwrap();
    assert!(store.load().await.unwrap().host_marks.is_empty(), "nothing set, nothing kept");
    served.end().await;
}

#[tokio::test]
async fn a_mark_that_cannot_be_stored_is_not_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let store = on_disk(&folder).await;
    let served = Served::on(store.clone());
    store.close().await;
    let marks = Some(v1::HostMarks { capacity: Some(2.0), ..Default::default() });
    let set = v1::SetHostMarksRequest { host: "a".to_owned(), marks, ..Default::default() };
    let refused = served.admin.set_host_marks(by_ann(set)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    let mark = Some(v1::ReplicaMark::OutOfService.into());
    let (host, resource) = ("a".to_owned(), "mail".to_owned());
    let request = by_ann(v1::MarkReplicaRequest { host, resource, mark });
    assert_eq!(served.admin.mark_replica(request).await.unwrap_err().code(), Code::Unavailable);
    let found = served.admin.find_host("a").unwrap();
    assert!(found.pool.hosts[found.position].marks.is_empty() && found.pool.marked.is_empty());
    served.end().await;
}

#[tokio::test]
async fn a_replica_is_marked_before_its_host_lists_it_and_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = on_disk(&folder).await;
    let served = Served::on(store.clone());
    let mark = async |host: &str, mark: Option<v1::ReplicaMark>| {
        let (host, resource, mark) = (host.to_owned(), "mail".to_owned(), mark.map(Into::into));
        let request = by_ann(v1::MarkReplicaRequest { host, resource, mark });
        let answer = served.admin.mark_replica(request).await.unwrap().into_inner();
        (answer.before, answer.listed)
    };
    let out = v1::ReplicaMark::OutOfService;
    assert_eq!(mark("a", Some(out)).await, (None, true));
    assert_eq!(mark("b", Some(out)).await, (None, false));
    let stored = store.load().await.unwrap().replica_marks;
    let gone: Vec<bool> = stored.values().map(|record| record.gone_unix_ms.is_some()).collect();
    assert_eq!(gone, [false, true], "the one that is not listed will be forgotten some day");
    assert_eq!(mark("a", Some(v1::ReplicaMark::PendingDelete)).await, (Some(out.into()), true));
    assert_eq!(mark("b", None).await, (Some(out.into()), false));
    assert_eq!(store.load().await.unwrap().replica_marks.len(), 1);
    served.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_another_coordinator_has_drained_anew_stays_so_and_who_ended_the_drain_before_is_told() {
    for has_heard in [true, false] {
        let shared = MemoryShared::default();
        let (store, mut told, stop) = testing::sharing("one", &shared).await;
        let (other, ..) = testing::sharing("two", &shared.for_another()).await;
        let served = Served::on(store.clone());
        let drain = v1::DrainHostRequest { host: "a".into(), reason: "fan".into(), ..Default::default() };
        let kept = served.admin.drain_host(by_ann(drain)).await.unwrap().into_inner().kept();
        assert_eq!(kept, v1::DrainKept::Coordinators);
        if !has_heard {
            stop.cancel();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (mode, reason, author) = (DrainMode::Persistent, "disks".to_owned(), "bob".to_owned());
        let newer = Drain { mode, reason, author, no_reconnect: false };
        let record = DrainRecord { drain: newer, boot_id: None, set_unix_ms: 7 };
        let host = HostId::new("a").unwrap();
        other.put_drain(host.clone(), record.clone()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        let undrain = || by_ann(v1::UndrainHostRequest { host: "a".into() });
        let answer = served.admin.undrain_host(undrain()).await.unwrap().into_inner();
        assert!(answer.was_drained, "{answer:?}");
        assert_eq!(answer.ended.unwrap().reason, "fan");
        assert_eq!(answer.holds.map(|holds| holds.author).as_deref(), Some("bob"));
        assert_eq!(other.drain_of(&host).await.unwrap(), Some(record.clone()));
        let in_force = || {
            let found = served.admin.find_host("a").unwrap();
            found.pool.hosts[found.position].drain.as_ref().map(|mark| mark.drain.reason.clone())
        };
        assert_eq!(in_force().as_deref(), Some("fan"), "until the newer one is followed");
        // Seen, and then ended.
        let mut followed = crate::store::Followed { changes: Vec::new(), revision: 0 };
        followed.changes.push(crate::store::Change::Drain(host.clone(), Some(record)));
        served.admin.shared.farm.send(FarmCommand::Follow(followed)).await.unwrap();
        let answer = served.admin.undrain_host(undrain()).await.unwrap().into_inner();
        assert_eq!((answer.ended.unwrap().author.as_str(), answer.holds), ("bob", None));
        assert_eq!((in_force(), shared.get("drains/a")), (None, None));
        told.close();
        served.end().await;
    }
}
