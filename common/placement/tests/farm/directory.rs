//! Who is who.

use usher_placement::farm::{AttachRefused, Attached};
use usher_types::{Goodbye, Hello, HostName, HostState, Load, Session, SessionState};

use crate::support::*;

fn of(host_id: &str, name: &str) -> Hello {
    Hello { host_id: id(host_id), host_name: HostName::new(name).unwrap(), ..hello(host_id) }
}

fn attach(sim: &mut Sim, hello: &Hello, certificate: &str) -> Result<Attached, AttachRefused> {
    sim.farm.attach(hello, Some(certificate), false)
}

// rule: directory-clone one id, two boot ids: the second stream is refused while the first answers
#[test]
fn case_077_of_two_clones_the_first_stays_as_it_is_and_both_are_named() {
    let mut sim = Sim::of(&["a"]);
    let before = sim.pool().hosts[0].facts.clone();
    let clone = Hello { host_name: HostName::new("b").unwrap(), ..booted("a", "boot-2", 9) };
    let refused = sim.farm.attach(&clone, None, false).unwrap_err();
    assert_eq!(refused.to_string(), "host id id-a is in use by a, and b claims it too");
    assert_eq!(*sim.pool().hosts[0].facts, *before);
    assert_eq!(sim.state("a"), HostState::Available);
    // The first does not answer a ping: it was a reboot behind a half-open connection.
    let attached = sim.farm.attach(&clone, None, true).unwrap();
    assert_eq!(attached.replaced_stream, Some(1));
    assert_eq!(sim.pool().hosts[0].facts.name.as_str(), "b");
    assert!(!sim.farm.is_current(&id("a"), 1) && sim.farm.is_current(&id("a"), 9));
    let first = sim.farm.attach(&booted("a", "boot-1", 2), None, false).unwrap_err();
    assert!(matches!(first, AttachRefused::InUse { stream_epoch: 9, .. }), "now it is the other way round");
}

// rule: directory-epoch same boot id: the newer stream epoch replaces the older
#[test]
fn of_two_streams_of_one_boot_the_newer_replaces_the_older_whichever_comes_last() {
    let mut sim = Sim::of(&["a"]);
    assert_eq!(sim.farm.attach(&booted("a", "boot-1", 5), None, false).unwrap().replaced_stream, Some(1));
    for older in [4, 5] {
        let refused = sim.farm.attach(&booted("a", "boot-1", older), None, false).unwrap_err();
        assert_eq!(refused, AttachRefused::OlderStream(id("a")));
    }
    assert_eq!(sim.state("a"), HostState::Available, "its numbers are those of the same boot");
}

// rule: directory-ambiguous names compare without case or final dot, and two hosts of one name are ambiguous
#[test]
fn case_078_a_name_that_two_hosts_have_means_neither() {
    let mut sim = Sim::new();
    for host_id in ["n1", "n2"] {
        sim.farm.attach(&of(host_id, "localhost"), None, false).unwrap();
    }
    let snapshot = sim.farm.snapshot(sim.now);
    assert_eq!(snapshot.find_host("LocalHost.").unwrap_err(), [id("n1"), id("n2")]);
    assert_eq!(snapshot.find_host("id-n2").unwrap().1, 1);
    assert_eq!(snapshot.pools[&desk()].find("localhost"), None);
}

#[test]
fn case_078_a_name_in_two_pools_is_ambiguous_too() {
    let mut sim = Sim::new();
    let web = usher_types::PoolName::new("web").unwrap();
    sim.farm.attach(&of("n1", "app"), None, false).unwrap();
    sim.farm.attach(&Hello { pool: web, ..of("n2", "APP.") }, None, false).unwrap();
    assert_eq!(sim.farm.snapshot(sim.now).find_host("app").unwrap_err().len(), 2);
}

