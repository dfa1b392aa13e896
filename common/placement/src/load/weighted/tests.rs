use proptest::prelude::*;

use super::*;

fn weights(cpu: f64, memory: f64, users: f64, processes: f64) -> Weights {
    Weights { cpu_percent: cpu, memory_percent: memory, users_percent: users, processes_percent: processes }
}

fn host(cpu: f64, memory: f64, users: f64, processes: f64) -> Metrics {
    Metrics {
        cpu: Some(cpu),
        memory: Some(memory),
        expected_cpu: 0.0,
        expected_memory: 0.0,
        users: Some(users),
        pending: 0.0,
        processes: Some(processes),
        capacity: 1.0,
        ramp: None,
    }
}

fn loads(weights: Weights, hosts: &[Metrics]) -> Vec<f64> {
    let scale = Scale::of(weights, 0.0, hosts.iter().copied(), false);
    hosts.iter().map(|host| scale.terms(host).map_or(f64::NAN, |terms| terms.weighted_load())).collect()
}

// rule: load-formula
#[test]
fn case_067_the_worked_example_with_every_term() {
    let hosts = [host(35.0, 55.0, 10.0, 70.0), host(25.0, 45.0, 14.0, 89.0)];
    let scale = Scale::of(weights(30.0, 30.0, 25.0, 15.0), 0.0, hosts.iter().copied(), false);
    let [first, second] = hosts.map(|host| scale.terms(&host).unwrap());
    let parts = [first.cpu, first.memory, first.users, first.processes];
    for (part, expected) in parts.iter().zip([10.5, 16.5, 17.857, 11.798]) {
        assert!((part - expected).abs() < 0.001, "{part} is not {expected}");
    }
    assert!((first.weighted_load() - 56.6549).abs() < 0.0001);
    let parts = [second.cpu, second.memory, second.users, second.processes];
    assert_eq!(parts, [7.5, 13.5, 25.0, 15.0]);
}

// rule: load-zero-top
#[test]
fn case_068_nobody_logged_in_anywhere() {
    let hosts = [host(0.0, 0.0, 0.0, 0.0); 3];
    assert_eq!(loads(weights(0.0, 0.0, 100.0, 0.0), &hosts), [0.0, 0.0, 0.0]);
}

// rule: load-formula
#[test]
fn case_076_least_users_win() {
    let hosts = [host(0.0, 0.0, 6.0, 0.0), host(0.0, 0.0, 5.0, 0.0)];
    let loads = loads(weights(0.0, 0.0, 100.0, 0.0), &hosts);
    assert_eq!(loads[0], 100.0);
    assert!((loads[1] - 83.333).abs() < 0.001);
}

// rule: load-pending
#[test]
fn places_given_out_count_as_users() {
    let mut hosts = [host(0.0, 0.0, 10.0, 0.0); 2];
    hosts[0].pending = 10.0;
    assert_eq!(loads(weights(0.0, 0.0, 100.0, 0.0), &hosts), [100.0, 50.0]);
}

// rule: load-tops
#[test]
fn a_host_twice_as_large_may_have_twice_as_many() {
    let large = Metrics { capacity: 2.0, ..host(0.0, 0.0, 20.0, 0.0) };
    assert_eq!(loads(weights(0.0, 0.0, 100.0, 0.0), &[large, host(0.0, 0.0, 10.0, 0.0)]), [100.0, 100.0]);
}

// rule: ramp-capacity
// rule: load-bounds a ramping host's terms may exceed their weights
#[test]
fn a_host_that_is_ramping_up_counts_as_a_smaller_one() {
    let scale =
        Scale::of(weights(0.0, 0.0, 50.0, 50.0), 0.0, [host(0.0, 0.0, 10.0, 100.0)].into_iter(), false);
    let ramping = Metrics { ramp: Some(0.25), pending: 2.0, ..host(0.0, 0.0, 3.0, 10.0) };
    let terms = scale.terms(&ramping).unwrap();
    assert_eq!((terms.users, terms.processes), (100.0, 20.0));
    assert_eq!(scale.terms(&Metrics { ramp: None, ..ramping }).unwrap().users, 25.0);
    // A metric that it does not know takes the median of the others, though it is none of them.
    let others = [host(0.0, 0.0, 10.0, 100.0), host(0.0, 0.0, 5.0, 100.0)].into_iter();
    let scale = Scale::of(weights(0.0, 0.0, 50.0, 50.0), 0.0, others, true);
    let unknown = Metrics { users: None, ..ramping };
    assert_eq!(scale.terms(&unknown).unwrap().users, 50.0 * (0.75 + 0.8));
    // Where the others have nobody, what it has is no term either.
    let nobody = Scale::of(weights(0.0, 0.0, 50.0, 50.0), 0.0, std::iter::empty(), false);
    assert_eq!(nobody.terms(&ramping).unwrap().weighted_load(), 0.0);
    // However small it is, its load stays a number.
    let tiny = Metrics { ramp: Some(0.1), capacity: f64::MIN_POSITIVE, ..host(0.0, 0.0, 1e6, 1e6) };
    assert!(scale.terms(&tiny).unwrap().weighted_load().is_finite());
}

// rule: load-floor
#[test]
fn a_floor_under_the_largest_user_count_softens_the_night() {
    let scale = Scale::of(weights(0.0, 0.0, 100.0, 0.0), 20.0, [host(0.0, 0.0, 1.0, 0.0)].into_iter(), false);
    assert_eq!(scale.terms(&host(0.0, 0.0, 1.0, 0.0)).unwrap().weighted_load(), 5.0);
}

