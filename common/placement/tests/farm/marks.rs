//! Marks of admins: of hosts, and of what they serve.

use usher_placement::farm::{Effect, Restored};
use usher_types::{DrainMode, Hello, HostMarks, ReplicaMark, UserLimit};

use crate::support::*;

const OUT: ReplicaMark = ReplicaMark::OutOfService;
const DELETE: ReplicaMark = ReplicaMark::PendingDelete;
const DAY: u64 = 24 * 3600;

fn mark(sim: &mut Sim, host: &str, name: &str, mark: Option<ReplicaMark>) -> Option<ReplicaMark> {
    sim.farm.mark_replica(&id(host), &resource(name), mark, sim.now)
}

fn shown(sim: &mut Sim, host: &str, name: &str) -> Option<ReplicaMark> {
    let position = sim.position(host);
    sim.pool().replica_mark(position, &resource(name))
}

// rule: directory-marks a mark survives a re-sent inventory, and 24 h without the replica
#[test]
fn case_084_a_mark_survives_an_inventory_that_is_sent_again() {
    let mut sim = Sim::of(&["a", "b"]);
    sim.serves("a", &["crm.db", "mail.db"]);
    sim.serves("b", &["crm.db"]);
    assert_eq!(mark(&mut sim, "a", "crm.db", Some(OUT)), None);
    for _ in 0..3 {
        sim.serves("a", &["crm.db", "mail.db"]);
        assert_eq!(shown(&mut sim, "a", "crm.db"), Some(OUT));
        assert_eq!((shown(&mut sim, "a", "mail.db"), shown(&mut sim, "b", "crm.db")), (None, None));
        assert_eq!(sim.pool().replicas[&resource("crm.db")], [0, 1], "it exists, it is out of service");
    }
    assert_eq!(mark(&mut sim, "a", "crm.db", Some(DELETE)), Some(OUT));
    assert_eq!(mark(&mut sim, "a", "crm.db", None), Some(DELETE));
    assert_eq!(shown(&mut sim, "a", "crm.db"), None);
    assert_eq!(sim.farm.replica_marks(sim.now).count(), 0);
}

/// A host that reports once in an hour, so that a test of a day need not tick each second.
fn hourly() -> Hello {
    Hello { report_interval: secs(3600), ..hello("a") }
}

/// Hours in which the host reports.
fn hours(sim: &mut Sim, hours: u64) -> Vec<Effect> {
    let mut effects = Vec::new();
    for _ in 0..hours {
        sim.report("a", users(1));
        sim.now = sim.now + secs(3600);
        effects.extend(sim.farm.tick(sim.now));
    }
    effects
}

fn expired(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::MarkExpired { .. }))
}

#[test]
fn case_084_the_mark_of_a_replica_that_is_gone_is_kept_for_a_day() {
    let mut sim = Sim::new();
    sim.farm.attach(&hourly(), None, false).unwrap();
    sim.serves("a", &["crm.db"]);
    mark(&mut sim, "a", "crm.db", Some(OUT));
    sim.serves("a", &[]);
    // An hour before the day is over it comes back.
    assert!(!expired(&hours(&mut sim, 23)));
    sim.serves("a", &["crm.db"]);
    assert_eq!(shown(&mut sim, "a", "crm.db"), Some(OUT));
    sim.serves("a", &[]);
    assert!(!expired(&hours(&mut sim, 23)));
    sim.serves("a", &[]);
    let gone = Effect::MarkExpired { host_id: id("a"), resource_id: resource("crm.db") };
    assert!(hours(&mut sim, 1).contains(&gone));
    assert!(!expired(&hours(&mut sim, 1)));
    sim.serves("a", &["crm.db"]);
    assert_eq!(shown(&mut sim, "a", "crm.db"), None);
}

