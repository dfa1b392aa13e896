//! Who is behind a stream.

use usher_placement::farm::{AttachRefused, Effect, Farm, Restored};
use usher_types::{BootId, DrainMode, EndReason, Goodbye, Hello, HostId, HostState, SessionState};

use crate::support::*;

fn boot(host: &str, boot: &str, stream_epoch: u64) -> Hello {
    Hello { boot_id: BootId::new(boot).unwrap(), stream_epoch, ..hello(host) }
}

fn renamed(hello: Hello, host_id: &str) -> Hello {
    Hello { host_id: HostId::new(host_id).unwrap(), ..hello }
}

// rule: directory-clone
#[test]
fn case_077_a_clone_is_refused_while_the_first_one_answers() {
    let mut sim = Sim::of_users(&[("a", 3)]);
    let clone = renamed(boot("b", "boot-2", 9), "id-a");
    let refused = sim.farm.attach(&clone, None, false).unwrap_err();
    let (held_by, claimed_by) = ("a".to_owned(), "b".to_owned());
    assert_eq!(refused, AttachRefused::InUse { host_id: id("a"), held_by, claimed_by, stream_epoch: 1 });
    assert!(refused.to_string().contains("by a, and b claims"), "{refused}");
    assert_eq!(sim.pool().hosts[0].facts.name.as_str(), "a");
    assert!(sim.farm.is_current(&id("a"), 1));
    assert_eq!(sim.place(&ask("r1")).host(), "a");
}

// rule: directory-clone
// rule: directory-epoch
#[test]
fn case_077_a_reboot_behind_a_dead_stream_is_let_in_and_nothing_of_before_holds() {
    let mut sim = Sim::of_users(&[("a", 3)]);
    sim.available("a", 10.0);
    sim.sessions("a", &[session("1", "u1", SessionState::Active, 60)]);
    let placed = sim.place(&ask("r1"));
    let attached = sim.farm.attach(&boot("a", "boot-2", 1), None, true).unwrap();
    assert_eq!(attached.replaced_stream, Some(1));
    assert_eq!(sim.state("a"), HostState::Unknown);
    assert!(!placed.grant.unwrap().counts());
    let word = sim.word("a");
    assert_eq!((word.users(), word.pending_users(), word.places()), (None, 0, 0));
    let pool = sim.pool();
    assert!(pool.hosts[0].sessions.is_empty());
    assert!(pool.sessions.of(&pool.policy.user_match.key("u1").unwrap()).is_empty());
    assert_eq!(pool.hosts[0].availability(sim.now).index, None);
}

// rule: directory-ambiguous
#[test]
fn case_078_two_hosts_of_one_name_are_two_hosts() {
    let mut sim = Sim::new();
    for host_id in ["n1", "n2"] {
        sim.farm.attach(&renamed(hello("localhost"), host_id), None, false).unwrap();
    }
    let snapshot = sim.farm.snapshot(sim.now);
    assert_eq!(snapshot.pools[&desk()].hosts.len(), 2);
    let ids = snapshot.find_host("LOCALHOST.").unwrap_err();
    assert_eq!(ids.iter().map(HostId::as_str).collect::<Vec<_>>(), ["n1", "n2"]);
    assert_eq!(snapshot.find_host("n2").unwrap().1, 1);
    assert!(snapshot.find_host("n3").unwrap_err().is_empty());
}

fn with_certificate(host_id: &str) -> Hello {
    renamed(hello("app3"), host_id)
}

// rule: directory-certificate
#[test]
fn case_080_a_host_that_was_installed_anew_takes_the_place_of_its_dead_self() {
    let mut sim = Sim::new();
    let first = sim.farm.attach(&with_certificate("n1"), Some("app3"), false).unwrap();
    assert_eq!((first.bind.as_deref(), first.retired), (Some("app3"), None));
    sim.farm.observe_load(&HostId::new("n1").unwrap(), users(1), &[], sim.now, 0);
    let replica = usher_types::Replica {
        resource_id: usher_types::ResourceId::new("crm").unwrap(),
        path: None,
        title: None,
    };
    sim.farm.observe_replicas(&HostId::new("n1").unwrap(), vec![replica]);
    let drain = usher_types::Drain {
        mode: DrainMode::Persistent,
        reason: "disk".into(),
        author: String::new(),
        no_reconnect: false,
    };
    let mark = sim.farm.drain_mark(&HostId::new("n1").unwrap(), drain);
    sim.farm.set_drain(&HostId::new("n1").unwrap(), mark);

    let live = sim.farm.attach(&with_certificate("n2"), Some("app3"), false).unwrap_err();
    assert!(matches!(live, AttachRefused::OtherHost { .. }), "{live}");

    sim.farm.detach(&HostId::new("n1").unwrap(), 1, None, sim.now);
    sim.pass(600);
    let again = sim.farm.attach(&with_certificate("n2"), Some("app3"), false).unwrap();
    assert_eq!(again.retired, Some(HostId::new("n1").unwrap()));
    assert_eq!(again.bind.as_deref(), Some("app3"));
    let pool = sim.pool();
    assert_eq!(pool.hosts.len(), 1);
    assert_eq!(pool.hosts[0].facts.host_id.as_str(), "n2");
    assert!(pool.replicas.is_empty(), "its replicas went with it");
    assert_eq!(sim.farm.snapshot(sim.now).find_host("app3").unwrap().1, 0);
    assert!(pool.hosts[0].drain.is_some(), "a persistent drain moves over");
}

