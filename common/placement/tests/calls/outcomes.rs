//! What gateways say became of their logins, and the places that failovers give up.

use std::time::Duration;

use usher_placement::{
    decision::{Failover, OutcomeReport, PlacementReason, Reported, Request, report_outcome},
    reservation::GrantState,
};
use usher_types::{EndReason, FailureCause, GatewayId, Outcome, PolicyChange, Token};

use crate::support::{World, failover, host_of, of_user, request, token, words};

fn world() -> World {
    World::new(&PolicyChange::default(), &[("a", 1), ("b", 50)])
}

fn told(world: &World, request_id: &str, outcome: Outcome, cause: Option<FailureCause>) -> Reported {
    let report = OutcomeReport { token: token(request_id), outcome, cause };
    report_outcome(&world.ledger, &report, world.now)
}

fn state(world: &World, request_id: &str) -> GrantState {
    world.grant(request_id).state()
}

// rule: life-outcome
#[test]
fn connected_ends_nothing() {
    let mut world = world();
    world.placed(request("r1"));
    let reported = told(&world, "r1", Outcome::Connected, None);
    assert!(reported.known);
    assert_eq!(words(&reported.messages), ["a Connected r1"]);
    assert_eq!(state(&world, "r1"), GrantState::Live);
    assert!(world.grant("r1").is_connected());
}

// rule: life-outcome
#[test]
fn the_other_outcomes_end_the_place_and_its_host_hears_why() {
    for (outcome, reason, messages) in [
        (Outcome::Failed, EndReason::Failed, &["a Failed r1", "a end r1/1 Failed"][..]),
        (Outcome::Cancelled, EndReason::Cancelled, &["a end r1/1 Cancelled"]),
        (Outcome::Ended, EndReason::Session, &["a Ended r1", "a end r1/1 Session"]),
    ] {
        let mut world = world();
        world.placed(request("r1"));
        let reported = told(&world, "r1", outcome, None);
        assert!(reported.known);
        assert_eq!(words(&reported.messages), messages);
        assert_eq!(state(&world, "r1"), GrantState::Ended(reason));
        assert_eq!(world.cell("a").places(), 0);
    }
}

#[test]
fn an_outcome_of_nobodys_login_is_not_known() {
    let mut world = world();
    assert_eq!(told(&world, "r1", Outcome::Failed, None), Reported { known: false, messages: Vec::new() });
    world.placed(request("r1"));
    told(&world, "r1", Outcome::Cancelled, None);
    let again = told(&world, "r1", Outcome::Failed, None);
    assert_eq!(again, Reported { known: false, messages: Vec::new() }, "it was given up before");
}

#[test]
fn what_is_said_of_a_session_that_came_reaches_its_host() {
    let mut world = world();
    world.placed(request("r1"));
    world.grant("r1").end(EndReason::Session, world.now);
    for (outcome, word) in [
        (Outcome::Connected, "a Connected r1"),
        (Outcome::Failed, "a Failed r1"),
        (Outcome::Ended, "a Ended r1"),
    ] {
        let reported = told(&world, "r1", outcome, None);
        assert!(reported.known);
        assert_eq!(words(&reported.messages), [word]);
    }
}

#[test]
fn a_failure_carries_whether_its_gateway_had_a_success_elsewhere_within_a_minute() {
    let mut world = world();
    world.placed(request("r1"));
    world.placed(Request { exclude: vec!["a".into()], ..request("r2") });
    told(&world, "r2", Outcome::Connected, None);
    world.advance(Duration::from_secs(3));
    let failed = told(&world, "r1", Outcome::Failed, Some(FailureCause::Refused));
    assert_eq!(words(&failed.messages)[0], "a Failed r1 elsewhere");

    let mut world = self::world();
    world.placed(request("r1"));
    world.placed(request("r2"));
    told(&world, "r2", Outcome::Connected, None);
    let failed = told(&world, "r1", Outcome::Failed, None);
    assert_eq!(words(&failed.messages)[0], "a Failed r1", "on the same host");
}

