//! The life of a place.

use usher_placement::{
    decision::Asked,
    decision::{Decision, RefusalKind, Request},
    farm::{Effect, Farm},
    host::{HeldBack, HostBook, Limits, Occupancy},
    reservation::{GrantState, Ledger, Retry},
};
use usher_types::{EndReason, Goodbye, Hello, HostState, Load, PendingPlace, PolicyChange, SessionState};

use crate::support::*;

fn state(sim: &Sim, request: &str) -> GrantState {
    sim.ledger.get(&token(request)).unwrap().state()
}

fn lists(count: u32, pending: &[PendingPlace]) -> Load {
    Load { pending: pending.to_vec(), ..users(count) }
}

// rule: life-ttl
#[test]
fn case_109_a_login_that_never_comes_gives_its_place_back_when_the_host_says_so() {
    let mut sim = Sim::of_users(&[("a", 0)]);
    sim.apply(PolicyChange {
        max_users: limit(5),
        reservation_ttl_ms: Some(60_000),
        ..PolicyChange::default()
    });
    let mut book = HostBook::new();
    book.observe(Occupancy::Counted(0), sim.now);
    for n in 0..5 {
        let grant = sim.place(&ask(&format!("r{n}"))).grant.unwrap();
        book.expect(
            &grant.to_place(sim.now).unwrap(),
            true,
            Limits { max_users: Some(5), ..Limits::default() },
            HeldBack::default(),
            true,
            sim.now,
        )
        .unwrap();
    }
    let mut accepted_after = None;
    for second in 1..=62u64 {
        sim.pass(1);
        if book.expire(sim.now) || second % 5 == 0 {
            sim.report("a", report_of(&book, sim.now));
        }
        let placed = sim.place(&Request { dry_run: true, ..ask("r6") });
        match &placed.decision {
            Decision::Refused(refusal) => assert_eq!(refusal.kind, RefusalKind::MaxUsers),
            _ => accepted_after = accepted_after.or(Some(second)),
        }
    }
    assert_eq!(accepted_after, Some(60));
    assert_eq!((sim.word("a").pending_users(), sim.word("a").places()), (0, 0));
}

// rule: life-session
// rule: life-over-count
#[test]
fn case_110_a_session_ends_the_place_of_its_user_and_users_come_in_the_same_step() {
    let mut sim = Sim::of_users(&[("a", 0)]);
    let mut book = HostBook::new();
    book.observe(Occupancy::Listed(Vec::new()), sim.now);
    for request in [Request { cost: 8, ..ask_for("r1", "u1") }, ask_for("r2", "u2")] {
        let grant = sim.place(&request).grant.unwrap();
        book.expect(
            &grant.to_place(sim.now).unwrap(),
            false,
            Limits::default(),
            HeldBack::default(),
            true,
            sim.now,
        )
        .unwrap();
    }
    assert_eq!(sim.word("a").pending_users(), 9);
    sim.pass(2);
    book.observe(Occupancy::Listed(vec![session("1", "U2", SessionState::Active, 1)]), sim.now);
    sim.report("a", report_of(&book, sim.now));
    let word = sim.word("a");
    assert_eq!((word.users(), word.pending_users(), word.places()), (Some(1), 8, 1));
    assert_eq!(state(&sim, "r2"), GrantState::Ended(EndReason::Session));
    assert_eq!(state(&sim, "r1"), GrantState::Live);
}

// rule: retry-repeats
#[test]
fn case_112_a_retry_is_answered_again_and_counts_once() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 9)]);
    let first = sim.place(&ask_for("R7", "u1"));
    for attempt in [2, 3] {
        sim.pass(2);
        sim.report("a", users(90));
        sim.report("b", users(0));
        let again = sim.place(&Request { attempt, ..ask_for("R7", "u1") });
        assert_eq!(again.host(), "a", "whatever the loads are now");
        assert_eq!(again.grant.unwrap().ends_at, first.grant.as_ref().unwrap().ends_at);
    }
    assert_eq!((sim.ledger.live(), sim.word("a").places()), (1, 1));
    assert_eq!(first.grant.unwrap().attempt(), 3);
    let other = ask_for("R7", "u2");
    let retry = sim.ledger.retry(&other.token, other.content_hash(), 1);
    assert!(matches!(retry, Retry::Reused), "another request under the same id");
}

