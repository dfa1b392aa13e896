use usher_placement::{
    decision::{Call, CallParts, Desk, Placed, PlacementReason, RecordedChoice, RefusalKind, Request, Step},
    farm::{Farm, HostView, Reading},
    reservation::Ledger,
};
use usher_types::{DecisionId, Load, PolicyChange};

use super::*;
use crate::{
    history::retention,
    placing::testing::{self, NOW, hello, request},
};

fn numbered(sequence: u64, record: DecisionRecord) -> NewDecision {
    let id = DecisionId::new(format!("c.1-{sequence}")).unwrap();
    NewDecision { id, sequence, decided_unix_ms: 0, user: None, record }
}

/// A dry run of `request`, decided at `now`.
fn decided(farm: &mut Farm, request: Request, now: BootTime) -> (DecisionRecord, Option<Placed>) {
    let (snapshot, ledger) = (farm.snapshot(now), Ledger::new());
    let request = Arc::new(Request { dry_run: true, ..request });
    let mut call = Call::new(CallParts { request, seed: 1, deadline: None, decision_id: None });
    let desk =
        Desk { snapshot: &|| snapshot.clone(), ledger: &ledger, doors: &|_| Some(false), is_frozen: false };
    let Step::Done(answer) = call.step(&desk, now) else { panic!("a dry run waits for nobody") };
    (answer.record.unwrap(), answer.result.ok())
}

fn at(millis: u64) -> BootTime {
    NOW + Duration::from_millis(millis)
}

#[test]
fn the_newest_are_kept_in_full_and_older_ones_reduced_to_the_best_sixteen() {
    let hosts: Vec<(String, u32)> = (0..40).map(|n| (format!("h{n}"), n)).collect();
    let hosts: Vec<(&str, u32)> = hosts.iter().map(|(host, users)| (host.as_str(), *users)).collect();
    let (mut farm, _) = testing::farm(&PolicyChange::default(), &hosts);
    let mut kept = Kept::default();
    let (record, _) = decided(&mut farm, request("r"), NOW);
    for sequence in 0..MOST_FULL as u64 + 5 {
        kept.push(numbered(sequence, record.clone()));
    }
    assert_eq!((kept.full.len(), kept.reduced.len()), (MOST_FULL, 5));
    assert!(!kept.find(5).unwrap().is_reduced());
    let oldest = kept.find(4).unwrap();
    let Detail::Reduced(explained) = &oldest.detail else { panic!("{:?}", oldest.detail) };
    assert_eq!(explained.hosts.len(), 17);
    assert_eq!(explained.hosts[0].1.as_str(), "h0");
    assert!(explained.explanation.is_reduced);
    assert!(retention().contains("10 min") && retention().contains("24 h"));
}

#[test]
fn ten_minutes_later_a_decision_is_reduced_and_a_day_later_forgotten() {
    let (mut farm, _) = testing::farm(&PolicyChange::default(), &[("a", 1)]);
    let mut kept = Kept::default();
    let (record, _) = decided(&mut farm, request("r"), NOW);
    let later = |seconds| DecisionRecord { decided_at: NOW + Duration::from_secs(seconds), ..record.clone() };
    kept.push(numbered(1, later(0)));
    kept.push(numbered(2, later(600)));
    assert!(!kept.find(1).unwrap().is_reduced());
    kept.push(numbered(3, later(601)));
    assert!(kept.find(1).unwrap().is_reduced() && !kept.find(2).unwrap().is_reduced());
    kept.push(numbered(4, later(24 * 3600)));
    assert!(kept.find(1).is_some());
    kept.push(numbered(5, later(24 * 3600 + 1)));
    assert!(kept.find(1).is_none() && kept.find(2).is_some());
    assert_eq!(kept.len(), 4);
}

#[test]
fn what_a_record_keeps_alive_counts_against_the_bound() {
    let mut farm = Farm::new(Arc::new(Ledger::new()), NOW);
    let hosts: Vec<_> = (0..500).map(|n| hello(&format!("h{n}"))).collect();
    for hello in &hosts {
        farm.attach(hello, None, false).unwrap();
    }
    let mut kept = Kept::default();
    let mut keep = |farm: &mut Farm| {
        let before = kept.full_bytes;
        kept.push(numbered(1, decided(farm, request("r"), NOW).0));
        kept.full_bytes - before
    };
    let first = keep(&mut farm);
    let same = keep(&mut farm);
    farm.observe_load(&hosts[3].host_id, Load::default(), &[], NOW, 0);
    let one_host_more = keep(&mut farm);
    for hello in &hosts {
        farm.observe_load(&hello.host_id, Load::default(), &[], NOW, 0);
    }
    let all_hosts_anew = keep(&mut farm);
    let host = size_of::<HostView>() + size_of::<Reading>();
    assert!(first > 500 * size_of::<HostView>(), "{first}");
    assert!(same < 500 * 32, "{same}");
    // A chunk of hosts is made anew with each of them.
    let chunk = 16 * 1024 + bytes::SESSION_SHARDS + size_of::<PoolView>();
    assert!((host..host + chunk).contains(&(one_host_more - same)), "{one_host_more}");
    assert!(all_hosts_anew > 500 * host, "{all_hosts_anew}");
}