// rule: directory-certificate
#[test]
fn a_certificate_is_for_one_name_and_one_id() {
    let mut sim = Sim::new();
    let other = sim.farm.attach(&hello("app1"), Some("app3"), false).unwrap_err();
    assert!(matches!(other, AttachRefused::OtherName { .. }));
    sim.farm.attach(&with_certificate("n1"), Some("app3"), false).unwrap();
    let stolen = renamed(hello("app9"), "n1");
    let stolen = sim.farm.attach(&Hello { stream_epoch: 2, ..stolen }, Some("app9"), false).unwrap_err();
    assert!(matches!(stolen, AttachRefused::OtherCertificate { .. }), "{stolen}");
    assert_eq!(stolen.to_string(), "host id n1 belongs to certificate app3, not to app9");
    // Whoever is not the host does not get as far as to be weighed against it.
    let cloned = Hello { boot_id: BootId::new("boot-9").unwrap(), ..renamed(hello("app9"), "n1") };
    let cloned = sim.farm.attach(&cloned, Some("app9"), false).unwrap_err();
    assert!(matches!(cloned, AttachRefused::OtherCertificate { .. }), "{cloned}");
    let again = Hello { stream_epoch: 2, ..with_certificate("n1") };
    assert_eq!(sim.farm.attach(&again, Some("app3"), false).unwrap().bind, None, "bound already");
}

#[test]
fn modelled_hosts_share_a_certificate_but_none_can_be_a_real_host() {
    let mut sim = Sim::new();
    sim.farm.attach(&with_certificate("n1"), Some("app3"), false).unwrap();
    let modelled = |name: &str, host_id: &str| Hello {
        is_virtual: true,
        stream_epoch: 9,
        ..renamed(hello(name), host_id)
    };
    for (name, host_id) in [("virtual-1", "v1"), ("virtual-2", "v2")] {
        let attached = sim.farm.attach(&modelled(name, host_id), Some("model"), false).unwrap();
        assert_eq!((attached.bind, attached.retired), (None, None));
    }
    for certificate in ["model", "app3"] {
        let posing = sim.farm.attach(&modelled("virtual-3", "n1"), Some(certificate), true).unwrap_err();
        assert!(matches!(posing, AttachRefused::OtherCertificate { .. }), "{posing}");
    }
}

#[test]
fn a_drain_until_restart_ends_even_if_its_removal_was_not_stored() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    sim.drain("a", DrainMode::UntilRestart, false);
    let mark = (*sim.pool().hosts[0].drain.clone().unwrap()).clone();
    sim.farm.attach(&boot("a", "boot-2", 1), None, true).unwrap();
    let known = sim.farm.last_known(true);
    let mut farm = Farm::new(sim.ledger.clone(), at(0));
    farm.restore(Restored { known, drains: vec![(id("a"), mark)], ..Restored::default() }, at(0));
    assert!(farm.attach(&boot("a", "boot-2", 2), None, false).unwrap().drain_ended.is_some());
}

// rule: directory-epoch
#[test]
fn case_081_the_late_end_of_an_old_stream_changes_nothing() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    sim.farm.attach(&boot("a", "boot-1", 2), None, false).unwrap();
    sim.report("a", users(1));
    assert!(!sim.farm.detach(&id("a"), 1, Some(Goodbye::HostShutdown), sim.now));
    assert_eq!(sim.state("a"), HostState::Available);
    assert!(sim.pool().hosts[0].connected);
    assert!(!sim.farm.is_current(&id("a"), 1) && sim.farm.is_current(&id("a"), 2));
    let older = sim.farm.attach(&boot("a", "boot-1", 1), None, false).unwrap_err();
    assert_eq!(older, AttachRefused::OlderStream(id("a")));
    let same = sim.farm.attach(&boot("a", "boot-1", 2), None, false).unwrap_err();
    assert_eq!(same, AttachRefused::OlderStream(id("a")), "two streams must be told apart");
    assert!(sim.farm.detach(&id("a"), 2, None, sim.now));
    assert!(!sim.pool().hosts[0].connected);
}

