use std::time::Duration;

use usher_types::{Endpoint, GatewayId, RequestId, UserMatch};

use super::*;
use crate::{
    farm::{CellChange, HostCell},
    reservation::GrantParts,
};

fn at(seconds: u64) -> BootTime {
    BootTime::from_millis(1_000_000 + seconds * 1000)
}

fn token(request: &str) -> Token {
    Token { gateway: GatewayId::new("g1").unwrap(), request_id: RequestId::new(request).unwrap() }
}

fn desk() -> PoolName {
    PoolName::new("desk").unwrap()
}

fn grant(request: &str, host: &str, user: Option<&str>, users: u32, asked: bool) -> Arc<Grant> {
    let cell = Arc::new(HostCell::new());
    assert!(cell.reserve(cell.load(), users));
    let parts = GrantParts {
        token: token(request),
        made_under: 1,
        content_hash: 7,
        pool: desk(),
        host_id: HostId::new(host).unwrap(),
        cell,
        endpoints: Arc::from([Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 }]),
        user: user.map(str::to_owned),
        user_key: user.and_then(|user| UserMatch::Folded.key(user)),
        cost: users,
        counted_at_first: users,
        since: at(0),
        ends_at: at(120),
        decision_id: None,
        blind: false,
        untold: false,
    };
    Arc::new(Grant::new(parts, asked))
}

#[test]
fn a_place_leaves_its_cell_exactly_once() {
    let grant = grant("r1", "a", None, 5, false);
    assert!(grant.end(EndReason::Failed, at(1)));
    assert!(!grant.end(EndReason::Session, at(2)));
    assert_eq!((grant.cell.load().pending_users(), grant.cell.load().places()), (0, 0));
    assert_eq!((grant.state(), grant.ended_at()), (GrantState::Ended(EndReason::Failed), Some(at(1))));
    assert_eq!(grant.recount(9), 0, "what has ended is not counted anew");
}

#[test]
fn every_reason_is_kept() {
    for reason in [
        EndReason::Session,
        EndReason::Cancelled,
        EndReason::Failed,
        EndReason::Expired,
        EndReason::HostLost,
        EndReason::Superseded,
    ] {
        let grant = grant("r1", "a", None, 3, true);
        assert_eq!(grant.state(), GrantState::Asked);
        assert!(grant.admit() && !grant.admit());
        assert!(grant.end(reason, at(1)));
        assert_eq!((grant.state(), grant.counted_users()), (GrantState::Ended(reason), 3));
        assert!(!grant.admit(), "a late consent does not bring it back");
    }
}

#[test]
fn one_of_many_enders_takes_it_out() {
    let grant = grant("r1", "a", None, 5, false);
    grant.cell.apply(CellChange { users: Some(0), pending_users: 10, places: 2 });
    let ended: usize = std::thread::scope(|scope| {
        let enders: Vec<_> = (0..4).map(|_| scope.spawn(|| grant.end(EndReason::Failed, at(1)))).collect();
        enders.into_iter().map(|ender| usize::from(ender.join().unwrap())).sum()
    });
    assert_eq!((ended, grant.cell.load().pending_users(), grant.cell.load().places()), (1, 10, 2));
}

#[test]
fn a_request_whose_host_is_still_asked_is_repeated_as_such() {
    let ledger = Ledger::new();
    ledger.insert(grant("r1", "a", None, 1, true));
    let Retry::Repeat(repeated) = ledger.retry(&token("r1"), 7, 3) else { panic!("it has a place") };
    assert_eq!((repeated.state(), repeated.attempt()), (GrantState::Asked, 3));
    assert!(matches!(ledger.retry(&token("r1"), 8, 1), Retry::Reused));
}

#[test]
fn after_a_session_a_retry_finds_its_host_and_after_any_other_end_it_is_new() {
    let ledger = Ledger::new();
    for reason in [EndReason::Cancelled, EndReason::Failed, EndReason::Expired, EndReason::HostLost] {
        let grant = grant("r1", "a", None, 1, false);
        grant.end(reason, at(1));
        ledger.insert(grant);
        assert!(matches!(ledger.retry(&token("r1"), 7, 1), Retry::New { attempt: 2 }), "{reason:?}");
        assert!(matches!(ledger.retry(&token("r1"), 7, 9), Retry::New { attempt: 9 }));
    }
    let grant = grant("r2", "a", None, 1, false);
    grant.end(EndReason::Session, at(1));
    ledger.insert(grant);
    assert!(matches!(ledger.retry(&token("r2"), 7, 1), Retry::Arrived(_)));
}

