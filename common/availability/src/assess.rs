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
}

impl Availability {
    /// Nothing is known.
    pub const NO_DATA: Self = Self { index: None, expansion_factor: None, basis: Basis::NoData };
}

/// Remembers the last index of a host for the one window in which too few calls may stand on it.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct AvailabilityTracker {
    last: Option<(f64, f64, BootTime)>,
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
        if !operations.iter().any(has_call) {
            self.last = Some((100.0, 1.0, now));
            return Availability { index: Some(100.0), expansion_factor: None, basis: Basis::Idle };
        }
        let Some((xf, stalled)) = expansion(operations) else { return self.sparse(latency.window, now) };
        let index = availability_index(xf, range);
        self.last = Some((index, xf, now));
        let basis = if stalled { Basis::Stalled } else { Basis::Measured };
        Availability { index: Some(index), expansion_factor: Some(xf), basis }
    }

    fn sparse(&mut self, window: Duration, now: BootTime) -> Availability {
        let kept = self.last.filter(|(_, _, at)| now.since(*at) <= window);
        if kept.is_none() {
            self.last = None;
        }
        Availability {
            index: kept.map(|(index, _, _)| index),
            expansion_factor: kept.map(|(_, xf, _)| xf),
            basis: Basis::Sparse,
        }
    }
}

fn has_call(operation: &OperationWindow) -> bool {
    operation.ok > 0.0 || operation.failed > 0.0 || operation.too_long > 0.0 || operation.in_flight > 0
}

/// The factor of one operation. Absent if it has no baseline, or neither a successful call nor one that hangs.
pub fn operation_expansion(operation: &OperationWindow) -> Option<OperationFactor> {
    factor(operation).map(|(factor, _)| factor)
}

fn factor(operation: &OperationWindow) -> Option<(OperationFactor, bool)> {
    let baseline_us = operation.baseline_us.filter(|baseline| *baseline > 0.0)?;
    let finished = operation.ok + operation.failed + operation.too_long;
    let mean =
        (operation.ok > 0.0).then(|| (operation.sum_us / operation.ok / baseline_us).clamp(1.0, MAX_FACTOR));
    let hung = operation
        .oldest_in_flight
        .filter(|_| operation.in_flight > 0 && finished == 0.0)
        .map(|age| (age.as_secs_f64() * 1e6 / baseline_us).clamp(1.0, MAX_FACTOR));
    match (mean, hung) {
        // At least the weight of five calls, so that the rule of five does not hide a host on which all calls hang.
        (_, Some(expansion_factor)) => Some((
            OperationFactor { expansion_factor, calls: operation.ok.max(MIN_CALLS) },
            expansion_factor > 1.0,
        )),
        (Some(expansion_factor), None) => {
            Some((OperationFactor { expansion_factor, calls: operation.ok }, false))
        }
        (None, None) => None,
    }
}

fn expansion(operations: &[OperationWindow]) -> Option<(f64, bool)> {
    let factors = || operations.iter().filter_map(factor);
    let enough = |calls: f64| calls >= MIN_CALLS;
    let any_stands = factors().any(|(factor, _)| enough(factor.calls));
    let all: f64 = factors().map(|(factor, _)| factor.calls).sum();
    if !any_stands && !enough(all) {
        return None;
    }
    let taking_part = || factors().filter(|(factor, _)| !any_stands || enough(factor.calls));
    let stalled = taking_part().any(|(_, stalled)| stalled);
    host_expansion_factor(taking_part().map(|(factor, _)| factor)).map(|xf| (xf, stalled))
}

#[cfg(test)]
mod tests {
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
        }
    }

    fn window(operations: Vec<OperationWindow>) -> Latency {
        Latency { window: WINDOW, operations, ..Latency::default() }
    }

    fn assess(operations: Vec<OperationWindow>) -> Availability {
        AvailabilityTracker::default().assess(&window(operations), 6.0, BootTime::ZERO)
    }

    #[test]
    fn operations_with_few_calls_take_no_part_beside_one_with_enough() {
        let availability = assess(vec![
            operation("often", 100.0, 20.0, Some(10.0)),
            operation("rare", 4.0, 640.0, Some(10.0)),
        ]);
        assert_eq!((availability.expansion_factor, availability.basis), (Some(2.0), Basis::Measured));
    }

    #[test]
    fn few_calls_of_each_take_part_together() {
        let availability =
            assess(vec![operation("a", 3.0, 20.0, Some(10.0)), operation("b", 3.0, 40.0, Some(10.0))]);
        assert_eq!(availability.expansion_factor, Some(3.0));
    }

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

    #[test]
    fn case_060_no_traffic_is_idle_and_never_no_number() {
        let availability = assess(vec![operation("a", 0.0, 0.0, Some(10.0))]);
        assert_eq!(
            availability,
            Availability { index: Some(100.0), expansion_factor: None, basis: Basis::Idle }
        );
    }

    #[test]
    fn a_host_that_never_had_a_call_has_no_index() {
        assert_eq!(assess(vec![]), Availability::NO_DATA);
        assert_eq!(assess(vec![operation("a", 0.0, 0.0, None)]), Availability::NO_DATA);
    }

    #[test]
    fn calls_that_hang_lower_the_index() {
        let mut hanging = operation("a", 0.0, 0.0, Some(1_000_000.0));
        hanging.in_flight = 1;
        hanging.oldest_in_flight = Some(Duration::from_secs(8));
        let availability = assess(vec![hanging]);
        assert_eq!((availability.expansion_factor, availability.basis), (Some(8.0), Basis::Stalled));
    }

    #[test]
    fn a_baseline_next_to_nothing_gives_a_finite_factor() {
        let availability = assess(vec![operation("a", 10.0, 1e18, Some(f64::MIN_POSITIVE))]);
        assert_eq!((availability.expansion_factor, availability.index), (Some(MAX_FACTOR), Some(0.0)));
    }

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
}
