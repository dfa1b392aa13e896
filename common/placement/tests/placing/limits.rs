//! Full is full.

use std::time::Duration;

use usher_placement::decision::{Excluded, Flags, RefusalKind, Request};
use usher_placement::farm::HostCell;
use usher_types::{EndReason, HostState, Load, PolicyChange};

use crate::support::*;

fn limited(hosts: &[(&str, u32)], max_users: u32) -> Sim {
    let mut sim = Sim::of_users(hosts);
    sim.apply(PolicyChange { max_users: limit(max_users), ..PolicyChange::default() });
    sim
}

// rule: error-max-users
// rule: state-maxusers
// rule: reserve-at-once
#[test]
fn case_087_everyone_full_is_refused_and_one_logout_is_a_place() {
    let mut sim = limited(&[("a", 10), ("b", 10)], 10);
    assert_eq!(sim.place(&ask("r1")).refusal().kind, RefusalKind::MaxUsers);
    assert_eq!(sim.ledger.live(), 0);
    sim.report("b", users(9));
    assert_eq!(sim.place(&ask("r2")).host(), "b");
    assert_eq!(sim.place(&ask("r3")).refusal().kind, RefusalKind::MaxUsers, "the place counts at once");
}

// rule: candidate-cost
// rule: never-over-limit
#[test]
fn the_cost_of_a_login_counts_against_the_limit() {
    let mut sim = limited(&[("a", 5), ("b", 8)], 10);
    assert_eq!(sim.place(&Request { cost: 5, ..ask("r1") }).host(), "a");
    assert_eq!(sim.place(&Request { cost: 3, ..ask("r2") }).refusal().kind, RefusalKind::MaxUsers);
    assert_eq!(sim.place(&Request { cost: 2, ..ask("r3") }).host(), "b");
}

// rule: all-busy
// rule: error-max-users
#[test]
fn busy_is_never_refused_and_full_is() {
    let mut sim = limited(&[("a", 10), ("b", 1)], 10);
    sim.apply(PolicyChange { threshold_percent: Some(30.0), ..PolicyChange::default() });
    sim.available("b", 5.0);
    let placed = sim.place(&ask("r1"));
    assert_eq!((placed.host(), placed.choice().flags.has(Flags::ALL_BUSY)), ("b", true));
}

// rule: state-maxusers
#[test]
fn users_that_are_not_known_count_as_full_where_there_is_a_limit() {
    let mut sim = limited(&[("a", 1)], 10);
    sim.report("a", Load { users: None, ..users(0) });
    assert_eq!(sim.state("a"), HostState::MaxUsers);
    let explanation = sim.explain(&ask("r1"));
    assert!(explanation.hosts[0].state_reason.contains("users_unknown"));
    sim.apply(PolicyChange { max_users: Some(usher_types::UserLimit::Unlimited), ..PolicyChange::default() });
    assert_eq!(sim.place(&ask("r2")).host(), "a");
}

// rule: consent-share
#[test]
fn a_host_that_cannot_be_asked_gives_each_coordinator_its_share() {
    let mut sim = limited(&[("a", 4)], 10);
    // Of 10, 4 are used and 1 is another coordinator's place: of 5 free ones each of two coordinators may give 2.
    let elsewhere = listed("theirs", None, 1, 100);
    sim.report("a", Load { streams_held: 2, pending: vec![elsewhere], ..users(4) });
    sim.farm.detach(&id("a"), 1, None, sim.now);
    assert_eq!(sim.place(&ask("r1")).host(), "a");
    assert_eq!(sim.place(&ask("r2")).host(), "a");
    let refused = sim.place(&ask("r3"));
    assert_eq!(refused.refusal().kind, RefusalKind::MaxUsers, "out of its share counts as full");
    assert_eq!(refused.refusal().hosts, [(0, Excluded::OutOfShare)]);
    assert_eq!(refused.refusal().kept_hosts, 1, "another coordinator may have room there");
    assert_eq!(refused.refusal().retry_after, Some(Duration::from_secs(1)), "it may be back in a moment");
    sim.attach("a");
    assert_eq!(sim.place(&ask("r4")).host(), "a", "with a stream the host is asked");
}

// rule: consent-share
#[test]
fn what_a_host_has_listed_gives_no_part_of_the_share_back_when_it_ends_here() {
    for reason in [EndReason::Session, EndReason::Cancelled, EndReason::Failed, EndReason::Expired] {
        let mut sim = limited(&[("a", 0)], 4);
        assert_eq!(sim.place(&ask("r1")).host(), "a");
        // 3 of 4 are free, and 1 of them may be given here if the stream breaks.
        sim.report("a", Load { streams_held: 2, pending: vec![listed("r1", None, 1, 100)], ..users(0) });
        sim.farm.detach(&id("a"), 1, None, sim.now);
        // The host knows that its user came and went: another coordinator may have given the seat since.
        sim.end("r1", reason);
        assert_eq!(sim.place(&ask("r2")).host(), "a");
        assert_eq!(sim.place(&ask("r3")).refusal().hosts, [(0, Excluded::OutOfShare)], "{reason:?}");
        // What was given of the share and is given up may be given again.
        sim.end("r2", reason);
        assert_eq!(sim.place(&ask("r4")).host(), "a");
    }
}

// rule: error-max-users
#[test]
fn a_host_that_keeps_what_is_free_for_others_may_be_asked_again_soon() {
    let mut sim = limited(&[("a", 4), ("b", 10)], 10);
    assert_eq!(sim.place(&ask("r1")).host(), "a");
    sim.report("a", Load { held_back_users: 6, ..users(4) });
    let refused = sim.place(&ask("r2"));
    assert_eq!(refused.refusal().hosts[0], (0, Excluded::KeptForOthers));
    assert_eq!((refused.refusal().kind, refused.refusal().kept_hosts), (RefusalKind::MaxUsers, 1));
    assert_eq!(refused.refusal().retry_after, Some(Duration::from_secs(1)));
    sim.report("a", users(10));
    let refused = sim.place(&ask("r3"));
    assert_eq!(
        (refused.refusal().kept_hosts, refused.refusal().retry_after),
        (0, Some(Duration::from_secs(5)))
    );
}

// rule: never-over-limit
#[test]
fn more_places_than_can_be_counted_are_refused_and_nothing_breaks() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    let cell = sim.pool().members.cells[0].clone();
    while HostCell::has_room(cell.load(), 100) {
        assert!(cell.reserve(cell.load(), 100));
    }
    let refused = sim.place(&Request { cost: 100, ..ask("r1") });
    assert_eq!(refused.refusal().hosts, [(0, Excluded::CellFull)]);
    assert_eq!(refused.refusal().kind, RefusalKind::MaxUsers);
}

// rule: wrong-values
#[test]
fn the_largest_numbers_that_a_host_can_report_break_nothing() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 1)]);
    let mut place = listed("theirs", None, u32::MAX, 100);
    place.counted_users = u32::MAX;
    place.left = std::time::Duration::MAX;
    sim.report("a", Load { pending: vec![place], processes: Some(u32::MAX), ..users(u32::MAX) });
    assert_eq!(sim.place(&ask("r1")).host(), "b");
    sim.report("a", users(1));
    assert_eq!(sim.word("a").places(), 0);
    assert_eq!(sim.state("a"), HostState::Available);
}
