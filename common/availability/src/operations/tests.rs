use proptest::prelude::*;
use usher_types::Latency;

use super::*;
use crate::{AvailabilityTracker, holds_busy};

fn operations() -> Operations {
    Operations::new(OperationSettings::default())
}

fn only(operations: &Operations) -> OperationWindow {
    let windows = operations.window(BootTime::ZERO);
    assert_eq!(windows.len(), 1);
    windows.into_iter().next().unwrap()
}

// rule: baseline-bounds
#[test]
fn case_041_a_sample_that_is_no_number_spoils_nothing() {
    let mut operations = operations();
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
        assert_eq!(operations.record("open_db", bad, 1.0), Err(RejectedSample::NotADuration));
    }
    operations.record("open_db", 10.0, 1.0).unwrap();
    operations.end_period(BootTime::ZERO);
    let window = only(&operations);
    assert_eq!((window.ok, window.sum_us, window.min_us), (1.0, 10.0, Some(10.0)));
}

// rule: baseline-bounds
#[test]
fn case_043_a_zero_enters_neither_minimum_nor_mean() {
    let mut operations = operations();
    assert_eq!(operations.record("open_db", 0.0, 1.0), Err(RejectedSample::BelowResolution));
    for _ in 0..99 {
        operations.record("open_db", 12_000.0, 1.0).unwrap();
    }
    operations.end_period(BootTime::ZERO);
    let window = only(&operations);
    assert_eq!((window.ok, window.min_us, window.baseline_us), (99.0, Some(12_000.0), Some(12_000.0)));
    assert_eq!(window.sum_us / window.ok, 12_000.0);
}

#[test]
fn case_044_the_sample_rate_scales_the_count_and_not_the_value() {
    let mut operations = operations();
    operations.record("q", 10_000.0, 1.0 / 0.5).unwrap();
    operations.record("q", 20_000.0, 1.0 / 0.1).unwrap();
    operations.end_period(BootTime::ZERO);
    let window = only(&operations);
    assert_eq!((window.min_us, window.ok), (Some(10_000.0), 12.0));
    assert!((window.sum_us / window.ok - 18_333.33).abs() < 0.01);
}

#[test]
fn case_049_names_beyond_the_cap_are_counted_apart_and_known_ones_go_on() {
    let mut operations = operations();
    operations.record("open_db", 9.0, 1.0).unwrap();
    for n in 0..100_000 {
        let _ = operations.record(&format!("t{n}"), 5.0, 1.0);
    }
    operations.record("open_db", 9.0, 1.0).unwrap();
    assert_eq!(operations.operations.len(), 256);
    assert_eq!(operations.overflow_calls(), 100_000 - 255);
    assert_eq!(operations.operations.get("open_db").unwrap().open.ok, 2.0);
}

#[test]
fn case_050_hostile_names_are_refused() {
    let mut operations = operations();
    for bad in ["", "open\0db", "../../etc", "<b>x</b>", &"a".repeat(10_000)] {
        assert_eq!(operations.record(bad, 1.0, 1.0), Err(RejectedSample::BadName));
    }
}

#[test]
fn case_063_the_counts_of_all_periods_add_up() {
    let mut operations = operations();
    let mut seen = 0.0;
    for period in 0..10 {
        for _ in 0..150 {
            operations.record("q", 1.0, 1.0).unwrap();
        }
        operations.end_period(BootTime::from_millis(15_000 * period));
        seen += operations.operations.get("q").unwrap().window.back().unwrap().ok;
    }
    assert_eq!(seen, 1500.0);
    assert_eq!(only(&operations).ok, 750.0);
}

// rule: baseline-bounds
// rule: failed-calls
#[test]
fn case_134_a_call_that_takes_too_long_counts_as_failed() {
    let mut operations = operations();
    operations.record("q", 30e6, 1.0).unwrap();
    operations.record_failure("q", 1.0).unwrap();
    operations.end_period(BootTime::ZERO);
    let window = only(&operations);
    assert_eq!((window.ok, window.failed, window.too_long, window.min_us), (0.0, 1.0, 1.0, None));
}

