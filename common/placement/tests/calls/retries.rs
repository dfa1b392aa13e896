//! The same question again, under the same id.

use std::time::Duration;

use usher_placement::decision::{Consent, Denied, PlacementReason, RefusalKind, Request, Step};
use usher_types::{EndReason, Endpoint, Goodbye, Load, PendingPlace, PolicyChange, RefusalReason};

use crate::support::{World, host_id, host_of, limited, of_user, request, words};

fn plain() -> PolicyChange {
    PolicyChange::default()
}

// rule: retry-repeats
#[test]
fn a_retry_gets_the_same_place_and_its_host_learns_the_attempt() {
    let mut world = World::new(&plain(), &[("a", 1), ("b", 1)]);
    let first = world.placed(request("r1"));
    let (answer, told) = world.place(Request { attempt: 3, ..request("r1") });
    let again = answer.result.unwrap();
    assert!(again.is_repeat && answer.record.is_none());
    assert_eq!(host_of(&again), host_of(&first));
    assert_eq!(again.grant.as_ref().unwrap().token, first.grant.as_ref().unwrap().token);
    assert_eq!(again.decision_id, first.decision_id, "it explains the first");
    assert_eq!(again.grant.unwrap().attempt(), 3);
    assert_eq!(words(&told), [format!("{} expect r1", host_of(&first))]);
    assert_eq!(world.ledger.live(), 1);
}

// rule: retry-reused
#[test]
fn another_question_under_the_same_id_is_refused_and_ends_nothing() {
    let mut world = World::new(&plain(), &[("a", 1)]);
    world.placed(request("r1"));
    let (answer, told) = world.place(Request { cost: 2, ..request("r1") });
    assert_eq!(answer.result.unwrap_err(), Denied::Reused);
    assert!(told.is_empty());
    assert_eq!(world.ledger.live(), 1);
}

// rule: retry-ended
#[test]
fn a_retry_whose_session_came_names_its_host_without_a_place() {
    let mut world = World::new(&plain(), &[("a", 1), ("b", 1)]);
    let first = host_of(&world.placed(of_user("r1", "alice")));
    world.grant("r1").end(EndReason::Session, world.now);
    let (answer, told) = world.place(of_user("r1", "alice"));
    let again = answer.result.unwrap();
    assert_eq!((host_of(&again), again.reason), (first, PlacementReason::OwnSession));
    assert!(again.grant.is_none() && told.is_empty());
}

// rule: retry-ended
#[test]
fn a_retry_of_a_place_that_ended_otherwise_is_decided_anew_under_a_higher_attempt() {
    for reason in [EndReason::Cancelled, EndReason::Failed, EndReason::Expired, EndReason::HostLost] {
        let mut world = World::new(&plain(), &[("a", 1)]);
        world.placed(request("r1"));
        world.grant("r1").end(reason, world.now);
        let again = world.placed(request("r1"));
        assert!(!again.is_repeat);
        assert_eq!(again.grant.unwrap().attempt(), 2);
    }
}

// rule: retry-ended
#[test]
fn a_retry_whose_host_has_gone_is_decided_anew() {
    let mut world = World::new(&plain(), &[("a", 1), ("b", 9)]);
    assert_eq!(host_of(&world.placed(request("r1"))), "a");
    world.farm.detach(&host_id("a"), 1, Some(Goodbye::HostShutdown), world.now);
    world.publish();
    assert_eq!(host_of(&world.placed(request("r1"))), "b");
    assert_eq!(world.ledger.live(), 1);
}

#[test]
fn a_retry_waits_while_its_host_is_being_asked() {
    let mut world = World::new(&limited(10), &[("a", 1)]);
    let mut first = world.call(request("r1"), None);
    first.asked(&world);
    let mut retry = world.call(Request { attempt: 2, ..request("r1") }, None);
    assert!(matches!(retry.step(&world), Step::Wait(_)));
    first.call.consent(Consent::Admitted);
    assert!(first.done(&world).result.is_ok());
    world.advance(Duration::from_millis(5));
    assert!(retry.done(&world).result.unwrap().is_repeat);
    assert_eq!(world.ledger.live(), 1);
}

/// A farm whose hosts take two users; `a` lists a place of this request that another coordinator gave.
fn given_elsewhere() -> World {
    let mut world = World::new(&limited(2), &[("a", 1), ("b", 1)]);
    let place = PendingPlace {
        token: request("r1").token,
        attempt: 1,
        content_hash: request("r1").content_hash(),
        pool: request("r1").pool,
        endpoint: Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 },
        user: None,
        cost: 1,
        counted_users: 1,
        left: Duration::from_secs(100),
        connected: false,
        admitted: true,
    };
    let load = Load { users: Some(1), streams_held: 2, pending: vec![place], ..Load::default() };
    world.farm.observe_load(&host_id("a"), load, &[], world.now, 0);
    world.publish();
    world
}

// rule: retry-repeats
// rule: retry-asked
#[test]
fn a_retry_of_a_place_given_elsewhere_is_its_hosts_to_confirm() {
    let world = given_elsewhere();
    let mut retry = world.call(Request { attempt: 17, ..request("r1") }, None);
    let ask = retry.asked(&world);
    assert_eq!((ask.host_id.as_str(), ask.place.attempt), ("a", 17));
    retry.call.consent(Consent::Admitted);
    let again = retry.done(&world).result.unwrap();
    assert!(again.is_repeat && host_of(&again) == "a");
    assert_eq!(world.ledger.live(), 1);
    // From now on it is this coordinator's too, and nobody need be asked again.
    let mut third = world.call(Request { attempt: 33, ..request("r1") }, None);
    assert!(third.done(&world).result.unwrap().is_repeat);
}

