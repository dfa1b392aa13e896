//! Several coordinators and one shared store, in memory and in paused time: what may be lost, what may not, and who is told.

use std::{path::Path, time::Duration};

use tokio::time::{sleep, timeout};
use usher_runtime::clock::SystemClock;
use usher_types::{Drain, DrainMode, Policy};

use super::*;
use crate::store::{
    Change, DrainRecord, MemoryShared, MemoryStore, PoolRecord, SharedRows, StoreHandle, Write,
};

/// A coordinator's store, and what its farm is told.
pub(super) struct Node {
    pub(super) store: StoreHandle,
    pub(super) local: MemoryStore,
    pub(super) link: MemoryShared,
    pub(super) told: tokio::sync::mpsc::Receiver<Followed>,
    pub(super) stop: tokio_util::sync::CancellationToken,
}

/// A coordinator that starts with `local`, and reaches the store through `link`.
pub(super) async fn start(local: &MemoryStore, link: &MemoryShared, seed: bool) -> Node {
    let local = local.opened_again();
    let metrics = Metrics::new("0", "none");
    let own = StoreHandle::inline(Path::new("memory"), metrics, local.clone());
    let stored = own.load().await.unwrap();
    let options = SharingOptions {
        store: Arc::new(link.clone()),
        clock: Arc::new(SystemClock),
        instance_id: format!("{}.{}", stored.meta.coordinator_id, stored.meta.instance),
        seed,
        write_within: Duration::from_secs(4),
    };
    let (store, follower) = own.share(options, &stored);
    // Away is no reason not to start.
    let _ = follower.catch_up(Duration::from_secs(3)).await;
    follower.begin_from(&store.load().await.unwrap());
    let (out, told) = tokio::sync::mpsc::channel(64);
    let stop = tokio_util::sync::CancellationToken::new();
    tokio::spawn(follower.run(out, stop.clone()));
    let node = Node { store, local, link: link.clone(), told, stop };
    if node.store.status().shared.unwrap().link == LinkState::Away {
        // Time for the first watch.
        sleep(Duration::from_millis(300)).await;
    }
    node
}

pub(super) async fn node(id: &str, link: MemoryShared) -> Node {
    start(&MemoryStore::new(id), &link, false).await
}

pub(super) async fn pair() -> (Node, Node) {
    let shared = MemoryShared::default();
    (node("one", shared.clone()).await, node("two", shared.for_another()).await)
}

impl Node {
    /// What its farm is told next, within a second.
    pub(super) async fn told(&mut self) -> Vec<Change> {
        timeout(Duration::from_secs(1), self.told.recv())
            .await
            .expect("told within a second")
            .unwrap()
            .changes
    }

