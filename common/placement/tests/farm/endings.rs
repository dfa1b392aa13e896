//! How places end, and how long they are remembered.

use usher_placement::{
    farm::Effect,
    reservation::{GrantState, Retry},
};
use usher_types::{EndReason, Goodbye, Hello, HostState, Load};

use crate::support::*;

fn end_told(effects: &[Effect]) -> Vec<(EndReason, u32)> {
    let told = |effect: &Effect| match effect {
        Effect::EndPlace { reason, attempt, .. } => Some((*reason, *attempt)),
        _ => None,
    };
    effects.iter().filter_map(told).collect()
}

// rule: life-outcome CONNECTED ends nothing
#[test]
fn a_place_that_connected_counts_until_its_session_is_seen() {
    let mut sim = Sim::of(&["a"]);
    let place = sim.place("r1", "a");
    let connected = usher_types::PendingPlace { connected: true, ..listed("r1", 1, 110) };
    sim.report("a", Load { pending: vec![connected], ..users(1) });
    assert!(place.is_connected() && place.counts());
    sim.report("a", Load { ended: vec![ended("r1", 1, EndReason::Session, 0)], ..users(2) });
    assert_eq!(place.state(), GrantState::Ended(EndReason::Session));
    assert_eq!(sim.pending("a"), (0, 0));
    assert!(matches!(sim.ledger.retry(&token("r1"), 7, 1), Retry::Arrived(_)));
}

// rule: life-ttl its time to live has passed, and a Load measured after that no longer lists it
#[test]
fn the_time_to_live_ends_a_place_only_with_a_load_that_was_measured_later() {
    let mut sim = Sim::of(&["a"]);
    let place = sim.place("r1", "a");
    let given = sim.now;
    while sim.now < given + secs(120) {
        sim.pass_with(5, &["a"]);
        assert!(place.counts(), "its message may still be on the way");
    }
    sim.farm.observe_load(&id("a"), users(1), &[], given + secs(120), 0);
    assert!(place.counts());
    sim.farm.observe_load(&id("a"), users(1), &[], given + secs(121), 0);
    assert_eq!(place.state(), GrantState::Ended(EndReason::Expired));
}

// rule: life-offline a host that goes OFFLINE: void for good
#[test]
fn a_place_that_was_lost_with_its_host_stays_void_for_as_long_as_the_host_may_list_it() {
    let mut sim = Sim::of(&["a"]);
    let place = sim.place("r1", "a");
    sim.report("a", Load { pending: vec![listed("r1", 1, 120)], ..users(1) });
    sim.lose("a");
    sim.pass(18);
    assert_eq!(place.state(), GrantState::Ended(EndReason::HostLost));
    sim.pass(90);
    sim.farm.attach(&Hello { stream_epoch: 2, ..hello("a") }, None, false).unwrap();
    let effects = sim.report("a", Load { pending: vec![listed("r1", 1, 12)], ..users(1) });
    assert_eq!(end_told(&effects), [(EndReason::HostLost, 1)]);
    assert_eq!(sim.pending("a"), (0, 0));
    sim.pass(60);
    assert!(sim.ledger.get(&token("r1")).is_none());
}

// rule: life-offline a host that was cut off from this coordinator only owes what others gave on it
#[test]
fn a_place_of_another_coordinator_outlives_the_loss_of_its_host_here() {
    let mut sim = Sim::of(&["a"]);
    let theirs = |left_s| Load { pending: vec![listed("r1", 1, left_s)], ..users(1) };
    sim.report("a", theirs(120));
    assert_eq!(sim.pending("a"), (1, 1));
    sim.lose("a");
    sim.pass(18);
    assert_eq!(sim.ledger.get(&token("r1")).unwrap().state(), GrantState::Ended(EndReason::HostLost));
    sim.farm.attach(&Hello { stream_epoch: 2, ..hello("a") }, None, false).unwrap();
    let effects = sim.report("a", theirs(100));
    assert_eq!(end_told(&effects), []);
    assert_eq!(sim.pending("a"), (1, 1));
}

