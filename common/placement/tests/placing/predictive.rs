//! Of the hosts of one class, the one that will have the least to do; and what is expected of logins on their way.

use usher_placement::{
    decision::{Flags, PlacementReason},
    farm::Restored,
    load::CostBounds,
};
use usher_types::{
    EndReason, FinishedLogons, Hello, Load, LogonsInProgress, Memory, Method, PendingLimit, PendingMode,
    Percent, PolicyChange, WeightsChange,
};

use crate::support::*;

const GIB: u64 = 1 << 30;

fn predictive() -> PolicyChange {
    PolicyChange { method: Some(Method::Predictive), ..PolicyChange::default() }
}

/// A host with this much CPU demand as a share of its cores, and this much memory in use of 32 GiB.
fn demand(share: f64, used_gib: u64) -> Load {
    Load {
        runnable_demand: Some(share),
        memory: Memory::new(used_gib * GIB, 32 * GIB),
        logons_in_progress: Some(LogonsInProgress { now: 0, mean: 0.0 }),
        ..users(10)
    }
}

fn of_size(host: &str, cores: u32) -> Hello {
    Hello { cores: Some(cores), memory_bytes: Some(32 * GIB), ..hello(host) }
}

/// Hosts that have been heard for long: name, cores, demand.
fn farm(change: PolicyChange, hosts: &[(&str, u32, f64)]) -> Sim {
    let mut sim = Sim::new();
    sim.apply(change);
    for (host, cores, _) in hosts {
        sim.farm.attach(&of_size(host, *cores), None, false).unwrap();
    }
    for _ in 0..6 {
        for (host, _, share) in hosts {
            sim.report(host, demand(*share, 8));
        }
        sim.pass(5);
    }
    for (host, _, share) in hosts {
        sim.report(host, demand(*share, 8));
    }
    sim
}

fn place_many(sim: &mut Sim, count: usize, label: &str) -> Vec<String> {
    (0..count).map(|n| sim.place(&ask(&format!("{label}{n}"))).host().to_owned()).collect()
}

fn count(hosts: &[String], host: &str) -> usize {
    hosts.iter().filter(|placed| *placed == host).count()
}

// rule: rank-predictive
#[test]
fn the_lowest_expected_demand_wins_and_its_parts_add_up() {
    let mut sim = farm(predictive(), &[("a", 8, 0.6), ("b", 8, 0.2)]);
    let placed = sim.place(&ask("r1"));
    let choice = placed.choice();
    assert_eq!((placed.host(), choice.reason), ("b", PlacementReason::Predicted));
    let explanation = sim.explain(&ask("r2"));
    for host in &explanation.hosts {
        let predicted = host.predicted.unwrap().load;
        let parts = predicted.background
            + predicted.logons
            + predicted.sessions
            + predicted.memory
            + predicted.scarce_memory;
        assert!((parts - host.score.unwrap()).abs() < 1e-9, "{host:?}");
        assert!(host.terms.is_none() && host.numbers.cpu_percent.is_none());
    }
    let b = explanation.hosts.iter().find(|host| host.position == 1).unwrap().predicted.unwrap();
    assert!((b.load.background - 0.2).abs() < 0.01, "{b:?}");
    assert_eq!((b.input.places, b.input.young_places), (1.0, 1.0));
}

// rule: rank-predictive a storm between two reports
#[test]
fn a_storm_goes_to_each_host_by_its_cores() {
    let mut sim = farm(predictive(), &[("small", 4, 0.2), ("middle", 8, 0.2), ("large", 16, 0.2)]);
    let hosts = place_many(&mut sim, 70, "r");
    assert!((8..=12).contains(&count(&hosts, "small")), "{}", count(&hosts, "small"));
    assert!((18..=22).contains(&count(&hosts, "middle")), "{}", count(&hosts, "middle"));
    assert!((37..=43).contains(&count(&hosts, "large")), "{}", count(&hosts, "large"));
}

