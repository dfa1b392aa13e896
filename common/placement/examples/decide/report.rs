//! The table for people, the document for programs, and whether the goals are met.

use std::fmt;

use serde::Serialize;

/// A decision among a thousand hosts against the plain scan over as many.
const BOUND_PLAIN: f64 = 1.0;
/// A decision among ten thousand against one among a thousand.
const BOUND_GROWTH: f64 = 1.15;
/// Methods that hold for every pool; `fill_first` ranks the whole class, however large.
const GROWTH_METHODS: [&str; 3] = ["weighted_load", "predictive", "availability"];

/// A median over the rounds, with its spread: half of the rounds lie within it.
#[derive(Copy, Clone, Debug, Serialize)]
pub(crate) struct Figure {
    median: f64,
    /// Between the quartiles.
    spread: f64,
}

impl Figure {
    pub(crate) fn of(rounds: &[f64]) -> Self {
        let mut sorted = rounds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share: usize| sorted.get(sorted.len() * share / 4).copied().unwrap_or_default();
        Self { median: at(2), spread: at(3) - at(1) }
    }

    /// Of the ratios of figures that were measured in the same rounds.
    fn of_ratios(above: &[f64], below: &[f64]) -> Self {
        let ratios: Vec<f64> = above.iter().zip(below).map(|(above, below)| above / below).collect();
        Self::of(&ratios)
    }
}

/// One method in a pool of one size; all figures are ns of one thread.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) method: &'static str,
    pub(crate) hosts: usize,
    /// The reference: a plain scan over plain arrays.
    pub(crate) plain_scan_ns: Figure,
    /// A decision that takes nothing.
    pub(crate) dry_run_ns: Figure,
    /// A decision that takes its place, and the end of that place.
    pub(crate) reserve_ns: Figure,
    /// One host reports, and the farm is published.
    pub(crate) publish_ns: Figure,
    #[serde(skip)]
    pub(crate) dry_run_rounds: Vec<f64>,
    #[serde(skip)]
    pub(crate) reserve_rounds: Vec<f64>,
    #[serde(skip)]
    pub(crate) plain_rounds: Vec<f64>,
}

#[derive(Clone, Debug, Serialize)]
struct Goal {
    id: String,
    what: String,
    bound: f64,
    figure: f64,
    unit: &'static str,
    spread: f64,
    met: bool,
}

impl Goal {
    fn ratio(id: String, what: String, bound: f64, figure: Figure) -> Self {
        let Figure { median: figure, spread } = figure;
        Self { id, what, bound, figure, unit: "ratio", spread, met: figure <= bound }
    }
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Document {
    bench: &'static str,
    quick: bool,
    rows: Vec<Row>,
    goals: Vec<Goal>,
}

impl Document {
    pub(crate) fn new(is_quick: bool, rows: Vec<Row>) -> Self {
        let row =
            |method: &str, hosts: usize| rows.iter().find(|row| row.method == method && row.hosts == hosts);
        let mut goals = Vec::new();
        if let Some(row) = row("weighted_load", 1000) {
            goals.push(Goal::ratio(
                "decide_1k_plain_scan".into(),
                "a decision by weighted_load among 1000 hosts against a plain scan over as many".into(),
                BOUND_PLAIN,
                Figure::of_ratios(&row.dry_run_rounds, &row.plain_rounds),
            ));
        }
        for method in GROWTH_METHODS {
            let (Some(small), Some(large)) = (row(method, 1000), row(method, 10_000)) else { continue };
            goals.push(Goal::ratio(
                format!("decide_growth_10k_{method}"),
                format!("a decision by {method} among 10 000 hosts against one among 1000"),
                BOUND_GROWTH,
                Figure::of_ratios(&large.dry_run_rounds, &small.dry_run_rounds),
            ));
            goals.push(Goal::ratio(
                format!("reserve_growth_10k_{method}"),
                "the same with its place taken and given back".into(),
                BOUND_GROWTH,
                Figure::of_ratios(&large.reserve_rounds, &small.reserve_rounds),
            ));
        }
        Self { bench: "decide", quick: is_quick, rows, goals }
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "One decision on one thread, ns: median of the rounds, and the spread between their quartiles\n"
        )?;
        writeln!(
            f,
            "{:<14} {:>7} {:>16} {:>16} {:>16} {:>18}",
            "method", "hosts", "plain scan", "dry run", "with its place", "report + publish"
        )?;
        let shown = |figure: &Figure| format!("{:.0} ± {:.0}", figure.median, figure.spread);
        for row in &self.rows {
            let Row { method, hosts, plain_scan_ns, dry_run_ns, reserve_ns, publish_ns, .. } = row;
            writeln!(
                f,
                "{method:<14} {hosts:>7} {:>16} {:>16} {:>16} {:>18}",
                shown(plain_scan_ns),
                shown(dry_run_ns),
                shown(reserve_ns),
                shown(publish_ns)
            )?;
        }
        writeln!(f)?;
        for goal in &self.goals {
            let verdict = if goal.met { "met" } else { "NOT MET" };
            let Goal { what, figure, bound, unit, spread, .. } = goal;
            writeln!(f, "{what}: {unit} {figure:.2} ± {spread:.2}, bound {bound}: {verdict}")?;
        }
        Ok(())
    }
}
