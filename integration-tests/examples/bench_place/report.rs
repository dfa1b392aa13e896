//! The table for people, the document for programs, and whether the goals are met.

use serde::Serialize;
use usher_integration_tests::bench::{Bound, Goal, print_goals, processors};

use crate::rows::{Idle, Measured, Row};

/// What the echo costs on a machine of two processors, microseconds: plain, and under TLS. It may be this factor off.
const ECHO_US: f64 = 14.0;
const ECHO_TLS_US: f64 = 15.5;
const ECHO_FACTOR: f64 = 2.0;

const GOALS: [(&str, Bound); 8] = [
    ("place_dry_run_cpu_1k", Bound::AtMost(1.15)),
    ("place_dry_run_cpu_10k", Bound::AtMost(1.15)),
    ("place_dry_run_rps_1k", Bound::AtLeast(0.90)),
    ("place_reserve_cpu", Bound::AtMost(1.6)),
    ("place_consent_cpu", Bound::AtMost(3.0)),
    ("place_consent_latency", Bound::AtMost(2.0)),
    ("place_tls_rps", Bound::AtLeast(0.85)),
    ("place_growth_10k", Bound::AtMost(1.15)),
];

/// The reference itself: one that is slow would make everything look cheap.
#[derive(Debug, Clone, Serialize)]
struct Echo {
    what: &'static str,
    server_us: f64,
    expected_us: f64,
    is_believed: bool,
}

impl Echo {
    fn new(what: &'static str, server_us: f64, expected_us: f64) -> Self {
        let is_believed = (expected_us / ECHO_FACTOR..=expected_us * ECHO_FACTOR).contains(&server_us);
        Self { what, server_us, expected_us, is_believed }
    }
}

/// Everything that was measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Document {
    bench: &'static str,
    quick: bool,
    processors: usize,
    echo: Vec<Echo>,
    idle: Vec<Idle>,
    rows: Vec<Row>,
    discarded_turns: usize,
    /// Why nothing of this run is taken for met; empty if it is believed.
    doubts: Vec<String>,
    goals: Vec<Goal>,
}

impl Document {
    pub(crate) fn new(quick: bool, measured: Measured) -> Self {
        let Measured { rows, idle, echo_us, echo_tls_us } = measured;
        let plain = echo_us.map(|us| Echo::new("echo, plain", us, ECHO_US));
        let tls = echo_tls_us.map(|us| Echo::new("echo, mutual TLS", us, ECHO_TLS_US));
        let echo: Vec<Echo> = plain.into_iter().chain(tls).collect();
        let far_off = echo.iter().filter(|echo| !echo.is_believed).map(|echo| {
            let Echo { what, server_us, expected_us, .. } = echo;
            format!("{what} took {server_us:.1} us, expected within {ECHO_FACTOR} x of {expected_us} us")
        });
        let disturbed = rows.iter().filter(|row| row.is_disturbed);
        let disturbed = disturbed.map(|row| format!("{}: the machine was busy with something else", row.id));
        let doubts: Vec<String> = far_off.chain(disturbed).collect();
        let goals = GOALS.iter().filter_map(|(id, bound)| {
            let row = rows.iter().find(|row| row.id == *id)?;
            Some(Goal::ratio(row.id, row.what, *bound, row.ratio, doubts.is_empty()))
        });
        let goals = goals.collect();
        let discarded_turns = rows.iter().map(|row| row.discarded).sum();
        Self {
            bench: "place",
            quick,
            processors: processors(),
            echo,
            idle,
            rows,
            discarded_turns,
            doubts,
            goals,
        }
    }

    pub(crate) fn print(&self) {
        println!(
            "The coordinator's processor time for each call, 64 in flight over 8 connections, loopback:\n"
        );
        for Echo { what, server_us, expected_us, .. } in &self.echo {
            println!("{what:<22} {server_us:8.1} us   (expected about {expected_us} us)");
        }
        for Idle { farm, hosts, server_cores } in &self.idle {
            println!("reports of {hosts:>5} hosts {:8.1} ms in each second, farm {farm}", server_cores * 1e3);
        }
        println!(
            "\n{:<22} {:>9} {:>9} {:>5} {:>7} {:>7} {:>9} {:>9}",
            "", "load", "reference", "", "ratio", "spread", "calls/s", "reference"
        );
        for row in &self.rows {
            let Row { id, figure, reference, unit, ratio, rps, reference_rps, .. } = row;
            println!(
                "{id:<22} {figure:9.1} {reference:9.1} {unit:>5} {:7.3} {:7.3} {rps:9.0} {reference_rps:9.0}",
                ratio.0, ratio.1
            );
        }
        println!(
            "\n{} turns discarded because the machine was busy with something else",
            self.discarded_turns
        );
        for doubt in &self.doubts {
            println!("NOT BELIEVED: {doubt}");
        }
        println!();
        print_goals(&self.goals);
    }
}