#[test]
fn case_084_only_time_in_which_the_host_is_heard_counts_against_the_mark_of_a_replica() {
    let mut sim = Sim::new();
    sim.farm.attach(&hourly(), None, false).unwrap();
    sim.serves("a", &["crm.db"]);
    mark(&mut sim, "a", "crm.db", Some(OUT));
    sim.serves("a", &[]);
    assert!(!expired(&hours(&mut sim, 12)));
    let unlisted_for = |sim: &Sim| sim.farm.replica_marks(sim.now).next().unwrap().unlisted_for;
    assert_eq!(unlisted_for(&sim), Some(secs(12 * 3600)));
    sim.lose("a");
    assert!(!expired(&hours(&mut sim, 48)), "its stream is closed");
    sim.farm.attach(&Hello { stream_epoch: 2, ..hourly() }, None, false).unwrap();
    assert!(!expired(&hours(&mut sim, 48)), "it has not said again what it serves");
    sim.serves("a", &[]);
    assert_eq!(unlisted_for(&sim), Some(secs(12 * 3600)));
    // A frozen coordinator hears nobody.
    sim.now = sim.now + secs(3 * DAY);
    assert!(!expired(&sim.farm.tick(sim.now)));
    assert!(!expired(&hours(&mut sim, 11)));
    assert!(expired(&hours(&mut sim, 1)));
}

#[test]
fn case_084_a_mark_that_is_heard_of_before_its_host_is_heard_after_a_start_is_not_forgotten() {
    let mut before = Sim::new();
    before.farm.attach(&hourly(), None, false).unwrap();
    before.serves("a", &["crm.db"]);
    let mut sim = before.restarted();
    sim.farm.follow_replica_mark(&id("a"), &resource("crm.db"), Some(OUT), sim.now);
    assert!(!expired(&hours(&mut sim, 48)));
    assert_eq!(sim.farm.replica_marks(sim.now).next().unwrap().unlisted_for, None);
    assert_eq!(shown(&mut sim, "a", "crm.db"), Some(OUT));
    // Nor while it is connected and has not said it yet.
    sim.farm.attach(&hourly(), None, false).unwrap();
    sim.farm.follow_replica_mark(&id("a"), &resource("crm.db"), Some(DELETE), sim.now);
    assert!(!expired(&hours(&mut sim, 48)));
}

#[test]
fn a_host_that_is_silent_for_a_day_loses_no_mark_of_what_it_listed_last() {
    let mut sim = Sim::of(&["a"]);
    sim.serves("a", &["crm.db"]);
    mark(&mut sim, "a", "crm.db", Some(OUT));
    sim.now = sim.now + secs(3 * DAY);
    sim.farm.tick(sim.now);
    assert_eq!(shown(&mut sim, "a", "crm.db"), Some(OUT));
}

#[test]
fn replica_marks_are_restored_with_the_time_for_which_they_were_unlisted() {
    let mut sim = Sim::of(&["a"]);
    sim.serves("a", &["crm.db"]);
    mark(&mut sim, "a", "crm.db", Some(OUT));
    mark(&mut sim, "a", "gone.db", Some(DELETE));
    sim.pass_with(100, &["a"]);
    let stored: Vec<_> = sim.farm.replica_marks(sim.now).collect();
    let stored: Vec<_> = stored.iter().map(|m| (m.resource_id.as_str(), m.mark, m.unlisted_for)).collect();
    assert_eq!(stored, [("crm.db", OUT, None), ("gone.db", DELETE, Some(secs(100)))]);
    let again = sim.restarted();
    let restored: Vec<_> = again.farm.replica_marks(again.now).map(|m| m.unlisted_for).collect();
    assert_eq!(restored, [None, Some(secs(100))]);
}

// rule: directory-marks marks of a host that nothing else is known of wait for it
#[test]
fn stored_marks_of_a_host_that_nothing_else_is_known_of_wait_for_it() {
    let mut known = Sim::of(&["a"]);
    known.drain("a", drain(DrainMode::Persistent, "disk"));
    let drain_mark = known.farm.settings_of(&id("a")).unwrap().drain.unwrap().clone();
    let marks = HostMarks { max_users: Some(UserLimit::Users(3)), ..HostMarks::default() };
    let stored = Restored {
        drains: vec![(id("a"), drain_mark)],
        marks: vec![(id("a"), marks), (id("b"), marks)],
        ..Restored::default()
    };
    let mut sim = Sim::new();
    sim.farm.restore(stored, sim.now);
    assert_eq!(sim.farm.marks_of(&id("a")), None);
    assert_eq!(sim.farm.set_marks(&id("b"), HostMarks::default()), Some(marks), "taken back before it came");
    assert_eq!(sim.farm.set_marks(&id("c"), marks), None, "nobody knows it");
    for host in ["a", "b", "c"] {
        sim.attach(host);
    }
    assert_eq!(sim.farm.marks_of(&id("a")), Some(marks));
    assert!(sim.farm.settings_of(&id("a")).unwrap().drain.is_some());
    for host in ["b", "c"] {
        assert_eq!(sim.farm.marks_of(&id(host)), Some(HostMarks::default()));
    }
}

