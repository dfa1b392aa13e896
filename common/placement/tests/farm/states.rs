//! The state of a host: the table, each rule of it, and what is said of it.

use usher_types::{
    BusyReasons, CriticalLevel, DrainMode, FieldFault, Goodbye, HostMarks, HostOverrides, HostState, Load,
    Memory, MountFullness, OwnAvailability, Percent, PolicyChange, Readiness, UserLimit,
};

use crate::support::*;

// rule: state-order the first rule of the table that holds gives the state
/// Each rule hides all below it.
#[test]
fn the_first_rule_that_holds_gives_the_state() {
    let mut sim = Sim::of(&["a"]);
    let mut load = users(5);
    assert_eq!(sim.state("a"), HostState::Available);
    load.is_warming_up = true;
    sim.report("a", load.clone());
    assert_eq!(sim.state("a"), HostState::Warming);
    sim.farm.set_marks(&id("a"), HostMarks { busy: true, ..HostMarks::default() });
    assert_eq!(sim.state("a"), HostState::Busy);
    sim.apply(PolicyChange { max_users: Some(UserLimit::Users(5)), ..PolicyChange::default() });
    assert_eq!(sim.state("a"), HostState::MaxUsers);
    sim.now = sim.now + secs(6);
    sim.farm.tick(sim.now);
    assert_eq!(sim.state("a"), HostState::Unknown, "not heard since the coordinator was frozen");
    sim.drain("a", drain(DrainMode::Persistent, "disk"));
    assert_eq!(sim.state("a"), HostState::Restricted);
    load.readiness = Readiness::NotReady("nologin".into());
    sim.report("a", load);
    assert_eq!(sim.state("a"), HostState::NotReady);
    sim.goodbye("a", Goodbye::HostShutdown);
    assert_eq!(sim.state("a"), HostState::Offline);
}

// rule: state-busy-reasons memory, mounts, errors, an admin's word; each with its number and its limit
#[test]
fn what_makes_a_host_busy_is_told_with_its_number_and_its_limit() {
    let mut sim = Sim::of(&["a"]);
    sim.apply(PolicyChange { threshold_percent: Some(30.0), ..PolicyChange::default() });
    let mount = MountFullness { path: "/var/spool".into(), used: percent(98.4) };
    let other = MountFullness { path: "/tmp".into(), used: percent(3.0) };
    let full = Load { memory: Memory::new(97, 100), mounts: vec![other, mount], ..users(1) };
    sim.report("a", full);
    assert_eq!(sim.state("a"), HostState::Busy);
    assert_eq!(sim.reason("a"), "memory 97 %, limit 95; mount /var/spool 98.4 %, limit 98");
    sim.report("a", users(1));
    sim.latency("a", window(20.0, 30.0, 32.0));
    assert_eq!(sim.reason("a"), "availability index 16.7, threshold 30; errors 60 % of calls, limit 50");
    sim.pass(46);
    sim.report("a", users(1));
    assert_eq!(sim.state("a"), HostState::Available, "a latency of three periods ago says nothing");
    sim.farm.set_marks(
        &id("a"),
        HostMarks { busy: true, threshold: Some(percent(100.0)), ..HostMarks::default() },
    );
    assert_eq!(sim.reason("a"), "threshold 100: hot standby; set busy by an admin");
}

// rule: state-busy-latched cpu and psi only by a latch that counted 30 s, and never against the number of now
#[test]
fn cpu_and_pressure_hold_by_the_hosts_latch_and_no_longer_than_their_numbers() {
    let mut sim = Sim::of(&["a"]);
    let both = BusyReasons::CPU.with(BusyReasons::PSI, true);
    let busy = Load { cpu: Some(percent(99.0)), psi_full: Some(percent(60.0)), ..users(1) };
    sim.report("a", busy.clone());
    assert_eq!(sim.state("a"), HostState::Available, "30 s are not shown by one report");
    sim.report("a", Load { latched: Some(both), ..busy.clone() });
    assert_eq!(sim.reason("a"), "cpu 99 % for 30 s, limit 95; psi full 60 % for 30 s, limit 50");
    let inside = Load { cpu: Some(percent(90.0)), psi_full: Some(percent(44.9)), ..busy.clone() };
    sim.report("a", Load { latched: Some(both), ..inside });
    assert_eq!(sim.reason("a"), "cpu 90 % for 30 s, limit 95", "it leaves when more than 5 points lower");
    let unknown = Load { cpu: None, psi_full: None, ..busy };
    sim.report("a", Load { latched: Some(both), ..unknown });
    assert_eq!(sim.state("a"), HostState::Available, "what is not known holds nothing");
}