#[test]
fn an_agent_that_restarts_loses_neither_numbers_nor_places_nor_sessions() {
    let mut sim = Sim::of_users(&[("a", 7), ("b", 50)]);
    sim.sessions("a", &[session("1", "u1", SessionState::Active, 60)]);
    let placed = sim.place(&ask("r1"));
    assert_eq!(placed.host(), "a");
    let cell = placed.grant.as_ref().unwrap().cell.clone();
    sim.pass(4);
    sim.farm.detach(&id("a"), 1, Some(Goodbye::AgentStop), sim.now);
    sim.farm.attach(&boot("a", "boot-1", 2), None, false).unwrap();
    let pool = sim.pool();
    let position = pool.members.position(&id("a")).unwrap();
    assert!(std::sync::Arc::ptr_eq(&pool.members.cells[position], &cell), "places given before still count");
    assert_eq!((sim.word("a").users(), sim.word("a").pending_users()), (Some(7), 1));
    assert_eq!(sim.state("a"), HostState::Available);
    let key = pool.policy.user_match.key("u1").unwrap();
    let began = pool.sessions.of(&key)[0].began.unwrap();
    assert_eq!(sim.now.since(began).as_secs(), 64, "a session grows no younger when its host connects again");
    assert!(placed.grant.unwrap().end(EndReason::Cancelled, sim.now));
    assert_eq!(sim.word("a").pending_users(), 0);
}

#[test]
fn a_host_that_moves_to_another_pool_keeps_its_places_and_leaves_nothing_behind() {
    let mut sim = Sim::new();
    sim.attach("a");
    sim.report("a", users(1));
    sim.place(&ask("r1"));
    let moved = Hello { pool: usher_types::PoolName::new("web").unwrap(), ..boot("a", "boot-1", 2) };
    sim.farm.attach(&moved, None, false).unwrap();
    let snapshot = sim.farm.snapshot(sim.now);
    let pools: Vec<&str> = snapshot.pools.keys().map(usher_types::PoolName::as_str).collect();
    assert_eq!(pools, ["web"], "a pool that was never applied goes with its last host");
    assert_eq!(snapshot.pools[&moved.pool].members.cells[0].load().pending_users(), 1);
}

// rule: state-restricted
#[test]
fn case_088_a_drain_until_restart_outlives_the_agent_and_ends_with_the_boot() {
    for (mode, outlives_boot) in [(DrainMode::UntilRestart, false), (DrainMode::Persistent, true)] {
        let mut sim = Sim::of_users(&[("a", 1), ("b", 9)]);
        sim.sessions("a", &[session("1", "u1", SessionState::Disconnected, 60)]);
        sim.drain("a", mode, false);
        assert_eq!(sim.state("a"), HostState::Restricted);
        assert_eq!(sim.place(&ask_for("r1", "u1")).host(), "a", "who has a session comes back");
        assert_eq!(sim.place(&ask_for("r2", "u2")).host(), "b");
        sim.farm.detach(&id("a"), 1, None, sim.now);
        assert!(sim.farm.attach(&boot("a", "boot-1", 2), None, false).unwrap().drain_ended.is_none());
        assert_eq!(sim.state("a"), HostState::Restricted);
        sim.farm.detach(&id("a"), 2, None, sim.now);
        let attached = sim.farm.attach(&boot("a", "boot-2", 1), None, false).unwrap();
        sim.report("a", users(0));
        assert_eq!(attached.drain_ended.is_some(), !outlives_boot);
        assert_eq!(sim.state("a") == HostState::Restricted, outlives_boot);
    }
}

#[test]
fn a_stored_drain_of_a_host_that_nothing_else_is_known_of_waits_for_it() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    sim.drain("a", DrainMode::Persistent, false);
    let mark = (*sim.pool().hosts[0].drain.clone().unwrap()).clone();
    let mut sim = Sim { farm: Farm::new(sim.ledger.clone(), at(0)), ..sim };
    sim.farm.restore(Restored { drains: vec![(id("a"), mark)], ..Restored::default() }, at(0));
    sim.attach("a");
    sim.report("a", users(1));
    assert_eq!(sim.state("a"), HostState::Restricted);
}

// rule: state-offline
// rule: life-offline
#[test]
fn a_host_that_said_goodbye_is_offline_at_once_and_its_places_are_void() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 9)]);
    let placed = sim.place(&ask("r1"));
    sim.farm.detach(&id("a"), 1, Some(Goodbye::HostShutdown), sim.now);
    assert_eq!(sim.state("a"), HostState::Offline);
    assert!(!placed.grant.unwrap().counts());
    sim.report("a", users(1));
    assert_eq!(sim.state("a"), HostState::Offline, "a Load that was still on the way does not revive it");
    let pool = sim.pool();
    assert_eq!((pool.hosts_heard, pool.hosts_registered, pool.is_partial()), (1, 1, false));
    let effects = sim.pass(1);
    let gone = |effect: &Effect| matches!(effect, Effect::StateChanged { host_id, to: HostState::Offline, .. } if *host_id == id("a"));
    assert!(effects.iter().any(gone), "{effects:?}");
}