// rule: failover-cancels
// rule: failover-outcome
#[test]
fn an_unreachable_host_is_told_so_and_the_failed_place_ends() {
    for (cause, messages) in [
        (FailureCause::Unreachable, &["a Failed r1", "a end r1/1 Failed", "b expect r2"][..]),
        (FailureCause::Refused, &["a Failed r1", "a end r1/1 Failed", "b expect r2"]),
        (FailureCause::Busy, &["a end r1/1 Cancelled", "b expect r2"]),
        (FailureCause::Auth, &["a end r1/1 Cancelled", "b expect r2"]),
        (FailureCause::Other, &["a end r1/1 Cancelled", "b expect r2"]),
    ] {
        let mut world = world();
        world.placed(request("r1"));
        let (answer, told) = world.place(failover("r2", "a", Some("r1"), cause));
        let placed = answer.result.unwrap();
        assert_eq!(host_of(&placed), "b");
        assert_eq!(words(&told), messages);
        let redirect = answer.record.unwrap().redirect.unwrap();
        assert_eq!(redirect.host_id.as_str(), "a");
        assert_eq!(world.ledger.live(), 1);
    }
}

// rule: failover-cancels
#[test]
fn a_failover_without_a_named_request_ends_the_users_places_on_the_hosts_that_failed() {
    let mut world = world();
    world.placed(of_user("r1", "alice"));
    world.placed(of_user("r2", "bob"));
    let again =
        Request { user: Some("Alice".into()), ..failover("r3", "a", None, FailureCause::Unreachable) };
    let (_, told) = world.place(again.clone());
    assert_eq!(words(&told), ["a Failed r1", "a end r1/1 Failed", "b expect r3"]);
    assert_eq!(state(&world, "r2"), GrantState::Live);

    // A retry of the failover repeats its answer; it does not give up the place that it gave.
    let (answer, told) = world.place(again);
    assert!(answer.result.unwrap().is_repeat);
    assert_eq!(words(&told), ["b expect r3"]);
}

// rule: failover-outcome
#[test]
fn one_failed_login_is_one_failure_however_often_a_failover_says_so() {
    let mut world = World::new(&PolicyChange::default(), &[("a", 1)]);
    world.placed(of_user("r1", "alice"));
    told(&world, "r1", Outcome::Failed, Some(FailureCause::Unreachable));
    let again =
        Request { user: Some("alice".into()), ..failover("r2", "a", None, FailureCause::Unreachable) };
    for _ in 0..2 {
        let (answer, told) = world.place(again.clone());
        assert!(answer.result.is_err(), "nobody else is there");
        assert_eq!(words(&told), ["a Failed r1"], "told under the name of the login that failed");
    }
}

// rule: failover-outcome
#[test]
fn no_gateway_reports_a_failure_in_the_name_of_another() {
    let mut world = world();
    let other = GatewayId::new("g2").unwrap();
    let of_other = |id| Token { gateway: other.clone(), ..token(id) };
    world.placed(Request { token: of_other("r1"), ..of_user("r1", "alice") });
    let failed =
        Request { user: Some("alice".into()), ..failover("r2", "a", None, FailureCause::Unreachable) };
    let (_, told) = world.place(failed);
    assert_eq!(words(&told), ["a Failed r2", "a end r1/1 Failed", "b expect r2"]);
}

#[test]
fn places_on_hosts_tried_before_end_without_a_second_failure() {
    let mut world = World::new(&PolicyChange::default(), &[("a", 1), ("b", 2), ("c", 50)]);
    world.placed(of_user("r1", "alice"));
    let mut failed =
        Request { user: Some("alice".into()), ..failover("r2", "b", None, FailureCause::Refused) };
    failed.failover = failed.failover.map(|failover| Failover { tried: vec!["a".into()], ..failover });
    let (answer, told) = world.place(failed);
    assert_eq!(host_of(&answer.result.unwrap()), "c");
    assert_eq!(words(&told), ["b Failed r2", "a end r1/1 Cancelled", "c expect r2"]);
}

#[test]
fn a_shared_account_loses_no_place_of_others() {
    let change = PolicyChange { shared_accounts: Some(vec!["kiosk".into()]), ..PolicyChange::default() };
    let mut world = World::new(&change, &[("a", 1), ("b", 50)]);
    world.placed(of_user("r1", "kiosk"));
    let failed = Request { user: Some("kiosk".into()), ..failover("r2", "a", None, FailureCause::Busy) };
    let placed = world.placed(failed);
    assert_eq!((host_of(&placed).as_str(), placed.reason), ("b", PlacementReason::LowestLoad));
    assert_eq!(state(&world, "r1"), GrantState::Live);
}