// rule: predictive-missing
#[test]
fn a_host_of_which_nothing_is_known_comes_last_and_the_pools_mean_stands_for_a_missing_value() {
    let mut sim = farm(predictive(), &[("a", 8, 0.9), ("b", 8, 0.5)]);
    for host in ["dark", "half"] {
        sim.farm.attach(&of_size(host, 8), None, false).unwrap();
    }
    let silent = Load { memory: None, cpu: None, ..users(0) };
    for _ in 0..3 {
        sim.report("dark", silent.clone());
        sim.report("half", Load { memory: Memory::new(8 * GIB, 32 * GIB), ..silent.clone() });
        sim.pass(5);
        sim.report("a", demand(0.9, 8));
        sim.report("b", demand(0.5, 8));
    }
    let explanation = sim.explain(&ask("r1"));
    let order: Vec<usize> = explanation.hosts.iter().map(|host| host.position).collect();
    assert_eq!(order, [1, 3, 0, 2], "half has the mean of a and b, dark comes last");
    let half = &explanation.hosts[1];
    assert!((half.predicted.unwrap().load.background - 0.7).abs() < 0.01);
    assert!(half.flags.has(Flags::INCOMPLETE) && !explanation.hosts[0].flags.has(Flags::INCOMPLETE));
}

// rule: predictive-missing nothing known anywhere
#[test]
fn where_nothing_is_known_of_any_host_places_spread_the_logins() {
    let mut sim = Sim::new();
    sim.apply(predictive());
    for host in ["a", "b", "c"] {
        sim.farm.attach(&Hello { cores: None, memory_bytes: None, ..hello(host) }, None, false).unwrap();
        sim.report(host, Load { streams_held: 1, ..Load::default() });
    }
    let hosts = place_many(&mut sim, 9, "r");
    assert!(["a", "b", "c"].iter().all(|host| count(&hosts, host) == 3), "{hosts:?}");
}

// rule: predictive-background
#[test]
fn the_background_is_demand_without_logons_and_from_cpu_only_below_95_percent() {
    let mut sim = farm(predictive(), &[("a", 8, 0.2), ("b", 8, 0.2)]);
    let background = |sim: &mut Sim, at: usize| sim.pool().hosts[at].reading.as_ref().unwrap().background;
    // Four logons of one core each on eight cores: half of its demand is theirs.
    for _ in 0..12 {
        let logons = Some(LogonsInProgress { now: 4, mean: 4.0 });
        sim.report("a", Load { logons_in_progress: logons, ..demand(0.7, 8) });
        sim.pass(5);
    }
    assert!((background(&mut sim, 0).unwrap() - 0.2).abs() < 0.03, "{:?}", background(&mut sim, 0));
    let busy = |cpu: f64| Load { runnable_demand: None, cpu: Percent::new(cpu).ok(), ..demand(0.0, 8) };
    for _ in 0..12 {
        sim.report("b", busy(60.0));
        sim.pass(5);
    }
    assert!((background(&mut sim, 1).unwrap() - 0.6).abs() < 0.01);
    for _ in 0..12 {
        sim.report("b", busy(100.0));
        sim.pass(5);
    }
    assert!((background(&mut sim, 1).unwrap() - 0.6).abs() < 0.01, "all cores busy: nobody knows how much");
    sim.report("b", Load { runnable_demand: None, cpu: None, ..demand(0.0, 8) });
    sim.pass(5);
    assert_eq!(background(&mut sim, 1), None);
}

// rule: predictive-new
#[test]
fn a_new_host_has_the_mean_of_the_others_until_it_was_heard_twice_or_for_ten_seconds() {
    let background = |sim: &mut Sim, host: &str| {
        let pool = sim.pool();
        let at = pool.members.position(&id(host)).unwrap();
        pool.hosts[at].reading.as_ref().unwrap().background.unwrap()
    };
    for heard_again in [true, false] {
        let mut sim = farm(predictive(), &[("a", 8, 0.5), ("b", 8, 0.7)]);
        sim.farm.attach(&of_size("new", 8), None, false).unwrap();
        sim.report("new", demand(0.0, 8));
        assert!((background(&mut sim, "new") - 0.6).abs() < 0.01);
        sim.pass(5);
        if heard_again {
            sim.report("new", demand(0.0, 8));
        } else {
            assert!((background(&mut sim, "new") - 0.6).abs() < 0.01);
            sim.pass(6);
        }
        assert!(background(&mut sim, "new").abs() < 0.01);
    }
}