// rule: retry-asked
#[test]
fn a_place_given_elsewhere_whose_seat_is_gone_is_decided_anew() {
    for said in [Some(Consent::Refused(RefusalReason::MaxUsers)), None] {
        let world = given_elsewhere();
        let mut retry = world.call(Request { attempt: 17, ..request("r1") }, None);
        retry.asked(&world);
        if let Some(said) = said {
            retry.call.consent(said);
        }
        let ask = retry.asked(&world);
        assert_eq!(ask.host_id.as_str(), "b", "{said:?}");
        assert!(ask.place.attempt > 17, "what its host may still have is an older one");
        retry.call.consent(Consent::Admitted);
        let placed = retry.done(&world).result.unwrap();
        assert!(!placed.is_repeat && host_of(&placed) == "b");
        assert_eq!(world.ledger.live(), 1);
    }
}

// rule: retry-asked
#[test]
fn a_place_that_was_taken_back_elsewhere_is_asked_for_again_of_the_same_host() {
    let world = given_elsewhere();
    let mut retry = world.call(request("r1"), None);
    assert_eq!(retry.asked(&world).host_id.as_str(), "a");
    retry.call.consent(Consent::Refused(RefusalReason::Ended));
    // Both hosts are alike: it is chance that chooses, and neither is passed over.
    let placed = loop {
        match retry.step(&world) {
            Step::Ask(ask) => {
                assert!(ask.place.attempt > 1);
                retry.call.consent(Consent::Admitted);
            }
            Step::Done(answer) => break answer.result.unwrap(),
            other => panic!("{other:?}"),
        }
    };
    assert!(!placed.is_repeat && placed.alternatives.len() == 1, "the other one is an alternative");
    assert_eq!(world.ledger.live(), 1);
}

// rule: retry-asked
#[test]
fn a_retry_whose_caller_goes_away_takes_back_what_its_host_may_have_given_it() {
    let world = given_elsewhere();
    let mut retry = world.call(Request { attempt: 17, ..request("r1") }, None);
    retry.asked(&world);
    assert_eq!(words(&retry.call.give_up(world.now)), ["a end r1/17 Cancelled"]);
    assert_eq!(world.ledger.live(), 0);
    // Not if it comes late: the place is that of a retry after it.
    for (attempt, later) in [(1, 1), (17, 33)] {
        let world = given_elsewhere();
        let mut late = world.call(Request { attempt, ..request("r1") }, None);
        late.asked(&world);
        world.grant("r1").raise_attempt(later);
        assert!(late.call.give_up(world.now).is_empty());
        assert_eq!(world.ledger.live(), 1);
    }
    // Not if another retry has its answer by then.
    let world = given_elsewhere();
    let mut gone = world.call(Request { attempt: 17, ..request("r1") }, None);
    gone.asked(&world);
    let mut other = world.call(Request { attempt: 17, ..request("r1") }, None);
    other.asked(&world);
    other.call.consent(Consent::Admitted);
    assert!(other.done(&world).result.unwrap().is_repeat);
    assert!(gone.call.give_up(world.now).is_empty());
    assert_eq!(world.ledger.live(), 1);
}

#[test]
fn a_place_given_elsewhere_that_ends_while_its_host_is_asked_is_looked_up_again() {
    let world = given_elsewhere();
    let mut retry = world.call(Request { attempt: 17, ..request("r1") }, None);
    retry.asked(&world);
    world.grant("r1").end(EndReason::Session, world.now);
    retry.call.consent(Consent::Admitted);
    let answer = retry.done(&world).result.unwrap();
    assert!(answer.is_repeat && answer.grant.is_none(), "its session has come");
}

#[test]
fn a_frozen_coordinator_repeats_what_it_said_and_decides_nothing() {
    let mut world = World::new(&plain(), &[("a", 1)]);
    world.placed(request("r1"));
    world.is_frozen = true;
    assert!(world.placed(request("r1")).is_repeat);
    let Err(Denied::Refused(refusal)) = world.place(request("r2")).0.result else { panic!("decided") };
    assert_eq!(refusal.kind, RefusalKind::Stale);
    let elsewhere = Request { pool: usher_types::PoolName::new("web").unwrap(), ..request("r3") };
    assert_eq!(world.place(elsewhere).0.result.unwrap_err(), Denied::UnknownPool);
}

// rule: explain-same
// rule: explain-reduced
#[test]
fn a_record_explains_the_decision_without_the_login_name() {
    let mut world = World::new(&plain(), &[("a", 1), ("b", 5)]);
    world.session("b", "alice");
    let (answer, _) = world.place(of_user("r1", "alice"));
    let record = answer.record.unwrap();
    assert_eq!(record.request.user, None);
    assert!(!format!("{:?}", (&record.request, &record.user)).contains("alice"));
    let explained = record.explain();
    assert_eq!(explained.explanation.decision.position(), Some(answer.result.unwrap().position));
    assert_eq!(explained.hosts.len(), explained.explanation.hosts.len());

    let (answer, _) = world.place(request("r2"));
    let (record, placed) = (answer.record.unwrap(), answer.result.unwrap());
    let explained = record.reduce();
    assert!(explained.explanation.is_reduced);
    assert_eq!(explained.hosts[0].0.as_str(), host_of(&placed), "the chosen one first");
    assert_eq!(explained.explanation.hosts[0].score, placed.score);
}
