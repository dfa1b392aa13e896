use usher_types::{RequestId, ToldOutcome};

use super::*;

fn at(seconds: u64) -> BootTime {
    BootTime::from_millis(1_000_000 + seconds * 1000)
}

fn gateway(name: &str) -> GatewayId {
    GatewayId::new(name).unwrap()
}

fn told(gateway_name: &str, request: &str, outcome: Outcome) -> ToldOutcome {
    ToldOutcome {
        token: Token { gateway: gateway(gateway_name), request_id: RequestId::new(request).unwrap() },
        outcome,
        cause: None,
        age: Duration::ZERO,
        succeeded_elsewhere: false,
    }
}

fn failed(gateway_name: &str, request: &str) -> ToldOutcome {
    ToldOutcome { cause: Some(FailureCause::Refused), ..told(gateway_name, request, Outcome::Failed) }
}

fn elsewhere(told: ToldOutcome) -> ToldOutcome {
    ToldOutcome { succeeded_elsewhere: true, ..told }
}

/// For whom, how long still (seconds) and the how manieth time.
fn held(penalties: &Penalties, now: u64) -> Vec<(Option<String>, u64, u32)> {
    let line = |p: Penalty| (p.gateway.map(|gateway| gateway.to_string()), p.left.as_secs(), p.times);
    penalties.report(at(now)).into_iter().map(line).collect()
}

/// Penalised for everyone at second 0, for 60 s.
fn penalised() -> Penalties {
    let mut penalties = Penalties::default();
    penalties.outcome(&failed("g1", "a"), at(0));
    penalties.outcome(&failed("g2", "b"), at(0));
    assert_eq!(held(&penalties, 0), [(None, 60, 1)]);
    penalties
}

fn expired(came: u64) -> Finished {
    Finished {
        gateway: gateway("g1"),
        reason: EndReason::Expired,
        came: at(came),
        connected: false,
        session: None,
    }
}

fn began(id: &str, came: u64) -> Finished {
    Finished { reason: EndReason::Session, session: Some((id.into(), at(came))), ..expired(came) }
}

fn session(id: &str, state: SessionState) -> Session {
    Session { id: id.into(), user: "alice".into(), state, age: None }
}

// rule: penalty-elsewhere
#[test]
fn case_107_two_refusals_of_a_gateway_that_succeeds_elsewhere_penalise_the_host() {
    let mut penalties = Penalties::default();
    penalties.outcome(&failed("g", "a"), at(0));
    assert!(held(&penalties, 0).is_empty(), "one failure proves nothing");
    penalties.outcome(&elsewhere(failed("g", "b")), at(29));
    assert_eq!(held(&penalties, 39), [(None, 50, 1)]);
}

// rule: penalty-two
#[test]
fn two_gateways_that_fail_together_penalise_the_host_and_apart_they_do_not() {
    let mut penalties = Penalties::default();
    penalties.outcome(&failed("g1", "a"), at(0));
    penalties.outcome(&failed("g2", "b"), at(31));
    assert!(held(&penalties, 31).is_empty());
    penalties.outcome(&failed("g1", "c"), at(61));
    assert_eq!(held(&penalties, 61), [(None, 60, 1)]);
}

// rule: penalty-own-gateway
#[test]
fn a_sick_gateway_makes_the_host_come_last_for_itself_only() {
    let mut penalties = Penalties::default();
    penalties.outcome(&failed("g1", "a"), at(0));
    penalties.outcome(&failed("g1", "b"), at(30));
    assert_eq!(held(&penalties, 30), [(Some("g1".into()), 60, 1)]);
    penalties.outcome(&failed("g1", "c"), at(35));
    assert_eq!(held(&penalties, 35).len(), 1, "the same trouble");
    // Another gateway fails too: it is the host after all.
    penalties.outcome(&failed("g2", "d"), at(40));
    assert_eq!(held(&penalties, 40), [(Some("g1".into()), 50, 1), (None, 60, 1)]);
}

