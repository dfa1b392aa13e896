//! From one window of calls to the availability of a host.
//!
//! | the window | result | basis |
//! |---|---|---|
//! | operations with >= 5 calls | their XF and AI | measured |
//! | none has 5, together they have | all take part | measured |
//! | fewer than 5 calls in all | the last AI, for one window; then none | sparse |
//! | calls in flight, none finished | the oldest one's age counts as a sample, so AI falls | stalled |
//! | no call of any outcome, none in flight | 100 | idle |
//! | never a call | none | no data |

use std::time::Duration;

use usher_types::{BootTime, Latency, OperationWindow};

use crate::{MIN_CALLS, OperationFactor, availability_index, host_expansion_factor};

/// Where factors end: far above the 2^30 at which every index is 0, and finite whatever baseline a host claims.
const MAX_FACTOR: f64 = 1e12;
/// Finished calls below which the share of failed ones says nothing.
const CALLS_FOR_ERRORS: f64 = 20.0;

/// What an availability rests on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Basis {
    /// Enough calls.
    Measured,
    /// Calls hang: the age of the oldest stands for their latency.
    Stalled,
    /// Too few calls: the last index, or none if that is older than a window.
    Sparse,
    /// No call at all, though there were some earlier.
    Idle,
    /// Never a call.
    NoData,
}

/// How available a host is.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Availability {
    /// 0..=100, not rounded. Absent: not known.
    pub index: Option<f64>,
    /// >= 1. Absent: not known, or idle.
    pub expansion_factor: Option<f64>,
    /// What it rests on.
    pub basis: Basis,
    /// The baseline of an operation that took part is not confirmed by a quiet hour yet.
    pub is_provisional: bool,
}

impl Availability {
    /// Nothing is known.
    pub const NO_DATA: Self =
        Self { index: None, expansion_factor: None, basis: Basis::NoData, is_provisional: false };
}

/// Remembers the last index of a host for the one window in which too few calls may stand on it.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct AvailabilityTracker {
    last: Option<(Availability, BootTime)>,
}

impl AvailabilityTracker {
    /// Assesses a window that was measured at `now`, with the exponent `range` (1..=30).
    pub fn assess(&mut self, latency: &Latency, range: f64, now: BootTime) -> Availability {
        let operations = &latency.operations;
        let ever = operations.iter().any(|op| op.baseline_us.is_some() || has_call(op));
        if !ever {
            self.last = None;
            return Availability::NO_DATA;
        }
        let availability = if !operations.iter().any(has_call) {
            let basis = Basis::Idle;
            Availability { index: Some(100.0), expansion_factor: None, basis, is_provisional: false }
        } else if let Some(expansion) = expansion(operations) {
            Availability {
                index: Some(availability_index(expansion.factor, range)),
                expansion_factor: Some(expansion.factor),
                basis: if expansion.is_stalled { Basis::Stalled } else { Basis::Measured },
                is_provisional: expansion.is_provisional,
            }
        } else {
            return self.sparse(latency.window, now);
        };
        self.last = Some((availability, now));
        availability
    }

    fn sparse(&mut self, window: Duration, now: BootTime) -> Availability {
        self.last = self.last.filter(|(_, at)| now.since(*at) <= window);
        let kept = self.last.map_or(Availability::NO_DATA, |(kept, _)| kept);
        Availability { basis: Basis::Sparse, ..kept }
    }
}

fn has_call(operation: &OperationWindow) -> bool {
    operation.ok > 0.0 || operation.failed > 0.0 || operation.too_long > 0.0 || operation.in_flight > 0
}

/// The share of all calls of a window that failed, percent; those that took too long failed. Absent below 20 finished
/// calls: a few failures of a few calls say nothing about a host.
pub fn error_share_percent(operations: &[OperationWindow]) -> Option<f64> {
    let failed: f64 = operations.iter().map(|operation| operation.failed + operation.too_long).sum();
    let finished = failed + operations.iter().map(|operation| operation.ok).sum::<f64>();
    let share = (finished >= CALLS_FOR_ERRORS).then(|| (100.0 * (failed / finished)).clamp(0.0, 100.0))?;
    share.is_finite().then_some(share)
}

/// The factor of one operation. Absent if it has no baseline, or neither a successful call nor one that hangs.
pub fn operation_expansion(operation: &OperationWindow) -> Option<OperationFactor> {
    part(operation).map(|part| part.factor)
}

/// What one operation contributes.
struct Part {
    factor: OperationFactor,
    is_stalled: bool,
    is_provisional: bool,
}