// rule: retry-remembered a place is remembered until its end and a minute more
#[test]
fn an_ended_place_is_remembered_for_a_minute() {
    let mut sim = Sim::of(&["a"]);
    for (request, reason) in [("r1", EndReason::Cancelled), ("r2", EndReason::Failed)] {
        sim.place(request, "a").end(reason, sim.now);
        assert!(matches!(sim.ledger.retry(&token(request), 7, 1), Retry::New { attempt: 2 }));
        assert!(matches!(sim.ledger.retry(&token(request), 8, 1), Retry::Reused));
    }
    sim.pass_with(60, &["a"]);
    assert!(sim.ledger.get(&token("r1")).is_some());
    sim.pass(1);
    assert!(sim.ledger.get(&token("r1")).is_none() && sim.ledger.get(&token("r2")).is_none());
}

#[test]
fn a_storm_of_ended_places_is_remembered_for_a_minute_and_forgotten_within_ten_seconds_more() {
    let mut sim = Sim::of(&["a"]);
    let names: Vec<String> = (0..20_001).map(|number| format!("r{number}")).collect();
    for request in &names {
        sim.place(request, "a").end(EndReason::Cancelled, sim.now);
    }
    sim.pass(60);
    assert!(names.iter().all(|request| sim.ledger.get(&token(request)).is_some()));
    sim.pass(10);
    assert!(names.iter().all(|request| sim.ledger.get(&token(request)).is_none()));
}

// rule: retry-attempt one token on two hosts: the lower attempt is cancelled, on a tie the smaller time left
#[test]
fn of_one_token_on_two_hosts_the_higher_attempt_stays_and_on_a_tie_the_longer_time() {
    for (attempt, left_s, theirs_stays) in [(2, 10, true), (1, 121, true), (1, 119, false)] {
        let mut sim = Sim::of(&["a", "b"]);
        let ours = sim.place("r1", "a");
        let effects = sim.report("b", Load { pending: vec![listed("r1", attempt, left_s)], ..users(1) });
        assert_eq!(ours.counts(), !theirs_stays);
        let loser = if theirs_stays { id("a") } else { id("b") };
        assert!(
            matches!(&effects[..], [Effect::EndPlace { host_id, reason: EndReason::Superseded, .. }] if *host_id == loser),
            "{effects:?}"
        );
        assert_eq!(sim.pending("a").1 + sim.pending("b").1, 1);
    }
}

// rule: retry-attempt equal in both: whichever place a coordinator knows, the same one stays
#[test]
fn of_one_token_on_two_hosts_that_are_equal_all_coordinators_keep_the_same() {
    for (known, heard) in [("a", "b"), ("b", "a")] {
        let mut sim = Sim::of(&["a", "b"]);
        sim.place("r1", known);
        sim.report(heard, Load { pending: vec![listed("r1", 1, 120)], ..users(1) });
        assert_eq!((sim.pending("a").1, sim.pending("b").1), (1, 0), "known on {known}");
    }
}

#[test]
fn a_host_that_lists_what_has_ended_is_told_again() {
    let mut sim = Sim::of(&["a"]);
    sim.place("r1", "a").end(EndReason::Cancelled, sim.now);
    let load = Load { pending: vec![listed("r1", 1, 100)], ..users(1) };
    for _ in 0..2 {
        assert_eq!(end_told(&sim.report("a", load.clone())), [(EndReason::Cancelled, 1)]);
        assert_eq!(sim.pending("a"), (0, 0));
    }
}

