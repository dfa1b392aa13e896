//! What came of one scene?

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde::Serialize;
use usher_simulator::{Figures, Method, Spread, each, run};

use crate::scenes::Item;

/// One scene by one method.
#[derive(Clone, Debug)]
pub(crate) struct ByMethod {
    pub(crate) method: Method,
    pub(crate) figures: Vec<Figures>,
}

impl ByMethod {
    /// One value a seed.
    pub(crate) fn values(&self, value: impl Fn(&Figures) -> f64) -> Vec<f64> {
        self.figures.iter().map(value).collect()
    }

    pub(crate) fn p99(&self) -> Vec<f64> {
        self.values(|figures| figures.p99)
    }
}

/// One scene by all its methods.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) item: Item,
    pub(crate) by_method: Vec<ByMethod>,
}

impl Measured {
    /// Runs every method over every seed; all methods of a seed meet the same.
    pub(crate) fn of(item: Item) -> Self {
        let seeds = usize::try_from(item.seeds).unwrap_or(usize::MAX);
        // The slow ones first, so that no core waits for the last one.
        let jobs: Vec<(usize, u64)> = (0..item.methods.len())
            .rev()
            .flat_map(|at| (0..item.seeds).map(move |seed| (at, seed)))
            .collect();
        let progress = Progress::new(jobs.len());
        let done = each(jobs.len(), |job| {
            let figures = run(&item.scene, item.methods[jobs[job].0], jobs[job].1);
            progress.one_more();
            figures
        });
        let mut by_method: Vec<ByMethod> = done
            .chunks(seeds.max(1))
            .zip(item.methods.iter().rev())
            .map(|(figures, method)| ByMethod { method: *method, figures: figures.to_vec() })
            .collect();
        by_method.reverse();
        Self { item, by_method }
    }

    pub(crate) fn method(&self, method: Method) -> Option<&ByMethod> {
        self.by_method.iter().find(|by| by.method == method)
    }

    /// The ratio of p99 of two methods, seed by seed.
    pub(crate) fn ratio(&self, method: Method, reference: Method) -> Option<Spread> {
        let (method, reference) = (self.method(method)?, self.method(reference)?);
        Some(Spread::of_ratios(&method.p99(), &reference.p99()))
    }
}

/// Says now and then how far it is.
struct Progress {
    jobs: usize,
    done: Mutex<(usize, Instant)>,
}

impl Progress {
    const EVERY: Duration = Duration::from_secs(10);

    fn new(jobs: usize) -> Self {
        Self { jobs, done: Mutex::new((0, Instant::now())) }
    }

    fn one_more(&self) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.0 += 1;
        if done.1.elapsed() >= Self::EVERY {
            done.1 = Instant::now();
            eprintln!("  {} of {} runs", done.0, self.jobs);
        }
    }
}

/// A line of the table and of the document.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) scene: String,
    pub(crate) hosts: usize,
    report_s: f64,
    pub(crate) seeds: u64,
    pub(crate) method: &'static str,
    pub(crate) p50: f64,
    pub(crate) p99: Spread,
    /// Over that of the oracle, seed by seed.
    pub(crate) p99_over_oracle: Option<Spread>,
    pub(crate) peak_to_mean: f64,
    pub(crate) herd: Spread,
    pub(crate) full_percent: f64,
    /// Of all seeds together.
    logins: usize,
    never_arrived: usize,
    pub(crate) censored: usize,
    pub(crate) refused: usize,
}

impl Row {
    pub(crate) fn new(measured: &Measured, by: &ByMethod) -> Self {
        let mean = |value: fn(&Figures) -> f64| Spread::of(&by.values(value)).mean;
        let sum = |value: fn(&Figures) -> usize| by.figures.iter().map(value).sum();
        let scene = &measured.item.scene;
        Self {
            scene: scene.name.clone(),
            hosts: scene.hosts,
            report_s: scene.report_s,
            seeds: measured.item.seeds,
            method: by.method.as_str(),
            p50: mean(|figures| figures.p50),
            p99: Spread::of(&by.p99()),
            p99_over_oracle: measured.ratio(by.method, Method::Oracle),
            peak_to_mean: mean(|figures| figures.peak_to_mean),
            herd: Spread::of(&by.values(|figures| figures.herd)),
            full_percent: mean(|figures| figures.full_percent),
            logins: sum(|figures| figures.logins),
            never_arrived: sum(|figures| figures.never_arrived),
            censored: sum(|figures| figures.censored),
            refused: sum(|figures| figures.refused),
        }
    }
}
