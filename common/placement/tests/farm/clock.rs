//! Clocks that step, stand still or run backwards.

use usher_placement::farm::Effect;
use usher_types::{HostState, Load};

use crate::support::*;

// rule: receiver-clock a host's wall clock moves nothing but the skew that is shown
#[test]
fn case_128_a_hosts_wall_clock_an_hour_ahead_and_back_again_moves_nothing() {
    let mut sim = Sim::of(&["a"]);
    let place = sim.place("r1", "a");
    sim.report("a", Load { pending: vec![listed("r1", 1, 120)], ..users(1) });
    let ours = 1_000_000_000;
    for (ahead, skew_ms) in [(3_600_000, 3_600_000), (3_600_000, 3_600_000), (0, 0)] {
        let effects = sim.pass(5);
        assert!(changes(&effects).is_empty(), "{effects:?}");
        let pending = vec![listed("r1", 1, 60)];
        let load = Load { wall_clock_unix_ms: Some(ours + ahead), pending, ..users(1) };
        sim.farm.observe_load(&id("a"), load, &[], sim.now, ours);
        let reading = sim.pool().hosts[0].reading.clone().unwrap();
        assert_eq!((reading.clock_skew_ms, reading.age(sim.now)), (Some(skew_ms), Some(secs(0))));
        assert_eq!(sim.state("a"), HostState::Available);
        assert!(place.counts());
    }
}

// rule: receiver-clock ages are counted on the receiver's boot-time clock only
#[test]
fn case_129_a_day_on_the_coordinators_wall_clock_changes_no_state_and_ends_no_place() {
    let mut sim = Sim::of(&["a"]);
    let place = sim.place("r1", "a");
    for wall_ms in [0, 86_400_000, 0] {
        let load = Load { pending: vec![listed("r1", 1, 100)], wall_clock_unix_ms: Some(0), ..users(1) };
        sim.farm.observe_load(&id("a"), load, &[], sim.now, wall_ms);
        assert!(changes(&sim.pass(1)).is_empty());
        assert!(place.counts());
    }
}

// rule: grace-begins after a suspension nothing of before is believed
#[test]
fn case_131_after_ten_minutes_of_suspension_hosts_are_unknown_and_places_wait_for_their_hosts() {
    let mut sim = Sim::of(&["a", "b"]);
    let told = sim.place("r1", "a");
    let untold = sim.place("r2", "a");
    sim.report("a", Load { pending: vec![listed("r1", 1, 120)], ..users(1) });
    sim.now = sim.now + secs(600);
    // Each placement looks at the last tick itself: it need not wait for the next one to learn of the freeze.
    assert!(sim.pool().grace.is_none() && secs(600) > sim.farm.snapshot(sim.now).frozen_after);
    let effects = sim.farm.tick(sim.now);
    assert!(effects.contains(&Effect::Thawed { after: secs(600) }), "{effects:?}");
    assert_eq!(["a", "b"].map(|host| sim.state(host)), [HostState::Unknown; 2], "they did not go: we did");
    assert!(told.counts() && untold.counts());
    assert!(sim.pool().is_stale(sim.now));
    sim.report("b", users(1));
    assert!(sim.pool().is_stale(sim.now), "half is not 80 %");
    sim.report("a", users(2));
    assert!(!sim.pool().is_stale(sim.now));
    assert!(
        !told.counts() && !untold.counts(),
        "neither is listed any more, and the time of both has passed"
    );
    assert_eq!(sim.pending("a"), (0, 0));
}

#[test]
fn case_131_what_stood_in_a_buffer_during_the_suspension_is_as_old_as_its_tick() {
    let mut sim = Sim::of(&["a"]);
    let before = sim.now;
    sim.now = sim.now + secs(600);
    sim.farm.tick(sim.now);
    sim.farm.observe_load(&id("a"), users(9), &[], before, 0);
    assert_eq!(sim.state("a"), HostState::Unknown, "measured before the freeze");
    sim.pass(11);
    assert!(!sim.pool().is_stale(sim.now), "after 10 s those that were heard are chosen among");
    assert_eq!(sim.state("a"), HostState::Unknown);
    assert_eq!(changes(&sim.pass(50)), [(id("a"), HostState::Offline)], "after 60 s the grace is over");
}

#[test]
fn case_132_an_instant_before_the_last_one_is_age_zero() {
    let mut sim = Sim::of(&["a"]);
    let place = sim.place("r1", "a");
    sim.now = at(0).before(secs(2000));
    sim.farm.tick(sim.now);
    sim.report("a", users(2));
    sim.latency("a", window(10.0, 0.0, 2.0));
    assert_eq!(sim.state("a"), HostState::Available);
    sim.farm.mark_replica(&id("a"), &resource("crm"), None, sim.now);
    assert_eq!(sim.farm.confirmed_elsewhere(&id("a"), sim.now), None);
    assert!(place.counts());
}

#[test]
fn case_132_the_longest_durations_overflow_nothing() {
    let mut sim = Sim::new();
    let endless = usher_types::Hello {
        report_interval: std::time::Duration::MAX,
        latency_period: std::time::Duration::MAX,
        ..hello("a")
    };
    sim.farm.attach(&endless, None, false).unwrap();
    let load = Load {
        ready_age: Some(std::time::Duration::MAX),
        replica_lag: Some(std::time::Duration::MAX),
        uptime: Some(std::time::Duration::MAX),
        ..users(2)
    };
    sim.report("a", load);
    sim.latency("a", window(10.0, 0.0, 2.0));
    sim.pass(3);
    assert_eq!(sim.state("a"), HostState::Warming);
    assert_eq!(sim.pool().hosts[0].ramp(sim.now), None);
}
