//! The table for people, the document for programs, and whether the goals are met.

use std::fmt;

use serde::Serialize;

use crate::days::{Error, Errors};
use crate::host::{DAYS, Scene, Service};

/// Mean error that a learned baseline may cause, points.
const BOUND: f64 = 3.5;
/// The same from the change of the hardware to the end.
const BOUND_AFTER_CHANGE: f64 = 5.0;

/// One estimator over all seeds.
#[derive(Copy, Clone, Debug, Serialize)]
pub(crate) struct Figures {
    /// Mean over the seeds, points.
    error: f64,
    /// Highest minus lowest seed, points.
    spread: f64,
    /// Share of windows on a provisional baseline, percent.
    provisional_percent: f64,
}

impl Figures {
    fn new(errors: impl Iterator<Item = Error> + Clone) -> Self {
        let seeds = errors.clone().count().max(1) as f64;
        let means = || errors.clone().map(|error| error.mean);
        Self {
            error: means().sum::<f64>() / seeds,
            spread: means().fold(f64::MIN, f64::max) - means().fold(f64::MAX, f64::min),
            provisional_percent: errors.clone().map(|error| error.provisional_percent).sum::<f64>() / seeds,
        }
    }
}

/// One scene with one service model.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    #[serde(skip)]
    kind: Scene,
    scene: &'static str,
    service: &'static str,
    minimum: Figures,
    robust: Figures,
}

impl Row {
    pub(crate) fn new(scene: Scene, service: Service, errors: &[Errors]) -> Self {
        Self {
            kind: scene,
            scene: scene.name(),
            service: service.name,
            minimum: Figures::new(errors.iter().map(|errors| errors.minimum)),
            robust: Figures::new(errors.iter().map(|errors| errors.robust)),
        }
    }
}

/// One bound and whether it holds.
#[derive(Clone, Debug, Serialize)]
struct Goal {
    id: &'static str,
    what: &'static str,
    bound: f64,
    figure: f64,
    unit: &'static str,
    spread: f64,
    met: bool,
}

impl Goal {
    /// The worst of the scenes stands for all: a mean over scenes would depend on which ones there are.
    fn worst_of(
        id: &'static str,
        what: &'static str,
        bound: f64,
        rows: &[Row],
        scene: impl Fn(Scene) -> bool,
    ) -> Self {
        let figures = rows.iter().filter(|row| scene(row.kind)).map(|row| row.robust);
        let worst = figures.reduce(|a, b| if b.error > a.error { b } else { a });
        let (figure, spread) = worst.map_or((f64::MAX, 0.0), |worst| (worst.error, worst.spread));
        Self { id, what, bound, figure, unit: "points", spread, met: figure <= bound }
    }
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Document {
    bench: &'static str,
    quick: bool,
    days: u64,
    seeds: u64,
    rows: Vec<Row>,
    goals: Vec<Goal>,
}

impl Document {
    pub(crate) fn new(is_quick: bool, seeds: u64, rows: Vec<Row>) -> Self {
        let has_changed = |scene| matches!(scene, Scene::SlowerHardware | Scene::FasterHardware);
        let goals = vec![
            Goal::worst_of(
                "baseline-robust-error",
                "mean error of the index with the robust baseline, worst scene",
                BOUND,
                &rows,
                |scene| !has_changed(scene) && scene != Scene::NeverIdle,
            ),
            Goal::worst_of(
                "baseline-robust-after-change",
                "the same after a hardware change",
                BOUND_AFTER_CHANGE,
                &rows,
                has_changed,
            ),
        ];
        Self { bench: "baseline", quick: is_quick, days: DAYS, seeds, rows, goals }
    }

    fn write_row(f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
        let Row { scene, service, minimum, robust, .. } = row;
        writeln!(
            f,
            "{scene:<16} {service:<16} {:>8.2} {:>7.2} {:>8.2} {:>7.2} {:>11.1}",
            minimum.error, minimum.spread, robust.error, robust.spread, robust.provisional_percent
        )
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Mean error of the availability index through the learned baseline, in points, and its spread over"
        )?;
        writeln!(f, "{} seeds of {} days:\n", self.seeds, self.days)?;
        writeln!(
            f,
            "{:<16} {:<16} {:>8} {:>7} {:>8} {:>7} {:>11}",
            "scene", "service", "minimum", "spread", "robust", "spread", "provisional"
        )?;
        for row in self.rows.iter().filter(|row| row.kind != Scene::NeverIdle) {
            Self::write_row(f, row)?;
        }
        writeln!(f, "\nHosts that are never idle, which no estimator can know unloaded:")?;
        for row in self.rows.iter().filter(|row| row.kind == Scene::NeverIdle) {
            Self::write_row(f, row)?;
        }
        writeln!(f)?;
        for goal in &self.goals {
            let verdict = if goal.met { "met" } else { "NOT MET" };
            let Goal { what, figure, bound, unit, .. } = goal;
            writeln!(f, "{what}: {figure:.2} {unit}, bound {bound}: {verdict}")?;
        }
        Ok(())
    }
}