fn part(operation: &OperationWindow) -> Option<Part> {
    let baseline_us = operation.baseline_us.filter(|baseline| *baseline > 0.0)?;
    let factor_of = |latency_us: f64| (latency_us / baseline_us).clamp(1.0, MAX_FACTOR);
    let finished = operation.ok + operation.failed + operation.too_long;
    let hung = operation.oldest_in_flight.filter(|_| operation.in_flight > 0 && finished == 0.0);
    let (factor, is_stalled) = match hung {
        // At least the weight of five calls, so that the rule of five does not hide a host on which all calls hang.
        Some(age) => {
            let expansion_factor = factor_of(age.as_secs_f64() * 1e6);
            (OperationFactor { expansion_factor, calls: MIN_CALLS }, expansion_factor > 1.0)
        }
        None if operation.ok > 0.0 => {
            let expansion_factor = factor_of(operation.sum_us / operation.ok);
            (OperationFactor { expansion_factor, calls: operation.ok }, false)
        }
        None => return None,
    };
    Some(Part { factor, is_stalled, is_provisional: operation.baseline_is_provisional })
}

/// What the operations that take part amount to.
struct Expansion {
    factor: f64,
    is_stalled: bool,
    is_provisional: bool,
}

fn expansion(operations: &[OperationWindow]) -> Option<Expansion> {
    let enough = |calls: f64| calls >= MIN_CALLS;
    let mut parts: Vec<Part> = operations.iter().filter_map(part).collect();
    if parts.iter().any(|part| enough(part.factor.calls)) {
        parts.retain(|part| enough(part.factor.calls));
    } else if !enough(parts.iter().map(|part| part.factor.calls).sum()) {
        return None;
    }
    Some(Expansion {
        factor: host_expansion_factor(parts.iter().map(|part| part.factor))?,
        is_stalled: parts.iter().any(|part| part.is_stalled),
        is_provisional: parts.iter().any(|part| part.is_provisional),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use usher_types::OperationName;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(75);

    fn operation(name: &str, ok: f64, mean_us: f64, baseline_us: Option<f64>) -> OperationWindow {
        OperationWindow {
            name: OperationName::new(name).unwrap(),
            ok,
            failed: 0.0,
            too_long: 0.0,
            sum_us: ok * mean_us,
            min_us: None,
            in_flight: 0,
            oldest_in_flight: None,
            baseline_us,
            baseline_age: None,
            baseline_samples: 0,
            baseline_is_provisional: false,
        }
    }

    fn window(operations: Vec<OperationWindow>) -> Latency {
        Latency { window: WINDOW, operations, ..Latency::default() }
    }

    fn assess(operations: Vec<OperationWindow>) -> Availability {
        AvailabilityTracker::default().assess(&window(operations), 6.0, BootTime::ZERO)
    }

    // rule: xf-few-calls
    // rule: xf-operation
    #[test]
    fn operations_with_few_calls_take_no_part_beside_one_with_enough() {
        let availability = assess(vec![
            operation("often", 100.0, 20.0, Some(10.0)),
            operation("rare", 4.0, 640.0, Some(10.0)),
        ]);
        assert_eq!((availability.expansion_factor, availability.basis), (Some(2.0), Basis::Measured));
    }

    // rule: xf-few-calls
    #[test]
    fn few_calls_of_each_take_part_together() {
        let availability =
            assess(vec![operation("a", 3.0, 20.0, Some(10.0)), operation("b", 3.0, 40.0, Some(10.0))]);
        assert_eq!(availability.expansion_factor, Some(3.0));
    }

    // rule: xf-sparse
    #[test]
    fn too_few_calls_keep_the_last_index_for_one_window() {
        let mut tracker = AvailabilityTracker::default();
        tracker.assess(&window(vec![operation("a", 10.0, 40.0, Some(10.0))]), 6.0, BootTime::ZERO);
        let few = window(vec![operation("a", 2.0, 10.0, Some(10.0))]);
        let kept = tracker.assess(&few, 6.0, BootTime::ZERO + WINDOW);
        assert_eq!((kept.expansion_factor, kept.basis), (Some(4.0), Basis::Sparse));
        let gone = tracker.assess(&few, 6.0, BootTime::ZERO + WINDOW + Duration::from_millis(1));
        assert_eq!((gone.index, gone.basis), (None, Basis::Sparse));
    }

    // rule: index-idle
    #[test]
    fn case_060_no_traffic_is_idle_and_never_no_number() {
        let availability = assess(vec![operation("a", 0.0, 0.0, Some(10.0))]);
        assert_eq!(
            (availability.index, availability.expansion_factor, availability.basis),
            (Some(100.0), None, Basis::Idle)
        );
    }

    // rule: index-no-data
    #[test]
    fn a_host_that_never_had_a_call_has_no_index() {
        assert_eq!(assess(vec![]), Availability::NO_DATA);
        assert_eq!(assess(vec![operation("a", 0.0, 0.0, None)]), Availability::NO_DATA);
    }

    // rule: index-stalled
    #[test]
    fn calls_that_hang_lower_the_index() {
        let mut hanging = operation("a", 0.0, 0.0, Some(1_000_000.0));
        hanging.in_flight = 1;
        hanging.oldest_in_flight = Some(Duration::from_secs(8));
        let availability = assess(vec![hanging]);
        assert_eq!((availability.expansion_factor, availability.basis), (Some(8.0), Basis::Stalled));
    }

    #[test]
    fn the_factor_of_one_operation_is_its_mean_over_its_baseline() {
        let factor = operation_expansion(&operation("a", 10.0, 40.0, Some(10.0)));
        assert_eq!(factor, Some(OperationFactor { expansion_factor: 4.0, calls: 10.0 }));
        for none in [operation("a", 10.0, 40.0, None), operation("a", 10.0, 40.0, Some(0.0))] {
            assert_eq!(operation_expansion(&none), None);
        }
        assert_eq!(operation_expansion(&operation("a", 0.0, 0.0, Some(10.0))), None);
    }

    #[test]
    fn calls_that_hang_beside_any_that_ended_are_no_stall() {
        for (ok, failed, too_long) in
            [(0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.0, 1.0, 1.0), (1.0, 0.0, 0.0), (1.0, 1.0, 0.0)]
        {
            let mut hanging = operation("a", ok, 20.0, Some(10.0));
            (hanging.failed, hanging.too_long, hanging.in_flight) = (failed, too_long, 1);
            hanging.oldest_in_flight = Some(Duration::from_secs(8));
            let factor = operation_expansion(&hanging).map(|factor| factor.expansion_factor);
            assert_eq!(factor, (ok > 0.0).then_some(2.0), "{ok} {failed} {too_long}");
        }
    }

    #[test]
    fn a_baseline_next_to_nothing_gives_a_finite_factor() {
        let availability = assess(vec![operation("a", 10.0, 1e18, Some(f64::MIN_POSITIVE))]);
        assert_eq!((availability.expansion_factor, availability.index), (Some(MAX_FACTOR), Some(0.0)));
    }

    // rule: failed-calls
    #[test]
    fn case_065_failed_calls_do_not_look_fast() {
        let mut mixed = operation("a", 100.0, 20_000.0, Some(10_000.0));
        mixed.failed = 900.0;
        let availability = assess(vec![mixed]);
        assert_eq!(availability.expansion_factor, Some(2.0));
        let mut only_failures = operation("a", 0.0, 0.0, Some(10_000.0));
        only_failures.failed = 900.0;
        assert_eq!(assess(vec![only_failures]).index, None);
    }

    // rule: failed-calls
    #[test]
    fn case_065_the_share_of_failed_calls_is_told_from_twenty_calls_on() {
        let mut mixed = operation("a", 100.0, 20_000.0, Some(10_000.0));
        mixed.failed = 900.0;
        assert_eq!(error_share_percent(&[mixed]), Some(90.0));
        let mut late = operation("a", 9.0, 1.0, None);
        late.too_long = 5.0;
        assert_eq!(error_share_percent(&[late.clone()]), None);
        let mut failed = operation("b", 1.0, 1.0, None);
        failed.failed = 5.0;
        assert_eq!(error_share_percent(&[late, failed]), Some(50.0));
        assert_eq!(error_share_percent(&[]), None);
    }

    // rule: index-idle
    #[test]
    fn case_060_only_a_window_without_any_call_is_idle() {
        let quiet = operation("a", 0.0, 0.0, Some(10.0));
        let failing = OperationWindow { failed: 1.0, ..quiet.clone() };
        let late = OperationWindow { too_long: 1.0, ..quiet.clone() };
        let hanging = OperationWindow { in_flight: 1, ..quiet.clone() };
        for busy in [failing, late, hanging] {
            assert_eq!(assess(vec![quiet.clone(), busy]).basis, Basis::Sparse);
        }
        let latency = window(vec![quiet]);
        let mut tracker = AvailabilityTracker::default();
        for period in 0..5 {
            let now = BootTime::from_millis(15_000 * period);
            assert_eq!(tracker.assess(&latency, 6.0, now).index, Some(100.0));
        }
    }

    // rule: index-stalled
    #[test]
    fn one_operation_that_hangs_counts_beside_one_that_does_not() {
        let mut hanging = operation("a", 0.0, 0.0, Some(1_000_000.0));
        hanging.in_flight = 1;
        hanging.oldest_in_flight = Some(Duration::from_secs(16));
        let availability = assess(vec![hanging, operation("b", 5.0, 10.0, Some(10.0))]);
        assert_eq!((availability.expansion_factor, availability.basis), (Some(8.5), Basis::Stalled));
    }

    #[test]
    fn a_call_that_finished_speaks_for_those_that_have_not() {
        let mut slow = operation("a", 10.0, 20.0, Some(10.0));
        slow.in_flight = 1;
        slow.oldest_in_flight = Some(Duration::from_secs(8));
        let availability = assess(vec![slow]);
        assert_eq!((availability.expansion_factor, availability.basis), (Some(2.0), Basis::Measured));
    }

    fn hanging(seconds: u64) -> OperationWindow {
        OperationWindow {
            in_flight: 1,
            oldest_in_flight: Some(Duration::from_secs(seconds)),
            ..operation("a", 0.0, 0.0, Some(2_000_000.0))
        }
    }

    #[test]
    fn an_age_without_a_call_in_flight_says_nothing() {
        assert_eq!(operation_expansion(&OperationWindow { in_flight: 0, ..hanging(8) }), None);
    }

    #[test]
    fn a_call_in_flight_no_longer_than_the_baseline_does_not_stall_a_host() {
        for (seconds, basis) in [(1, Basis::Measured), (2, Basis::Measured), (3, Basis::Stalled)] {
            assert_eq!(assess(vec![hanging(seconds)]).basis, basis, "{seconds} s");
        }
    }

    // rule: baseline-provisional
    #[test]
    fn an_index_is_provisional_if_an_operation_that_takes_part_is() {
        let often = operation("often", 100.0, 20.0, Some(10.0));
        let mut other = operation("other", 4.0, 20.0, Some(10.0));
        other.baseline_is_provisional = true;
        assert!(!assess(vec![often.clone(), other.clone()]).is_provisional);
        other.ok = 5.0;
        let mut tracker = AvailabilityTracker::default();
        assert!(tracker.assess(&window(vec![often.clone(), other]), 6.0, BootTime::ZERO).is_provisional);
        let few = OperationWindow { ok: 1.0, ..often };
        let kept = tracker.assess(&window(vec![few]), 6.0, BootTime::ZERO + WINDOW);
        assert_eq!((kept.basis, kept.is_provisional), (Basis::Sparse, true));
    }

    proptest! {
        #[test]
        fn whatever_a_window_holds_the_result_is_a_number_or_absent(
            numbers in prop::collection::vec(
                (0.0..1e12f64, 0.0..1e12f64, 0.0..1e18f64, prop::option::of(0.0..1e12f64), any::<u32>()),
                0..6,
            ),
            range in 1.0..=30.0f64,
        ) {
            let operations: Vec<OperationWindow> = numbers
                .into_iter()
                .map(|(ok, failed, sum_us, baseline_us, in_flight)| OperationWindow {
                    failed,
                    sum_us,
                    in_flight: in_flight % 3,
                    oldest_in_flight: Some(Duration::from_millis(in_flight.into())),
                    ..operation("a", ok, 0.0, baseline_us)
                })
                .collect();
            let share = error_share_percent(&operations);
            prop_assert!(share.is_none_or(|share| (0.0..=100.0).contains(&share)));
            let mut tracker = AvailabilityTracker::default();
            let availability = tracker.assess(&window(operations), range, BootTime::ZERO);
            prop_assert!(availability.index.is_none_or(|index| (0.0..=100.0).contains(&index)));
            prop_assert!(availability.expansion_factor.is_none_or(|xf| (1.0..=MAX_FACTOR).contains(&xf)));
        }

        #[test]
        fn slower_calls_never_raise_the_index(
            mean_us in 1.0..1e6f64,
            slower in 1.0..1e3f64,
            calls in 5.0..1e6f64,
        ) {
            let at = |mean_us| assess(vec![operation("a", calls, mean_us, Some(1000.0))]).index;
            prop_assert!(at(mean_us * slower) <= at(mean_us));
        }
    }
}
