use std::collections::HashMap;

use usher_placement::{farm::Farm, reservation::Ledger};
use usher_types::{Load, PolicyChange};

use super::*;
use crate::placing::testing::{self, NOW, hello};

/// What has been told since a revision, by kind.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    /// Users of each host, and whether its facts were told too.
    hosts: HashMap<String, (Option<u32>, bool)>,
    pools: usize,
    gone: Vec<String>,
}

async fn set_up(hosts: &[(&str, u32)]) -> (Arc<Shared>, Farm, Arc<Ledger>) {
    let (mut farm, ledger) = testing::farm(&PolicyChange::default(), hosts);
    let (shared, _commands) = testing::shared(&mut farm, ledger.clone());
    (shared, farm, ledger)
}

/// Looks, and takes everything after `revision`; the newest revision.
fn told(shared: &Shared, revision: &mut u64) -> Told {
    shared.feed.look(shared);
    let mut all = Told::default();
    loop {
        match shared.feed.after(*revision) {
            Next::Nothing => return all,
            Next::Trimmed => panic!("nothing is trimmed in these tests"),
            Next::Event(event) => {
                *revision = event.revision;
                add(&mut all, &event);
            }
        }
    }
}

fn add(all: &mut Told, event: &Event) {
    let message = v1::WatchFarmResponse::decode(event.bytes.clone()).unwrap();
    assert_eq!(message.revision, event.revision);
    let Some(WireEvent::Changes(changes)) = message.event else { panic!("{message:?}") };
    all.pools += changes.pools.len();
    all.gone.extend(changes.gone_hosts);
    all.hosts
        .extend(changes.hosts.into_iter().map(|host| (host.host_id, (host.users, host.facts.is_some()))));
}

fn report(farm: &mut Farm, host: &str, users: u32) {
    let load = Load { users: Some(users), streams_held: 1, ..Load::default() };
    farm.observe_load(&hello(host).host_id, load, &[], NOW, 0);
}

#[tokio::test]
async fn only_what_is_new_is_told_and_who_a_host_is_only_once() {
    let (shared, mut farm, _) = set_up(&[("a", 1), ("b", 2)]).await;
    let mut revision = 0;
    let first = told(&shared, &mut revision);
    assert_eq!(first.hosts, [("a".to_owned(), (Some(1), true)), ("b".to_owned(), (Some(2), true))].into());
    assert_eq!((first.pools, told(&shared, &mut revision)), (1, Told::default()));
    report(&mut farm, "b", 5);
    shared.snapshot.store(farm.snapshot(NOW));
    let next = told(&shared, &mut revision);
    assert_eq!(next, Told { hosts: [("b".to_owned(), (Some(5), false))].into(), ..Told::default() });
}

#[tokio::test]
async fn a_place_is_told_of_although_it_makes_no_snapshot() {
    let (shared, _farm, _) = set_up(&[("a", 1), ("b", 2)]).await;
    let mut revision = 0;
    told(&shared, &mut revision);
    let pool = shared.snapshot.load().pools.values().next().cloned().unwrap();
    let cell = &pool.members.cells[0];
    assert!(cell.reserve(cell.load(), 1));
    assert_eq!(told(&shared, &mut revision).hosts.keys().collect::<Vec<_>>(), ["a"]);
}

#[tokio::test]
async fn hosts_that_come_go_and_change_their_places_are_told_of_once() {
    let (shared, mut farm, _) = set_up(&[("a", 1), ("b", 2)]).await;
    let mut revision = 0;
    told(&shared, &mut revision);
    farm.attach(&hello("c"), None, false).unwrap();
    // A host that moves to another pool is another place in the order of both.
    let mut moved = hello("a");
    moved.stream_epoch = 2;
    moved.pool = PoolName::new("mail").unwrap();
    farm.attach(&moved, None, false).unwrap();
    shared.snapshot.store(farm.snapshot(NOW));
    let next = told(&shared, &mut revision);
    assert_eq!(next.gone, ["a"]);
    assert_eq!((next.pools, next.hosts.len()), (1, 2), "{next:?}");
    assert!(next.hosts["a"].1 && next.hosts["c"].1, "b has not changed: {next:?}");
}