#[test]
fn the_longest_possible_call_still_counts() {
    let mut operations = operations();
    operations.record("one", 20e6, 1.0).unwrap();
    operations.amend_period("period", calls(20.0, 20e6), BootTime::ZERO).unwrap();
    let [one, period] = operations.window(BootTime::ZERO).try_into().unwrap();
    assert_eq!((one.ok, one.too_long), (1.0, 0.0));
    assert_eq!((period.ok, period.too_long), (20.0, 0.0));
}

const PERIOD: Duration = Duration::from_secs(15);

fn seconds(seconds: u64) -> BootTime {
    BootTime::from_millis(1000 * seconds)
}

fn with(baseline: Baseline) -> OperationSettings {
    OperationSettings { baseline, ..OperationSettings::default() }
}

fn index(operations: &Operations, now: BootTime) -> f64 {
    let latency = Latency { window: 5 * PERIOD, operations: operations.window(now), ..Latency::default() };
    AvailabilityTracker::default().assess(&latency, 6.0, now).index.unwrap()
}

/// Only one of 10 000 calls is fast.
fn after_a_freak_sample(settings: OperationSettings) -> (Operations, BootTime) {
    let mut operations = Operations::new(settings);
    let mut now = BootTime::ZERO;
    for period in 0..400 {
        for call in 0..25 {
            let duration_us = if (period, call) == (200, 12) { 1.0 } else { 1000.0 };
            operations.record("q", duration_us, 1.0).unwrap();
        }
        now = now + PERIOD;
        operations.observe_cpu(Percent::new(20.0).ok(), now);
        operations.end_period(now);
    }
    (operations, now)
}

fn restarted(operations: &Operations, settings: OperationSettings, now: BootTime) -> Operations {
    let mut again = Operations::new(settings);
    for (name, record) in operations.baselines(now) {
        assert_eq!(again.restore(name.clone(), &record, now), []);
    }
    again
}

#[test]
fn case_056_one_freak_fast_sample_costs_no_estimator_a_point_before_and_after_a_restart() {
    for baseline in [Baseline::Minimum, Baseline::Robust] {
        let (operations, now) = after_a_freak_sample(with(baseline));
        assert!(index(&operations, now) >= 99.0, "{baseline:?}");
        let mut again = restarted(&operations, with(baseline), now);
        for _ in 0..25 {
            again.record("q", 1000.0, 1.0).unwrap();
        }
        again.end_period(now + PERIOD);
        assert!(index(&again, now + PERIOD) >= 99.0, "{baseline:?}");
        again.configure(OperationSettings { min_possible_us: 1200.0, ..with(baseline) });
        assert_eq!(index(&again, now + PERIOD), 100.0, "{baseline:?}");
    }
}

#[test]
fn a_pool_that_changes_its_method_has_the_other_baseline_at_once() {
    let (mut operations, now) = after_a_freak_sample(with(Baseline::Robust));
    let robust = &operations.window(now)[0];
    assert_eq!((robust.baseline_us, robust.baseline_is_provisional), (Some(1000.0), false));
    operations.configure(with(Baseline::Minimum));
    let minimum = &operations.window(now)[0];
    assert_eq!((minimum.baseline_us, minimum.baseline_is_provisional), (Some(960.04), false));
    assert_eq!(minimum.baseline_age, Some(199 * PERIOD));
    assert_eq!(minimum.baseline_samples, 10_000);
}

// rule: baseline-first
#[test]
fn the_baseline_is_updated_before_the_mean_is_divided_by_it() {
    let mut operations = operations();
    for (second, mean_us) in [(15, 1000.0), (30, 100.0)] {
        operations.record("q", mean_us, 20.0).unwrap();
        operations.end_period(seconds(second));
    }
    operations.configure(OperationSettings { periods: 1, ..with(Baseline::Minimum) });
    assert_eq!(only(&operations).baseline_us, Some(100.0));
    assert_eq!(index(&operations, seconds(30)), 100.0);
}

