use usher_types::{Endpoint, GatewayId, PoolName, RequestId, SessionState};

use super::*;

fn at(seconds: u64) -> BootTime {
    BootTime::from_millis(1_000_000 + seconds * 1000)
}

fn token(request: &str) -> Token {
    Token { gateway: GatewayId::new("g1").unwrap(), request_id: RequestId::new(request).unwrap() }
}

fn place(request: &str, user: Option<&str>, cost: u32) -> PendingPlace {
    PendingPlace {
        token: token(request),
        attempt: 1,
        content_hash: 7,
        pool: PoolName::new("desk").unwrap(),
        endpoint: Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 },
        user: user.map(str::to_owned),
        cost,
        counted_users: cost,
        left: Duration::from_secs(120),
        connected: false,
        admitted: false,
    }
}

fn session(id: &str, user: &str, age_s: u64) -> Session {
    let age = Some(Duration::from_secs(age_s));
    Session { id: id.into(), user: user.into(), state: SessionState::Active, age }
}

fn listed(sessions: &[Session]) -> Occupancy {
    Occupancy::Listed(sessions.to_vec())
}

fn users(limit: u32) -> Limits {
    Limits { max_users: Some(limit), max_pending: None }
}

fn told(book: &mut HostBook, place: &PendingPlace, now: BootTime) {
    book.expect(place, false, Limits::default(), HeldBack::default(), true, now).unwrap();
}

fn live(book: &HostBook) -> Vec<String> {
    book.pending(at(0)).into_iter().map(|place| place.token.request_id.to_string()).collect()
}

// rule: never-over-limit
#[test]
fn users_places_and_the_new_one_stay_within_the_limit() {
    let mut book = HostBook::new();
    book.observe(Occupancy::Counted(48), at(0));
    for n in 0..2 {
        book.expect(&place(&format!("R{n}"), None, 1), true, users(50), HeldBack::default(), true, at(0))
            .unwrap();
    }
    let refused = book.expect(&place("R9", None, 1), true, users(50), HeldBack::default(), true, at(0));
    assert_eq!(refused, Err(RefusalReason::MaxUsers));
    assert_eq!((book.users(), book.pending_users()), (Some(48), 2));
}

#[test]
fn users_that_are_not_known_never_fit_a_limit() {
    let mut book = HostBook::new();
    assert_eq!(
        book.expect(&place("R1", None, 1), true, users(50), HeldBack::default(), true, at(0)),
        Err(RefusalReason::MaxUsers)
    );
    assert_eq!(
        book.expect(&place("R1", None, 1), true, Limits::default(), HeldBack::default(), true, at(0)),
        Ok(())
    );
}

#[test]
fn case_112_the_same_place_again_counts_once_and_keeps_its_time() {
    let mut book = HostBook::new();
    told(&mut book, &place("R7", Some("u1"), 1), at(0));
    told(&mut book, &place("R7", Some("u1"), 1), at(50));
    assert_eq!(book.pending_users(), 1);
    assert_eq!(book.next_expiry(), Some(at(120)));
}

// rule: life-session
#[test]
fn case_110_a_session_ends_the_place_of_its_own_user() {
    let mut book = HostBook::new();
    told(&mut book, &place("r1", Some("u1"), 8), at(0));
    told(&mut book, &place("r2", Some("u2"), 1), at(1));
    book.observe(listed(&[session("1", "u2", 0)]), at(3));
    assert_eq!((live(&book), book.pending_users()), (vec!["r1".to_owned()], 8));
}

// rule: life-session
#[test]
fn one_new_session_ends_one_place_its_users_oldest_else_the_oldest_without_a_name() {
    let mut book = HostBook::new();
    for (n, user) in [None, Some("u1"), Some("CORP\\U1"), None].into_iter().enumerate() {
        told(&mut book, &place(&format!("r{n}"), user, 1), at(n as u64));
    }
    book.observe(listed(&[]), at(5));
    book.observe(listed(&[session("1", "u1", 0)]), at(6));
    assert_eq!(live(&book), ["r0", "r2", "r3"]);
    book.observe(listed(&[session("1", "u1", 1), session("2", "stranger", 0)]), at(7));
    assert_eq!(live(&book), ["r2", "r3"]);
    // The same list again ends nothing more.
    book.observe(listed(&[session("1", "u1", 2), session("2", "stranger", 1)]), at(8));
    assert_eq!(live(&book), ["r2", "r3"]);
}