#[tokio::test]
async fn a_host_that_has_left_a_pool_is_gone_before_it_comes_to_another_one() {
    let (shared, mut farm, _) = set_up(&[("a", 1), ("b", 2)]).await;
    let mut revision = 0;
    told(&shared, &mut revision);
    let mut moved = hello("a");
    moved.stream_epoch = 2;
    // By name before the pool that it leaves.
    moved.pool = PoolName::new("a-pool").unwrap();
    farm.attach(&moved, None, false).unwrap();
    shared.snapshot.store(farm.snapshot(NOW));
    shared.feed.look(&shared);
    let Next::Event(first) = shared.feed.after(revision) else { panic!() };
    let mut gone = Told::default();
    add(&mut gone, &first);
    assert_eq!((first.pool.as_str(), gone.gone, gone.hosts.len()), ("desk", vec!["a".to_owned()], 0));
    let next = told(&shared, &mut revision);
    assert!(next.hosts["a"].1);
}

#[tokio::test]
async fn a_copy_is_kept_for_those_who_begin_together_and_goes_on_from_its_revision() {
    let (shared, mut farm, _) = set_up(&[("a", 1)]).await;
    let copy = shared.feed.copy(&shared).await.unwrap();
    assert!(copy.revision >= 1 && copy.parts.len() == 1);
    report(&mut farm, "a", 9);
    shared.snapshot.store(farm.snapshot(NOW));
    shared.feed.look(&shared);
    let again = shared.feed.copy(&shared).await.unwrap();
    assert!(Arc::ptr_eq(&copy, &again), "made once");
    let Next::Event(event) = shared.feed.after(copy.revision) else { panic!("what came after it is kept") };
    let mut all = Told::default();
    add(&mut all, &event);
    assert_eq!(all.hosts["a"].0, Some(9));
}

#[tokio::test]
async fn a_large_farm_is_told_of_in_messages_of_bounded_size() {
    let names: Vec<String> = (0..6000).map(|number| format!("host-{number}")).collect();
    let hosts: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let (shared, _farm, _) = set_up(&hosts).await;
    let copy = shared.feed.copy(&shared).await.unwrap();
    assert!(copy.parts.len() > 1);
    assert!(copy.parts.iter().all(|part| part.bytes.len() < MESSAGE_BYTES + 1024));
    assert!(copy.parts.iter().all(|part| part.revision == 0), "half a farm is known up to nowhere");
    let mut all = Told::default();
    copy.parts.iter().for_each(|part| add(&mut all, part));
    assert_eq!(all.hosts.len(), 6000);
}

#[tokio::test]
async fn so_many_may_watch_and_no_more() {
    let (shared, _farm, _) = set_up(&[]).await;
    let take = |number: usize| shared.feed.seat(&format!("gateway-{}", number % 100));
    let seats: Vec<_> = (0..seats::MOST_READERS).map(|number| take(number).unwrap()).collect();
    assert!(take(0).is_none());
    assert_eq!(shared.feed.readers(), seats::MOST_READERS, "who was turned away does not count");
    drop(seats);
    assert_eq!(shared.feed.readers(), 0);
}

#[tokio::test]
async fn one_caller_cannot_take_the_seats_of_others() {
    let (shared, _farm, _) = set_up(&[]).await;
    let taken: Vec<_> = (0..seats::MOST_STREAMS).map(|_| shared.feed.seat("greedy").unwrap()).collect();
    assert!(shared.feed.seat("greedy").is_none());
    assert!(shared.feed.seat("modest").is_some());
    // Those who are not told any more still have their streams.
    let streams: Vec<_> = taken.into_iter().map(|(_, stream)| stream).collect();
    assert_eq!(shared.feed.readers(), 0);
    assert!(shared.feed.seat("greedy").is_none());
    drop(streams);
    assert!(shared.feed.seat("greedy").is_some());
}

#[tokio::test]
async fn who_comes_after_a_while_without_readers_is_told_of_now() {
    let (shared, mut farm, _) = set_up(&[("a", 1)]).await;
    let mut revision = 0;
    told(&shared, &mut revision);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    report(&mut farm, "a", 9);
    shared.snapshot.store(farm.snapshot(NOW));
    shared.feed.catch_up(&shared).await;
    let Next::Event(event) = shared.feed.after(revision) else { panic!("what has changed meanwhile") };
    let mut all = Told::default();
    add(&mut all, &event);
    assert_eq!(all.hosts["a"].0, Some(9));
}