#[test]
fn case_067_what_a_new_host_measured_itself_is_its_weighted_load_and_not_the_mean_of_the_others() {
    let mut sim = farm(PolicyChange::default(), &[("a", 8, 0.5), ("b", 8, 0.7)]);
    sim.farm.attach(&of_size("new", 8), None, false).unwrap();
    sim.report("new", Load { cpu: Percent::new(10.0).ok(), ..demand(0.1, 8) });
    let at = sim.pool().members.position(&id("new")).unwrap();
    let explanation = sim.explain(&ask("r1"));
    let new = explanation.hosts.iter().find(|host| host.position == at).unwrap();
    assert!((new.terms.unwrap().cpu - 0.15 * 10.0).abs() < 1e-9, "{:?}", new.terms);
}

// rule: predictive-young
#[test]
fn a_place_that_nobody_came_for_is_no_logon_after_a_while_but_a_session_still() {
    let mut sim = farm(predictive(), &[("a", 8, 0.2), ("b", 8, 0.2)]);
    sim.place(&ask("r1"));
    let young = |sim: &mut Sim| {
        let explanation = sim.explain(&ask("r2"));
        let of = explanation.hosts.iter().map(|host| host.predicted.unwrap().input);
        let (places, young) = of.fold((0.0, 0.0), |sum, of| (sum.0 + of.places, sum.1 + of.young_places));
        (places, young)
    };
    assert_eq!(young(&mut sim), (1.0, 1.0));
    for _ in 0..6 {
        sim.pass(5);
        ["a", "b"].iter().for_each(|host| _ = sim.report(host, demand(0.2, 8)));
    }
    assert_eq!(young(&mut sim), (1.0, 1.0), "30 s: connecting, then 1.5 times a logon");
    sim.pass(5);
    assert_eq!(young(&mut sim), (1.0, 0.0));
}

// rule: load-predicted
#[test]
fn weighted_load_adds_what_the_logins_on_their_way_will_cost() {
    let weights = |cpu, memory| {
        Some(WeightsChange {
            cpu_percent: Some(cpu),
            memory_percent: Some(memory),
            ..WeightsChange::default()
        })
    };
    let mut sim = farm(
        PolicyChange { weights: weights(50.0, 50.0), ..PolicyChange::default() },
        &[("a", 8, 0.0), ("b", 8, 0.0)],
    );
    let first = sim.place(&ask("r1")).host().to_owned();
    let costs = sim.pool().costs;
    let explanation = sim.explain(&ask("r2"));
    let host = explanation.hosts.iter().find(|host| host.numbers.pending_users == 1).unwrap();
    let expected_cpu = 100.0 * (costs.logon_cores.value + costs.session_cores.value) / 8.0;
    let expected_memory = 100.0 * costs.session_memory_bytes.value / (32.0 * GIB as f64);
    assert!((host.numbers.expected_cpu.unwrap() - expected_cpu).abs() < 1e-9);
    assert!((host.numbers.expected_memory.unwrap() - expected_memory).abs() < 1e-9);
    let terms = host.terms.unwrap();
    assert!((terms.cpu - 0.5 * expected_cpu).abs() < 1e-9);
    assert!((terms.memory - 0.5 * (25.0 + expected_memory)).abs() < 1e-9);
    assert!((terms.weighted_load() - host.score.unwrap()).abs() < 1e-9);
    assert_ne!(sim.place(&ask("r2")).host(), first);
    // However many are on their way, CPU and memory are full at most.
    place_many(&mut sim, 200, "many");
    let score = sim.explain(&ask("r3")).hosts[0].score.unwrap();
    assert!(score <= 100.0 + 1e-9, "{score}");
    // Turned off, nothing is added, and nothing is said of it.
    sim.apply(PolicyChange { predict: Some(false), ..PolicyChange::default() });
    let explanation = sim.explain(&ask("r3"));
    assert!(explanation.hosts.iter().all(|host| host.numbers.expected_cpu.is_none()));
    assert!(explanation.hosts.iter().all(|host| host.terms.unwrap().cpu.abs() < 1e-9));
}