// rule: life-ttl
#[test]
fn a_report_that_was_on_the_way_ends_nothing() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    sim.place(&ask("r1"));
    sim.report("a", users(1));
    assert_eq!(state(&sim, "r1"), GrantState::Live, "the host had not heard of it yet");
    sim.report("a", lists(1, &[listed("r1", None, 1, 120)]));
    sim.report("a", users(2));
    assert_eq!(state(&sim, "r1"), GrantState::Live, "the host has lost its book: the login may still come");
    assert_eq!((sim.word("a").users(), sim.word("a").pending_users()), (Some(2), 1));
}

#[test]
fn a_place_that_only_its_host_spoke_of_ends_when_it_speaks_of_it_no_more() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    sim.report("a", lists(1, &[listed("r1", None, 1, 120)]));
    assert_eq!((state(&sim, "r1"), sim.word("a").pending_users()), (GrantState::Live, 1));
    sim.report("a", users(2));
    assert_eq!(state(&sim, "r1"), GrantState::Ended(EndReason::Expired));
    assert_eq!((sim.word("a").users(), sim.word("a").pending_users()), (Some(2), 0));
}

// rule: life-ttl
#[test]
fn the_time_to_live_ends_a_place_only_with_a_report_from_after_it() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    sim.place(&ask("r1"));
    for _ in 0..24 {
        sim.pass(5);
        assert_eq!(state(&sim, "r1"), GrantState::Live);
        sim.report("a", users(1));
    }
    sim.pass(5);
    assert_eq!(state(&sim, "r1"), GrantState::Live, "nobody has said that it did not come");
    sim.report("a", lists(1, &[listed("r1", None, 1, 1)]));
    assert_eq!(state(&sim, "r1"), GrantState::Live, "the host counts the time");
    sim.report("a", users(1));
    assert_eq!(state(&sim, "r1"), GrantState::Ended(EndReason::Expired));
}

#[test]
fn the_host_decides_how_many_users_a_place_is() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    sim.place(&ask_for("r1", "u1"));
    for counted in [0, 7, 1] {
        let place = PendingPlace { counted_users: counted, ..listed("r1", Some("u1"), 1, 100) };
        sim.report("a", lists(1, &[place]));
        assert_eq!(sim.word("a").pending_users(), counted);
    }
    sim.end("r1", EndReason::Cancelled);
    assert_eq!((sim.word("a").pending_users(), sim.word("a").places()), (0, 0));
}

// rule: life-listed
#[test]
fn places_of_other_coordinators_count_and_end_as_their_host_lists_them() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 2)]);
    let theirs = PendingPlace { connected: true, ..listed("theirs", Some("u1"), 1, 60) };
    sim.report("a", lists(1, &[theirs]));
    assert_eq!((sim.word("a").pending_users(), sim.ledger.live()), (1, 1));
    assert!(sim.ledger.get(&token("theirs")).unwrap().is_connected());
    assert_eq!(sim.place(&ask_for("r1", "u1")).host(), "a", "their user is on the way there");
    sim.report("a", users(2));
    assert_eq!((sim.word("a").pending_users(), sim.ledger.live()), (0, 0));
}