// rule: load-median
#[test]
fn an_unknown_metric_takes_the_median_and_is_named() {
    let known = [host(10.0, 50.0, 2.0, 8.0), host(30.0, 50.0, 2.0, 8.0), host(80.0, 50.0, 2.0, 8.0)];
    let blind = Metrics { cpu: None, ..host(0.0, 50.0, 2.0, 8.0) };
    let all = known.iter().copied().chain([blind]);
    let terms = Scale::of(weights(40.0, 20.0, 20.0, 20.0), 0.0, all, false).terms(&blind).unwrap();
    assert!((terms.cpu - 12.0).abs() < 1e-9);
    assert_eq!(terms.filled.names().collect::<Vec<_>>(), ["cpu"]);
}

// rule: load-bounds
#[test]
fn case_072_a_percentage_beyond_100_counts_as_100_where_it_stands_for_others_too() {
    let hosts = [Metrics { cpu: None, ..host(0.0, 0.0, 0.0, 0.0) }, host(354.0, 0.0, 0.0, 0.0)];
    assert_eq!(loads(weights(100.0, 0.0, 0.0, 0.0), &hosts), [100.0, 100.0]);
}

// rule: load-median places added
#[test]
fn unknown_users_take_the_median_and_their_places_are_added() {
    let known = [host(0.0, 0.0, 10.0, 0.0), host(0.0, 0.0, 20.0, 0.0)];
    let blind = Metrics { users: None, pending: 2.0, ..host(0.0, 0.0, 0.0, 0.0) };
    let all = known.iter().copied().chain([blind]);
    let terms = Scale::of(weights(0.0, 0.0, 100.0, 0.0), 0.0, all, false).terms(&blind).unwrap();
    assert!((terms.users - (75.0 + 10.0)).abs() < 1e-9, "{terms:?}");
}

#[test]
fn one_unknown_metric_makes_a_host_incomplete() {
    let known = host(0.0, 0.0, 0.0, 0.0);
    assert!(!known.is_incomplete());
    assert!(Metrics { cpu: None, ..known }.is_incomplete());
    assert!(Metrics { memory: None, ..known }.is_incomplete());
    assert!(Metrics { users: None, ..known }.is_incomplete());
    assert!(Metrics { processes: None, ..known }.is_incomplete());
}

// rule: load-spread
#[test]
fn a_metric_that_nobody_has_gives_its_weight_to_the_others() {
    let hosts = [
        Metrics { processes: None, ..host(50.0, 50.0, 10.0, 0.0) },
        Metrics { processes: None, ..host(0.0, 0.0, 5.0, 0.0) },
    ];
    let loads = loads(weights(25.0, 25.0, 25.0, 25.0), &hosts);
    assert!((loads[0] - (100.0 / 3.0) * (0.5 + 0.5 + 1.0)).abs() < 1e-9);
}

// rule: load-spread
#[test]
fn users_known_nowhere_leave_the_places_to_count() {
    let blind = |pending| Metrics { users: None, pending, ..host(0.0, 0.0, 0.0, 0.0) };
    assert_eq!(loads(weights(0.0, 0.0, 100.0, 0.0), &[blind(2.0), blind(1.0)]), [100.0, 50.0]);
    let scale = Scale::of(weights(0.0, 0.0, 100.0, 0.0), 0.0, [blind(1.0)].into_iter(), true);
    let filled = scale.terms(&blind(1.0)).unwrap().filled;
    assert!(filled.any() && filled.names().next().is_none(), "there is no median of what nobody knows");
}

// rule: load-no-term
#[test]
fn with_no_metric_left_there_is_no_load() {
    let blind = Metrics { cpu: None, ..host(0.0, 0.0, 0.0, 0.0) };
    assert_eq!(Scale::of(weights(100.0, 0.0, 0.0, 0.0), 0.0, [blind].into_iter(), false).terms(&blind), None);
}

fn metric() -> impl Strategy<Value = Option<f64>> {
    proptest::option::of(0.0..1e6)
}

proptest! {
    // rule: load-bounds
    #[test]
    fn every_term_lies_within_its_weight_and_they_add_up(
        hosts in proptest::collection::vec(
            (metric(), metric(), metric(), metric(), 0.0..1e3f64, 0.01..100.0f64), 1..20,
        ),
        cut in (0.0..100.0f64, 0.0..100.0f64, 0.0..100.0f64),
    ) {
        let mut cuts = [cut.0, cut.1, cut.2];
        cuts.sort_by(f64::total_cmp);
        let weights = weights(cuts[0], cuts[1] - cuts[0], cuts[2] - cuts[1], 100.0 - cuts[2]);
        let hosts: Vec<Metrics> = hosts
            .into_iter()
            .map(|(cpu, memory, users, processes, pending, capacity)| Metrics {
                cpu: cpu.map(|v| v % 101.0), memory: memory.map(|v| v % 101.0), expected_cpu: pending, expected_memory: pending,
                users, pending, processes, capacity, ramp: None,
            })
            .collect();
        let scale = Scale::of(weights, 0.0, hosts.iter().copied(), false);
        for terms in hosts.iter().filter_map(|host| scale.terms(host)) {
            let parts = [terms.cpu, terms.memory, terms.users, terms.processes];
            prop_assert!(parts.iter().all(|part| part.is_finite() && *part >= 0.0));
            prop_assert!(terms.weighted_load() <= 100.0 + 1e-6);
        }
    }
}