    pub(super) async fn until(&self, link: LinkState) {
        let reached = async {
            while self.store.status().shared.unwrap().link != link {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let why = || format!("{link:?}, it is {:?}", self.store.status());
        timeout(Duration::from_secs(30), reached).await.unwrap_or_else(|_| panic!("not {}", why()));
    }

    pub(super) async fn copy(&self) -> SharedRows {
        self.store.load().await.unwrap().shared()
    }

    /// Its copy, as soon as `is_it`.
    pub(super) async fn copy_when(&self, is_it: impl Fn(&SharedRows) -> bool) -> SharedRows {
        for _ in 0..500 {
            let copy = self.copy().await;
            if is_it(&copy) {
                return copy;
            }
            sleep(Duration::from_millis(20)).await;
        }
        panic!("the copy is {:?}", self.copy().await);
    }
}

pub(super) fn pool() -> usher_types::PoolName {
    usher_types::PoolName::new("desk").unwrap()
}

pub(super) fn host(id: &str) -> usher_types::HostId {
    usher_types::HostId::new(id).unwrap()
}

pub(super) fn settings(version: u64, author: &str) -> PoolRecord {
    let policy = Policy { users_full_scale: version as f64, ..Policy::default() };
    PoolRecord { version, policy, author: author.to_owned(), applied_unix_ms: version }
}

pub(super) fn drain(set_unix_ms: u64) -> DrainRecord {
    let drain = Drain {
        mode: DrainMode::Persistent,
        reason: "disk".to_owned(),
        author: "ann".to_owned(),
        no_reconnect: false,
    };
    DrainRecord { drain, boot_id: None, set_unix_ms }
}

pub(super) fn bind(host_id: &str) -> Write {
    Write::Bind { certificate: "app1".to_owned(), host: host(host_id), replaces: None }
}

#[tokio::test(start_paused = true)]
async fn two_writers_of_one_version_through_two_coordinators_and_the_second_is_told_the_one_that_exists() {
    let (one, two) = pair().await;
    let (first, second) = tokio::join!(
        one.store.put_pool(pool(), settings(1, "ann")),
        two.store.put_pool(pool(), settings(1, "bob"))
    );
    assert!(first.is_ok(), "{first:?}");
    assert!(matches!(second, Err(StoreError::Version { current: 1, .. })), "{second:?}");
    two.store.put_pool(pool(), settings(2, "bob")).await.unwrap();
    let wanted = |copy: &SharedRows| copy.pools.get(&pool()) == Some(&settings(2, "bob"));
    assert_eq!(one.copy_when(wanted).await.history[&pool()].len(), 2);
}

#[tokio::test(start_paused = true)]
async fn one_certificate_bound_to_two_hosts_at_once_belongs_to_the_first() {
    let (one, two) = pair().await;
    let (first, second) = tokio::join!(one.store.write(vec![bind("a")]), two.store.write(vec![bind("b")]));
    assert!(first.is_ok(), "{first:?}");
    assert!(matches!(second, Err(StoreError::Bound { host: bound, .. }) if bound == host("a")));
    let replaced = Write::Bind { certificate: "app1".to_owned(), host: host("b"), replaces: Some(host("a")) };
    two.store.write(vec![replaced]).await.unwrap();
    one.copy_when(|copy| copy.bindings.get("app1") == Some(&host("b"))).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_is_told_to_the_farms_of_all_within_a_second_and_is_in_their_copies() {
    let (one, mut two) = pair().await;
    one.store.put_pool(pool(), settings(1, "ann")).await.unwrap();
    assert!(two.told().await.contains(&Change::Pool(pool(), Some(settings(1, "ann")))));
    one.store.put_drain(host("a"), drain(5)).await.unwrap();
    assert_eq!(two.told().await, [Change::Drain(host("a"), Some(drain(5)))]);
    one.store.delete_drain(host("a"), 5).await.unwrap();
    assert_eq!(two.told().await, [Change::Drain(host("a"), None)]);
    assert!(two.copy().await.drains.is_empty());
    assert_eq!(two.copy().await.pools, one.copy().await.pools);
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_exists_once_and_is_acknowledged() {
    for lost in 1..=4 {
        let (one, _two) = pair().await;
        one.link.lose_answers(lost);
        let committed = one.store.put_pool(pool(), settings(1, "ann")).await.unwrap();
        let row = one.link.get("pools/desk").unwrap();
        assert_eq!(Some(row.revision), committed.revision, "{lost} lost");
        // And the next one goes on from it.
        one.store.put_pool(pool(), settings(2, "ann")).await.unwrap();
        assert!(one.link.get("pool_history/desk/00000000000000000003").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_found_out_is_told_as_unknown_and_is_found_later_as_it_is() {
    let (one, _two) = pair().await;
    one.link.lose_answers(u32::MAX);
    let error = one.store.put_pool(pool(), settings(1, "ann")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unknown { .. }), "{error}");
    one.link.lose_answers(0);
    one.until(LinkState::Connected).await;
    // It had happened, or a later one could have been stored under its version.
    let again = one.store.put_pool(pool(), settings(1, "ann")).await;
    assert!(matches!(again, Err(StoreError::Version { current: 1, .. })), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_away_changes_are_refused_at_once_and_it_is_said_since_when() {
    let (one, two) = pair().await;
    one.link.cut(true);
    one.until(LinkState::Away).await;
    let error = one.store.put_pool(pool(), settings(1, "ann")).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, StoreError::Away { .. }) && text.contains("does not answer since 20"), "{text}");
    // What is this coordinator's own is stored all the same.
    one.store.put_last_known(Vec::new()).await.unwrap();
    two.store.put_pool(pool(), settings(1, "bob")).await.unwrap();
    one.link.cut(false);
    one.copy_when(|copy| copy.pools.contains_key(&pool())).await;
}

#[tokio::test(start_paused = true)]
async fn a_history_that_was_compacted_during_a_cut_is_made_up_for_deletions_too() {
    let (mut one, two) = pair().await;
    two.store.put_drain(host("a"), drain(5)).await.unwrap();
    assert_eq!(one.told().await.len(), 1);
    one.link.cut(true);
    one.until(LinkState::Away).await;
    for version in 1..=50 {
        two.store.put_pool(pool(), settings(version, "bob")).await.unwrap();
    }
    two.store.delete_drain(host("a"), 5).await.unwrap();
    two.link.compact();
    one.link.cut(false);
    let told = timeout(Duration::from_secs(10), one.told.recv()).await.unwrap().unwrap().changes;
    assert!(told.contains(&Change::Drain(host("a"), None)));
    assert!(told.contains(&Change::Pool(pool(), Some(settings(50, "bob")))));
    assert_eq!(one.copy_when(|copy| copy.drains.is_empty()).await.history[&pool()].len(), 50);
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_starts_from_its_copy_while_the_store_is_away_and_catches_up() {
    let (one, two) = pair().await;
    two.store.put_pool(pool(), settings(1, "bob")).await.unwrap();
    one.copy_when(|copy| copy.pools.contains_key(&pool())).await;
    one.stop.cancel();
    one.link.cut(true);
    let mut again = start(&one.local, &one.link, false).await;
    assert_eq!(again.copy().await.pools[&pool()], settings(1, "bob"));
    assert!(again.store.load().await.unwrap().copied.is_some());
    two.store.put_pool(pool(), settings(2, "bob")).await.unwrap();
    again.link.cut(false);
    let told = timeout(Duration::from_secs(10), again.told.recv()).await.unwrap().unwrap().changes;
    assert!(told.contains(&Change::Pool(pool(), Some(settings(2, "bob")))), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_comes_while_the_store_is_away_is_let_in_and_its_bond_is_told_later() {
    let (one, two) = pair().await;
    two.store.put_drain(host("old"), drain(5)).await.unwrap();
    two.store.put_drain(host("booted"), drain(6)).await.unwrap();
    one.copy_when(|copy| copy.drains.len() == 2).await;
    one.link.cut(true);
    one.until(LinkState::Away).await;
    let moved = Write::MoveMarks(host("old"), host("new"));
    one.store.write_or_owe(vec![bind("a"), moved, Write::DeleteDrainSetAt(host("booted"), 6)]).await.unwrap();
    assert_eq!(one.copy().await.bindings["app1"], host("a"));
    assert_eq!(one.store.status().shared.unwrap().owed, 3);
    // It is owed over a restart too.
    one.stop.cancel();
    let again = start(&one.local, &one.link, false).await;
    again.link.cut(false);
    two.copy_when(|copy| copy.bindings.get("app1") == Some(&host("a"))).await;
    let drains = two.copy_when(|copy| !copy.drains.contains_key(&host("booted"))).await.drains;
    assert_eq!(drains.keys().collect::<Vec<_>>(), [&host("new")]);
    assert_eq!(again.store.status().shared.unwrap().owed, 0);
}

#[tokio::test(start_paused = true)]
async fn of_two_bonds_the_shared_one_wins_and_the_farm_is_told_so() {
    let (mut one, two) = pair().await;
    one.link.cut(true);
    one.until(LinkState::Away).await;
    one.store.write_or_owe(vec![bind("a")]).await.unwrap();
    two.store.write(vec![bind("b")]).await.unwrap();
    one.link.cut(false);
    let told = timeout(Duration::from_secs(10), one.told.recv()).await.unwrap().unwrap().changes;
    assert_eq!(told, [Change::Binding("app1".to_owned(), Some(host("b")))]);
    one.copy_when(|copy| copy.bindings.get("app1") == Some(&host("b"))).await;
    assert_eq!(one.store.status().shared.unwrap().owed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_was_set_anew_meanwhile_is_not_ended_by_an_older_boot() {
    let (one, two) = pair().await;
    two.store.put_drain(host("a"), drain(5)).await.unwrap();
    one.copy_when(|copy| copy.drains.len() == 1).await;
    one.link.cut(true);
    one.until(LinkState::Away).await;
    one.store.write_or_owe(vec![Write::DeleteDrainSetAt(host("a"), 5)]).await.unwrap();
    two.store.put_drain(host("a"), drain(9)).await.unwrap();
    one.link.cut(false);
    one.copy_when(|copy| copy.drains.get(&host("a")) == Some(&drain(9))).await;
    assert_eq!(two.copy().await.drains[&host("a")], drain(9));
}

#[tokio::test(start_paused = true)]
async fn case_142_a_row_of_the_shared_store_that_cannot_be_read_is_set_aside_once_and_the_last_good_one_stays()
 {
    let (one, two) = pair().await;
    two.store.put_pool(pool(), settings(1, "bob")).await.unwrap();
    one.copy_when(|copy| copy.pools.contains_key(&pool())).await;
    one.link.set("pools/desk", Some(b"{\"version\": 2"));
    one.link.set("drains/b a d", Some(b"{}"));
    one.link.set("drains/huge", Some(&vec![b' '; 300_000]));
    let aside = loop {
        let aside = one.store.quarantine().await.unwrap();
        if aside.len() == 3 {
            break aside;
        }
        sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(one.copy().await.pools[&pool()], settings(1, "bob"));
    let row = aside.iter().find(|row| row.table == "pools").unwrap();
    assert!(
        row.key == "desk" && row.value == b"{\"version\": 2" && !row.why.is_empty() && row.revision.is_some()
    );
    // It is known after a restart, and what was in force is from the history.
    one.stop.cancel();
    let metrics_of = |node: &Node| node.store.status();
    let again = start(&one.local, &one.link, false).await;
    assert_eq!(again.copy().await.pools[&pool()], settings(1, "bob"));
    assert_eq!(again.store.quarantine().await.unwrap(), aside, "not noted again: {:?}", metrics_of(&again));
    // It is replaced by the next apply, through whichever coordinator.
    two.store.put_pool(pool(), settings(2, "bob")).await.unwrap();
    again.copy_when(|copy| copy.pools[&pool()] == settings(2, "bob")).await;
}

#[tokio::test(start_paused = true)]
async fn coordinators_of_a_new_farm_that_start_at_once_are_all_connected() {
    let shared = MemoryShared::default();
    let (one, two, three) = tokio::join!(
        node("one", shared.clone()),
        node("two", shared.for_another()),
        node("three", shared.for_another())
    );
    for node in [one, two, three] {
        let status = node.store.status().shared.unwrap();
        assert!(status.link != LinkState::Unusable && status.last_error.is_none(), "{status:?}");
        node.until(LinkState::Connected).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_store_takes_nothing_from_a_coordinator_that_has_something_unless_it_is_told_to_fill_it() {
    let (alone, _) = pair().await;
    alone.store.put_pool(pool(), settings(1, "ann")).await.unwrap();
    alone.stop.cancel();
    let empty = MemoryShared::default();
    let refused = start(&alone.local, &empty, false).await;
    refused.until(LinkState::Unusable).await;
    assert_eq!(refused.copy().await.pools[&pool()], settings(1, "ann"), "it serves from its copy");
    let error = refused.store.put_pool(pool(), settings(2, "ann")).await.unwrap_err().to_string();
    assert!(error.contains("store.seed = true"), "{error}");
    assert!(empty.get("pools/desk").is_none());
    refused.stop.cancel();
    let filling = start(&alone.local, &empty, true).await;
    filling.until(LinkState::Connected).await;
    assert!(empty.get("pools/desk").is_some() && empty.get("meta/seeding").is_none());
    let other = node("other", empty.for_another()).await;
    assert_eq!(other.copy().await.history[&pool()], [settings(1, "ann")]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_somebody_has_emptied_takes_nothing_from_those_who_serve() {
    let (one, two) = pair().await;
    one.store.put_pool(pool(), settings(1, "ann")).await.unwrap();
    two.copy_when(|copy| copy.pools.contains_key(&pool())).await;
    for key in ["meta/format", "pools/desk", "pool_history/desk/00000000000000000001", "writers/one"] {
        one.link.set(key, None);
    }
    two.until(LinkState::Unusable).await;
    assert_eq!(two.copy().await.pools[&pool()], settings(1, "ann"));
    // A backup that is restored through one of them fills it.
    let rows = two.copy().await;
    two.store.replace_shared(&rows, rows.clone()).await.unwrap();
    one.until(LinkState::Connected).await;
    one.store.put_pool(pool(), settings(2, "ann")).await.unwrap();
    two.copy_when(|copy| copy.pools[&pool()] == settings(2, "ann")).await;
}

#[tokio::test(start_paused = true)]
async fn a_restore_into_an_empty_store_that_breaks_off_is_believed_by_nobody_and_can_be_made_again() {
    let (alone, other) = pair().await;
    alone.store.put_pool(pool(), settings(1, "ann")).await.unwrap();
    other.copy_when(|copy| copy.pools.contains_key(&pool())).await;
    alone.stop.cancel();
    other.stop.cancel();
    // As a restore leaves it that got no further than the history.
    let empty = MemoryShared::default();
    empty.set("meta/seeding", Some(b"one (restore)"));
    let row = other.link.get("pool_history/desk/00000000000000000001").unwrap();
    empty.set(&row.key, Some(&row.value));
    let other = start(&other.local, &empty, false).await;
    let fresh = node("fresh", empty.for_another()).await;
    for node in [&other, &fresh] {
        node.until(LinkState::Unusable).await;
    }
    assert_eq!(other.copy().await.pools[&pool()], settings(1, "ann"));
    let rows = other.copy().await;
    other.store.replace_shared(&rows, rows.clone()).await.unwrap();
    fresh.copy_when(|copy| copy.pools.contains_key(&pool())).await;
    assert!(empty.get("meta/seeding").is_none() && empty.get("meta/format").is_some());
}

#[tokio::test(start_paused = true)]
async fn everything_is_replaced_as_a_whole_and_the_others_follow() {
    let (one, mut two) = pair().await;
    one.store.put_pool(pool(), settings(1, "ann")).await.unwrap();
    one.store.put_drain(host("a"), drain(5)).await.unwrap();
    two.copy_when(|copy| copy.drains.len() == 1).await;
    while two.told.try_recv().is_ok() {}
    let mut rows = SharedRows::default();
    rows.pools.insert(pool(), settings(2, "backup"));
    rows.history.insert(pool(), vec![settings(1, "ann"), settings(2, "backup")]);
    for number in 0..500 {
        rows.bindings.insert(format!("app{number}"), host(&format!("h{number}")));
    }
    let now = one.copy().await;
    let old = SharedRows { drains: Default::default(), ..now.clone() };
    let late = one.store.replace_shared(&old, rows.clone()).await.unwrap_err().to_string();
    assert!(late.contains("changed something meanwhile"), "{late}");
    let (changes, _) = one.store.replace_shared(&now, rows.clone()).await.unwrap();
    assert!(changes.contains(&Change::Drain(host("a"), None)));
    assert_eq!(two.copy_when(|copy| copy.drains.is_empty()).await, rows);
    assert_eq!(one.copy().await, rows);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_under_the_copy_refuses_no_change_and_is_made_up_for() {
    let (one, two) = pair().await;
    two.local.refuse(true);
    two.store.put_pool(pool(), settings(1, "bob")).await.unwrap();
    one.store.put_drain(host("a"), drain(5)).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    assert!(two.copy().await.is_empty());
    two.local.refuse(false);
    two.copy_when(|copy| copy.pools.contains_key(&pool()) && copy.drains.len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_farm_that_begins_with_an_old_copy_is_told_what_is_new() {
    let (one, two) = pair().await;
    one.store.put_pool(pool(), settings(1, "ann")).await.unwrap();
    two.copy_when(|copy| copy.pools.contains_key(&pool())).await;
    two.stop.cancel();
    one.store.put_pool(pool(), settings(2, "ann")).await.unwrap();
    // Its disk is full as it starts: the copy cannot follow.
    two.local.refuse(true);
    let mut again = start(&two.local, &two.link, false).await;
    assert_eq!(again.copy().await.pools[&pool()].version, 1);
    assert!(again.told().await.contains(&Change::Pool(pool(), Some(settings(2, "ann")))));
}

#[tokio::test(start_paused = true)]
async fn coordinators_are_listed_while_they_live() {
    let (one, two) = pair().await;
    let presence = |id: &str| Presence {
        coordinator_id: id.to_owned(),
        instance_id: "i".to_owned(),
        address: "c:7443".to_owned(),
        version: "1".to_owned(),
        started_unix_ms: 1,
    };
    one.store.announce(presence("one"));
    two.store.announce(presence("two"));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(one.store.coordinators(), [presence("one"), presence("two")]);
    two.link.cut(true);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(one.store.coordinators(), [presence("one")]);
    two.link.cut(false);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(one.store.coordinators().len(), 2);
}