#[test]
fn a_session_of_another_user_ends_no_named_place() {
    let mut book = HostBook::new();
    told(&mut book, &place("r1", Some("u1"), 1), at(0));
    book.observe(listed(&[session("1", "u2", 0)]), at(3));
    assert_eq!(live(&book), ["r1"]);
}

#[test]
fn a_login_may_be_quicker_than_the_message_about_its_place() {
    let mut book = HostBook::new();
    book.observe(listed(&[]), at(0));
    book.observe(listed(&[session("1", "u1", 0)]), at(5));
    told(&mut book, &place("r1", Some("u1"), 1), at(12));
    assert!(live(&book).is_empty());
    assert_eq!(book.ended(at(12))[0].reason, EndReason::Session);
    // It ended one place; a second login of the user is still to come.
    told(&mut book, &place("r2", Some("u1"), 1), at(13));
    assert_eq!(live(&book), ["r2"]);
}

#[test]
fn an_old_session_ends_nothing() {
    let mut book = HostBook::new();
    told(&mut book, &place("r1", Some("u1"), 1), at(0));
    let mut ageless = session("2", "u1", 0);
    ageless.age = None;
    book.observe(listed(&[session("1", "u1", 3600), ageless]), at(1));
    assert_eq!(live(&book), ["r1"]);
}

#[test]
fn a_user_who_is_here_already_adds_nothing_unless_the_account_is_shared() {
    let mut book = HostBook::new();
    book.set_users_rule(Naming::default(), &["kiosk".to_owned()]);
    let sessions = [session("1", "alice", 90), session("2", "kiosk", 90), session("3", "kiosk", 90)];
    book.observe(listed(&sessions), at(0));
    assert_eq!(book.users(), Some(3));
    told(&mut book, &place("r1", Some("ALICE"), 5), at(0));
    told(&mut book, &place("r2", Some("kiosk"), 1), at(0));
    assert_eq!(book.pending_users(), 1);
    book.expect(&place("r3", Some("alice"), 1), true, users(4), HeldBack::default(), true, at(0)).unwrap();
}

#[test]
fn case_028_three_terminals_of_one_user_are_one_user() {
    let mut book = HostBook::new();
    let sessions = [session("1", "alice", 9), session("2", "alice", 9), session("3", "Alice", 9)];
    book.observe(listed(&sessions), at(0));
    assert_eq!((book.users(), book.sessions().unwrap().active), (Some(1), 3));
}

// rule: life-ttl
// rule: life-outcome
#[test]
fn case_109_a_place_that_nobody_takes_ends_by_itself() {
    let mut book = HostBook::new();
    told(&mut book, &place("r1", Some("u1"), 1), at(0));
    assert!(book.connected(&token("r1")));
    assert!(!book.expire(at(119)));
    assert!(book.expire(at(120)));
    assert_eq!(book.ended(at(121))[0].reason, EndReason::Expired);
    book.expire(at(181));
    assert!(book.ended(at(181)).is_empty());
}

#[test]
fn a_place_that_ended_is_not_brought_back_by_an_old_message() {
    let mut book = HostBook::new();
    told(&mut book, &place("r1", Some("u1"), 1), at(0));
    book.end(&token("r1"), 1, EndReason::Cancelled, at(1));
    assert_eq!(
        book.expect(&place("r1", Some("u1"), 1), false, Limits::default(), HeldBack::default(), true, at(2)),
        Err(RefusalReason::Ended)
    );
    let again = PendingPlace { attempt: 2, ..place("r1", Some("u1"), 1) };
    told(&mut book, &again, at(3));
    assert!(!book.end(&token("r1"), 1, EndReason::Cancelled, at(4)), "a late cancel of the first attempt");
    assert_eq!(live(&book), ["r1"]);
}

