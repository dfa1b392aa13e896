//! The table for people, the document for programs, and whether both point the same way.

use serde::Serialize;
use usher_integration_tests::bench::{Bound, Goal, print_goals, spread};

use crate::scale::{CORE, CORES, FASTER, HOSTS, LOGONS, REPORT_S, WITHIN_S};
use crate::storm::Way;

/// Logon expansion under one method.
#[derive(Debug, Clone, Copy, Serialize)]
struct Row {
    method: &'static str,
    p50: f64,
    p99: f64,
    simulated_p50: f64,
    simulated_p99: f64,
}

/// Everything that was measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Document {
    bench: &'static str,
    quick: bool,
    hosts: usize,
    logons: usize,
    storms: u64,
    rows: Vec<Row>,
    /// p99 of the second method over that of the first: on this machine, and in the simulator.
    ratio: f64,
    simulated_ratio: f64,
    goals: Vec<Goal>,
}

impl Document {
    /// Of the expansions under each of [`Way::ALL`], those on this machine storm by storm.
    pub(crate) fn new(
        quick: bool,
        storms: u64,
        by_storm: &[Vec<Vec<f64>>; 2],
        simulated: &[Vec<f64>; 2],
    ) -> Self {
        let lived = by_storm.each_ref().map(|storms| storms.concat());
        let each = by_storm[0].iter().zip(&by_storm[1]);
        let ratios: Vec<f64> =
            each.map(|(first, second)| percentile(second, 0.99) / percentile(first, 0.99)).collect();
        let rows: Vec<Row> = Way::ALL
            .into_iter()
            .zip(lived.iter().zip(simulated))
            .map(|(way, (lived, simulated))| Row {
                method: way.name(),
                p50: percentile(lived, 0.50),
                p99: percentile(lived, 0.99),
                simulated_p50: percentile(simulated, 0.50),
                simulated_p99: percentile(simulated, 0.99),
            })
            .collect();
        let ratio = rows[1].p99 / rows[0].p99;
        let simulated_ratio = rows[1].simulated_p99 / rows[0].simulated_p99;
        let what = "p99 logon expansion, ranked by stale reports over predictive, on real processes";
        // Only a difference that the simulator sees as well is one that it can be checked by.
        let agrees = simulated_ratio > 1.0;
        let found = (ratio, spread(&ratios));
        let goal = Goal::ratio("machine_p99_ratio", what, Bound::AtLeast(1.0), found, agrees);
        let goals = vec![goal];
        Self {
            bench: "machine",
            quick,
            hosts: HOSTS,
            logons: LOGONS,
            storms,
            rows,
            ratio,
            simulated_ratio,
            goals,
        }
    }

    pub(crate) fn print(&self) {
        println!(
            "{HOSTS} hosts of {CORES} cores, a core being {CORE} processors, and all times {FASTER} times shorter; \
             {LOGONS} logons within {WITHIN_S} s, reports every {REPORT_S} s; {} storms.\n",
            self.storms
        );
        println!("{:<12} {:>24} {:>24}", "", "this machine", "simulator");
        println!("{:<12} {:>12} {:>11} {:>12} {:>11}", "", "p50", "p99", "p50", "p99");
        for Row { method, p50, p99, simulated_p50, simulated_p99 } in &self.rows {
            println!("{method:<12} {p50:12.2} {p99:11.2} {simulated_p50:12.2} {simulated_p99:11.2}");
        }
        println!("{:<12} {:>12} {:11.2} {:>12} {:11.2}\n", "ratio", "", self.ratio, "", self.simulated_ratio);
        print_goals(&self.goals);
    }
}

/// The smallest expansion that so large a share of all does not pass.
fn percentile(expansions: &[f64], share: f64) -> f64 {
    let mut sorted = expansions.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted[at.clamp(1, sorted.len()) - 1]
}