// rule: state-memory-margin memory leaves when more than 5 points lower
#[test]
fn memory_leaves_when_it_is_more_than_five_points_lower() {
    let mut sim = Sim::of(&["a"]);
    for (used, held, state) in [
        (95, BusyReasons::NONE, HostState::Busy),
        (94, BusyReasons::NONE, HostState::Available),
        (94, BusyReasons::MEMORY, HostState::Busy),
        (90, BusyReasons::MEMORY, HostState::Busy),
        (89, BusyReasons::MEMORY, HostState::Available),
    ] {
        sim.report("a", Load { memory: Memory::new(used, 100), latched: Some(held), ..users(1) });
        assert_eq!(sim.state("a"), state, "{used} %, {held:?}");
    }
    sim.apply(PolicyChange { mem_critical_percent: Some(CriticalLevel::Off), ..PolicyChange::default() });
    sim.report("a", Load { memory: Memory::new(99, 100), ..users(1) });
    assert_eq!(sim.state("a"), HostState::Available);
}

// rule: own-index an availability index that the host computes itself is used instead
#[test]
fn a_hosts_own_index_is_used_instead_of_its_latencies() {
    let mut sim = Sim::of(&["a"]);
    sim.apply(PolicyChange { threshold_percent: Some(30.0), ..PolicyChange::default() });
    sim.latency("a", window(100.0, 0.0, 64.0));
    assert_eq!(sim.state("a"), HostState::Busy);
    let own = |index| Some(OwnAvailability { index: percent(index), source: "domino".into() });
    sim.report("a", Load { own_availability: own(80.0), ..users(1) });
    assert_eq!(sim.state("a"), HostState::Available);
    sim.report("a", Load { own_availability: own(30.0), ..users(1) });
    assert_eq!(sim.reason("a"), "availability index 30.0, threshold 30");
}

// rule: state-warming replicas behind, or a warm-up that is not done
#[test]
fn a_host_whose_replicas_are_behind_is_warming() {
    let mut sim = Sim::of(&["a"]);
    for (lag, state) in [(60, HostState::Available), (61, HostState::Warming)] {
        sim.report("a", Load { replica_lag: Some(secs(lag)), ..users(1) });
        assert_eq!(sim.state("a"), state, "{lag} s");
    }
    sim.report("a", Load { replica_lag: Some(secs(90)), is_warming_up: true, ..users(1) });
    assert_eq!(sim.reason("a"), "replicas 90.0 s behind, limit 60.0 s; its warm-up is not done");
    sim.apply(PolicyChange { max_replica_lag_ms: Some(90_000), ..PolicyChange::default() });
    assert_eq!(sim.reason("a"), "its warm-up is not done");
}

// rule: state-restricted drained by an admin or on the host itself
#[test]
fn a_host_is_drained_by_an_admin_or_by_itself() {
    let mut sim = Sim::of(&["a"]);
    let own = drain(DrainMode::UntilRestart, "backup");
    sim.report("a", Load { drain: Some(own.clone()), ..users(1) });
    assert_eq!(
        (sim.state("a"), sim.reason("a")),
        (HostState::Restricted, "drained by ann: backup".to_owned())
    );
    sim.drain("a", drain(DrainMode::Persistent, "disk"));
    assert_eq!(sim.reason("a"), "drained by ann: disk; drained by ann: backup");
    sim.report("a", Load { drain: Some(drain(DrainMode::Persistent, "disk")), ..users(1) });
    assert_eq!(sim.reason("a"), "drained by ann: disk", "it has come to the host");
    sim.report("a", users(1));
    assert_eq!(sim.state("a"), HostState::Restricted, "an admin's drain is not the host's to end");
    sim.farm.set_drain(&id("a"), None);
    assert_eq!(sim.state("a"), HostState::Available);
}

// rule: state-maxusers users, pending and this login above the limit; unknown users under a finite limit
#[test]
fn a_host_is_full_by_users_and_places_and_if_its_users_are_not_known() {
    let mut sim = Sim::of(&["a"]);
    sim.apply(PolicyChange { max_users: Some(UserLimit::Users(3)), ..PolicyChange::default() });
    sim.place("r1", "a");
    assert_eq!(sim.state("a"), HostState::Available);
    sim.place("r2", "a");
    assert_eq!(
        (sim.state("a"), sim.reason("a")),
        (HostState::MaxUsers, "users 1 + 2 pending, limit 3".to_owned())
    );
    sim.report("a", Load { users: None, ..users(0) });
    assert_eq!((sim.state("a"), sim.reason("a")), (HostState::MaxUsers, "users_unknown, limit 3".to_owned()));
    sim.apply(PolicyChange { max_users: Some(UserLimit::Unlimited), ..PolicyChange::default() });
    assert_eq!(sim.state("a"), HostState::Available);
}

