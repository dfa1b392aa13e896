//! Hosts that give their places themselves, and sessions that are confirmed.

use std::time::Duration;

use usher_placement::decision::{Consent, Denied, PlacementReason, RefusalKind, Request, Step};
use usher_types::{PendingLimit, PendingMode, PolicyChange, RefusalReason, UserLimit};

use crate::support::{World, host_of, limited, of_user, request, words};

const FULL: Consent = Consent::Refused(RefusalReason::MaxUsers);

fn refusal(result: Result<usher_placement::decision::Placed, Denied>) -> RefusalKind {
    match result {
        Err(Denied::Refused(refusal)) => refusal.kind,
        other => panic!("not refused: {other:?}"),
    }
}

// rule: consent-asked
// rule: reserve-at-once
#[test]
fn a_host_with_a_limit_is_asked_with_it_and_others_are_told() {
    let mut world = World::new(&limited(10), &[("a", 1)]);
    let mut calling = world.call(request("r1"), None);
    let ask = calling.asked(&world);
    assert_eq!((ask.max_users, ask.max_pending), (UserLimit::Users(10), PendingLimit::Unlimited));
    assert_eq!(ask.within, Duration::from_millis(250));
    assert_eq!(world.cell("a").pending_users(), 1, "it counts before the host has answered");
    calling.call.consent(Consent::Admitted);
    let placed = calling.done(&world).result.unwrap();
    assert_eq!((host_of(&placed), placed.grant.is_some()), ("a".to_owned(), true));
    assert!(calling.told.is_empty(), "it was asked, so it knows");

    let mut unlimited = World::new(&PolicyChange::default(), &[("a", 1)]);
    let (answer, told) = unlimited.place(request("r1"));
    assert!(answer.result.is_ok());
    assert_eq!(words(&told), ["a expect r1"]);
    world.advance(Duration::from_secs(1));
}

// rule: consent-asked
#[test]
fn a_hard_limit_of_logons_in_progress_is_the_hosts_to_keep_too() {
    let change = PolicyChange {
        max_pending: Some(PendingLimit::Logons(4)),
        max_pending_mode: Some(PendingMode::Hard),
        ..PolicyChange::default()
    };
    let world = World::new(&change, &[("a", 1)]);
    let ask = world.call(request("r1"), None).asked(&world);
    assert_eq!((ask.max_users, ask.max_pending), (UserLimit::Unlimited, PendingLimit::Logons(4)));

    let soft = PolicyChange { max_pending_mode: Some(PendingMode::Soft), ..change };
    let mut world = World::new(&soft, &[("a", 1)]);
    assert_eq!(words(&world.place(request("r1")).1), ["a expect r1"]);
}

// rule: consent-refused
// rule: consent-late
#[test]
fn a_host_that_refuses_is_told_that_it_is_over_and_the_next_is_tried() {
    let world = World::new(&limited(10), &[("a", 1), ("b", 2)]);
    let mut calling = world.call(request("r1"), None);
    assert_eq!(calling.asked(&world).host_id.as_str(), "a");
    calling.call.consent(FULL);
    let ask = calling.asked(&world);
    assert_eq!(
        (ask.host_id.as_str(), ask.place.attempt),
        ("b", 2),
        "a late word of the first is no word for it"
    );
    assert_eq!(words(&calling.told), ["a end r1/1 Cancelled"]);
    calling.call.consent(Consent::Admitted);
    let answer = calling.done(&world);
    let record = answer.record.unwrap();
    let said: Vec<_> = record.consents.iter().map(|asked| (asked.host_name.as_str(), asked.said)).collect();
    assert_eq!(said, [("a", FULL), ("b", Consent::Admitted)]);
    assert_eq!((world.cell("a").places(), world.cell("b").places()), (0, 1));
    assert!(!world.is_silent("a"), "it has answered");
}