// rule: directory-certificate same certificate name with a new id: an OFFLINE host is replaced, a live one refused
#[test]
fn case_080_a_reinstalled_host_comes_back_and_a_live_one_is_not_replaced() {
    let mut sim = Sim::new();
    attach(&mut sim, &of("n1", "app3"), "app3").unwrap();
    sim.report("n1", users(1));
    sim.serves("n1", &["crm"]);
    sim.pass(1);
    let refused = attach(&mut sim, &of("n2", "app3"), "app3").unwrap_err();
    assert_eq!(refused.to_string(), "certificate app3 belongs to host id id-n1, not to id-n2");
    sim.lose("n1");
    sim.pass(600);
    let attached = attach(&mut sim, &of("n2", "APP3."), "app3").unwrap();
    assert_eq!((attached.retired, attached.bind.as_deref()), (Some(id("n1")), Some("app3")));
    let pool = sim.pool();
    assert_eq!((pool.hosts.len(), pool.replicas.len()), (1, 0));
    // The old one, should it come back, is the stranger now.
    let refused = attach(&mut sim, &of("n1", "app3"), "app3").unwrap_err();
    assert!(matches!(refused, AttachRefused::OtherHost { .. }), "{refused}");
}

#[test]
fn case_080_a_host_that_came_back_just_now_is_not_replaced_although_it_is_announced_as_offline() {
    let mut sim = Sim::new();
    attach(&mut sim, &of("n1", "app3"), "app3").unwrap();
    sim.report("n1", users(1));
    sim.lose("n1");
    sim.pass(600);
    attach(&mut sim, &Hello { stream_epoch: 2, ..of("n1", "app3") }, "app3").unwrap();
    sim.report("n1", users(1));
    assert!(attach(&mut sim, &of("n2", "app3"), "app3").is_err());
}

#[test]
fn case_080_a_host_that_said_goodbye_is_replaced_at_once() {
    for goodbye in [Some(Goodbye::HostShutdown), Some(Goodbye::AgentStop)] {
        let mut sim = Sim::new();
        attach(&mut sim, &of("n1", "app3"), "app3").unwrap();
        sim.report("n1", users(1));
        sim.pass(1);
        sim.farm.detach(&id("n1"), 1, goodbye, sim.now);
        let replaced = attach(&mut sim, &of("n2", "app3"), "app3").is_ok();
        assert_eq!(replaced, goodbye == Some(Goodbye::HostShutdown), "an agent that stops leaves its host");
    }
    // One that was never heard and has no stream is OFFLINE as well.
    let mut sim = Sim::new();
    attach(&mut sim, &of("n1", "app3"), "app3").unwrap();
    sim.farm.detach(&id("n1"), 1, None, sim.now);
    assert_eq!(attach(&mut sim, &of("n2", "app3"), "app3").unwrap().retired, Some(id("n1")));
}

#[test]
fn case_080_a_host_that_was_gone_before_the_coordinator_started_is_replaced_at_once() {
    let mut sim = Sim::new();
    attach(&mut sim, &of("n1", "app3"), "app3").unwrap();
    sim.report("n1", users(1));
    sim.lose("n1");
    sim.pass(600);
    let mut again = Sim::begun_at(sim.now);
    let stored = usher_placement::farm::Restored {
        bindings: vec![("app3".into(), id("n1"))],
        known: sim.farm.last_known(true),
        ..usher_placement::farm::Restored::default()
    };
    again.farm.restore(stored, again.now);
    again.pass(5);
    assert_eq!(again.state("n1"), HostState::Unknown, "in the grace");
    assert_eq!(attach(&mut again, &of("n2", "app3"), "app3").unwrap().retired, Some(id("n1")));
}