// rule: state-exit-margin
#[test]
fn case_062_ordinary_noise_makes_a_host_busy_at_most_once() {
    let mut operations = operations();
    operations.set_baseline("q", 20_000.0, BootTime::ZERO).unwrap();
    operations.configure(OperationSettings { periods: 1, ..OperationSettings::default() });
    let (mut held, mut entries, mut lowest) = (false, 0, 100.0f64);
    for (number, mean_us) in [20e3, 25e3, 22e3, 25e3, 21e3].into_iter().enumerate() {
        let now = seconds(15 * (number as u64 + 1));
        operations.record("q", mean_us, 100.0).unwrap();
        operations.end_period(now);
        let index = index(&operations, now);
        let holds = holds_busy(Some(index), 95.0, 3.0, held);
        entries += u32::from(holds && !held);
        (held, lowest) = (holds, lowest.min(index));
    }
    assert!((lowest - 94.6).abs() < 0.05, "{lowest}");
    assert_eq!((entries, held), (1, false));
}

#[test]
fn calls_in_flight_are_reported_until_they_are_done() {
    let mut operations = operations();
    operations.set_in_flight("q", 0, None).unwrap();
    assert_eq!(operations.window(BootTime::ZERO), []);
    operations.set_in_flight("q", 3, Some(PERIOD)).unwrap();
    operations.end_period(BootTime::ZERO);
    let window = only(&operations);
    assert_eq!((window.in_flight, window.oldest_in_flight), (3, Some(PERIOD)));
    operations.set_in_flight("q", 0, Some(PERIOD)).unwrap();
    assert_eq!((only(&operations).in_flight, only(&operations).oldest_in_flight), (0, None));
    assert_eq!(operations.set_in_flight("a b", 1, None), Err(RejectedSample::BadName));
}

fn calls(ok: f64, mean_us: f64) -> PeriodCounts {
    PeriodCounts { ok, sum_us: ok * mean_us, min_us: Some(mean_us), ..PeriodCounts::default() }
}

#[test]
fn words_of_one_instant_make_one_period() {
    let mut operations = operations();
    for second in [15, 30] {
        for name in ["a", "b", "c"] {
            operations.amend_period(name, calls(20.0, 1000.0), seconds(second)).unwrap();
        }
    }
    for operation in operations.operations.values() {
        assert_eq!(operation.window.iter().map(|period| period.ok).collect::<Vec<_>>(), [20.0, 20.0]);
        assert_eq!(operation.learning.robust.samples(), 40);
    }
    // A second word for the same operation is another period.
    operations.amend_period("a", calls(20.0, 1000.0), seconds(30)).unwrap();
    assert_eq!(operations.operations["a"].window.len(), 3);
    assert_eq!(operations.operations["b"].window.back(), Some(&PeriodCounts::default()));
}

#[test]
fn a_word_for_a_period_that_has_just_ended_belongs_to_it() {
    let mut operations = operations();
    operations.record("a", 5.0, 1.0).unwrap();
    operations.end_period(seconds(15));
    operations.amend_period("b", calls(50.0, 2000.0), seconds(15)).unwrap();
    assert_eq!(operations.operations["a"].window.len(), 1);
    let b = &operations.window(seconds(15))[1];
    assert_eq!((b.ok, b.sum_us, b.baseline_us), (50.0, 100_000.0, Some(2000.0)));
}

#[test]
fn calls_that_took_too_long_add_up_whoever_counted_them() {
    let mut operations = operations();
    operations.record("q", 30e6, 1.0).unwrap();
    operations.end_period(seconds(15));
    operations.end_period(seconds(30));
    operations
        .amend_period("q", PeriodCounts { too_long: 2.0, ..PeriodCounts::default() }, seconds(30))
        .unwrap();
    assert_eq!(only(&operations).too_long, 3.0);
}

#[test]
fn case_049_a_period_of_a_name_beyond_the_cap_is_counted_apart_with_all_its_calls() {
    let mut operations = Operations::new(OperationSettings { max_names: 0, ..OperationSettings::default() });
    let counts = PeriodCounts { failed: 2.0, too_long: 4.0, ..calls(3.0, 1000.0) };
    assert_eq!(operations.amend_period("q", counts, BootTime::ZERO), Err(RejectedSample::Overflow));
    assert_eq!(operations.overflow_calls(), 9);
}

