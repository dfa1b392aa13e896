use proptest::prelude::*;

use super::*;

const PERIOD: Duration = Duration::from_secs(15);

/// A host watched in periods of 15 s.
#[derive(Default)]
struct Host {
    baseline: RobustBaseline,
    now: BootTime,
}

impl Host {
    fn period(&mut self, cpu: f64, calls: f64, mean_us: f64) {
        self.now = self.now + PERIOD;
        self.baseline.observe_cpu(Percent::new(cpu).unwrap(), PERIOD);
        self.baseline.observe_period(calls, calls * mean_us, PERIOD, self.now);
    }

    fn hours(&mut self, hours: u32, cpu: f64, calls: f64, mean_us: f64) {
        for _ in 0..240 * hours {
            self.period(cpu, calls, mean_us);
        }
    }

    fn value(&self) -> Option<f64> {
        self.baseline.value_us(1.0)
    }
}

// rule: baseline-provisional
// rule: baseline-robust
#[test]
fn it_is_provisional_until_the_first_quiet_hour_is_over() {
    let mut host = Host::default();
    assert_eq!((host.value(), host.baseline.is_provisional()), (None, false));
    host.period(10.0, 20.0, 1000.0);
    assert_eq!((host.value(), host.baseline.is_provisional()), (Some(1000.0), true));
    for _ in 1..239 {
        host.period(10.0, 20.0, 1000.0);
    }
    assert!(host.baseline.is_provisional());
    host.period(10.0, 20.0, 1000.0);
    assert_eq!((host.value(), host.baseline.is_provisional()), (Some(1000.0), false));
    assert_eq!(host.baseline.samples(), 4800);
    assert_eq!(host.baseline.age(host.now), PERIOD * 239);
}

// rule: baseline-provisional
#[test]
fn a_host_that_is_never_idle_stays_provisional_at_its_fastest_hour() {
    let mut host = Host::default();
    for mean_us in [4000.0, 3000.0, 5000.0] {
        host.hours(1, 80.0, 100.0, mean_us);
    }
    assert_eq!((host.value(), host.baseline.is_provisional()), (Some(3000.0), true));
    host.hours(1, 20.0, 100.0, 3500.0);
    assert_eq!((host.value(), host.baseline.is_provisional()), (Some(3500.0), false));
}

// rule: baseline-qualified
#[test]
fn an_hour_at_exactly_half_use_does_not_qualify() {
    let mut host = Host::default();
    host.hours(1, 50.0, 100.0, 1000.0);
    assert!(host.baseline.is_provisional());
    host.hours(1, 49.9, 100.0, 1000.0);
    assert!(!host.baseline.is_provisional());
}

// rule: baseline-qualified
#[test]
fn an_hour_with_unknown_cpu_use_does_not_qualify() {
    let mut baseline = RobustBaseline::default();
    for period in 0..240 {
        // Known for less than half of it.
        if period < 119 {
            baseline.observe_cpu(Percent::ZERO, PERIOD);
        }
        baseline.observe_period(100.0, 100_000.0, PERIOD, BootTime::ZERO);
    }
    assert!(baseline.is_provisional());
}

// rule: baseline-robust
#[test]
fn case_056_one_freak_fast_sample_does_not_move_it() {
    let mut host = Host::default();
    host.hours(2, 20.0, 25.0, 1000.0);
    host.period(20.0, 25.0, (24.0 * 1000.0 + 1.0) / 25.0);
    host.hours(2, 20.0, 25.0, 1000.0);
    assert_eq!(host.value(), Some(1000.0));
}

#[test]
fn a_fast_fifth_of_every_hour_does_not_move_it() {
    let mut host = Host::default();
    for _ in 0..30 {
        for period in 0..240 {
            host.period(20.0, 100.0, if period < 48 { 10.0 } else { 1000.0 });
        }
    }
    assert_eq!(host.value(), Some(1000.0));
}

// rule: baseline-merge
#[test]
fn thin_periods_are_merged_until_they_have_twenty_calls() {
    let mut host = Host::default();
    for _ in 0..19 {
        host.period(1.0, 1.0, 1000.0);
    }
    assert_eq!(host.value(), None);
    host.period(1.0, 1.0, 1000.0);
    assert_eq!(host.value(), Some(1000.0));
}

#[test]
fn a_quiet_night_of_few_calls_counts_as_few_hours() {
    let mut host = Host::default();
    host.hours(10, 30.0, 100.0, 1000.0);
    // One mean an hour, each faster by chance: no three of them are an hour.
    for _ in 0..3 {
        host.hours(1, 1.0, 21.0 / 240.0, 800.0);
    }
    assert_eq!(host.value(), Some(1000.0));
    host.hours(1, 1.0, 21.0 / 240.0, 800.0);
    assert!((host.value().unwrap() - 800.0).abs() < 1e-6);
}

// rule: baseline-robust
#[test]
fn four_days_of_saturation_do_not_move_it() {
    let mut host = Host::default();
    host.hours(3, 20.0, 100.0, 1000.0);
    host.hours(96, 97.0, 100.0, 20_000.0);
    assert_eq!((host.value(), host.baseline.is_provisional()), (Some(1000.0), false));
}

// rule: baseline-robust
#[test]
fn slower_hardware_is_believed_after_24_quiet_hours_and_faster_after_one() {
    let mut host = Host::default();
    host.hours(30, 20.0, 100.0, 1000.0);
    host.hours(23, 20.0, 100.0, 1600.0);
    assert_eq!(host.value(), Some(1000.0));
    host.hours(1, 20.0, 100.0, 1600.0);
    assert_eq!(host.value(), Some(1600.0));
    host.hours(1, 20.0, 100.0, 500.0);
    assert_eq!(host.value(), Some(500.0));
}

