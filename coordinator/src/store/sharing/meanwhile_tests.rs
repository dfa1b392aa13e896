//! What one coordinator writes while another one does: nothing of it is lost, and of two that exclude each other the first holds.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{
    tests::{Node, drain, host, node, pair, pool, settings, start},
    *,
};
use crate::store::{MemoryShared, SharedRows, Write};

fn bind(certificate: &str, host_id: &str) -> Write {
    bind_instead(certificate, host_id, None)
}

fn bind_instead(certificate: &str, host_id: &str, replaces: Option<&str>) -> Write {
    let (certificate, replaces) = (certificate.to_owned(), replaces.map(host));
    Write::Bind { certificate, host: host(host_id), replaces }
}

fn is_claimed_by<T: std::fmt::Debug>(refused: &Result<T, StoreError>, by: &str) -> bool {
    matches!(refused, Err(StoreError::Claimed { certificate, .. }) if certificate == by)
}

/// Nothing that either of them writes is known to the other one before it has to be.
async fn deaf_pair() -> (Node, Node) {
    let (one, two) = pair().await;
    one.stop.cancel();
    two.stop.cancel();
    sleep(Duration::from_millis(10)).await;
    (one, two)
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_was_set_through_another_coordinator_meanwhile_is_not_ended_with_the_one_before() {
    let (one, two) = deaf_pair().await;
    one.store.put_drain(host("a"), drain(5)).await.unwrap();
    two.store.put_drain(host("a"), drain(9)).await.unwrap();
    assert_eq!(one.store.drain_of(&host("a")).await.unwrap(), Some(drain(5)), "what it has seen");
    one.store.delete_drain(host("a"), 5).await.unwrap();
    assert!(one.link.get("drains/a").is_some());
    assert_eq!(one.store.drain_of(&host("a")).await.unwrap(), Some(drain(9)), "and it knows so at once");
    one.store.delete_drain(host("a"), 9).await.unwrap();
    assert!(one.link.get("drains/a").is_none());
}

#[tokio::test(start_paused = true)]
async fn the_drain_of_a_host_is_the_shared_one_or_that_of_the_copy_while_the_store_is_away() {
    let (one, two) = pair().await;
    two.store.put_drain(host("a"), drain(5)).await.unwrap();
    one.copy_when(|copy| copy.drains.len() == 1).await;
    one.link.cut(true);
    one.until(LinkState::Away).await;
    one.store.write_or_owe(vec![Write::DeleteDrainSetAt(host("a"), 5)]).await.unwrap();
    assert_eq!(one.store.drain_of(&host("a")).await.unwrap(), None, "it is owed to the shared store");
    assert_eq!(two.store.drain_of(&host("a")).await.unwrap(), Some(drain(5)));
    // A disk that is full has kept no copy of the next one, which is in force all the same.
    one.link.cut(false);
    two.copy_when(|copy| copy.drains.is_empty()).await;
    one.until(LinkState::Connected).await;
    one.local.refuse(true);
    two.store.put_drain(host("b"), drain(7)).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    one.link.cut(true);
    one.until(LinkState::Away).await;
    assert!(one.copy().await.drains.is_empty());
    assert_eq!(one.store.drain_of(&host("b")).await.unwrap(), Some(drain(7)));
    let refused = one.store.delete_drain(host("b"), 7).await;
    assert!(matches!(refused, Err(StoreError::Away { .. })), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_whose_row_cannot_be_read_is_ended_as_what_it_has_left_in_force() {
    let (one, _two) = pair().await;
    one.store.put_drain(host("a"), drain(5)).await.unwrap();
    one.copy_when(|copy| copy.drains.len() == 1).await;
    one.link.set("drains/a", Some(b"{"));
    while one.store.quarantine().await.unwrap().is_empty() {
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(one.store.drain_of(&host("a")).await.unwrap(), Some(drain(5)));
    one.store.delete_drain(host("a"), 5).await.unwrap();
    assert!(one.link.get("drains/a").is_none());
}

#[tokio::test(start_paused = true)]
async fn of_two_certificates_bound_to_one_host_at_once_the_first_has_it() {
    let (one, two) = deaf_pair().await;
    one.store.write(vec![bind("app1", "a")]).await.unwrap();
    let second = two.store.write(vec![bind("app2", "a")]).await;
    assert!(is_claimed_by(&second, "app1"), "{second:?}");
    assert!(one.link.get("bindings/app2").is_none());
    // It may have another one, and the first one its own again.
    two.store.write(vec![bind("app2", "b")]).await.unwrap();
    one.store.write(vec![bind("app1", "a")]).await.unwrap();
    let third = one.store.write(vec![bind("app3", "b")]).await;
    assert!(is_claimed_by(&third, "app2"), "{third:?}");
}

#[tokio::test(start_paused = true)]
async fn marks_do_not_move_to_a_host_whose_bond_was_another_coordinators_to_make() {
    let (one, two) = pair().await;
    // The host that the certificate app2 had before is drained.
    two.store.write(vec![bind("app2", "old")]).await.unwrap();
    two.store.put_drain(host("old"), drain(5)).await.unwrap();
    one.copy_when(|copy| copy.drains.len() == 1 && copy.bindings.len() == 1).await;
    one.link.cut(true);
    one.until(LinkState::Away).await;
    let moved = Write::MoveMarks(host("old"), host("a"));
    one.store.write_or_owe(vec![bind_instead("app2", "a", Some("old")), moved]).await.unwrap();
    two.store.write(vec![bind("app1", "a")]).await.unwrap();
    one.link.cut(false);
    while one.store.status().shared.unwrap().owed > 0 {
        sleep(Duration::from_millis(20)).await;
    }
    assert!(one.link.get("drains/old").is_some());
    assert!(one.link.get("drains/a").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_bond_that_was_made_without_a_claim_holds_as_well() {
    let (one, two) = pair().await;
    // As earlier versions left it.
    one.link.set("bindings/app1", Some(b"\"a\""));
    two.copy_when(|copy| copy.bindings.len() == 1).await;
    let second = two.store.write(vec![bind("app2", "a")]).await;
    assert!(is_claimed_by(&second, "app1"), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_certificate_has_gone_to_another_one_or_was_never_restored_is_free() {
    let (one, two) = pair().await;
    one.store.write(vec![bind("app1", "a")]).await.unwrap();
    one.store.write(vec![bind_instead("app1", "b", Some("a"))]).await.unwrap();
    assert!(one.link.get("bound_hosts/a").is_none(), "no claim is left behind");
    two.copy_when(|copy| copy.bindings.get("app1") == Some(&host("b"))).await;
    two.store.write(vec![bind("app2", "a")]).await.unwrap();
    let bound = one.copy_when(|copy| copy.bindings.len() == 2).await;
    one.store.replace_shared(&bound, SharedRows::default()).await.unwrap();
    two.copy_when(|copy| copy.bindings.is_empty()).await;
    two.store.write(vec![bind("app3", "a")]).await.unwrap();
    one.store.write(vec![bind("app4", "b")]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_second_certificate_of_a_host_that_came_while_the_store_was_away_is_taken_back() {
    for is_started_again in [false, true] {
        let (mut one, two) = pair().await;
        one.link.cut(true);
        one.until(LinkState::Away).await;
        one.store.write_or_owe(vec![bind("app2", "a")]).await.unwrap();
        two.store.write(vec![bind("app1", "a")]).await.unwrap();
        if is_started_again {
            one.stop.cancel();
            one = start(&one.local, &one.link, false).await;
        }
        one.link.cut(false);
        let told = timeout(Duration::from_secs(10), one.told.recv()).await.unwrap().unwrap().changes;
        assert!(told.contains(&Change::Binding("app1".to_owned(), Some(host("a")))), "{told:?}");
        let copy = one.copy_when(|copy| !copy.bindings.contains_key("app2")).await;
        assert_eq!(copy, two.copy_when(|copy| !copy.bindings.is_empty()).await);
        assert_eq!(one.store.status().shared.unwrap().owed, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_the_store_carries_out_after_it_was_given_up_is_in_force_at_all_and_comes_once() {
    let shared = MemoryShared::default();
    let (mut one, mut two) = (node("one", shared.clone()).await, node("two", shared.for_another()).await);
    one.store.put_pool(pool(), settings(1, "ann")).await.unwrap();
    let has =
        |version| move |copy: &SharedRows| copy.pools.get(&pool()).is_some_and(|of| of.version == version);
    two.copy_when(has(1)).await;
    one.copy_when(has(1)).await;
    while one.told.try_recv().is_ok() || two.told.try_recv().is_ok() {}

    one.link.hold_up();
    let error = one.store.put_pool(pool(), settings(2, "ann")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unknown { .. }), "{error}");
    assert!(error.to_string().contains("it may still come into force"), "{error}");
    assert_eq!(one.copy().await.pools[&pool()].version, 1);
    one.link.let_through();
    for node in [&mut one, &mut two] {
        node.copy_when(has(2)).await;
        let told = node.told().await;
        assert!(told.contains(&Change::Pool(pool(), Some(settings(2, "ann")))), "{told:?}");
        sleep(Duration::from_secs(5)).await;
        assert!(node.told.try_recv().is_err(), "it comes once");
    }
    // Whoever tries again is told which version there is; and all goes on from it.
    let again = one.store.put_pool(pool(), settings(2, "ann")).await;
    assert!(matches!(again, Err(StoreError::Version { current: 2, .. })), "{again:?}");
    one.store.put_pool(pool(), settings(3, "ann")).await.unwrap();
    two.copy_when(has(3)).await;
    assert_eq!(one.copy_when(has(3)).await, two.copy().await);
}

#[tokio::test(start_paused = true)]
async fn a_change_that_was_given_up_is_never_carried_out_after_a_later_one_of_its_coordinator() {
    let (one, two) = pair().await;
    one.store.put_pool(pool(), settings(1, "ann")).await.unwrap();
    one.link.hold_up();
    one.store.put_pool(pool(), settings(2, "ann")).await.unwrap_err();
    // Another member leads, which has nothing of it yet.
    let late = one.link.clone();
    let again = start(&one.local, &one.link.for_another(), false).await;
    again.until(LinkState::Connected).await;
    again.store.put_pool(pool(), settings(2, "bob")).await.unwrap();
    late.let_through();
    sleep(Duration::from_secs(5)).await;
    let copy = two.copy_when(|copy| copy.pools[&pool()].version == 2).await;
    assert_eq!(copy.pools[&pool()], settings(2, "bob"));
    assert_eq!(again.copy().await, copy);
}