#[test]
fn a_period_without_a_successful_call_is_taken_if_it_claims_no_duration() {
    let failed = PeriodCounts { failed: 3.0, ..PeriodCounts::default() };
    for (counts, result) in [
        (failed, Ok(())),
        (PeriodCounts { sum_us: 1.0, ..failed }, Err(RejectedSample::BadCounts)),
        (PeriodCounts { min_us: Some(1.0), ..failed }, Err(RejectedSample::BadCounts)),
    ] {
        assert_eq!(operations().amend_period("q", counts, BootTime::ZERO), result, "{counts:?}");
    }
}

#[test]
fn a_sum_that_was_rounded_is_taken() {
    let counts = PeriodCounts { min_us: Some(1000.0 * (1.0 + 1e-9)), ..calls(20.0, 1000.0) };
    assert_eq!(operations().amend_period("q", counts, BootTime::ZERO), Ok(()));
}

#[test]
fn a_shorter_window_keeps_the_newest_periods() {
    let mut operations = operations();
    for period in 1..=5u32 {
        operations.record("q", 1.0, f64::from(period)).unwrap();
        operations.end_period(seconds(15 * u64::from(period)));
    }
    for (periods, ok) in [(5, 15.0), (3, 12.0), (1, 5.0)] {
        operations.configure(OperationSettings { periods, ..OperationSettings::default() });
        assert_eq!(only(&operations).ok, ok, "{periods} periods");
    }
}

#[test]
fn a_period_that_cannot_be_true_is_refused_and_ends_none() {
    let good = calls(20.0, 1000.0);
    let cases = [
        (PeriodCounts { ok: f64::NAN, ..good }, RejectedSample::BadCounts),
        (PeriodCounts { failed: -1.0, ..good }, RejectedSample::BadCounts),
        (PeriodCounts { too_long: 1e13, ..good }, RejectedSample::BadCounts),
        (PeriodCounts { ok: 0.0, ..good }, RejectedSample::BadCounts),
        (PeriodCounts { min_us: Some(1001.0), ..good }, RejectedSample::BadCounts),
        (PeriodCounts { sum_us: f64::INFINITY, ..good }, RejectedSample::NotADuration),
        (PeriodCounts { min_us: Some(-1.0), ..good }, RejectedSample::NotADuration),
        (PeriodCounts { sum_us: 0.0, min_us: None, ..good }, RejectedSample::BelowResolution),
        (PeriodCounts { min_us: Some(0.0), ..good }, RejectedSample::BelowResolution),
    ];
    let mut operations = operations();
    for (counts, rejected) in cases {
        assert_eq!(operations.amend_period("q", counts, BootTime::ZERO), Err(rejected), "{counts:?}");
    }
    assert_eq!(operations.amend_period("a b", good, BootTime::ZERO), Err(RejectedSample::BadName));
    assert_eq!((operations.window(BootTime::ZERO), operations.closed_at), (vec![], None));
}

#[test]
fn a_period_whose_mean_is_too_long_counts_as_failed() {
    let mut operations = operations();
    let counts = PeriodCounts { failed: 1.0, ..calls(20.0, 30e6) };
    operations.amend_period("q", counts, BootTime::ZERO).unwrap();
    let window = only(&operations);
    assert_eq!((window.ok, window.failed, window.too_long, window.min_us), (0.0, 1.0, 20.0, None));
    assert_eq!(window.baseline_us, None);
}

#[test]
fn a_weight_that_makes_sums_infinite_is_refused() {
    let mut operations = operations();
    for bad in [0.5, f64::MAX, f64::INFINITY, f64::NAN] {
        assert_eq!(operations.record("q", 1.0, bad), Err(RejectedSample::BadWeight));
        assert_eq!(operations.record_failure("q", bad), Err(RejectedSample::BadWeight));
    }
}