// rule: penalty-one-at-a-time
// rule: penalty-clears
#[test]
fn a_gateway_on_one_logon_at_a_time_is_put_back_by_one_failure() {
    let mut penalties = Penalties::default();
    penalties.outcome(&failed("g1", "a"), at(0));
    penalties.outcome(&failed("g1", "b"), at(0));
    penalties.outcome(&failed("g1", "c"), at(61));
    assert_eq!(held(&penalties, 61), [(Some("g1".into()), 120, 2)]);
    penalties.outcome(&told("g2", "d", Outcome::Connected), at(62));
    assert_eq!(held(&penalties, 62).len(), 1, "another gateway's success says nothing of this one's way");
    penalties.outcome(&told("g1", "e", Outcome::Connected), at(63));
    assert!(held(&penalties, 63).is_empty());
}

// rule: penalty-blame
#[test]
fn what_is_not_the_hosts_fault_does_not_count() {
    let mut penalties = Penalties::default();
    for (number, cause) in [FailureCause::Auth, FailureCause::Busy].into_iter().enumerate() {
        for gateway in ["g1", "g2", "g3"] {
            let failed = ToldOutcome { cause: Some(cause), ..failed(gateway, &number.to_string()) };
            penalties.outcome(&elsewhere(failed), at(0));
        }
    }
    assert!(held(&penalties, 0).is_empty());
    assert_eq!(penalties.outcomes(at(0)).len(), 6, "it is listed all the same");
}

#[test]
fn a_failure_that_is_told_twice_counts_once() {
    let mut penalties = Penalties::default();
    assert!(penalties.outcome(&failed("g", "a"), at(0)));
    assert!(!penalties.outcome(&failed("g", "a"), at(1)));
    assert!(penalties.outcome(&elsewhere(failed("g", "a")), at(2)), "that it had a success elsewhere is new");
    assert!(held(&penalties, 2).is_empty());
    penalties.outcome(&failed("g", "b"), at(3));
    assert_eq!(held(&penalties, 3), [(None, 60, 1)]);
}

// rule: penalty-length
// rule: penalty-one-at-a-time
#[test]
fn the_penalty_doubles_up_to_a_quarter_of_an_hour() {
    let mut penalties = penalised();
    let mut now = 0;
    for (times, lasts) in [(2, 120), (3, 240), (4, 480), (5, 900), (6, 900)] {
        now += 900;
        assert_eq!(held(&penalties, now)[0].1, 0, "one logon at a time");
        penalties.outcome(&failed("g1", &times.to_string()), at(now));
        assert_eq!(held(&penalties, now), [(None, lasts, times)]);
    }
}

// rule: penalty-length
#[test]
fn failures_while_the_host_comes_last_make_nothing_longer() {
    let mut penalties = penalised();
    for second in 1..60 {
        penalties.outcome(&failed("g1", &second.to_string()), at(second));
    }
    assert_eq!(held(&penalties, 60), [(None, 0, 1)]);
}

// rule: penalty-clears
#[test]
fn a_success_clears_the_penalty_and_its_history() {
    let mut penalties = penalised();
    penalties.outcome(&told("g3", "c", Outcome::Connected), at(10));
    assert!(held(&penalties, 10).is_empty());
    penalties.outcome(&failed("g1", "d"), at(11));
    assert!(held(&penalties, 11).is_empty(), "one failure is one again");
    penalties.outcome(&failed("g2", "e"), at(12));
    assert_eq!(held(&penalties, 12), [(None, 60, 1)]);
}

// rule: penalty-clears
#[test]
fn a_session_that_lives_is_a_success_and_one_from_before_proves_nothing() {
    let mut penalties = penalised();
    penalties.finished(began("1", 5), at(5));
    let active = [session("1", SessionState::Active), session("0", SessionState::Active)];
    assert!(!penalties.sessions_seen(&active, at(14)));
    assert!(penalties.sessions_seen(&active, at(15)));
    assert!(held(&penalties, 15).is_empty());
    let mut penalties = Penalties::default();
    penalties.finished(began("0", 0), at(0));
    penalties.outcome(&failed("g1", "a"), at(5));
    penalties.outcome(&failed("g2", "b"), at(5));
    assert!(!penalties.sessions_seen(&active, at(10)), "it began before the failures");
    assert_eq!(held(&penalties, 10).len(), 1);
}

