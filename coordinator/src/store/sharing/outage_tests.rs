//! Several coordinators and one shared store after an outage: what is old is not put in force again, and nothing that is
//! refused, broken off or too large locks the store or holds up the rest.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use usher_types::{ReplicaMark, ResourceId};

use super::{
    tests::{Node, bind, drain, host, node, pair, pool, settings, start},
    *,
};
use crate::store::{Change, MemoryShared, MemoryStore, ReplicaMarkRecord, SharedRows, Write};

/// All that the farm was told so far.
fn told_so_far(node: &mut Node) -> Vec<Change> {
    let mut told = Vec::new();
    while let Ok(followed) = node.told.try_recv() {
        told.extend(followed.changes);
    }
    told
}

async fn settled(node: &Node) {
    let settled = async {
        while node.store.status().shared.unwrap().owed > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(90), settled).await.expect("nothing is owed any more");
}

fn marked(number: usize) -> Write {
    let resource = ResourceId::new(format!("profile{number}")).unwrap();
    let record = ReplicaMarkRecord {
        mark: ReplicaMark::OutOfService,
        author: "ann".to_owned(),
        set_unix_ms: 5,
        gone_unix_ms: None,
    };
    Write::PutReplicaMark(host("old"), resource, record)
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_begins_before_a_listing_puts_nothing_in_force_that_has_ended_since() {
    let (mut one, two) = pair().await;
    one.link.cut(true);
    one.until(LinkState::Away).await;
    one.store.write_or_owe(vec![bind("a")]).await.unwrap();
    two.store.put_drain(host("x"), drain(5)).await.unwrap();
    two.store.put_pool(pool(), settings(1, "bob")).await.unwrap();
    two.store.put_pool(pool(), settings(2, "bob")).await.unwrap();
    two.store.delete_drain(host("x"), 5).await.unwrap();
    one.link.cut(false);
    one.copy_when(|copy| copy.pools.contains_key(&pool())).await;
    settled(&one).await;
    sleep(Duration::from_secs(5)).await;
    let told = told_so_far(&mut one);
    let is_old = |change: &Change| match change {
        Change::Drain(..) => true,
        Change::Pool(_, record) => *record != Some(settings(2, "bob")),
        _ => false,
    };
    assert!(!told.iter().any(is_old), "{told:?}");
    assert_eq!(one.copy().await, two.copy().await);
}

#[tokio::test(start_paused = true)]
async fn what_happened_together_is_taken_together_and_not_at_all_if_somebody_has_emptied_the_store() {
    let shared = MemoryShared::default();
    shared.tell_in_pieces(1);
    let mut one = node("one", shared.clone()).await;
    one.store.write(vec![bind("a")]).await.unwrap();
    one.store.put_drain(host("x"), drain(5)).await.unwrap();
    one.copy_when(|copy| copy.drains.len() == 1 && copy.bindings.len() == 1).await;
    sleep(Duration::from_secs(1)).await;
    told_so_far(&mut one);
    shared.clear();
    one.until(LinkState::Unusable).await;
    assert_eq!(told_so_far(&mut one), [], "bonds and drains are in force");
    let copy = one.copy().await;
    assert!(copy.bindings.len() == 1 && copy.drains.len() == 1, "{copy:?}");
}

#[tokio::test(start_paused = true)]
async fn changes_that_wait_for_the_rest_are_bounded() {
    let mut waiting = take::Waiting::default();
    let row = |number: usize| crate::store::RowChange {
        key: format!("drains/{number}"),
        value: Some(vec![b' '; 1024 * 1024]),
        revision: 7,
    };
    assert!((0..60).all(|number| matches!(waiting.add(vec![row(number)], None), Ok(None))));
    let Ok(Some((rows, 7))) = waiting.add(vec![row(60)], Some(7)) else { panic!() };
    assert_eq!(rows.len(), 61);
    assert!((0..70).any(|number| waiting.add(vec![row(number)], None).is_err()));
}

#[tokio::test(start_paused = true)]
async fn a_large_backup_is_restored_into_an_empty_store_and_one_that_is_refused_leaves_it_free() {
    let shared = MemoryShared::default();
    let alone = start(&MemoryStore::new("one"), &MemoryShared::default(), false).await;
    alone.store.put_pool(pool(), settings(1, "ann")).await.unwrap();
    alone.copy_when(|copy| copy.history.contains_key(&pool())).await;
    alone.stop.cancel();
    let one = start(&alone.local, &shared, false).await;
    one.until(LinkState::Unusable).await;
    let now = one.copy().await;
    let mut rows = now.clone();
    for number in 0..5000 {
        rows.bindings.insert(format!("app{number}"), host(&format!("h{number}")));
    }
    let mut too_large = drain(5);
    too_large.drain.reason = "x".repeat(1_500_000);
    let mut refused = rows.clone();
    refused.host_marks.clear();
    refused.drains.insert(host("h1"), too_large);
    let error = one.store.replace_shared(&now, refused).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    assert!(shared.get("meta/seeding").is_none() && shared.get("pools/desk").is_none());
    assert!(shared.get("bindings/app1").is_none(), "nobody is to believe a part of a backup");
    one.store.replace_shared(&now, rows.clone()).await.unwrap();
    one.until(LinkState::Connected).await;
    assert!(shared.get("meta/seeding").is_none());
    let other = node("other", shared.for_another()).await;
    assert_eq!(other.copy_when(|copy| !copy.bindings.is_empty()).await, rows);
}

#[tokio::test(start_paused = true)]
async fn a_restore_of_ones_own_that_broke_off_is_taken_up_again_by_who_is_to_fill_the_store() {
    let (alone, _) = pair().await;
    alone.store.put_pool(pool(), settings(1, "ann")).await.unwrap();
    alone.copy_when(|copy| copy.pools.contains_key(&pool())).await;
    alone.stop.cancel();
    let shared = MemoryShared::default();
    shared.set("meta/seeding", Some(b"one (restore)"));
    shared.set("bindings/app9", Some(b"\"h9\""));
    let refused = start(&alone.local, &shared, false).await;
    refused.until(LinkState::Unusable).await;
    let error = refused.store.put_drain(host("a"), drain(5)).await.unwrap_err().to_string();
    assert!(error.contains("restore again"), "{error}");
    refused.stop.cancel();
    let again = start(&alone.local, &shared, true).await;
    again.until(LinkState::Connected).await;
    assert!(shared.get("meta/seeding").is_none() && shared.get("pools/desk").is_some());
    assert!(shared.get("bindings/app9").is_none(), "half a restore is not kept");
}

#[tokio::test(start_paused = true)]
async fn more_marks_than_one_transaction_takes_move_with_their_host_at_once_or_later() {
    for is_away in [false, true] {
        let (one, two) = pair().await;
        two.store.write((0..150).map(marked).collect()).await.unwrap();
        one.copy_when(|copy| copy.replica_marks.len() == 150).await;
        if is_away {
            one.link.cut(true);
            one.until(LinkState::Away).await;
        }
        let moved = Write::MoveMarks(host("old"), host("new"));
        one.store.write_or_owe(vec![bind("new"), moved]).await.unwrap();
        assert_eq!(one.store.status().shared.unwrap().owed, if is_away { 2 } else { 0 });
        one.link.cut(false);
        settled(&one).await;
        let are_moved = |copy: &SharedRows| {
            copy.replica_marks.len() == 150 && copy.replica_marks.keys().all(|(of, _)| *of == host("new"))
        };
        two.copy_when(are_moved).await;
        assert!(are_moved(&one.copy_when(are_moved).await));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_of_what_is_owed_holds_nothing_up_and_is_told_again_ever_more_seldom() {
    let (one, two) = pair().await;
    two.store.put_drain(host("a"), drain(5)).await.unwrap();
    one.copy_when(|copy| copy.drains.len() == 1).await;
    one.link.cut(true);
    one.until(LinkState::Away).await;
    let too_long = "x".repeat(1_500_000);
    let moved = Write::MoveMarks(host("old"), host("new"));
    one.store.write_or_owe(vec![moved, Write::DeleteDrainSetAt(host("a"), 5), bind("a")]).await.unwrap();
    // No store takes this row once more.
    one.link.set("drains/old", Some(too_long.as_bytes()));
    one.link.cut(false);
    two.copy_when(|copy| copy.drains.is_empty() && copy.bindings.len() == 1).await;
    let listings = one.link.listings();
    sleep(Duration::from_secs(300)).await;
    assert_eq!(one.store.status().shared.unwrap().owed, 1);
    let more = one.link.listings() - listings;
    assert!((3..=12).contains(&more), "listed {more} times in 300 s");
    one.link.set("drains/old", None);
    settled(&one).await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_cannot_note_what_was_told_breaks_no_watch() {
    let (one, two) = pair().await;
    one.link.cut(true);
    one.until(LinkState::Away).await;
    one.store.write_or_owe(vec![bind("a")]).await.unwrap();
    one.local.refuse(true);
    one.link.cut(false);
    two.copy_when(|copy| copy.bindings.len() == 1).await;
    one.until(LinkState::Connected).await;
    one.store.put_drain(host("a"), drain(5)).await.unwrap();
    one.local.refuse(false);
    settled(&one).await;
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_a_write_does_not_undo_what_was_followed_since() {
    let (one, two) = pair().await;
    let put = |version| vec![Write::PutDrain(host("a"), drain(version))];
    let first = one.store.write(put(5)).await.unwrap().revision.unwrap();
    two.store.put_drain(host("a"), drain(9)).await.unwrap();
    one.copy_when(|copy| copy.drains.get(&host("a")) == Some(&drain(9))).await;
    let sharing = one.store.sharing().unwrap();
    sharing.copy(put(5), first).await;
    assert_eq!(one.copy().await.drains[&host("a")], drain(9));
}

#[tokio::test(start_paused = true)]
async fn only_the_drain_that_was_set_then_is_ended() {
    let (one, two) = pair().await;
    two.store.put_drain(host("a"), drain(9)).await.unwrap();
    one.copy_when(|copy| copy.drains.len() == 1).await;
    one.store.write_or_owe(vec![Write::DeleteDrainSetAt(host("a"), 5)]).await.unwrap();
    assert!(one.link.get("drains/a").is_some() && one.copy().await.drains.len() == 1);
    one.link.cut(true);
    one.until(LinkState::Away).await;
    one.store.write_or_owe(vec![Write::DeleteDrainSetAt(host("a"), 9)]).await.unwrap();
    assert!(one.copy().await.drains.is_empty());
    one.link.cut(false);
    two.copy_when(|copy| copy.drains.is_empty()).await;
}
