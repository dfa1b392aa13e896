//! Users who are on a host already, or on their way to one.

use usher_placement::decision::{Decision, Excluded, Request};
use usher_types::{Affinity, DrainMode, EndReason, PolicyChange, Session, SessionState, UserMatch};

use crate::support::*;

fn own_session(sim: &mut Sim, request: &Request) -> Option<(String, String, bool)> {
    let placed = sim.place(request);
    let host = placed.host().to_owned();
    match placed.decision {
        Decision::OwnSession { session, must_confirm, .. } => {
            assert!(placed.grant.is_none(), "no further place");
            Some((host, session.session_id.to_string(), must_confirm))
        }
        _ => None,
    }
}

// rule: own-session
// rule: user-match
#[test]
fn case_090_a_user_returns_to_their_session_whatever_the_load() {
    let mut sim = Sim::of_users(&[("a", 95), ("b", 5)]);
    sim.sessions("a", &[session("7", "u1", SessionState::Disconnected, 60)]);
    for spelled in ["u1", "U1", "CORP\\u1", "u1@example.org"] {
        let found = own_session(&mut sim, &ask_for(spelled, spelled));
        assert_eq!(found, Some(("a".into(), "7".into(), false)), "{spelled}");
    }
    assert_eq!(sim.ledger.live(), 0);
}

// rule: own-order
#[test]
fn disconnected_before_active_and_the_newest_first() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 1), ("c", 1)]);
    sim.sessions("a", &[session("old", "u1", SessionState::Disconnected, 600)]);
    sim.sessions("b", &[session("active", "u1", SessionState::Active, 5)]);
    sim.sessions("c", &[session("new", "u1", SessionState::Disconnected, 60)]);
    assert_eq!(own_session(&mut sim, &ask_for("r1", "u1")).unwrap().0, "c");
    let excluded = Request { exclude: vec!["c".into()], ..ask_for("r2", "u1") };
    assert_eq!(own_session(&mut sim, &excluded).unwrap().0, "a");
}

// rule: own-affinity
#[test]
fn which_sessions_count_is_the_pools_setting() {
    let states = [SessionState::Active, SessionState::Disconnected, SessionState::Lingering];
    for (affinity, counts) in [
        (Affinity::Session, [true, true, false]),
        (Affinity::Disconnected, [false, true, false]),
        (Affinity::Linger, [true, true, true]),
        (Affinity::None, [false, false, false]),
    ] {
        let mut sim = Sim::of_users(&[("a", 9), ("b", 1)]);
        sim.apply(PolicyChange { affinity: Some(affinity), ..PolicyChange::default() });
        for (state, counts) in states.into_iter().zip(counts) {
            sim.sessions("a", &[session("1", "u1", state, 60)]);
            let request = Request { dry_run: true, ..ask_for("r", "u1") };
            assert_eq!(own_session(&mut sim, &request).is_some(), counts, "{affinity:?} {state:?}");
        }
    }
}

// rule: own-pending
// rule: own-affinity none drops the pending way too
#[test]
fn a_pending_place_brings_the_user_back_unless_affinity_is_none() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 2)]);
    assert_eq!(sim.place(&ask_for("r1", "u1")).host(), "a");
    sim.report("a", users(50));
    let again = sim.place(&ask_for("r2", "U1"));
    assert!(matches!(again.decision, Decision::OwnPlace { .. }));
    assert_eq!((again.host(), sim.word("a").pending_users()), ("a", 1));
    sim.apply(PolicyChange { affinity: Some(Affinity::None), ..PolicyChange::default() });
    assert_eq!(sim.place(&ask_for("r3", "u1")).host(), "b");
    sim.end("r1", EndReason::Cancelled);
    sim.end("r3", EndReason::Cancelled);
    sim.apply(PolicyChange { affinity: Some(Affinity::Session), ..PolicyChange::default() });
    assert!(matches!(sim.place(&ask_for("r4", "u1")).decision, Decision::Take(_)));
}

// rule: user-match
#[test]
fn names_are_compared_by_the_pools_rule_also_after_it_changes() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 9)]);
    sim.sessions("b", &[session("1", "Alice", SessionState::Active, 60)]);
    sim.place(&ask_for("r1", "Bob"));
    sim.report("a", users(90));
    assert_eq!(sim.place(&Request { dry_run: true, ..ask_for("r2", "alice") }).host(), "b");
    assert_eq!(sim.place(&Request { dry_run: true, ..ask_for("r2", "bob") }).host(), "a");
    sim.apply(PolicyChange { user_match: Some(UserMatch::Exact), ..PolicyChange::default() });
    let is_own = |sim: &mut Sim, user: &str| {
        let placed = sim.place(&Request { dry_run: true, ..ask_for("r3", user) });
        !matches!(placed.decision, Decision::Take(_))
    };
    assert!(is_own(&mut sim, "Alice") && !is_own(&mut sim, "alice"));
    assert!(is_own(&mut sim, "Bob") && !is_own(&mut sim, "bob"));
}

