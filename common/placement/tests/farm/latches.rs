//! Who latches what makes a host BUSY.

use usher_types::{BusyReasons, HostState, Load, PolicyChange};

use crate::support::*;

/// A report of a host that keeps no latches.
fn unlatched(cpu: f64) -> Load {
    Load { cpu: Some(percent(cpu)), latched: None, ..users(1) }
}

// rule: state-busy-latched a host that keeps no latches is latched by each coordinator
#[test]
fn the_cpu_of_a_host_without_latches_counts_thirty_seconds_here() {
    let mut sim = Sim::of(&["a"]);
    let mut states = Vec::new();
    for cpu in [97.0, 96.0, 95.0, 99.0, 95.0, 95.0, 95.0, 91.0, 89.0, 99.0] {
        sim.report("a", unlatched(cpu));
        states.push(sim.state("a") == HostState::Busy);
        sim.pass(5);
    }
    // Held from the seventh report on, 30 s after the first, and left when more than 5 points lower.
    assert_eq!(states, [false, false, false, false, false, false, true, true, false, false]);
}

#[test]
fn one_quiet_interval_begins_the_thirty_seconds_anew() {
    let mut sim = Sim::of(&["a"]);
    for cpu in [99.0, 99.0, 99.0, 94.0, 99.0, 99.0, 99.0, 99.0] {
        sim.report("a", unlatched(cpu));
        assert_eq!(sim.state("a"), HostState::Available);
        sim.pass(5);
    }
}

// rule: state-exit-margin BUSY is entered at the threshold and left a margin above it
#[test]
fn the_index_of_a_host_without_latches_is_held_inside_the_margin() {
    let mut sim = Sim::of(&["a"]);
    sim.apply(PolicyChange { threshold_percent: Some(50.0), ..PolicyChange::default() });
    sim.report("a", unlatched(0.0));
    // Indices 54, 50, 54, 56 with range 6; the report between them changes nothing.
    for (index, state) in [
        (54.0, HostState::Available),
        (50.0, HostState::Busy),
        (54.0, HostState::Busy),
        (56.0, HostState::Available),
        (54.0, HostState::Available),
    ] {
        sim.latency("a", window(100.0, 0.0, f64::exp2((1.0 - index / 100.0) * 6.0)));
        assert_eq!(sim.state("a"), state, "index {index}");
        sim.report("a", unlatched(0.0));
        assert_eq!(sim.state("a"), state, "index {index}, reported again");
    }
}

#[test]
fn what_a_host_latches_itself_is_its_own_word() {
    let mut sim = Sim::of(&["a"]);
    for _ in 0..10 {
        sim.report("a", Load { latched: Some(BusyReasons::NONE), ..unlatched(99.0) });
        assert_eq!(sim.state("a"), HostState::Available);
        sim.pass(5);
    }
    sim.report("a", unlatched(99.0));
    assert_eq!(sim.state("a"), HostState::Busy, "the coordinator counted along");
}

#[test]
fn nothing_of_an_earlier_boot_is_held() {
    let mut sim = Sim::of(&["a"]);
    for _ in 0..8 {
        sim.report("a", unlatched(99.0));
        sim.pass(5);
    }
    sim.report("a", unlatched(99.0));
    assert_eq!(sim.state("a"), HostState::Busy);
    sim.farm.attach(&booted("a", "boot-2", 1), None, true).unwrap();
    sim.report("a", unlatched(99.0));
    assert_eq!(sim.state("a"), HostState::Available);
}

#[test]
fn two_coordinators_agree_inside_the_margin_whenever_they_began() {
    let (mut first, mut second) = (Sim::of(&["a"]), Sim::of(&["a"]));
    for sim in [&mut first, &mut second] {
        sim.apply(PolicyChange { threshold_percent: Some(50.0), ..PolicyChange::default() });
    }
    first.latency("a", window(100.0, 0.0, 8.0));
    assert_eq!(first.state("a"), HostState::Busy);
    let load = Load { latched: Some(BusyReasons::AVAILABILITY), ..users(1) };
    for sim in [&mut first, &mut second] {
        sim.report("a", load.clone());
        sim.latency("a", window(100.0, 0.0, f64::exp2(0.47 * 6.0)));
        assert_eq!(sim.state("a"), HostState::Busy, "53 is inside the margin");
    }
}
