//! What must be true of the simulator whatever its figures are.

use usher_simulator::{Figures, Method, Scene, Sizes, Spread, run, run_with_settings, trace};
use usher_types::{PolicyChange, WeightsChange};

/// Small enough for a test that is not optimised.
fn storm(hosts: usize) -> Scene {
    Scene::storm(hosts, Sizes::Equal, 5.0)
}

/// Everything that can go wrong, in small.
fn scenes() -> Vec<Scene> {
    vec![
        storm(6),
        Scene::storm(6, Sizes::Mixed, 1.0).named("mixed"),
        Scene::failover(10, 5.0),
        Scene::fresh(10, 5.0),
        Scene {
            arrivals: usher_simulator::Arrivals::Logons { count: 30, within_s: 60.0 },
            ..Scene::steady(6, 5.0)
        },
        Scene { frozen: 0.2, ..storm(6) }.named("frozen"),
        Scene { lost_reports: 0.5, ..storm(6) }.named("lost"),
        Scene { coordinators: 3, ..storm(6) }.named("three coordinators"),
        Scene { coordinators: 3, shares_places: false, ..storm(6) }.named("nothing shared"),
        Scene { told_work: 2.0, ..storm(6) }.named("twice the work"),
        Scene { capacity_error: 0.2, ..storm(6) }.named("wrong capacity"),
        Scene { change_reports: false, ..storm(6) }.named("no change reports"),
    ]
}

/// A mean of p99 over these seeds.
fn p99(scene: &Scene, method: Method, seeds: u64) -> f64 {
    let values: Vec<f64> = (0..seeds).map(|seed| run(scene, method, seed).p99).collect();
    Spread::of(&values).mean
}

#[test]
fn the_same_seed_gives_the_same_storm_and_another_seed_another() {
    for method in [Method::Random, Method::Predictive, Method::Oracle] {
        let first = trace(&storm(6), method, 7);
        assert_eq!(first, trace(&storm(6), method, 7), "{method}");
        assert_ne!(first.logins, trace(&storm(6), method, 8).logins, "{method}");
    }
}

#[test]
fn every_login_is_done_or_not_done_or_refused_or_never_came() {
    for scene in scenes() {
        for method in Method::ALL {
            let Figures { logins, finished, censored, refused, never_arrived, p50, p99, .. } =
                run(&scene, *method, 3);
            assert_eq!(logins, finished + censored + refused + never_arrived, "{} {method}", scene.name);
            assert_eq!(refused, 0, "{} {method}: somebody could have served", scene.name);
            assert!(1.0 <= p50 && p50 <= p99 && p99.is_finite(), "{} {method}", scene.name);
        }
    }
}

#[test]
fn all_methods_of_a_seed_meet_the_same_people() {
    let people = |method| {
        let trace = trace(&storm(6), method, 5);
        let of = |login: &usher_simulator::Placement| (login.at_s, login.alone_s, login.arrives);
        trace.logins.iter().map(of).collect::<Vec<_>>()
    };
    let expected = people(Method::Oracle);
    for method in Method::ALL {
        assert_eq!(people(*method), expected, "{method}");
    }
}

#[test]
fn the_oracle_is_better_than_turns_and_turns_are_better_than_chance() {
    let scene = storm(20);
    let [oracle, in_turn, random] =
        [Method::Oracle, Method::RoundRobin, Method::Random].map(|method| p99(&scene, method, 6));
    assert!(oracle < 1.2 && oracle < in_turn && in_turn < random, "{oracle} {in_turn} {random}");
    assert!((1.35..1.7).contains(&in_turn), "{in_turn}");
}

#[test]
fn a_storm_is_placed_nearly_as_well_by_prediction_as_by_the_oracle_and_badly_by_stale_numbers() {
    let scene = storm(20);
    let oracle = p99(&scene, Method::Oracle, 3);
    let predictive = p99(&scene, Method::Predictive, 3);
    assert!(predictive / oracle < 1.25, "{predictive} {oracle}");
    assert!(p99(&scene, Method::AadsStale, 1) > 4.0 * predictive, "stale numbers herd");
}

#[test]
fn frozen_agents_and_dead_hosts_get_nobody_for_long() {
    let scene = Scene { frozen: 0.5, ..storm(6) };
    let trace = trace(&scene, Method::Predictive, 1);
    // Half of the agents are silent: after 16 s their hosts are out, and three hosts share the rest.
    let late: std::collections::BTreeSet<_> =
        trace.logins.iter().filter(|login| login.at_s > 80.0).filter_map(|login| login.host).collect();
    assert_eq!(late.len(), 3, "{late:?}");
    let failover = usher_simulator::trace(&Scene::failover(10, 5.0), Method::WeightedLoad, 1);
    assert_eq!(failover.logins.len(), 28);
    assert_eq!(failover.sessions.iter().filter(|sessions| **sessions == 0).count(), 1, "the dead host");
}

#[test]
fn coordinators_that_do_not_hear_of_each_others_places_crowd_hosts() {
    let shared = Scene { coordinators: 3, ..storm(20) };
    let alone = Scene { shares_places: false, change_reports: false, ..shared.clone() };
    let (shared, alone) = (p99(&shared, Method::Predictive, 3), p99(&alone, Method::Predictive, 3));
    assert!(alone > 1.05 * shared, "{alone} {shared}");
}

#[test]
fn a_wrong_word_about_the_work_of_logons_changes_where_they_go_and_ruins_nothing() {
    let where_to = |told_work| {
        let trace = trace(&Scene { told_work, ..storm(20) }, Method::Predictive, 1);
        trace.logins.iter().map(|login| login.host).collect::<Vec<_>>()
    };
    assert_ne!(where_to(1.0), where_to(2.0));
    let truth = p99(&storm(20), Method::Predictive, 3);
    for told_work in [0.5, 2.0] {
        let told = p99(&Scene { told_work, ..storm(20) }, Method::Predictive, 3);
        assert!(told < 1.25 * truth, "{told_work}: {told} {truth}");
    }
}

#[test]
fn a_large_pool_is_scanned_as_the_core_would_scan_it() {
    // Here the core looks at all hosts too: both must come to the same.
    let by_core = p99(&storm(20), Method::Predictive, 2);
    let by_scan = p99(&storm(20), Method::PredictiveWholeScan, 2);
    assert!((by_core / by_scan - 1.0).abs() < 0.05, "{by_core} {by_scan}");
}

#[test]
fn weights_of_a_pool_change_where_logins_go() {
    let weights = |users, memory| PolicyChange {
        weights: Some(WeightsChange {
            users_percent: Some(users),
            memory_percent: Some(memory),
            ..WeightsChange::default()
        }),
        ..PolicyChange::default()
    };
    let by_users = run_with_settings(&storm(6), &weights(100.0, 0.0), 1);
    let by_memory = run_with_settings(&storm(6), &weights(0.0, 100.0), 1);
    assert!(by_users.peak_to_mean < by_memory.peak_to_mean, "{by_users:?} {by_memory:?}");
}
