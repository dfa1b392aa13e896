//! What happens over days: names go, counts add up, nothing grows.

use super::*;

const PERIOD: Duration = Duration::from_secs(15);

fn seconds(seconds: u64) -> BootTime {
    BootTime::from_millis(1000 * seconds)
}

#[test]
fn case_049_a_name_unused_for_a_day_gives_its_place_to_a_new_one_and_a_used_one_never() {
    let mut operations = Operations::new(OperationSettings { max_names: 2, ..OperationSettings::default() });
    operations.record("gone", 1.0, 1.0).unwrap();
    operations.record("used", 1.0, 1.0).unwrap();
    operations.end_period(seconds(15));
    const DAY: u64 = 24 * 3600;
    for second in [15, 3600, DAY, DAY + 14] {
        operations.end_period(seconds(second));
        assert_eq!(operations.record("new", 1.0, 1.0), Err(RejectedSample::Overflow), "{second}");
        operations.record("used", 1.0, 1.0).unwrap();
    }
    operations.end_period(seconds(DAY + 15));
    operations.record("new", 1.0, 1.0).unwrap();
    assert_eq!(operations.record("newer", 1.0, 1.0), Err(RejectedSample::Overflow));
    let names: Vec<_> = operations.totals().map(|(name, total)| (name.to_string(), total.ok)).collect();
    assert_eq!(names, [("new".to_owned(), 1.0), ("used".to_owned(), 5.0)]);
    assert_eq!(operations.overflow_calls(), 5);
}

#[test]
fn totals_count_every_call_once_the_open_period_included() {
    let mut operations = Operations::new(OperationSettings::default());
    for period in 1..=20 {
        operations.record("q", 2.0, 1.0).unwrap();
        operations.record_failure("q", 1.0).unwrap();
        operations.end_period(seconds(15 * period));
    }
    operations.record("q", 1.0, 1.0).unwrap();
    let (_, total) = operations.totals().next().unwrap();
    assert_eq!((total.ok, total.failed, total.sum_us, total.min_us), (21.0, 20.0, 41.0, Some(1.0)));
}

#[test]
fn case_063_a_day_of_periods_adds_up_exactly_and_keeps_no_more_than_the_window() {
    let mut operations = Operations::new(OperationSettings::default());
    let (mut now, mut sent, mut closed) = (BootTime::ZERO, 0.0, 0.0);
    for period in 0..24 * 3600 / 15 {
        for _ in 0..period % 7 {
            operations.record("q", 1000.0, 1.0).unwrap();
            sent += 1.0;
        }
        now = now + PERIOD;
        operations.observe_cpu(Percent::new(20.0).ok(), now);
        operations.end_period(now);
        closed += operations.operations.get("q").map_or(0.0, |q| q.window.back().unwrap().ok);
        assert!(operations.operations.values().all(|operation| operation.window.len() <= 5));
    }
    let (_, total) = operations.totals().next().unwrap();
    assert_eq!((total.ok, total.sum_us, closed), (sent, 1000.0 * sent, sent));
    assert_eq!(operations.overflow_calls(), 0);
}