#[test]
fn a_user_is_found_by_the_rule_of_the_pool() {
    let ledger = Ledger::new();
    ledger.insert(grant("r1", "a", Some("Alice"), 1, false));
    ledger.insert(grant("r2", "b", Some("CORP\\alice"), 1, false));
    let find = |rule: UserMatch, name: &str| -> Vec<String> {
        let found = ledger.of_user(&desk(), &rule.key(name).unwrap());
        found.iter().map(|grant| grant.host_id.to_string()).collect()
    };
    assert_eq!(find(UserMatch::Folded, "ALICE"), ["a", "b"], "oldest first");
    ledger.rekey_users(&desk(), UserMatch::Exact);
    assert_eq!(find(UserMatch::Exact, "Alice"), ["a"]);
    assert_eq!(find(UserMatch::Exact, "CORP\\alice"), ["b"]);
    assert!(find(UserMatch::Exact, "alice").is_empty());
}

#[test]
fn nothing_is_left_of_what_ended_long_ago_not_even_where_its_token_moved_on() {
    let ledger = Ledger::new();
    let first = grant("r1", "a", Some("u1"), 1, false);
    ledger.insert(first.clone());
    first.end(EndReason::Superseded, at(0));
    let second = grant("r1", "b", Some("u1"), 1, false);
    ledger.insert(second.clone());
    ledger.sweep(at(61));
    assert_eq!(ledger.by_host.pin().get(&first.host_id).unwrap().pin().len(), 0);
    assert_eq!((ledger.live(), ledger.on_host(&second.host_id).len()), (1, 1));
    assert_eq!(ledger.of_user(&desk(), second.user_key.as_ref().unwrap()).len(), 1);
    second.end(EndReason::Session, at(61));
    ledger.sweep(at(121));
    assert!(ledger.get(&token("r1")).is_some(), "remembered for a minute");
    ledger.sweep(at(122));
    assert!(ledger.get(&token("r1")).is_none());
    assert_eq!(ledger.by_user.pin().len(), 0);
}

#[test]
fn a_host_that_makes_up_places_fills_no_memory_and_loses_no_live_one() {
    let ledger = Ledger::new();
    let host = HostId::new("a").unwrap();
    let other = grant("other", "b", None, 1, false);
    other.end(EndReason::Failed, at(0));
    ledger.insert(other);
    ledger.insert(grant("live", "a", None, 1, false));
    let most = u64::try_from(MOST_ON_HOST).unwrap();
    for n in 0..most {
        let made_up = grant(&format!("r{n}"), "a", None, 1, false);
        made_up.end(EndReason::Expired, at(0) + Duration::from_millis(n));
        ledger.insert(made_up);
        ledger.bound_host(&host);
    }
    let known = |request: &str| ledger.get(&token(request)).is_some();
    assert_eq!(ledger.grants.pin().len(), ENDED_KEPT + 2);
    assert_eq!(ledger.by_host.pin().get(&host).unwrap().pin().len(), ENDED_KEPT + 1);
    assert!(known("live") && known("other") && known(&format!("r{}", most - 1)));
    assert!(!known("r0"), "the oldest is forgotten first");
}

#[test]
fn hosts_that_are_not_known_any_more_owe_nothing_and_fill_no_memory() {
    let ledger = Ledger::new();
    let (gone, stays) = (grant("r1", "a", None, 3, false), grant("r2", "b", None, 1, false));
    ledger.insert(gone.clone());
    ledger.insert(stays.clone());
    let forget = |seconds: u64| {
        ledger.forget_hosts(|host_id| *host_id == stays.host_id, at(seconds));
        ledger.sweep(at(seconds));
    };
    forget(0);
    assert_eq!(gone.state(), GrantState::Ended(EndReason::HostLost));
    assert_eq!(gone.cell.load().places(), 0);
    // Decided by a snapshot in which the host still was.
    let late = grant("r3", "a", None, 1, false);
    ledger.insert(late.clone());
    forget(1);
    assert!(!late.counts() && stays.counts());
    forget(121);
    forget(122);
    assert_eq!(ledger.by_host.pin().len(), 1);
    assert_eq!((ledger.grants.pin().len(), ledger.live()), (1, 1));
}

#[test]
fn a_place_that_was_lost_with_its_host_is_remembered_until_its_time_has_passed() {
    let ledger = Ledger::new();
    for (request, reason) in [("lost", EndReason::HostLost), ("failed", EndReason::Failed)] {
        let grant = grant(request, "a", None, 1, false);
        grant.end(reason, at(1));
        ledger.insert(grant);
    }
    let known = |request: &str| ledger.get(&token(request)).is_some();
    for (seconds, lost, failed) in
        [(61, true, true), (62, true, false), (120, true, false), (121, false, false)]
    {
        ledger.sweep(at(seconds));
        assert_eq!((known("lost"), known("failed")), (lost, failed), "after {seconds} s");
    }
}

#[test]
fn a_host_that_connects_is_not_told_places_whose_time_has_passed() {
    let ledger = Ledger::new();
    for request in ["r2", "r1"] {
        ledger.insert(grant(request, "a", None, 1, false));
    }
    let told = |at| -> Vec<String> {
        let places = ledger.to_tell(&HostId::new("a").unwrap(), at);
        places.iter().map(|place| place.token.request_id.to_string()).collect()
    };
    assert_eq!(told(at(119)), ["r1", "r2"]);
    assert!(told(at(120)).is_empty());
}
