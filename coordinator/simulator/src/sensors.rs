//! What does an agent tell of its host?
//!
//! Means over the interval since its last report (CPU, demand, logons in progress), the state of now (memory, sessions,
//! processes, logons), and what has finished in the last 10 min. Nothing that a real agent could not see.

use std::collections::VecDeque;

use rand_distr::{Distribution, StandardNormal};
use rand_pcg::Pcg64Mcg;

use crate::login::generator;
use crate::machines::{Finished, Machines, STEP_S};
use crate::scene::purpose;

/// Finished logons are told for so long, seconds.
const FINISHED_S: f64 = 600.0;
/// The window of the expansion factor, seconds, one sample each.
const XF_WINDOW: usize = 75;
/// Error of a measured expansion factor.
const XF_NOISE: f64 = 0.05;
/// The expansion factor grows without end as demand approaches what there is; calls that never end are none.
const RHO_MAX: f64 = 0.99;

/// One report.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub(crate) struct Report {
    /// Busy share of the interval, 0..=1.
    pub(crate) cpu: f64,
    /// Demand of the interval over what there is; may pass 1.
    pub(crate) demand: f64,
    /// Share of memory in use, 0..=1.
    pub(crate) memory: f64,
    pub(crate) sessions: u32,
    pub(crate) processes: u32,
    pub(crate) logons_now: u32,
    pub(crate) logons_mean: f64,
    /// Logons that finished lately: how many, seconds, core-seconds.
    pub(crate) finished: (u32, f64, f64),
    /// How much slower calls are than without load, >= 1.
    pub(crate) expansion_factor: f64,
}

#[derive(Debug)]
struct Window {
    steps: f64,
    busy: f64,
    demand: f64,
    logons: f64,
    factors: VecDeque<f64>,
    factor_sum: f64,
    finished: VecDeque<(f64, Finished)>,
}

/// The agents' sensors of all hosts.
#[derive(Debug)]
pub(crate) struct Sensors {
    windows: Vec<Window>,
    noises: Vec<Pcg64Mcg>,
}

impl Sensors {
    pub(crate) fn new(hosts: usize, seed: u64) -> Self {
        let window = || Window {
            steps: 0.0,
            busy: 0.0,
            demand: 0.0,
            logons: 0.0,
            factors: VecDeque::with_capacity(XF_WINDOW),
            factor_sum: 0.0,
            finished: VecDeque::new(),
        };
        Self {
            windows: (0..hosts).map(|_| window()).collect(),
            noises: (0..hosts).map(|host| generator(seed, purpose::REPORTS, host)).collect(),
        }
    }

    /// A step is over.
    pub(crate) fn watch(&mut self, machines: &Machines, finished: &[Finished], now_s: f64) {
        for (host, window) in self.windows.iter_mut().enumerate() {
            let rho = machines.demand[host] / machines.cores[host];
            window.steps += 1.0;
            window.busy += rho.min(1.0);
            window.demand += rho;
            window.logons += machines.logons[host].len() as f64;
        }
        for done in finished {
            self.windows[done.host].finished.push_back((now_s + STEP_S, *done));
        }
    }

    /// Each second, the latency of the hosts' calls: that of a queue with as many servers as there are cores.
    pub(crate) fn sample_latency(&mut self, machines: &Machines) {
        for (host, window) in self.windows.iter_mut().enumerate() {
            let cores = machines.cores[host];
            let rho = (machines.demand[host] / cores).min(RHO_MAX);
            let factor = 1.0 + rho.powf((2.0 * (cores + 1.0)).sqrt()) / (cores * (1.0 - rho));
            if window.factors.len() == XF_WINDOW {
                window.factor_sum -= window.factors.pop_front().unwrap_or_default();
            }
            window.factors.push_back(factor);
            window.factor_sum += factor;
        }
    }

    /// A report at `now_s`; a new interval begins.
    pub(crate) fn report(&mut self, machines: &Machines, host: usize, now_s: f64) -> Report {
        let window = &mut self.windows[host];
        while window.finished.front().is_some_and(|(at_s, _)| at_s + FINISHED_S < now_s) {
            window.finished.pop_front();
        }
        let add = |(count, seconds, core_s): (u32, f64, f64), (_, done): &(f64, Finished)| {
            (count + 1, seconds + done.took_s, core_s + done.used_core_s)
        };
        let steps = window.steps.max(1.0);
        let noise: f64 = StandardNormal.sample(&mut self.noises[host]);
        let factor = window.factor_sum / (window.factors.len() as f64).max(1.0);
        let report = Report {
            cpu: window.busy / steps,
            demand: window.demand / steps,
            memory: (machines.used_gb[host] / machines.memory_gb[host]).min(1.0),
            sessions: machines.sessions[host],
            processes: machines.processes[host],
            logons_now: u32::try_from(machines.logons[host].len()).unwrap_or(u32::MAX),
            logons_mean: window.logons / steps,
            finished: window.finished.iter().fold((0, 0.0, 0.0), add),
            expansion_factor: (factor * (1.0 + XF_NOISE * noise)).max(1.0),
        };
        (window.steps, window.busy, window.demand, window.logons) = (0.0, 0.0, 0.0, 0.0);
        report
    }
}
