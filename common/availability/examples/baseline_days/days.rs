//! Lets a host live and measures how wrong each estimator makes its index.

use std::time::Duration;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use usher_availability::{
    AvailabilityTracker, Basis, OperationSettings, Operations, PeriodCounts, RejectedSample,
};
use usher_types::{Baseline, BootTime, Latency, Percent};

use crate::host::{DAYS, Host, PERIOD_SECONDS, Scene, Service};

const PERIODS: u64 = DAYS * 24 * 3600 / PERIOD_SECONDS;
const NAME: &str = "q";
/// The default exponent of the index.
const RANGE: f64 = 6.0;

/// Mean error of one estimator over one life.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub(crate) struct Error {
    /// Mean of |index with the learned baseline - index with the true one|, points.
    pub(crate) mean: f64,
    /// Share of the compared windows that stood on a provisional baseline, percent.
    pub(crate) provisional_percent: f64,
}

/// Errors of one life.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub(crate) struct Errors {
    pub(crate) minimum: Error,
    pub(crate) robust: Error,
}

/// One estimator's index beside the true one.
#[derive(Debug)]
struct Comparison {
    settings: OperationSettings,
    learned: AvailabilityTracker,
    compared: f64,
    sum: f64,
    provisional: f64,
}

impl Comparison {
    fn new(baseline: Baseline) -> Self {
        let settings = OperationSettings { baseline, ..OperationSettings::default() };
        Self { settings, learned: AvailabilityTracker::default(), compared: 0.0, sum: 0.0, provisional: 0.0 }
    }

    fn compare(&mut self, operations: &mut Operations, unloaded_us: f64, now: BootTime, counts: bool) {
        operations.configure(self.settings);
        let window = Duration::from_secs(PERIOD_SECONDS * self.settings.periods as u64);
        let mut latency = Latency { window, operations: operations.window(now), ..Latency::default() };
        let learned = self.learned.assess(&latency, RANGE, now);
        latency.operations.iter_mut().for_each(|operation| operation.baseline_us = Some(unloaded_us));
        let truth = AvailabilityTracker::default().assess(&latency, RANGE, now);
        // Idle and sparse windows say nothing about a baseline.
        if let (true, Basis::Measured, Some(learned_index), Some(true_index)) =
            (counts, learned.basis, learned.index, truth.index)
        {
            self.compared += 1.0;
            self.sum += (learned_index - true_index).abs();
            self.provisional += f64::from(u8::from(learned.is_provisional));
        }
    }

    fn error(&self) -> Error {
        Error {
            mean: self.sum / self.compared,
            provisional_percent: 100.0 * self.provisional / self.compared,
        }
    }
}

/// The 14 days of one host. The same seed gives the same days.
pub(crate) fn live(scene: Scene, service: Service, seed: u64) -> Errors {
    let mut host = Host::new(scene, service, Pcg64Mcg::seed_from_u64(seed));
    let mut operations = Operations::new(OperationSettings::default());
    let (mut minimum, mut robust) = (Comparison::new(Baseline::Minimum), Comparison::new(Baseline::Robust));
    for number in 0..PERIODS {
        let second = number * PERIOD_SECONDS;
        let period = host.period(second);
        let now = BootTime::from_millis(1000 * (second + PERIOD_SECONDS));
        let counts =
            PeriodCounts { ok: f64::from(period.calls), sum_us: period.sum_us, ..PeriodCounts::default() };
        operations.observe_cpu(Percent::new(100.0 * period.utilisation).ok(), now);
        let taken: Result<(), RejectedSample> = operations.amend_period(NAME, counts, now);
        taken.expect("the model makes calls that count");
        let counts = second >= scene.counts_from();
        minimum.compare(&mut operations, period.unloaded_us, now, counts);
        robust.compare(&mut operations, period.unloaded_us, now, counts);
    }
    Errors { minimum: minimum.error(), robust: robust.error() }
}
