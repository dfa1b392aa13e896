//! The state of a host, and when it changes.

use std::time::Duration;

use usher_placement::{
    decision::{Excluded, Flags, RefusalKind},
    farm::Effect,
};
use usher_types::{
    BusyReasons, DrainMode, Hello, HostOverrides, HostState, Load, Percent, PolicyChange, Readiness,
    UserLimit,
};

use crate::support::*;

// rule: state-unknown
// rule: absent-values
#[test]
fn case_070_a_host_that_never_reported_is_not_an_idle_one() {
    let mut sim = Sim::new();
    sim.attach("s1");
    sim.attach("s2");
    sim.report("s1", load((35.0, 55, 10, 70)));
    assert_eq!(sim.state("s2"), HostState::Unknown);
    for n in 0..20 {
        assert_eq!(sim.place(&ask(&format!("r{n}"))).host(), "s1");
    }
    sim.report("s2", load((0.0, 0, 0, 3)));
    assert_eq!(sim.place(&ask("r")).host(), "s2", "a genuine report of next to nothing is the best");
}

// rule: error-all-offline
// rule: state-unknown
// rule: blind-doors
#[test]
fn case_096_nobody_alive_is_refused_and_busy_is_a_last_resort_and_unknown_is_not() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 1)]);
    sim.pass(17);
    let placed = sim.place(&ask("r1"));
    assert_eq!(placed.refusal().kind, RefusalKind::AllOffline);
    let shut = Excluded::DoorShut;
    assert_eq!(placed.refusal().hosts, [(0, shut), (1, shut)]);

    sim.apply(PolicyChange { threshold_percent: Some(30.0), ..PolicyChange::default() });
    sim.report("b", users(1));
    sim.available("b", 10.0);
    let placed = sim.place(&ask("r2"));
    assert_eq!((placed.host(), placed.choice().flags.has(Flags::ALL_BUSY)), ("b", true));

    let mut sim = Sim::of_users(&[("a", 1)]);
    sim.pass(17);
    sim.attach("b");
    let placed = sim.place(&ask("r3"));
    assert_eq!(placed.refusal().kind, RefusalKind::AllOffline);
    assert_eq!(placed.refusal().hosts[1].1, Excluded::State(HostState::Unknown));
    sim.apply(PolicyChange { allow_unknown: Some(true), ..PolicyChange::default() });
    assert_eq!(sim.place(&ask("r4")).host(), "b");
}

// rule: state-threshold
// rule: index-formula compared unrounded
#[test]
fn case_099_busy_at_equality_off_at_0_always_at_100() {
    // Each on a host of its own: one that was BUSY a moment ago stays so inside the margin.
    let state = |threshold: f64, index: f64| {
        let mut sim = Sim::of_users(&[("a", 1)]);
        sim.apply(PolicyChange { threshold_percent: Some(threshold), ..PolicyChange::default() });
        sim.available("a", index);
        sim.state("a")
    };
    // 0.5 is a power of two, so that the index is exactly 50.
    assert_eq!(state(50.0, 50.0), HostState::Busy);
    assert_eq!(state(50.0, 49.6), HostState::Busy, "49.6 is shown as 50");
    assert_eq!(state(50.0, 50.4), HostState::Available, "and so is 50.4");
    assert_eq!(state(0.0, 0.0), HostState::Available);
    assert_eq!(state(100.0, 100.0), HostState::Busy);
}

// rule: state-exit-margin
#[test]
fn case_102_the_agents_latch_holds_inside_the_margin_only() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    sim.apply(PolicyChange { threshold_percent: Some(30.0), ..PolicyChange::default() });
    sim.report("a", Load { latched: Some(BusyReasons::AVAILABILITY), ..users(1) });
    for (index, state) in [(29.0, HostState::Busy), (34.0, HostState::Busy), (36.0, HostState::Available)] {
        sim.available("a", index);
        assert_eq!(sim.state("a"), state, "{index}");
    }
}

// rule: index-no-data
#[test]
fn a_latency_that_is_three_periods_old_says_nothing() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    sim.apply(PolicyChange { threshold_percent: Some(30.0), ..PolicyChange::default() });
    sim.available("a", 10.0);
    for (seconds, state) in [(45, HostState::Busy), (1, HostState::Available)] {
        sim.pass(seconds);
        sim.report("a", users(1));
        assert_eq!(sim.state("a"), state);
    }
}

// rule: state-offline
#[test]
fn case_103_a_lost_report_is_not_a_lost_host() {
    let mut sim = Sim::new();
    let slow = Hello { report_interval: Duration::from_secs(10), ..hello("a") };
    sim.farm.attach(&slow, None, false).unwrap();
    sim.report("a", users(1));
    let mut changes = Vec::new();
    for second in 1..=62u64 {
        changes.extend(sim.pass(1).into_iter().map(|effect| (second, effect)));
        if [10, 30].contains(&second) {
            sim.report("a", users(1));
        }
        if second == 61 {
            assert_eq!(sim.state("a"), HostState::Available, "three intervals and a second after 30");
        }
    }
    let to = |(second, effect): (u64, Effect)| match effect {
        Effect::StateChanged { to, .. } => (second, to),
        other => panic!("{other:?}"),
    };
    let changes: Vec<_> = changes.into_iter().map(to).collect();
    assert_eq!(changes, [(1, HostState::Available), (62, HostState::Offline)]);
}

