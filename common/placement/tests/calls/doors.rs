//! Hosts whose agents are lost, and whose doors are tried.

use std::time::Duration;

use usher_placement::decision::{Denied, Flags, RefusalKind, Step};
use usher_types::PolicyChange;

use crate::support::{World, host_id, host_of, request, words};

/// All agents fell silent without a word.
fn lost() -> World {
    let mut world = World::new(&PolicyChange::default(), &[("a", 1), ("b", 2)]);
    world.advance(Duration::from_secs(60));
    world
}

// rule: blind-doors
#[test]
fn lost_hosts_are_tried_once_and_one_that_accepts_is_used() {
    let mut world = lost();
    let mut calling = world.call(request("r1"), None);
    let Step::TryDoors { doors, within } = calling.step(&world) else { panic!("no door is tried") };
    assert_eq!((doors.len(), within), (2, Duration::from_secs(1)));
    assert_eq!(doors[0].endpoints[0].port, 22);
    // The other one's result never comes: it counts as shut.
    world.doors.insert(host_id("b"), true);
    let placed = calling.done(&world).result.unwrap();
    assert_eq!(host_of(&placed), "b");
    assert!(placed.flags.has(Flags::BLIND));
    assert!(placed.grant.unwrap().blind);
    assert_eq!(words(&calling.told), ["b expect r1"]);
}

#[test]
fn what_is_known_of_doors_is_not_tried_again() {
    let mut world = lost();
    world.doors.insert(host_id("a"), true);
    world.doors.insert(host_id("b"), false);
    let mut calling = world.call(request("r1"), None);
    assert_eq!(host_of(&calling.done(&world).result.unwrap()), "a");
}

#[test]
fn with_all_doors_shut_nobody_is_alive() {
    let world = lost();
    let mut calling = world.call(request("r1"), None);
    assert!(matches!(calling.step(&world), Step::TryDoors { .. }));
    let Err(Denied::Refused(refusal)) = calling.done(&world).result else { panic!("placed") };
    assert_eq!(refusal.kind, RefusalKind::AllOffline);
}

// rule: blind-life
#[test]
fn a_place_given_blind_is_repeated_though_its_host_is_offline() {
    let mut world = lost();
    world.doors.insert(host_id("a"), true);
    world.doors.insert(host_id("b"), false);
    world.placed(request("r1"));
    world.advance(Duration::from_secs(10));
    assert!(world.placed(request("r1")).is_repeat);
    assert_eq!(world.ledger.live(), 1);
}
