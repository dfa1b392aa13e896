//! What another coordinator has changed is in force here, once, and nothing older after it.

use usher_placement::farm::{AttachRefused, DrainMark, PoolApply, PoolRecord, Restored};
use usher_types::{DrainMode, Hello, HostMarks, HostName, HostState, Policy, PolicyChange, ReplicaMark};

use crate::support::{Sim, at, booted, desk, drain, id, resource, secs, users};

fn record(version: u64, full_scale: f64) -> PoolRecord {
    let policy = Policy { users_full_scale: full_scale, ..Policy::default() };
    PoolRecord { version, policy, ..PoolRecord::default_of(desk()) }
}

#[test]
fn settings_of_another_coordinator_are_in_force_once_and_older_ones_not_after_them() {
    let mut sim = Sim::of(&["a"]);
    assert!(sim.farm.follow_pool(&desk(), Some(record(7, 1.0))));
    assert!(!sim.farm.follow_pool(&desk(), Some(record(7, 1.0))), "it is so already");
    // Its own change, which the store took before the other one, and which comes to the farm after it.
    sim.farm.commit_pool(record(6, 9.0));
    assert_eq!(sim.farm.pool_record(&desk()).unwrap(), &record(7, 1.0));
    assert_eq!(sim.pool().policy.users_full_scale, 1.0);
}

#[test]
fn a_pool_that_is_gone_has_the_defaults_while_hosts_are_in_it() {
    let mut sim = Sim::of(&["a"]);
    sim.farm.follow_pool(&desk(), Some(record(7, 1.0)));
    assert!(sim.farm.follow_pool(&desk(), None));
    assert_eq!(sim.farm.pool_record(&desk()).unwrap(), &PoolRecord::default_of(desk()));
    let mut empty = Sim::new();
    empty.farm.follow_pool(&desk(), Some(record(7, 1.0)));
    assert!(empty.farm.follow_pool(&desk(), None));
    assert!(empty.farm.pool_record(&desk()).is_none());
    assert!(!empty.farm.follow_pool(&desk(), None));
}

#[test]
fn a_change_that_is_being_stored_here_is_not_ended_by_one_from_elsewhere() {
    let mut sim = Sim::of(&["a"]);
    let apply = PoolApply::of(PolicyChange::default());
    sim.farm.prepare_pool(&desk(), &apply, false).unwrap();
    sim.farm.follow_pool(&desk(), Some(record(7, 1.0)));
    assert!(sim.farm.prepare_pool(&desk(), &apply, false).is_err());
    sim.farm.abandon_pool(&desk());
    assert_eq!(sim.farm.prepare_pool(&desk(), &apply, false).unwrap().version, 8);
}

#[test]
fn marks_from_elsewhere_are_in_force_and_those_of_a_host_that_is_not_known_here_wait_for_it() {
    let mut sim = Sim::of(&["a"]);
    let mark = DrainMark { drain: drain(DrainMode::Persistent, "disk"), boot_id: None };
    let marks = HostMarks { busy: true, ..HostMarks::default() };
    for host in ["a", "later"] {
        let is_here = host == "a";
        assert_eq!(sim.farm.follow_drain(&id(host), Some(mark.clone())), is_here);
        assert_eq!(sim.farm.follow_marks(&id(host), marks), is_here);
        assert!(!sim.farm.follow_drain(&id("a"), Some(mark.clone())), "it is so already");
    }
    sim.attach("later");
    assert_eq!(sim.farm.marks_of(&id("later")), Some(marks));
    assert_eq!(sim.state("a"), HostState::Restricted);
    assert!(sim.farm.follow_drain(&id("a"), None));
    assert_ne!(sim.state("a"), HostState::Restricted);
}

#[test]
fn a_replicas_mark_that_comes_again_does_not_begin_its_time_anew() {
    let mut sim = Sim::of(&["a"]);
    sim.serves("a", &[]);
    let (mark, mail) = (Some(ReplicaMark::OutOfService), resource("mail"));
    assert!(sim.farm.follow_replica_mark(&id("a"), &mail, mark, at(10)));
    assert!(!sim.farm.follow_replica_mark(&id("a"), &mail, mark, at(500)));
    let since = sim.farm.replica_marks_of(&id("a"), at(510)).next().unwrap().unlisted_for;
    assert!(since.is_some_and(|since| since.as_secs() >= 500), "{since:?}");
    assert!(sim.farm.follow_replica_mark(&id("a"), &mail, None, at(520)));
}

#[test]
fn a_certificate_that_is_another_hosts_is_told_of_with_the_host_that_has_it_wrongly() {
    let mut sim = Sim::new();
    assert_eq!(sim.farm.follow_binding("App1.", Some(id("a"))), None);
    assert_eq!(sim.farm.follow_binding("app1", Some(id("a"))), None);
    assert_eq!(sim.farm.follow_binding("app1", Some(id("b"))), Some(id("a")));
    assert_eq!(sim.farm.follow_binding("app1", None), None);
}