// rule: consent-bounds
// rule: error-no-consent
#[test]
fn three_refusals_or_one_second_of_asking_are_the_end() {
    let hosts = [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)];
    for (said, kind) in [
        (&[FULL, FULL, FULL][..], RefusalKind::NoConsentRefused),
        (&[FULL, Consent::Silent, FULL, FULL], RefusalKind::NoConsentRefused),
        (
            &[Consent::Silent, FULL, Consent::Silent, Consent::Silent, Consent::Silent],
            RefusalKind::NoConsentRefused,
        ),
        (&[Consent::Silent; 4], RefusalKind::NoConsentSilent),
    ] {
        let mut world = World::new(&limited(10), &hosts);
        let mut calling = world.call(request("r1"), None);
        for said in said {
            let ask = calling.asked(&world);
            let took = if *said == Consent::Silent { ask.within } else { Duration::ZERO };
            world.advance(took);
            calling.call.consent(*said);
        }
        let answer = calling.done(&world);
        let kept = answer.record.unwrap();
        assert_eq!(kept.answered.as_ref().unwrap_err(), &kind);
        let Err(Denied::Refused(refused)) = answer.result else { panic!("not refused") };
        assert_eq!((refused.kind, refused.hosts.len()), (kind, said.len()));
        assert!(refused.retry_after.is_some_and(|after| after <= Duration::from_secs(2)));
        assert_eq!(world.ledger.live(), 0);
    }
}

// rule: consent-bounds
#[test]
fn hosts_are_asked_for_one_second_together() {
    let hosts = [("a", 1), ("b", 2), ("c", 3)];
    let mut world = World::new(&limited(10), &hosts);
    let mut calling = world.call(request("r1"), None);
    calling.asked(&world);
    world.advance(Duration::from_millis(900));
    calling.call.consent(FULL);
    assert_eq!(calling.asked(&world).within, Duration::from_millis(100));
    world.advance(Duration::from_millis(100));
    calling.call.consent(Consent::Silent);
    assert_eq!(refusal(calling.done(&world).result), RefusalKind::NoConsentRefused);
    assert!(!world.is_silent("b"), "it was given less time than it may take");
}

#[test]
fn a_host_is_silent_only_if_it_had_all_the_time_that_it_may_take() {
    let mut world = World::new(&limited(10), &[("a", 1)]);
    let mut hasty = world.call(request("r1"), Some(Duration::from_millis(50)));
    assert_eq!(hasty.asked(&world).within, Duration::from_millis(50));
    world.advance(Duration::from_millis(50));
    assert_eq!(hasty.done(&world).result.unwrap_err(), Denied::DeadlinePassed);
    assert!(!world.is_silent("a"), "a hurried gateway must not spoil a host for the others");
    let mut patient = world.call(request("r2"), None);
    patient.asked(&world);
    world.advance(Duration::from_millis(250));
    assert_eq!(refusal(patient.done(&world).result), RefusalKind::NoConsentSilent);
    assert!(world.is_silent("a"));
    world.report("a", 1);
    assert!(!world.is_silent("a"));
}

#[test]
fn a_call_whose_deadline_has_passed_grants_nothing() {
    let mut world = World::new(&limited(10), &[("a", 1)]);
    let mut calling = world.call(request("r1"), Some(Duration::from_millis(100)));
    calling.asked(&world);
    world.advance(Duration::from_millis(100));
    calling.call.consent(Consent::Admitted);
    assert_eq!(calling.done(&world).result.unwrap_err(), Denied::DeadlinePassed);
    assert_eq!(words(&calling.told), ["a end r1/1 Cancelled"]);
    let mut late = world.call(request("r2"), Some(Duration::ZERO));
    assert_eq!(late.done(&world).result.unwrap_err(), Denied::DeadlinePassed);
    assert_eq!(world.ledger.live(), 0);
}

#[test]
fn a_caller_that_goes_away_leaves_no_place_behind() {
    let world = World::new(&limited(10), &[("a", 1)]);
    let mut calling = world.call(request("r1"), None);
    calling.asked(&world);
    assert_eq!(words(&calling.call.give_up(world.now)), ["a end r1/1 Cancelled"]);
    assert_eq!((world.ledger.live(), world.cell("a").places()), (0, 0));
    assert!(calling.call.give_up(world.now).is_empty());
}