// rule: baseline-keeps
#[test]
fn a_reset_forgets_what_was_learned_and_not_what_was_counted() {
    let mut operations = operations();
    for name in ["a", "b"] {
        operations.record(name, 1000.0, 20.0).unwrap();
    }
    operations.end_period(BootTime::ZERO);
    assert_eq!(operations.reset(Some(&OperationName::new("a").unwrap())), 1);
    assert_eq!(operations.reset(Some(&OperationName::new("z").unwrap())), 0);
    let [a, b] = operations.window(BootTime::ZERO).try_into().unwrap();
    assert_eq!((a.ok, a.baseline_us, a.baseline_age, a.baseline_samples), (20.0, None, None, 0));
    assert_eq!(b.baseline_us, Some(1000.0));
    assert_eq!(operations.reset(None), 2);
    let kept: Vec<bool> = operations.baselines(BootTime::ZERO).map(|(_, record)| record.is_empty()).collect();
    assert_eq!(kept, [true, true]);
}

#[test]
fn a_known_baseline_holds_for_both_estimators() {
    let (mut operations, now) = after_a_freak_sample(with(Baseline::Robust));
    operations.set_baseline("q", 1500.0, now).unwrap();
    for baseline in [Baseline::Minimum, Baseline::Robust] {
        operations.configure(with(baseline));
        let window = only(&operations);
        assert_eq!((window.baseline_us, window.baseline_is_provisional), (Some(1500.0), false));
        assert_eq!(operations.window(now)[0].baseline_age, Some(Duration::ZERO));
    }
    for (bad, rejected) in [
        (0.0, RejectedSample::BelowResolution),
        (-1.0, RejectedSample::NotADuration),
        (f64::NAN, RejectedSample::NotADuration),
        (21e6, RejectedSample::NotADuration),
    ] {
        assert_eq!(operations.set_baseline("q", bad, now), Err(rejected));
    }
    assert_eq!(only(&operations).baseline_us, Some(1500.0));
}

#[test]
fn time_that_a_suspended_host_slept_is_no_observed_hour() {
    let mut operations = operations();
    let mut now = BootTime::ZERO;
    for _ in 0..5 {
        now = now + PERIOD;
        operations.observe_cpu(Percent::new(10.0).ok(), now);
        operations.amend_period("q", calls(20.0, 1000.0), now).unwrap();
    }
    now = now + Duration::from_secs(8 * 3600);
    operations.observe_cpu(Percent::new(10.0).ok(), now);
    operations.amend_period("q", calls(20.0, 1000.0), now).unwrap();
    assert!(operations.window(now)[0].baseline_is_provisional);
}

#[test]
fn a_full_table_of_names_refuses_to_restore_another() {
    let settings = OperationSettings { max_names: 1, ..OperationSettings::default() };
    let mut operations = Operations::new(settings);
    let name = |name: &str| OperationName::new(name).unwrap();
    assert_eq!(operations.restore(name("a"), &BaselineRecord::default(), BootTime::ZERO), []);
    assert_eq!(operations.restore(name("a"), &BaselineRecord::default(), BootTime::ZERO), []);
    let faults = operations.restore(name("b"), &BaselineRecord::default(), BootTime::ZERO);
    assert_eq!(faults[0].field, "operation");
}

proptest! {
    #[test]
    fn case_063_no_call_is_lost_or_doubled_whenever_periods_end_and_reports_are_made(
        steps in prop::collection::vec((0u8..4, 1u32..30), 1..200),
    ) {
        let mut operations = operations();
        let (mut sent, mut counted, mut now) = (0.0, 0.0, BootTime::ZERO);
        for (what, calls) in steps {
            match what {
                0 | 1 => {
                    for _ in 0..calls {
                        operations.record("q", 1.0, 1.0).unwrap();
                        sent += 1.0;
                    }
                }
                2 => {
                    // A call that comes at the instant of the end is in the next period.
                    operations.end_period(now);
                    let closed = operations.operations.get("q").and_then(|q| q.window.back());
                    counted += closed.map_or(0.0, |closed| closed.ok);
                    now = now + PERIOD;
                }
                _ => {
                    let (first, again) = (operations.window(now), operations.window(now));
                    prop_assert_eq!(first, again);
                }
            }
        }
        operations.end_period(now);
        counted += operations.operations.get("q").map_or(0.0, |q| q.window.back().unwrap().ok);
        prop_assert_eq!(counted, sent);
    }
}