// rule: settings-precedence an admin's mark, else the agent's, else the pool's
#[test]
fn an_admins_settings_win_over_the_hosts_and_those_over_the_pools() {
    let mut sim = Sim::of(&["a"]);
    sim.apply(PolicyChange { max_users: Some(UserLimit::Users(10)), ..PolicyChange::default() });
    let own = HostOverrides {
        max_users: Some(UserLimit::Users(5)),
        capacity: Some(2.0),
        ..HostOverrides::default()
    };
    sim.report("a", Load { overrides: own, ..users(4) });
    let seen = |sim: &mut Sim| {
        let pool = sim.pool();
        (pool.hosts[0].max_users(&pool.policy).finite(), pool.hosts[0].capacity())
    };
    assert_eq!(seen(&mut sim), (Some(5), 2.0));
    let marks = HostMarks { max_users: Some(UserLimit::Unlimited), ..HostMarks::default() };
    assert_eq!(sim.farm.set_marks(&id("a"), marks), Some(HostMarks::default()));
    assert_eq!(seen(&mut sim), (None, 2.0));
    sim.report("a", Load { overrides: own, ..users(50) });
    assert_eq!(sim.state("a"), HostState::Available);
    assert_eq!(sim.farm.set_marks(&id("a"), HostMarks::default()), Some(marks));
    assert_eq!((sim.state("a"), seen(&mut sim).0), (HostState::MaxUsers, Some(5)));
    sim.report("a", users(9));
    assert_eq!((sim.state("a"), seen(&mut sim)), (HostState::Available, (Some(10), 1.0)));
}

// rule: index-range a new exponent counts at once, from whomever it comes
#[test]
fn an_admins_exponent_changes_the_index_at_once() {
    let mut sim = Sim::of(&["a"]);
    sim.latency("a", window(100.0, 0.0, 8.0));
    let index = |sim: &mut Sim| sim.pool().hosts[0].availability(sim.now).index.unwrap();
    assert!((index(&mut sim) - 50.0).abs() < 1e-9);
    sim.farm.set_marks(&id("a"), HostMarks { range: Some(12.0), ..HostMarks::default() });
    assert!((index(&mut sim) - 75.0).abs() < 1e-9);
}

// rule: wrong-values the last good one stands for three intervals
// rule: absent-values a value that the host does not know is not known, at once
#[test]
fn a_wrong_value_is_stood_for_by_the_last_good_one_for_three_intervals() {
    let mut sim = Sim::of(&["a"]);
    let full = MountFullness { path: "/var".into(), used: percent(99.0) };
    let own = OwnAvailability { index: percent(40.0), source: "domino".into() };
    let good = Load {
        psi_full: Some(percent(60.0)),
        mounts: vec![full.clone()],
        own_availability: Some(own),
        ..users(1)
    };
    sim.report("a", good);
    let wrong = |sim: &mut Sim, fields: &[&str]| {
        let faults: Vec<_> = fields.iter().map(|field| FieldFault::new(*field, "NaN", "0..=100")).collect();
        sim.farm.observe_load(&id("a"), users(1), &faults, sim.now, 0);
        let reading = sim.pool().hosts[0].reading.clone().unwrap();
        (
            reading.psi_full.map(Percent::get),
            reading.mounts.len(),
            reading.own_availability.as_ref().map(|own| own.index.get()),
            reading.stale.clone(),
        )
    };
    let all = ["psi_full_percent", "mounts[1].used_percent", "own_availability.index"];
    for _ in 0..3 {
        sim.pass(5);
        let kept = wrong(&mut sim, &all);
        assert_eq!(kept, (Some(60.0), 1, Some(40.0), vec!["psi", "mounts", "own_availability"]));
    }
    assert_eq!(sim.pool().hosts[0].rejected_values, 9);
    assert_eq!(sim.reason("a"), "mount /var 99 %, limit 98");
    sim.pass(5);
    assert_eq!(wrong(&mut sim, &all), (None, 0, None, vec![]), "three intervals have passed");
    // What a host says that it does not know is not known, whatever it said before.
    sim.report("a", Load { mounts: vec![full], ..users(1) });
    assert_eq!(wrong(&mut sim, &["psi_full"]), (None, 0, None, vec![]), "a field of another name");
}