#[test]
fn a_place_that_ended_while_its_host_was_asked_is_not_given() {
    let world = World::new(&limited(10), &[("a", 1), ("b", 2)]);
    let mut calling = world.call(request("r1"), None);
    calling.asked(&world);
    world.grant("r1").end(usher_types::EndReason::HostLost, world.now);
    calling.call.consent(Consent::Admitted);
    assert_eq!(calling.asked(&world).host_id.as_str(), "b");
}

// rule: own-pending
#[test]
fn a_second_login_of_a_user_waits_for_the_place_that_is_being_asked_for() {
    for admitted in [true, false] {
        let mut world = World::new(&limited(10), &[("a", 1)]);
        let mut first = world.call(of_user("r1", "alice"), None);
        first.asked(&world);
        let mut second = world.call(of_user("r2", "Alice"), None);
        assert!(matches!(second.step(&world), Step::Wait(_)), "nobody knows yet whether there is a place");
        first.call.consent(if admitted { Consent::Admitted } else { FULL });
        let first = first.done(&world).result;
        world.advance(Duration::from_millis(5));
        if admitted {
            let placed = second.done(&world).result.unwrap();
            assert_eq!((placed.reason, first.is_ok()), (PlacementReason::Pending, true));
            assert_eq!(placed.grant.unwrap().token, request("r1").token);
        } else {
            assert_eq!(refusal(first), RefusalKind::NoConsentRefused);
            second.asked(&world);
        }
    }
}

// rule: own-confirm
#[test]
fn a_full_host_is_asked_whether_the_session_is_still_there_and_silence_leaves_what_it_listed() {
    for (exists, returns) in [(Some(true), true), (None, true), (Some(false), false)] {
        let mut world = World::new(&limited(1), &[("a", 1), ("b", 0)]);
        world.session("a", "alice");
        let mut calling = world.call(of_user("r1", "alice"), None);
        let Step::Confirm(asked) = calling.step(&world) else { panic!("the session is not confirmed") };
        assert_eq!((asked.host_id.as_str(), &*asked.session_id, asked.user.as_str()), ("a", "7", "alice"));
        calling.call.confirmed(exists);
        if returns {
            let placed = calling.done(&world).result.unwrap();
            assert_eq!((host_of(&placed).as_str(), placed.reason), ("a", PlacementReason::OwnSession));
            assert!(placed.grant.is_none());
        } else {
            let ask = calling.asked(&world);
            assert_eq!(ask.host_id.as_str(), "b");
        }
        assert_eq!(world.cell("a").places(), 0);
    }
}

// rule: reserve-dry-run
#[test]
fn a_dry_run_asks_nobody_tells_nobody_and_takes_nothing() {
    let mut world = World::new(&limited(1), &[("a", 1), ("b", 0)]);
    world.session("a", "alice");
    for dry in [request("r1"), of_user("r2", "alice")] {
        let dry = Request { dry_run: true, ..dry };
        let mut calling = world.call(dry, None);
        let placed = calling.done(&world).result.unwrap();
        assert!(placed.grant.is_none() && calling.told.is_empty());
    }
    assert_eq!(world.ledger.live(), 0);
}

// rule: retry-reused
#[test]
fn a_host_that_owes_the_token_for_another_request_is_not_told_to_end_it() {
    let mut world = World::new(&limited(10), &[("a", 1), ("b", 2)]);
    let mut calling = world.call(request("r1"), None);
    let asked = calling.asked(&world);
    calling.call.consent(Consent::Refused(RefusalReason::Reused));
    let answer = calling.done(&world);
    assert_eq!(answer.result.unwrap_err(), Denied::Reused);
    assert!(calling.told.is_empty(), "{:?}", calling.told);
    assert_eq!(world.cell(asked.host_id.as_str()).places(), 0, "it counts no more");
    world.advance(Duration::from_secs(1));
}
