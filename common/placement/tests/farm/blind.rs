//! Places that were given although nothing was heard of the host.

use usher_placement::reservation::GrantState;
use usher_types::{EndReason, Goodbye, Hello, HostState, Load};

use crate::support::*;

fn silent() -> Sim {
    let mut sim = Sim::of(&["a"]);
    sim.lose("a");
    sim.pass(20);
    assert_eq!(sim.state("a"), HostState::Offline);
    sim
}

// rule: blind-life OFFLINE does not end a blind place; its time to live does
#[test]
fn a_blind_place_lives_on_an_offline_host_until_its_time_has_passed() {
    let mut sim = silent();
    let (blind, other) = (sim.place_blind("r1", "a"), sim.place("r2", "a"));
    sim.pass(120);
    assert_eq!(other.state(), GrantState::Ended(EndReason::HostLost));
    assert!(blind.counts());
    assert_eq!(sim.pending("a"), (1, 1));
    sim.pass(1);
    assert_eq!(blind.state(), GrantState::Ended(EndReason::Expired));
    assert_eq!(sim.pending("a"), (0, 0));
}

#[test]
fn a_blind_place_is_its_hosts_as_soon_as_that_is_heard() {
    let mut sim = silent();
    let (came, waits) = (sim.place_blind("r1", "a"), sim.place_blind("r2", "a"));
    sim.farm.attach(&Hello { stream_epoch: 2, ..hello("a") }, None, false).unwrap();
    let pending = vec![listed("r2", 1, 100)];
    sim.report("a", Load { pending, ended: vec![ended("r1", 1, EndReason::Session, 0)], ..users(2) });
    assert_eq!(came.state(), GrantState::Ended(EndReason::Session));
    assert!(waits.counts());
    let ended = vec![ended("r2", 1, EndReason::Expired, 0)];
    sim.report("a", Load { ended, ..users(2) });
    assert_eq!(waits.state(), GrantState::Ended(EndReason::Expired));
}

#[test]
fn a_blind_place_ends_with_a_goodbye() {
    let mut sim = silent();
    let place = sim.place_blind("r1", "a");
    sim.farm.attach(&Hello { stream_epoch: 2, ..hello("a") }, None, false).unwrap();
    sim.farm.detach(&id("a"), 2, Some(Goodbye::HostShutdown), sim.now);
    assert_eq!(place.state(), GrantState::Ended(EndReason::HostLost));
}

#[test]
fn what_was_given_of_a_silent_host_outlives_the_boot_that_it_is_heard_in_again() {
    let mut sim = silent();
    let place = sim.place_blind("r1", "a");
    // It may have booted before the place was given, and its user may be on the way.
    sim.farm.attach(&booted("a", "boot-2", 1), None, false).unwrap();
    assert!(place.counts());
    sim.pass(1);
    sim.report("a", users(0));
    assert_eq!(sim.pending("a"), (1, 1));
}

// rule: retry-ended a retry whose host is OFFLINE or NOT_READY is decided anew
#[test]
fn a_retry_stands_where_somebody_may_still_go() {
    let mut sim = silent();
    let (blind, other) = (sim.place_blind("r1", "a"), sim.place("r2", "a"));
    assert!(!blind.is_void_on(HostState::Offline) && other.is_void_on(HostState::Offline));
    for grant in [&blind, &other] {
        assert!(grant.is_void_on(HostState::NotReady));
        for state in [HostState::Available, HostState::Busy, HostState::MaxUsers, HostState::Restricted] {
            assert!(!grant.is_void_on(state), "{state}");
        }
        assert!(!grant.is_void_on(HostState::Unknown) && !grant.is_void_on(HostState::Warming));
        assert_eq!((grant.anew(1), grant.anew(7)), (2, 7));
    }
}