#[test]
fn when_memory_runs_out_full_ones_are_reduced_before_any_is_forgotten() {
    let (mut farm, _) = testing::farm(&PolicyChange::default(), &[("a", 1)]);
    let mut kept = Kept::default();
    let long = Request { exclude: vec!["x".repeat(256); 1024], ..request("r") };
    let (record, _) = decided(&mut farm, long, NOW);
    for sequence in 0..300 {
        kept.push(numbered(sequence, record.clone()));
        assert!(kept.bytes() <= MOST_BYTES);
    }
    assert!(kept.full.len() < MOST_BYTES / (1024 * 256), "{} in full", kept.full.len());
    assert_eq!(kept.len(), 300, "reduced, they hold little");
    assert!(kept.find(0).unwrap().is_reduced() && !kept.find(299).unwrap().is_reduced());
}

#[test]
fn reduced_ones_leave_room_for_those_in_full() {
    let hosts: Vec<(String, u32)> = (0..20).map(|n| (format!("h{n}"), n)).collect();
    let hosts: Vec<(&str, u32)> = hosts.iter().map(|(host, users)| (host.as_str(), *users)).collect();
    let (mut farm, _) = testing::farm(&PolicyChange::default(), &hosts);
    let mut kept = Kept::default();
    let (record, _) = decided(&mut farm, request("r"), NOW);
    for sequence in 0..MOST_FULL as u64 + 8000 {
        // There is time to explain each.
        kept.budget.hosts = 1000.0;
        kept.push(numbered(sequence, record.clone()));
    }
    assert!(kept.bytes() <= MOST_BYTES);
    assert_eq!(kept.full.len(), MOST_FULL, "they hold less than half");
    assert!(kept.find(0).is_none() && kept.reduced.len() > 1000, "{} reduced", kept.reduced.len());
}

#[test]
fn in_a_storm_there_is_no_time_to_explain_what_is_reduced() {
    let hosts: Vec<(String, u32)> = (0..200).map(|n| (format!("h{n}"), n)).collect();
    let hosts: Vec<(&str, u32)> = hosts.iter().map(|(host, users)| (host.as_str(), *users)).collect();
    let (mut farm, _) = testing::farm(&PolicyChange::default(), &hosts);
    let mut kept = Kept::default();
    let (record, _) = decided(&mut farm, request("r"), NOW);
    kept.budget = Budget { hosts: 1000.0, filled_at: NOW };
    for sequence in 0..MOST_FULL as u64 + 20 {
        kept.push(numbered(sequence, record.clone()));
    }
    let explained = kept.reduced.iter().filter(|kept| matches!(kept.detail, Detail::Reduced(_))).count();
    assert_eq!((explained, kept.reduced.len()), (5, 20));
    let kept = kept.find(19).unwrap();
    assert!(kept.is_reduced() && kept.headline.answered.is_ok(), "who was chosen is known all the same");
}

#[test]
fn a_list_is_restricted_by_each_of_its_fields_and_says_whether_there_is_more() {
    let (mut farm, _) = testing::farm(&PolicyChange::default(), &[("a", 1), ("b", 9)]);
    let mut kept = Kept::default();
    for sequence in 0..10 {
        let (mut record, _) = decided(&mut farm, request(&format!("r{sequence}")), at(sequence));
        if sequence % 2 == 1 {
            record.answered = Err(RefusalKind::MaxUsers);
        }
        kept.push(numbered(sequence, record));
    }
    let numbers = |filter: ListFilter| -> Vec<u64> {
        kept.list(&filter).decisions.iter().map(|kept| kept.headline.sequence).collect()
    };
    let all = ListFilter { limit: 100, ..ListFilter::default() };
    assert_eq!(numbers(ListFilter { refused_only: true, ..all.clone() }), [9, 7, 5, 3, 1]);
    assert_eq!(numbers(ListFilter { not_before: Some(at(7)), ..all.clone() }), [9, 8, 7]);
    assert_eq!(numbers(ListFilter { host: Some("A".into()), ..all.clone() }), [8, 6, 4, 2, 0]);
    assert!(numbers(ListFilter { host: Some("b".into()), ..all.clone() }).is_empty());
    let elsewhere = Some(PoolName::new("web").unwrap());
    assert!(numbers(ListFilter { pool: elsewhere, ..all.clone() }).is_empty());
    let listed = kept.list(&ListFilter { limit: 3, ..all.clone() });
    assert_eq!((listed.decisions.len(), listed.truncated), (3, true));
    assert!(!kept.list(&ListFilter { limit: 10, ..all }).truncated);
    let chosen = kept.find(0).unwrap().headline.answered.clone();
    let Ok(RecordedChoice { reason, .. }) = chosen else { panic!("{chosen:?}") };
    assert_eq!(reason, PlacementReason::LowestLoad);
}