// rule: retry-attempt
#[test]
fn of_one_token_on_two_hosts_the_lower_attempt_is_cancelled() {
    // Ours on a under attempt 1; another coordinator gave b under a higher, an equal, or a lower one.
    for (theirs, left_s, stays) in [(2, 10, "b"), (1, 10, "a"), (1, 120, "a"), (1, 500, "b")] {
        let mut sim = Sim::of_users(&[("a", 0), ("b", 9)]);
        assert_eq!(sim.place(&ask("r1")).host(), "a");
        let effects = sim.report("b", lists(9, &[listed("r1", None, theirs, left_s)]));
        let goes = if stays == "a" { "b" } else { "a" };
        let attempt = if stays == "a" { theirs } else { 1 };
        let reason = EndReason::Superseded;
        assert_eq!(effects, [Effect::EndPlace { host_id: id(goes), token: token("r1"), attempt, reason }]);
        assert_eq!((sim.word(stays).places(), sim.word(goes).places()), (1, 0), "attempt {theirs}");
        assert_eq!(sim.ledger.live(), 1);
        assert_eq!(sim.ledger.get(&token("r1")).unwrap().host_id, id(stays));
    }
}

#[test]
fn a_host_that_still_lists_what_has_ended_is_told_again() {
    let mut sim = Sim::of_users(&[("a", 0)]);
    sim.place(&ask("r1"));
    sim.report("a", lists(0, &[listed("r1", None, 1, 100)]));
    sim.end("r1", EndReason::Cancelled);
    for _ in 0..2 {
        let effects = sim.report("a", lists(0, &[listed("r1", None, 1, 90)]));
        let (attempt, reason) = (1, EndReason::Cancelled);
        assert_eq!(effects, [Effect::EndPlace { host_id: id("a"), token: token("r1"), attempt, reason }]);
        assert_eq!(sim.word("a").places(), 0, "and it is not counted meanwhile");
    }
}

// rule: life-session
#[test]
fn a_session_that_came_before_the_retry_was_heard_ends_the_place_all_the_same() {
    let mut sim = Sim::of_users(&[("a", 0)]);
    sim.place(&ask("r1"));
    sim.report("a", lists(0, &[listed("r1", None, 1, 100)]));
    sim.place(&Request { attempt: 2, ..ask("r1") });
    sim.report("a", Load { ended: vec![ended("r1", 1, EndReason::Session)], ..users(1) });
    assert_eq!(state(&sim, "r1"), GrantState::Ended(EndReason::Session));
}

#[test]
fn the_end_of_an_earlier_attempt_does_not_end_the_new_place() {
    let mut sim = Sim::of_users(&[("a", 0)]);
    sim.place(&ask("r1"));
    sim.end("r1", EndReason::Failed);
    let again = sim.place(&ask("r1")).grant.unwrap();
    assert_eq!(again.attempt(), 2, "hosts must not take it for an echo of the first");
    sim.report("a", Load { ended: vec![ended("r1", 1, EndReason::Failed)], ..users(0) });
    assert!(again.counts());
    assert_eq!(sim.word("a").places(), 1);
}

// Seen in chaos: a gateway asks a second coordinator while the first one is slow. The second finds the place on its host and
// answers it; then the first gives up and takes back what it had asked for.
#[test]
fn a_place_found_on_its_host_and_answered_here_outlives_the_coordinator_that_asked_for_it_first() {
    let mut sim = Sim::of_users(&[("a", 0), ("b", 9)]);
    sim.report("a", lists(0, &[listed("r1", None, 1, 100)]));
    let again = sim.place(&Request { attempt: 2, ..ask("r1") }).grant.unwrap();
    assert_eq!((again.host_id.clone(), again.attempt()), (id("a"), 2));
    // As a call does that answers it again.
    again.adopt();
    // The host has heard of that end, and not of the second attempt yet.
    sim.report("a", Load { ended: vec![ended("r1", 1, EndReason::Cancelled)], ..users(0) });
    sim.report("a", users(0));
    assert!(again.counts());
    assert_eq!(sim.report("a", lists(0, &[listed("r1", None, 2, 120)])), []);
    assert_eq!((sim.word("a").places(), sim.ledger.live()), (1, 1));
}