// Seen in chaos: hosts that were too slow for a call listed its place before its cancellation came. When the call had gone
// on to another host, which was too slow as well, the first one's place was taken for somebody else's and given out, and
// was gone when the cancellation came.
#[test]
fn a_place_that_was_cancelled_here_is_not_taken_over_because_its_token_was_tried_elsewhere_since() {
    for reason in [EndReason::Cancelled, EndReason::Failed] {
        let mut sim = Sim::of(&["a", "b"]);
        sim.place("r1", "a").end(reason, sim.now);
        sim.place("r1", "b").end(EndReason::Cancelled, sim.now);
        let late = Load { pending: vec![listed("r1", 1, 100)], ..users(1) };
        assert_eq!(end_told(&sim.report("a", late)), [(reason, 1)]);
        assert_eq!(sim.pending("a"), (0, 0));
        // One that another coordinator gave there since is another place.
        sim.report("a", Load { pending: vec![listed("r1", 2, 100)], ..users(1) });
        assert_eq!(sim.pending("a").1, 1);
    }
}

#[test]
fn the_first_to_end_of_a_hosts_places_is_known() {
    let mut sim = Sim::of(&["a", "b"]);
    assert_eq!(sim.ledger.oldest_end_on(&id("a")), None);
    let first = sim.place("r1", "a");
    sim.pass(2);
    let second = sim.place("r2", "a");
    assert_eq!(sim.ledger.oldest_end_on(&id("a")), Some(first.ends_at));
    first.end(EndReason::Cancelled, sim.now);
    assert_eq!(sim.ledger.oldest_end_on(&id("a")), Some(second.ends_at));
    assert_eq!(sim.ledger.oldest_end_on(&id("b")), None);
}

#[test]
fn nothing_is_left_of_a_host_that_was_replaced_not_even_a_place_given_in_the_last_moment() {
    let mut sim = Sim::new();
    let old = Hello { host_id: id("old"), ..hello("app") };
    sim.farm.attach(&old, Some("app"), false).unwrap();
    sim.report("old", users(1));
    let place = sim.place("r1", "old");
    sim.farm.detach(&id("old"), 1, Some(Goodbye::HostShutdown), sim.now);
    sim.pass(1);
    assert_eq!(sim.state("old"), HostState::Offline);
    let late = sim.place("r2", "old");
    sim.farm.attach(&Hello { host_id: id("new"), ..hello("app") }, Some("app"), false).unwrap();
    // Decided by a snapshot in which the old host still was.
    sim.ledger.insert(late.clone());
    sim.pass(1);
    assert!(!place.counts() && !late.counts());
    sim.pass(200);
    assert!(sim.ledger.get(&token("r2")).is_none());
    assert_eq!(sim.ledger.on_host(&id("old")).len(), 0);
}

// rule: retry-reused
#[test]
fn of_one_token_for_two_requests_the_higher_attempt_stays_and_both_are_never_ended_for_each_other() {
    let of_another = |attempt| usher_types::PendingPlace { content_hash: 99, ..listed("r1", attempt, 100) };
    // The host lists another request under the token of a place that was given here.
    let mut sim = Sim::of(&["a"]);
    let place = sim.place("r1", "a");
    let effects = sim.report("a", Load { pending: vec![of_another(1)], ..users(0) });
    assert_eq!(place.state(), GrantState::Ended(EndReason::Superseded));
    assert_eq!((sim.pending("a"), end_told(&effects)), ((1, 1), vec![]));
    assert_eq!(sim.ledger.get(&token("r1")).unwrap().content_hash, 99);
    // What the host lists is another's under a lower attempt: ours is on its way, and takes its place there.
    let mut sim = Sim::of(&["a"]);
    let place = sim.place("r1", "a");
    place.raise_attempt(2);
    let effects = sim.report("a", Load { pending: vec![of_another(1)], ..users(0) });
    assert!(place.counts());
    assert_eq!((sim.pending("a"), end_told(&effects)), ((1, 1), vec![]));
    // An end of the other request is not the end of this one.
    let other_end = usher_types::EndedPlace { content_hash: 99, ..ended("r1", 2, EndReason::Cancelled, 0) };
    sim.report("a", Load { ended: vec![other_end], ..users(0) });
    assert!(place.counts());
}