// rule: directory-certificate an OFFLINE host is replaced and its marks move over
#[test]
fn all_marks_move_over_to_the_host_that_takes_the_place_of_a_dead_one() {
    let mut sim = Sim::new();
    let host = |name: &str| Hello { host_id: id(name), ..hello("app") };
    sim.farm.attach(&host("old"), Some("app"), false).unwrap();
    sim.report("old", users(1));
    sim.serves("old", &["crm.db"]);
    sim.drain("old", drain(DrainMode::Persistent, "disk"));
    let marks = HostMarks { capacity: Some(2.0), ..HostMarks::default() };
    sim.farm.set_marks(&id("old"), marks);
    mark(&mut sim, "old", "crm.db", Some(OUT));
    sim.lose("old");
    sim.pass(20);
    let attached = sim.farm.attach(&host("new"), Some("app"), false).unwrap();
    assert_eq!(attached.retired, Some(id("old")));
    let told = sim.farm.settings_of(&id("new")).unwrap();
    assert_eq!((*told.marks, told.drain.map(|mark| mark.drain.reason.as_str())), (marks, Some("disk")));
    assert_eq!(sim.farm.replica_marks_of(&id("new"), sim.now).count(), 1);
    assert_eq!(sim.farm.replica_marks_of(&id("old"), sim.now).count(), 0);
    sim.serves("new", &["crm.db"]);
    assert_eq!(shown(&mut sim, "new", "crm.db"), Some(OUT));
}

#[test]
fn marks_follow_their_host_to_another_pool() {
    let mut sim = Sim::of(&["a"]);
    sim.serves("a", &["crm.db"]);
    mark(&mut sim, "a", "crm.db", Some(OUT));
    let web = usher_types::PoolName::new("web").unwrap();
    let moved = Hello { pool: web.clone(), stream_epoch: 2, ..hello("a") };
    sim.farm.attach(&moved, None, false).unwrap();
    let pool = sim.farm.snapshot(sim.now).pools[&web].clone();
    assert_eq!(pool.replica_mark(0, &resource("crm.db")), Some(OUT));
}

#[test]
fn a_drain_that_a_host_keeps_holds_at_once_and_its_mark_is_gone() {
    let mut sim = Sim::of(&["a"]);
    sim.drain("a", drain(DrainMode::Persistent, "disks"));
    let mark = sim.farm.settings_of(&id("a")).unwrap().drain.cloned();
    let kept = drain(DrainMode::Persistent, "disks");
    sim.farm.drain_kept(&id("a"), Some(kept.clone()), mark.as_ref());
    assert!(sim.farm.settings_of(&id("a")).unwrap().drain.is_none());
    assert_eq!(sim.reason("a"), "drained by ann: disks", "before the next report says so");
    assert_eq!(sim.farm.own_drain(&id("a")), Some(&kept));
    // A mark that was set meanwhile is another one.
    sim.drain("a", drain(DrainMode::UntilRestart, "fan"));
    sim.farm.drain_kept(&id("a"), None, mark.as_ref());
    assert_eq!(sim.reason("a"), "drained by ann: fan");
}

#[test]
fn a_drain_that_a_reinstalled_host_kept_moves_over_with_its_marks() {
    for (mode, holds) in [(DrainMode::Persistent, true), (DrainMode::UntilRestart, false)] {
        let mut sim = Sim::new();
        let certified = |host: &str, boot| Hello {
            host_name: usher_types::HostName::new("app3").unwrap(),
            ..booted(host, boot, 1)
        };
        sim.farm.attach(&certified("old", "boot-1"), Some("app3"), false).unwrap();
        sim.report("old", usher_types::Load { drain: Some(drain(mode, "disks")), ..users(1) });
        sim.lose("old");
        sim.pass(600);
        sim.farm.attach(&certified("new", "boot-2"), Some("app3"), false).unwrap();
        assert_eq!(sim.farm.settings_of(&id("new")).unwrap().drain.is_some(), holds, "{mode:?}");
    }
}