// rule: life-listed
#[test]
fn the_book_outlives_its_agent() {
    let mut book = HostBook::new();
    book.observe(Occupancy::Counted(1), at(0));
    told(&mut book, &place("r1", Some("u1"), 2), at(0));
    told(&mut book, &place("r2", None, 1), at(0));
    book.end(&token("r2"), 1, EndReason::Failed, at(1));
    let json = serde_json::to_string(&book.record()).unwrap();
    let mut again = HostBook::restored(serde_json::from_str(&json).unwrap());
    assert_eq!((live(&again), again.pending_users(), again.users()), (vec!["r1".to_owned()], 2, None));
    assert_eq!(again.ended(at(2))[0].reason, EndReason::Failed);
    // A session that came while the agent was away is known by its age.
    again.observe(listed(&[session("1", "u1", 5)]), at(20));
    assert!(live(&again).is_empty());
}

#[test]
fn a_full_book_refuses_rather_than_grows() {
    let mut book = HostBook::new();
    for n in 0..MAX_PLACES {
        told(&mut book, &place(&format!("r{n}"), None, 1), at(0));
    }
    let refused =
        book.expect(&place("more", None, 1), false, Limits::default(), HeldBack::default(), true, at(0));
    assert_eq!(refused, Err(RefusalReason::ListFull));
}

// rule: life-session
// rule: life-listed
#[test]
fn a_session_that_ended_its_place_ends_no_other_one_after_a_restart() {
    let mut book = HostBook::new();
    book.observe(listed(&[]), at(0));
    told(&mut book, &place("r1", Some("u1"), 1), at(1));
    book.observe(listed(&[session("1", "u1", 0)]), at(3));
    assert!(live(&book).is_empty());
    told(&mut book, &place("r2", Some("u1"), 1), at(5));
    let mut again = HostBook::restored(book.record());
    again.observe(listed(&[session("1", "u1", 4)]), at(7));
    assert_eq!(live(&again), ["r2"]);
    again.observe(listed(&[session("1", "u1", 5), session("2", "u1", 0)]), at(8));
    assert!(live(&again).is_empty());
}

#[test]
fn a_session_that_waits_for_its_place_still_does_after_a_restart() {
    let mut book = HostBook::new();
    book.observe(listed(&[]), at(0));
    book.observe(listed(&[session("1", "u1", 0)]), at(3));
    let mut again = HostBook::restored(book.record());
    again.observe(listed(&[session("1", "u1", 2)]), at(5));
    told(&mut again, &place("r1", Some("u1"), 1), at(6));
    assert!(live(&again).is_empty());
}

#[test]
fn ends_are_handed_over_once_with_what_they_prove() {
    let mut book = HostBook::new();
    book.observe(listed(&[]), at(0));
    told(&mut book, &place("r1", Some("u1"), 1), at(1));
    told(&mut book, &place("r2", Some("u2"), 1), at(2));
    book.observe(listed(&[session("7", "u1", 1)]), at(4));
    book.expire(at(200));
    let ends = book.take_finished();
    assert_eq!(ends[0].session, Some(("7".to_owned(), at(3))));
    assert_eq!((ends[1].reason, ends[1].came, ends[1].session.clone()), (EndReason::Expired, at(2), None));
    assert!(book.take_finished().is_empty());
}