// rule: retry-repeats
#[test]
fn a_coordinator_that_restarted_answers_retries_from_the_hosts_lists() {
    let mut sim = Sim::of_users(&[]);
    let ledger = std::sync::Arc::new(Ledger::new());
    sim = Sim { farm: Farm::new(ledger.clone(), at(0)), ledger, ..sim };
    sim.attach("a");
    let load = Load {
        pending: vec![listed("r1", None, 1, 50)],
        ended: vec![ended("r2", 1, EndReason::Session), ended("r3", 4, EndReason::Failed)],
        ..users(1)
    };
    sim.report("a", load);
    let retry = |request: &str| sim.ledger.retry(&token(request), ask(request).content_hash(), 1);
    assert!(matches!(retry("r1"), Retry::Repeat(grant) if grant.host_id == id("a")));
    assert!(matches!(retry("r2"), Retry::Arrived(grant) if grant.host_id == id("a")));
    assert!(matches!(retry("r3"), Retry::New { attempt: 5 }));
    assert!(matches!(retry("r4"), Retry::New { attempt: 1 }));
    assert_eq!((sim.ledger.live(), sim.word("a").places()), (1, 1));
}

// rule: retry-remembered
#[test]
fn what_ended_is_remembered_for_a_minute() {
    let mut sim = Sim::of_users(&[("a", 0)]);
    sim.place(&ask("r1"));
    sim.end("r1", EndReason::Session);
    sim.pass(60);
    let retry = |sim: &Sim| sim.ledger.retry(&token("r1"), ask("r1").content_hash(), 1);
    assert!(matches!(retry(&sim), Retry::Arrived(_)));
    sim.pass(1);
    assert!(matches!(retry(&sim), Retry::New { attempt: 1 }));
}

// rule: life-offline
#[test]
fn a_host_that_went_offline_owes_nothing_when_it_comes_back() {
    let mut sim = Sim::of_users(&[("a", 0)]);
    sim.place(&ask("r1"));
    sim.report("a", lists(0, &[listed("r1", None, 1, 100)]));
    sim.pass(17);
    assert_eq!(
        (sim.state("a"), state(&sim, "r1")),
        (HostState::Offline, GrantState::Ended(EndReason::HostLost))
    );
    let effects = sim.report("a", lists(0, &[listed("r1", None, 1, 83)]));
    assert!(matches!(&effects[..], [Effect::EndPlace { reason: EndReason::HostLost, .. }]), "{effects:?}");
    assert_eq!(sim.word("a").places(), 0);
}

#[test]
fn a_place_that_was_decided_just_before_its_host_went_is_void_too() {
    let mut sim = Sim::of_users(&[("a", 0)]);
    let before = sim.farm.snapshot(sim.now);
    sim.farm.detach(&id("a"), 1, Some(Goodbye::HostShutdown), sim.now);
    sim.pass(1);
    let request = ask("r1");
    let asked = Asked { request: &request, unwilling: &[], doors: &[], now: at(0), seed: 1 };
    let late = place_in(&sim.ledger, || before.clone(), &asked);
    assert!(late.grant.as_ref().unwrap().counts());
    sim.pass(1);
    assert!(!late.grant.unwrap().counts());
    assert_eq!(sim.word("a").places(), 0);
}

#[test]
fn places_of_a_host_that_was_replaced_are_void() {
    let mut sim = Sim::new();
    let first = Hello { host_id: id("old"), ..hello("app") };
    sim.farm.attach(&first, Some("app"), false).unwrap();
    sim.farm.observe_load(&id("old"), users(1), &[], sim.now, 0);
    let before = sim.farm.snapshot(sim.now);
    sim.farm.detach(&id("old"), 1, None, sim.now);
    sim.pass(20);
    let request = ask("r1");
    let asked = Asked { request: &request, unwilling: &[], doors: &[], now: at(0), seed: 1 };
    let late = place_in(&sim.ledger, || before.clone(), &asked).grant.unwrap();
    sim.farm.attach(&Hello { host_id: id("new"), ..hello("app") }, Some("app"), false).unwrap();
    assert!(!late.counts());
}