/// Every host says that logons took 10 s and one core and a half.
fn learn_logons(sim: &mut Sim, hosts: &[&str], seconds: u64) {
    let finished = Some(FinishedLogons { count: 12, seconds: 120.0, core_seconds: Some(180.0) });
    for _ in 0..seconds / 5 {
        for host in hosts {
            sim.report(host, Load { finished_logons: finished, ..demand(0.2, 8) });
        }
        sim.pass(5);
    }
}

// rule: logons-limit
#[test]
fn logons_in_progress_count_against_the_limit_once_it_is_known_how_long_they_take() {
    let limited = PolicyChange {
        max_pending: Some(PendingLimit::Logons(2)),
        max_pending_mode: Some(PendingMode::Hard),
        ..predictive()
    };
    let mut sim = farm(limited, &[("a", 8, 0.2), ("b", 8, 0.3), ("c", 8, 0.4)]);
    let logging_on = |sim: &mut Sim| {
        let logons = Some(LogonsInProgress { now: 2, mean: 0.0 });
        sim.report("a", Load { logons_in_progress: logons, ..demand(0.0, 8) });
    };
    logging_on(&mut sim);
    let counted = |sim: &mut Sim| {
        let explanation = sim.explain(&ask("x"));
        explanation.hosts.iter().find(|host| host.position == 0).unwrap().logons_in_progress
    };
    assert_eq!(counted(&mut sim), Some(0), "nothing is learned yet");
    learn_logons(&mut sim, &["a", "b", "c"], 60);
    logging_on(&mut sim);
    assert_eq!(counted(&mut sim), Some(2));
    let hosts = place_many(&mut sim, 4, "r");
    assert_eq!(count(&hosts, "a"), 0, "{hosts:?}");
}

// rule: learned-converge through the farm
// rule: learned-kept
#[test]
fn a_pool_learns_from_reports_and_keeps_it_over_a_restart() {
    let mut sim = farm(predictive(), &[("a", 8, 0.2), ("b", 8, 0.2), ("c", 8, 0.2)]);
    assert_eq!(sim.pool().costs.logon_cores.value, CostBounds::LOGON_CORES.prior);
    learn_logons(&mut sim, &["a", "b", "c"], 120);
    let costs = sim.pool().costs;
    assert!((costs.logon_cores.value - 1.5).abs() < 0.15, "{costs:?}");
    assert!((costs.logon_seconds.value - 10.0).abs() < 2.0, "{costs:?}");
    assert!(costs.logon_seconds.is_learned && !costs.connect_seconds.is_learned);
    let stored = Restored {
        pools: sim.farm.pool_records().map(|(record, _)| record.clone()).collect(),
        learned: sim.farm.learned(),
        ..Restored::default()
    };
    let mut again = Sim::begun_at(sim.now);
    again.farm.restore(stored, again.now);
    let kept = again.pool().costs;
    assert!((kept.logon_cores.value - 1.5).abs() < 0.25 && kept.logon_cores.is_learned, "{kept:?}");
}

// rule: learned-converge how long a login takes to connect
#[test]
fn how_long_a_place_takes_to_become_a_session_is_learned() {
    let mut sim = farm(predictive(), &[("a", 8, 0.2), ("b", 8, 0.2), ("c", 8, 0.2)]);
    for n in 0..60 {
        let request = format!("r{n}");
        let host = sim.place(&ask(&request)).host().to_owned();
        sim.pass(1);
        let mut load = demand(0.2, 8);
        load.ended.push(ended(&request, 1, EndReason::Session));
        sim.report(&host, load);
        sim.pass(1);
    }
    let connect = sim.pool().costs.connect_seconds;
    assert!((connect.value - 1.0).abs() < 0.3 && connect.is_learned, "{connect:?}");
}