// rule: life-session
#[test]
fn a_place_that_is_told_late_is_as_old_as_the_time_it_has_left_says() {
    let mut book = HostBook::new();
    book.observe(listed(&[]), at(0));
    // They came while their coordinator had no stream to here; the second was there long before its place was given.
    let sessions = |age_s| [session("1", "u1", age_s), session("2", "u2", age_s + 20)];
    book.observe(listed(&sessions(0)), at(20));
    book.observe(listed(&sessions(40)), at(60));
    let late = |request: &str, user: &str| {
        let left = Duration::from_secs(80);
        PendingPlace { left, ..place(request, Some(user), 1) }
    };
    told(&mut book, &late("r1", "u1"), at(60));
    told(&mut book, &late("r2", "u2"), at(60));
    assert_eq!(live(&book), ["r2"], "given at 20 s: the session of before 10 s is another login");
    // A session that is seen for the first time, and began before the place was told but after it was given.
    book.observe(listed(&[session("3", "u2", 55)]), at(78));
    assert!(live(&book).is_empty());
}

// rule: life-session
#[test]
fn a_session_that_ended_its_place_ends_none_that_is_told_late_after_a_restart_either() {
    let mut book = HostBook::new();
    book.observe(listed(&[]), at(0));
    told(&mut book, &place("r1", Some("u1"), 1), at(1));
    book.observe(listed(&[session("1", "u1", 0)]), at(3));
    book.observe(listed(&[session("1", "u1", 57)]), at(60));
    let mut again = HostBook::restored(book.record());
    again.observe(listed(&[session("1", "u1", 58)]), at(61));
    let late = PendingPlace { left: Duration::from_secs(60), ..place("r2", Some("u1"), 1) };
    told(&mut again, &late, at(62));
    assert_eq!(live(&again), ["r2"]);
}

// rule: retry-reused
#[test]
fn a_token_names_one_request_and_the_place_that_was_there_first_stays() {
    let mut book = HostBook::new();
    book.observe(Occupancy::Counted(0), at(0));
    told(&mut book, &place("r1", Some("u1"), 1), at(0));
    let other = |attempt| PendingPlace { content_hash: 8, attempt, ..place("r1", Some("u2"), 1) };
    let expect = |book: &mut HostBook, place: &PendingPlace, ask| {
        book.expect(place, ask, users(4), HeldBack::default(), true, at(1))
    };
    assert_eq!(expect(&mut book, &other(1), true), Err(RefusalReason::Reused));
    assert_eq!(expect(&mut book, &other(2), true), Err(RefusalReason::Reused), "whatever its attempt");
    assert_eq!(expect(&mut book, &other(1), false), Err(RefusalReason::Reused));
    assert_eq!(book.pending(at(1))[0].content_hash, 7);
    // Told under a higher attempt it was given by somebody who could not know: two places never stand under one token.
    assert_eq!(expect(&mut book, &other(2), false), Ok(()));
    assert_eq!((book.len(), book.pending(at(1))[0].content_hash), (1, 8));
    assert_eq!((book.ended(at(1))[0].reason, book.ended(at(1))[0].content_hash), (EndReason::Superseded, 7));
    // An end is remembered as that of one request.
    book.end(&token("r1"), 2, EndReason::Cancelled, at(2));
    assert_eq!(expect(&mut book, &other(2), true), Err(RefusalReason::Ended), "an echo");
    assert_eq!(expect(&mut book, &place("r1", Some("u1"), 1), true), Err(RefusalReason::Reused));
}

// rule: held-back
#[test]
fn what_is_held_back_is_not_given_but_to_those_who_take_nothing() {
    let mut book = HostBook::new();
    book.observe(listed(&[session("1", "u1", 900)]), at(0));
    let held = HeldBack { users: 2, places: 2 };
    let mut ask = |request: &str, user: &str, limits| {
        book.expect(&place(request, Some(user), 1), true, limits, held, true, at(0))
    };
    assert_eq!(ask("r1", "u2", users(4)), Ok(()));
    assert_eq!(ask("r2", "u3", users(4)), Err(RefusalReason::MaxUsers));
    assert_eq!(ask("r3", "u1", users(2)), Ok(()), "the user is here");
    let logons = |most| Limits { max_users: None, max_pending: Some(most) };
    assert_eq!(ask("r4", "u4", logons(4)), Err(RefusalReason::MaxPending));
    assert_eq!(ask("r4", "u4", logons(5)), Ok(()));
}