// rule: baseline-provisional
#[test]
fn a_host_that_becomes_slow_in_its_first_hour_does_not_forget_how_fast_it_was() {
    let mut baseline = RobustBaseline::default();
    let period = Duration::from_secs(15);
    for mean_us in [3000.0].into_iter().chain([12_000.0; 40]) {
        baseline.observe_cpu(Percent::FULL, period);
        baseline.observe_period(20.0, 20.0 * mean_us, period, BootTime::ZERO);
    }
    assert_eq!((baseline.value_us(1.0), baseline.is_provisional()), (Some(3000.0), true));
}

#[test]
fn the_memory_of_an_hour_is_bounded_whatever_the_period() {
    let mut baseline = RobustBaseline::default();
    let period = Duration::from_millis(100);
    for number in 0..35_999_u32 {
        // Slow and fast by turns: neighbours that are merged are both.
        let mean_us = if number % 2 == 0 { 900.0 } else { 1100.0 };
        baseline.observe_cpu(Percent::ZERO, period);
        baseline.observe_period(20.0, 20.0 * mean_us, period, BootTime::ZERO);
        assert!(baseline.hour.means_us.len() < MEANS_KEPT);
    }
    assert_eq!(baseline.hour.periods_a_mean, 256);
    // Until the hour is over: the lowest percentile on the way, of its fastest beginning.
    assert_eq!((baseline.value_us(1.0), baseline.is_provisional()), (Some(900.0), true));
    baseline.observe_period(20.0, 20_000.0, period, BootTime::ZERO);
    assert_eq!((baseline.value_us(1.0), baseline.is_provisional()), (Some(1000.0), false));
    assert_eq!(baseline.hour, Hour::default());
}

#[test]
fn the_quarter_of_few_means_is_interpolated() {
    assert_eq!(percentile(&[]), None);
    assert_eq!(percentile(&[7.0]), Some(7.0));
    assert_eq!(percentile(&[20.0, 10.0]), Some(12.5));
    assert_eq!(percentile(&[50.0, 10.0, 40.0, 20.0, 30.0]), Some(20.0));
}

// rule: baseline-keeps
#[test]
fn a_restart_within_the_hour_loses_nothing() {
    let mut host = Host::default();
    host.hours(1, 80.0, 100.0, 2000.0);
    for period in 0..120 {
        host.period(10.0, 100.0, 1000.0 + f64::from(period));
    }
    host.period(10.0, 7.0, 1000.0);
    let mut faults = Vec::new();
    let other_boot = BootTime::from_millis(77);
    let record = host.baseline.record(host.now);
    let restored = RobustBaseline::restored(&record, other_boot, &mut faults);
    assert_eq!(faults, []);
    assert_eq!(restored.age(other_boot), host.baseline.age(host.now));
    let mut again = Host { baseline: restored, now: other_boot };
    for _ in 0..119 {
        host.period(10.0, 100.0, 1500.0);
        again.period(10.0, 100.0, 1500.0);
    }
    assert!(!again.baseline.is_provisional());
    assert_eq!(again.value(), host.value());
}

proptest! {
    #[test]
    fn it_lies_between_the_fastest_and_the_slowest_mean(
        periods in prop::collection::vec((0.0..=100.0f64, 0.0..200.0f64, 1.0..1e6f64), 1..40),
        minutes in 1u64..=5,
    ) {
        let passed = Duration::from_secs(60 * minutes);
        let mut baseline = RobustBaseline::default();
        let (mut fastest, mut slowest) = (f64::INFINITY, 0.0f64);
        for (cpu, calls, mean_us) in periods {
            baseline.observe_cpu(Percent::new(cpu).unwrap(), passed);
            baseline.observe_period(calls, calls * mean_us, passed, BootTime::ZERO);
            (fastest, slowest) = (fastest.min(mean_us), slowest.max(mean_us));
            if let Some(value) = baseline.value_us(1.0) {
                prop_assert!(value >= fastest * (1.0 - 1e-9) && value <= slowest * (1.0 + 1e-9));
            }
        }
    }

    #[test]
    fn it_scales_with_the_host(
        periods in prop::collection::vec((0.0..=100.0f64, 20.0..200.0f64, 10.0..1e6f64), 60..120),
        times_slower in 1.0..100.0f64,
    ) {
        let (mut fast, mut slow) = (Host::default(), Host::default());
        for (cpu, calls, mean_us) in periods {
            for _ in 0..5 {
                fast.period(cpu, calls, mean_us);
                slow.period(cpu, calls, mean_us * times_slower);
            }
        }
        let (fast, slow) = (fast.value().unwrap(), slow.value().unwrap());
        prop_assert!((slow / fast / times_slower - 1.0).abs() < 1e-9);
    }

    #[test]
    fn another_quiet_hour_never_raises_it_before_the_oldest_leaves(
        means_us in prop::collection::vec(1.0..1e6f64, 1..24),
    ) {
        let mut baseline = RobustBaseline::default();
        let mut before = f64::INFINITY;
        for mean_us in means_us {
            for _ in 0..12 {
                baseline.observe_cpu(Percent::ZERO, Duration::from_secs(300));
                baseline.observe_period(20.0, 20.0 * mean_us, Duration::from_secs(300), BootTime::ZERO);
            }
            prop_assert!(!baseline.is_provisional());
            let value = baseline.value_us(1.0).unwrap();
            prop_assert!(value <= before);
            before = value;
        }
    }
}