#[test]
fn a_host_belongs_to_one_certificate_and_a_machine_that_another_one_brought_is_named() {
    let mut sim = Sim::new();
    sim.farm.attach(&app1("a"), Some("app1"), false).unwrap();
    assert_eq!(sim.farm.end_other_bonds("App1.", &id("a")), None, "it came with that one");
    let wrong = sim.farm.end_other_bonds("app2", &id("a"));
    assert_eq!(wrong, Some(HostName::new("app1").unwrap()));
    sim.farm.follow_binding("app2", Some(id("a")));
    sim.lose("a");
    assert_eq!(sim.farm.end_other_bonds("app2", &id("a")), None, "nobody is there to be cut off");
    let app2 = Hello { host_name: HostName::new("app2").unwrap(), ..booted("a", "b", 2) };
    assert_eq!(sim.farm.attach(&app2, Some("app2"), false).unwrap().bind, None, "it has the host");
    let refused = sim.farm.attach(&Hello { stream_epoch: 3, ..app1("a") }, Some("app1"), false);
    assert!(matches!(refused, Err(AttachRefused::OtherCertificate { .. })), "{refused:?}");
}

/// The machine `app1`, under this id.
fn app1(host: &str) -> Hello {
    Hello { host_name: HostName::new("app1").unwrap(), ..booted(host, host, 1) }
}

/// A farm in which `old` is the machine `app1`.
fn with_old() -> Sim {
    let mut sim = Sim::new();
    sim.farm.attach(&app1("old"), Some("app1"), false).unwrap();
    sim.report("old", users(1));
    sim.pass(1);
    sim
}

fn ids(sim: &mut Sim) -> Vec<String> {
    sim.pool().hosts.iter().map(|host| host.facts.host_id.to_string()).collect()
}

// rule: directory-certificate an OFFLINE host is replaced and its marks move over
#[test]
fn case_080_a_host_that_another_coordinator_has_replaced_is_gone_here_too_and_its_marks_wait_for_the_new_one()
{
    let mut sim = with_old();
    let mark = DrainMark { drain: drain(DrainMode::Persistent, "disk"), boot_id: None };
    sim.farm.follow_drain(&id("old"), Some(mark));
    sim.farm.follow_replica_mark(&id("old"), &resource("crm"), Some(ReplicaMark::OutOfService), sim.now);
    sim.lose("old");
    sim.pass(20);
    assert_eq!(sim.farm.follow_binding("app1", Some(id("new"))), Some(id("old")));
    assert_eq!(sim.farm.last_known(true), [], "nor after a restart");
    let attached = sim.farm.attach(&app1("new"), Some("app1"), false).unwrap();
    assert_eq!((attached.bind, attached.retired), (None, None));
    assert_eq!(ids(&mut sim), ["id-new"]);
    assert_eq!(sim.farm.settings_of(&id("new")).unwrap().drain.unwrap().drain.reason, "disk");
    assert_eq!(sim.farm.replica_marks_of(&id("new"), sim.now).count(), 1);
    assert_eq!(sim.farm.snapshot(sim.now).find_host("app1").unwrap().1, 0, "the name is one host's");
}

#[test]
fn case_080_a_host_that_is_alive_as_its_certificate_becomes_anothers_goes_once_it_is_gone() {
    let mut sim = with_old();
    assert_eq!(sim.farm.follow_binding("app1", Some(id("new"))), Some(id("old")));
    sim.farm.attach(&app1("new"), Some("app1"), false).unwrap();
    sim.report("new", users(1));
    sim.pass(2);
    assert_eq!(ids(&mut sim), ["id-old", "id-new"]);
    sim.lose("old");
    sim.pass_with(30, &["new"]);
    assert_eq!(ids(&mut sim), ["id-new"]);
    // One that is let in again has its place.
    let mut sim = with_old();
    sim.farm.follow_binding("app1", Some(id("new")));
    sim.lose("old");
    let again = Hello { stream_epoch: 2, ..app1("old") };
    assert_eq!(sim.farm.attach(&again, Some("app1"), false).unwrap().retired, Some(id("new")));
    sim.lose("old");
    sim.pass(600);
    assert_eq!(ids(&mut sim), ["id-old"]);
}

#[test]
fn case_080_a_host_that_was_replaced_while_this_coordinator_was_down_is_not_known_for_ever() {
    let sim = with_old();
    for known in [true, false] {
        let mut again = Sim::begun_at(sim.now + secs(3));
        let bound_to = if known { id("new") } else { id("old") };
        let stored = Restored {
            bindings: vec![("app1".into(), bound_to)],
            known: sim.farm.last_known(true),
            ..Restored::default()
        };
        again.farm.restore(stored, again.now);
        again.farm.follow_binding("app1", Some(id("new")));
        again.pass(1);
        assert_eq!(ids(&mut again), ["id-old"], "it may be alive yet");
        again.farm.attach(&app1("new"), Some("app1"), false).unwrap();
        again.report("new", users(1));
        again.pass_with(60, &["new"]);
        assert_eq!(ids(&mut again), ["id-new"]);
    }
}
