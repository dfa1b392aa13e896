//! The table for people and the document for programs.

use std::fmt;

use serde::Serialize;

use crate::calibration::{Check, checks};
use crate::goals::{Goal, goals};
use crate::rows::{Measured, Row};

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Document {
    bench: &'static str,
    quick: bool,
    calibration: Vec<Check>,
    rows: Vec<Row>,
    goals: Vec<Goal>,
}

impl Document {
    pub(crate) fn new(is_quick: bool, measured: &[Measured]) -> Self {
        let rows = measured.iter().flat_map(|run| run.by_method.iter().map(|by| Row::new(run, by)));
        Self {
            bench: "storm",
            quick: is_quick,
            calibration: checks(measured),
            rows: rows.collect(),
            goals: goals(measured),
        }
    }

    pub(crate) fn is_calibrated(&self) -> bool {
        !self.calibration.is_empty() && self.calibration.iter().all(|check| check.holds)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, p50, p99, peak_to_mean, herd, full_percent, .. } = self;
        write!(f, "  {method:<22} {p50:>7.2} {:>8.2} {:>7.2}", p99.mean, (p99.high - p99.low) / 2.0)?;
        match self.p99_over_oracle {
            Some(over) => write!(f, " {:>8.3} {:>8.3}", over.mean, over.worst)?,
            None => write!(f, " {:>8} {:>8}", "-", "-")?,
        }
        write!(f, " {peak_to_mean:>6.2} {:>6.1} {full_percent:>6.1}", herd.mean)?;
        let unfinished = [(self.censored, "not done"), (self.refused, "refused")];
        for (count, what) in unfinished.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "  {count} {what}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Logon expansion: how much longer a logon takes than alone. Means over the seeds; +- is half of the"
        )?;
        writeln!(
            f,
            "95 % confidence interval; /oracle is p99 over that of the oracle, seed by seed, and its worst seed."
        )?;
        let mut scene = "";
        for row in &self.rows {
            if row.scene != scene {
                scene = &row.scene;
                writeln!(f, "\n{scene}: {} hosts, {} seeds", row.hosts, row.seeds)?;
                writeln!(
                    f,
                    "  {:<22} {:>7} {:>8} {:>7} {:>8} {:>8} {:>6} {:>6} {:>6}",
                    "method", "p50", "p99", "+-", "/oracle", "worst", "peak", "herd", "full%"
                )?;
            }
            writeln!(f, "{row}")?;
        }
        writeln!(f, "\nWhat is known of the model:")?;
        for Check { scene, method, known, found, holds } in &self.calibration {
            let verdict = if *holds { "holds" } else { "IS OFF" };
            writeln!(f, "  {scene:<16} {method:<12} known {known:.2}, found {found:.2}: {verdict}")?;
        }
        writeln!(f)?;
        for Goal { id, what, bound, figure, unit, spread, met, .. } in &self.goals {
            let verdict = if *met { "met" } else { "NOT MET" };
            writeln!(f, "{id}: {what}: {figure:.3} +- {spread:.3} {unit}, bound {bound}: {verdict}")?;
        }
        Ok(())
    }
}