// rule: own-person
#[test]
fn shared_accounts_and_services_have_no_host_of_their_own() {
    let mut sim = Sim::of_users(&[("a", 90), ("b", 5)]);
    let shared = Some(vec!["Kiosk".to_owned()]);
    sim.apply(PolicyChange { shared_accounts: shared, ..PolicyChange::default() });
    let of = |user: &str, count: usize| -> Vec<Session> {
        (0..count).map(|n| session(&n.to_string(), user, SessionState::Active, 60)).collect()
    };
    sim.sessions("a", &of("kiosk", 1));
    let placed = sim.place(&ask_for("r1", "kiosk"));
    assert_eq!((placed.host(), placed.choice().adds_users), ("b", 1));
    sim.sessions("a", &of("batch", 8));
    assert!(own_session(&mut sim, &ask_for("r2", "batch")).is_some());
    sim.sessions("a", &of("batch", 9));
    assert_eq!(sim.place(&ask_for("r3", "batch")).host(), "b", "nine sessions on one host are a service");
    // Neither a session elsewhere nor a place on its way holds a service.
    sim.sessions("b", &[session("x", "batch", SessionState::Disconnected, 60)]);
    sim.report("b", users(95));
    let placed = sim.place(&ask_for("r4", "batch"));
    assert!(matches!(placed.decision, Decision::Take(_)), "{:?}", placed.decision);
    assert_eq!(placed.host(), "a");
}

// rule: candidate-cost
#[test]
fn a_user_who_is_seen_adds_nothing_and_one_who_has_logged_out_does() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    sim.apply(PolicyChange { affinity: Some(Affinity::None), ..PolicyChange::default() });
    for (state, adds) in [(SessionState::Disconnected, 0), (SessionState::Lingering, 3)] {
        sim.sessions("a", &[session("1", "u1", state, 60)]);
        let request = Request { dry_run: true, cost: 3, ..ask_for("r1", "u1") };
        assert_eq!(sim.place(&request).choice().adds_users, adds, "{state:?}");
    }
}

// rule: own-confirm
// rule: own-no-reconnect
// rule: state-restricted
#[test]
fn case_088_reconnects_pass_a_drain_unless_it_says_no_reconnect() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 9)]);
    sim.sessions("a", &[session("1", "u1", SessionState::Active, 60)]);
    sim.drain("a", DrainMode::Persistent, false);
    let found = own_session(&mut sim, &ask_for("r1", "u1"));
    assert_eq!(
        found,
        Some(("a".into(), "1".into(), true)),
        "after asking whether the session is still there"
    );
    sim.drain("a", DrainMode::Persistent, true);
    assert_eq!(sim.place(&ask_for("r2", "u1")).host(), "b");
}

// rule: own-confirm
#[test]
fn a_full_host_is_asked_whether_the_session_is_still_there() {
    let mut sim = Sim::of_users(&[("a", 5), ("b", 9)]);
    sim.apply(PolicyChange { max_users: limit(5), ..PolicyChange::default() });
    sim.sessions("a", &[session("1", "u1", SessionState::Active, 60)]);
    assert!(own_session(&mut sim, &ask_for("r1", "u1")).unwrap().2);
    // It is gone: the host is not offered again within the call, and this one is refused for what it is.
    let placed = sim.decide(&ask_for("r2", "u1"), &[(id("a"), Excluded::RefusedConsent)]);
    assert!(matches!(placed.decision, Decision::Refused(_)), "{placed:?}");
}

// rule: own-no-reconnect
#[test]
fn sessions_on_hosts_that_are_gone_do_not_hold_their_user() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 9)]);
    sim.sessions("a", &[session("1", "u1", SessionState::Active, 60)]);
    sim.place(&ask_for("r1", "u2"));
    for _ in 0..4 {
        sim.pass(5);
        sim.report("b", users(9));
    }
    assert_eq!(sim.place(&ask_for("r2", "u1")).host(), "b");
    assert_eq!(sim.place(&ask_for("r3", "u2")).host(), "b");
}
