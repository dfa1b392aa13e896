//! Where to instead.

use usher_placement::decision::{Excluded, Flags, PlacementReason, RefusalKind, Request};
use usher_types::{EndReason, FailureCause, PolicyChange, SessionState};

use crate::support::*;

const FAULTS: [FailureCause; 4] =
    [FailureCause::Unreachable, FailureCause::Refused, FailureCause::Auth, FailureCause::Other];

/// Hosts with an availability index each; at 30 or below they are busy.
fn farm(hosts: &[(&str, f64)]) -> Sim {
    let with_users: Vec<(&str, u32)> = hosts.iter().map(|(host, _)| (*host, 5)).collect();
    let mut sim = Sim::of_users(&with_users);
    sim.apply(PolicyChange { threshold_percent: Some(30.0), ..PolicyChange::default() });
    hosts.iter().for_each(|(host, index)| sim.available(host, *index));
    sim
}

// rule: failover-busy
// rule: all-busy
#[test]
fn case_086_all_busy_serves_the_host_that_the_login_came_from() {
    let mut sim = farm(&[("a", 10.0), ("b", 20.0), ("c", 15.0)]);
    let placed = sim.place(&failover("r1", "a", &[], FailureCause::Busy));
    assert_eq!((placed.host(), placed.choice().reason), ("a", PlacementReason::Original));
    assert!(placed.choice().flags.has(Flags::ALL_BUSY));
}

// rule: failover-tried
// rule: failover-busy
#[test]
fn case_100_two_busy_hosts_do_not_send_the_user_back_and_forth() {
    let mut sim = farm(&[("a", 10.0), ("b", 10.0)]);
    let placed = sim.place(&failover("r1", "b", &["a", "b"], FailureCause::Busy));
    assert_eq!((placed.host(), placed.choice().flags.has(Flags::ALL_BUSY)), ("b", true));
}

// rule: failover-busy
#[test]
fn busy_goes_to_one_that_is_not_and_believes_the_host_rather_than_its_numbers() {
    let mut sim = farm(&[("a", 100.0), ("b", 40.0), ("c", 10.0)]);
    sim.report("b", users(50));
    assert_eq!(sim.place(&failover("r1", "a", &[], FailureCause::Busy)).host(), "b");
    assert_eq!(
        sim.place(&failover("r2", "a", &["b"], FailureCause::Busy)).host(),
        "a",
        "the others are busy"
    );
}

// rule: failover-other
// rule: failover-tried
// rule: error-all-excluded
#[test]
fn any_other_fault_never_returns_to_a_host_that_was_tried() {
    for cause in FAULTS {
        let mut sim = farm(&[("a", 100.0), ("b", 100.0), ("c", 10.0)]);
        assert_eq!(sim.place(&failover("r1", "a", &[], cause)).host(), "b");
        let placed = sim.place(&failover("r2", "a", &["b"], cause));
        assert_eq!((placed.host(), placed.choice().flags.has(Flags::ALL_BUSY)), ("c", true));
        let refused = sim.place(&failover("r3", "a", &["b", "c"], cause));
        assert_eq!(refused.refusal().kind, RefusalKind::AllExcluded);
        let why: Vec<Excluded> = refused.refusal().hosts.iter().map(|(_, why)| *why).collect();
        assert_eq!(why, [Excluded::FromHost, Excluded::Tried, Excluded::Tried]);
    }
}

// rule: failover-tried
#[test]
fn from_host_inside_tried_is_ignored() {
    let mut sim = farm(&[("a", 10.0), ("b", 10.0)]);
    let placed = sim.place(&failover("r1", "a", &["a", "b"], FailureCause::Busy));
    assert_eq!(placed.host(), "a");
}

// rule: failover-busy
#[test]
fn the_original_that_takes_no_new_sessions_is_not_served() {
    let mut sim = farm(&[("a", 10.0), ("b", 10.0)]);
    sim.drain("a", usher_types::DrainMode::Persistent, false);
    assert_eq!(sim.place(&failover("r1", "a", &[], FailureCause::Busy)).host(), "b");
}

// rule: failover-other
#[test]
fn neither_a_session_nor_a_place_sends_the_user_back_to_where_it_failed() {
    for cause in FAULTS.into_iter().chain([FailureCause::Busy]) {
        let mut sim = farm(&[("a", 100.0), ("b", 100.0)]);
        sim.report("b", users(50));
        assert_eq!(sim.place(&ask_for("r1", "u1")).host(), "a");
        let request = Request { user: Some("u1".into()), ..failover("r2", "a", &[], cause) };
        let placed = sim.place(&request);
        assert_eq!(placed.host(), "b", "{cause:?}: the place that failed is still in the book");
        sim.end("r1", EndReason::Failed);
        sim.end("r2", EndReason::Cancelled);
        sim.sessions("a", &[session("1", "u1", SessionState::Active, 60)]);
        let request = Request { user: Some("u1".into()), ..failover("r3", "a", &[], cause) };
        assert_eq!(sim.place(&request).host(), "b", "{cause:?}: a session there");
    }
}