#[test]
fn case_081_the_late_end_of_a_stream_that_was_replaced_changes_nothing() {
    let mut sim = Sim::of(&["a"]);
    sim.farm.attach(&booted("a", "boot-1", 2), None, false).unwrap();
    sim.pass_with(20, &["a"]);
    for goodbye in [None, Some(Goodbye::AgentStop), Some(Goodbye::HostShutdown)] {
        assert!(!sim.farm.detach(&id("a"), 1, goodbye, sim.now));
    }
    let pool = sim.pool();
    assert!(pool.hosts[0].connected && !pool.hosts[0].shut_down && !pool.hosts[0].said_goodbye);
    assert_eq!(sim.state("a"), HostState::Available);
}

// rule: whole-state a coordinator that lost everything has all of it again with what hosts send at attach
#[test]
fn case_082_after_a_loss_of_all_data_one_message_of_each_kind_brings_a_host_back() {
    let mut sim = Sim::begun_at(at(9));
    for (n, host) in ["a", "b", "c"].into_iter().enumerate() {
        sim.attach(host);
        sim.serves(host, &["crm", host]);
        let session = Session { id: "1".into(), user: host.into(), state: SessionState::Active, age: None };
        sim.farm.observe_sessions(&id(host), vec![session], sim.now);
        sim.report(host, Load { pending: vec![listed(&format!("r{n}"), 1, 60)], ..users(7) });
    }
    let pool = sim.pool();
    assert_eq!(pool.replicas[&resource("crm")], [0, 1, 2]);
    assert_eq!(pool.replicas.len(), 4);
    assert_eq!(pool.sessions.of(&pool.policy.user_match.key("b").unwrap())[0].host_id, id("b"));
    for host in ["a", "b", "c"] {
        assert_eq!((sim.state(host), sim.pending(host)), (HostState::Available, (1, 1)));
    }
    assert!(sim.pool().grace.is_none(), "nothing was stored: nobody is waited for");
}

// rule: user-names unequal key ids are told
#[test]
fn the_keys_with_which_names_were_hashed_are_known_while_somebody_uses_them() {
    let mut sim = Sim::of(&["a", "b"]);
    let session = |n: &str, user: &str| Session {
        id: n.into(),
        user: user.into(),
        state: SessionState::Active,
        age: None,
    };
    let keys = |sim: &mut Sim| -> Vec<String> { sim.pool().sessions.key_ids().map(str::to_owned).collect() };
    let list = |sim: &mut Sim, host: &str, sessions: &[Session]| {
        sim.farm.observe_sessions(&id(host), sessions.to_vec(), sim.now);
    };
    list(&mut sim, "a", &[session("1", "hmac:aa:01"), session("2", "hmac:aa:02"), session("3", "ann")]);
    list(&mut sim, "b", &[session("1", "hmac:bb:01"), session("2", "hmac:aa:01")]);
    assert_eq!(keys(&mut sim), ["aa", "bb"]);
    list(&mut sim, "b", &[session("2", "hmac:aa:01")]);
    assert_eq!(keys(&mut sim), ["aa"]);
    list(&mut sim, "a", &[]);
    assert_eq!(keys(&mut sim), ["aa"], "the other host still does");
    sim.farm.attach(&booted("b", "boot-2", 1), None, true).unwrap();
    assert!(keys(&mut sim).is_empty());
}

#[test]
fn a_host_id_is_no_certificates_until_one_comes_with_it() {
    let mut sim = Sim::new();
    sim.farm.attach(&hello("a"), None, false).unwrap();
    let same = Hello { stream_epoch: 2, ..hello("a") };
    assert_eq!(attach(&mut sim, &same, "a").unwrap().bind.as_deref(), Some("a"));
    sim.farm.unbind("a");
    let again = Hello { stream_epoch: 3, ..hello("a") };
    let bound = attach(&mut sim, &again, "A.").unwrap().bind;
    assert_eq!(bound.as_deref(), Some("a"), "it was not stored: once more");
    let again = Hello { stream_epoch: 4, host_id: id("a"), ..hello("A.") };
    assert_eq!(attach(&mut sim, &again, "a").unwrap().bind, None, "the same name in other letters");
}