// rule: penalty-unconfirmed
#[test]
fn three_places_that_came_to_nothing_while_others_did_are_unconfirmed() {
    let mut penalties = Penalties::default();
    for came in [0, 10, 20] {
        assert!(!penalties.finished(expired(came), at(came + 120)));
    }
    assert!(
        !penalties.confirmed_elsewhere(Duration::from_secs(150), at(145)),
        "that was before the first of them"
    );
    assert!(penalties.confirmed_elsewhere(Duration::from_secs(100), at(145)));
    assert_eq!(penalties.report(at(145))[0].cause, PenaltyCause::Unconfirmed);
    assert_eq!(held(&penalties, 145), [(None, 60, 1)]);
}

// rule: penalty-unconfirmed
#[test]
fn while_nobody_comes_anywhere_no_host_is_to_blame() {
    let mut penalties = Penalties::default();
    for came in 0..100 {
        penalties.finished(expired(came), at(came + 120));
    }
    assert!(held(&penalties, 220).is_empty());
}

// rule: penalty-unconfirmed
#[test]
fn sessions_that_die_young_are_unconfirmed_and_one_that_lives_breaks_the_row() {
    let mut penalties = Penalties::default();
    penalties.confirmed_elsewhere(Duration::ZERO, at(100));
    let die = |penalties: &mut Penalties, id: &str, came: u64| {
        penalties.finished(began(id, came), at(came));
        penalties.sessions_seen(&[session(id, SessionState::Lingering)], at(came + 5))
    };
    assert!(!die(&mut penalties, "1", 0) && !die(&mut penalties, "2", 10));
    penalties.finished(began("3", 20), at(20));
    penalties.sessions_seen(&[session("3", SessionState::Active)], at(30));
    assert!(!die(&mut penalties, "4", 40) && !die(&mut penalties, "5", 50));
    assert!(die(&mut penalties, "6", 60));
}

// rule: penalty-unconfirmed
#[test]
fn places_of_which_a_gateway_told_something_are_not_unconfirmed() {
    let mut penalties = Penalties::default();
    for came in 0..3 {
        penalties.finished(Finished { connected: true, ..expired(came) }, at(came + 120));
        penalties.finished(Finished { reason: EndReason::Failed, ..expired(came) }, at(came + 1));
        penalties.finished(Finished { reason: EndReason::Cancelled, ..expired(came) }, at(came + 1));
    }
    assert!(!penalties.confirmed_elsewhere(Duration::ZERO, at(130)));
}

#[test]
fn an_unconfirmed_host_on_one_logon_at_a_time_is_put_back_by_one() {
    let mut penalties = Penalties::default();
    penalties.confirmed_elsewhere(Duration::ZERO, at(10));
    for came in 0..3 {
        penalties.finished(expired(came), at(10));
    }
    assert_eq!(held(&penalties, 10), [(None, 60, 1)]);
    assert!(!penalties.finished(expired(80), at(200)));
    assert!(penalties.confirmed_elsewhere(Duration::from_secs(5), at(200)));
    assert_eq!(held(&penalties, 200), [(None, 120, 2)]);
}

#[test]
fn penalties_of_many_gateways_are_bounded_and_everyones_stays() {
    let mut penalties = Penalties::default();
    for number in 0..300 {
        let name = format!("g{number}");
        let now = at(number * 31);
        penalties.outcome(&failed(&name, "a"), now);
        penalties.outcome(&failed(&name, "b"), now);
    }
    assert_eq!(held(&penalties, 0).len(), MAX_PENALTIES);
    penalties.outcome(&elsewhere(failed("g299", "c")), at(299 * 31 + 1));
    let held = held(&penalties, 0);
    assert_eq!((held.len(), held.iter().filter(|line| line.0.is_none()).count()), (MAX_PENALTIES, 1));
}