// rule: state-streams
#[test]
fn a_lost_stream_changes_no_state_before_its_time() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    sim.farm.detach(&id("a"), 1, None, sim.now);
    assert_eq!(sim.state("a"), HostState::Available);
    sim.pass(16);
    assert_eq!(sim.place(&ask("r1")).host(), "a");
    sim.pass(1);
    assert_eq!(sim.state("a"), HostState::Offline);
}

#[test]
fn case_128_129_the_hosts_clock_moves_nothing_but_the_skew_that_is_shown() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    sim.place(&ask("r1"));
    for theirs in [3_600_000, 1, u64::MAX] {
        sim.pass(5);
        let load = Load { wall_clock_unix_ms: Some(theirs), ..users(1) };
        sim.farm.observe_load(&id("a"), load, &[], sim.now, 0);
        let pool = sim.pool();
        let reading = pool.hosts[0].reading.clone().unwrap();
        assert_eq!(reading.age(sim.now), Some(Duration::ZERO));
        assert_eq!(reading.clock_skew_ms, Some(i64::try_from(theirs).unwrap_or(i64::MAX)));
        assert_eq!(sim.state("a"), HostState::Available);
        assert_eq!(sim.ledger.live(), 1);
    }
}

#[test]
fn case_132_an_instant_before_the_last_one_is_age_zero_and_no_panic() {
    let mut sim = Sim::of_users(&[("a", 1)]);
    sim.now = at(0).before(Duration::from_secs(5));
    sim.report("a", users(2));
    sim.available("a", 50.0);
    sim.farm.tick(sim.now);
    assert_eq!(sim.place(&ask("r1")).host(), "a");
    let endless = Hello {
        report_interval: Duration::MAX,
        latency_period: Duration::MAX,
        stream_epoch: 2,
        ..hello("a")
    };
    sim.farm.attach(&endless, None, false).unwrap();
    sim.report("a", users(2));
    sim.available("a", 50.0);
    assert_eq!(sim.state("a"), HostState::Available);
}

// rule: state-order
// rule: state-not-ready
/// Each rule of the table hides all below it.
#[test]
fn the_first_rule_that_holds_gives_the_state() {
    let mut sim = Sim::of_users(&[("a", 5)]);
    sim.available("a", 10.0);
    assert_eq!(sim.state("a"), HostState::Available);
    sim.apply(PolicyChange { threshold_percent: Some(30.0), ..PolicyChange::default() });
    assert_eq!(sim.state("a"), HostState::Busy);
    sim.apply(PolicyChange { max_users: limit(5), ..PolicyChange::default() });
    assert_eq!(sim.state("a"), HostState::MaxUsers);
    sim.freeze(6);
    assert_eq!(sim.state("a"), HostState::Unknown);
    sim.drain("a", DrainMode::Persistent, false);
    assert_eq!(sim.state("a"), HostState::Restricted);
    sim.report("a", Load { readiness: Readiness::NotReady("nologin".into()), ..users(5) });
    assert_eq!(sim.state("a"), HostState::NotReady);
    sim.pass(17);
    assert_eq!(sim.state("a"), HostState::Offline);
}

// rule: settings-precedence
#[test]
fn a_hosts_own_settings_win_over_the_pools() {
    let mut sim = Sim::of_users(&[("a", 5)]);
    sim.apply(PolicyChange { max_users: limit(100), ..PolicyChange::default() });
    let overrides = HostOverrides {
        max_users: Some(UserLimit::Users(5)),
        threshold: Some(Percent::FULL),
        ..HostOverrides::default()
    };
    sim.report("a", Load { overrides, ..users(4) });
    assert_eq!(sim.state("a"), HostState::Busy);
    sim.report("a", Load { overrides, ..users(5) });
    assert_eq!(sim.state("a"), HostState::MaxUsers);
    sim.report("a", users(5));
    assert_eq!(sim.state("a"), HostState::Available);
}

// rule: index-range
#[test]
fn a_new_exponent_counts_at_once_and_not_from_the_next_report() {
    let mut sim = Sim::of_users(&[("a", 5)]);
    sim.apply(PolicyChange { threshold_percent: Some(30.0), ..PolicyChange::default() });
    sim.available("a", 25.0);
    assert_eq!(sim.state("a"), HostState::Busy);
    sim.apply(PolicyChange { range: Some(12.0), ..PolicyChange::default() });
    let index = sim.pool().hosts[0].availability(sim.now).index.unwrap();
    assert!((index - 62.5).abs() < 1e-9, "{index}");
    assert_eq!(sim.state("a"), HostState::Available);
}
