//! The table for people, the document for programs, and whether the goals are met.

use serde::Serialize;
use usher_integration_tests::bench::{Bound, Goal, print_goals, processors, summary};

use crate::contestants::NAMES;
use crate::window::{CROWDS, Cost, Stretch, Window};

// Their places in what is told of all.
const AGENT: usize = 0;
const EXPORTER: usize = 1;
const COLLECTD: usize = 2;
const SYSINFO: usize = 3;

/// What the others cost on a machine of two processors with the larger crowd, processor seconds for a thousand looks.
const KNOWN: [(usize, f64); 3] = [(EXPORTER, 37.0), (COLLECTD, 38.0), (SYSINFO, 18.0)];
/// They may be this factor off.
const KNOWN_FACTOR: f64 = 2.0;

const MOST_OF_OTHERS: Bound = Bound::AtMost(0.10);
const MOST_MEMORY_MIB: Bound = Bound::AtMost(8.0);

/// One program with one number of processes: medians, and the spread of the first.
#[derive(Debug, Clone, Serialize)]
struct Row {
    program: &'static str,
    processes: usize,
    /// Processor time of a thousand looks, s.
    cpu_s: f64,
    spread_s: f64,
    anonymous_mib: f64,
    resident_mib: f64,
    /// What our agent took in the same window, divided by this.
    agent_ratio: f64,
    agent_ratio_spread: f64,
}

/// A reference, which must be what it is known to be: one that is slow would make everything look cheap.
#[derive(Debug, Clone, Serialize)]
struct Reference {
    program: &'static str,
    cpu_s: f64,
    known_cpu_s: f64,
    is_believed: bool,
}

/// Everything that was measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Document {
    bench: &'static str,
    quick: bool,
    processors: usize,
    references: Vec<Reference>,
    rows: Vec<Row>,
    windows: usize,
    discarded_windows: usize,
    /// Why nothing of this run is taken for met; empty if it is believed.
    doubts: Vec<String>,
    goals: Vec<Goal>,
}

impl Document {
    pub(crate) fn new(quick: bool, stretches: &[Stretch]) -> Self {
        let rows = stretches.iter().flat_map(|stretch| (0..NAMES.len()).map(|at| row(stretch, at))).collect();
        let many = stretches.iter().find(|stretch| stretch.crowd == CROWDS[1]);
        let references: Vec<_> = many.into_iter().flat_map(references).collect();
        let doubts = doubts(stretches, &references);
        let is_believed = doubts.is_empty();
        let goals = many.into_iter().flat_map(|many| goals(many, is_believed)).collect();
        Self {
            bench: "agent",
            quick,
            processors: processors(),
            references,
            rows,
            windows: stretches.iter().map(|stretch| stretch.kept.len()).sum(),
            discarded_windows: stretches.iter().map(|stretch| stretch.discarded).sum(),
            doubts,
            goals,
        }
    }

    /// Whether the others are what they are known to be.
    pub(crate) fn is_measured(&self) -> bool {
        self.references.iter().all(|reference| reference.is_believed)
    }

    pub(crate) fn print(&self) {
        println!("Processor time of a thousand looks at this machine, all at the same time, one a second:\n");
        println!(
            "{:<14} {:>9} {:>9} {:>7} {:>10} {:>10} {:>11} {:>7}",
            "", "processes", "CPU-s", "spread", "anonymous", "resident", "agent/this", "spread"
        );
        for row in &self.rows {
            let Row { program, processes, cpu_s, spread_s, anonymous_mib, resident_mib, .. } = row;
            println!(
                "{program:<14} {processes:>9} {cpu_s:9.2} {spread_s:7.2} {anonymous_mib:6.1} MiB {resident_mib:6.1} MiB \
                 {:11.3} {:7.3}",
                row.agent_ratio, row.agent_ratio_spread
            );
        }
        println!();
        for Reference { program, cpu_s, known_cpu_s, .. } in &self.references {
            println!("{program:<14} {cpu_s:6.1} CPU-s (known to take about {known_cpu_s})");
        }
        println!(
            "\n{} windows, and {} discarded because the machine was busy with something else",
            self.windows, self.discarded_windows
        );
        for doubt in &self.doubts {
            println!("NOT BELIEVED: {doubt}");
        }
        println!();
        print_goals(&self.goals);
    }
}

/// Median and spread of a figure of each window.
fn of(stretch: &Stretch, figure: impl Fn(&Window) -> f64) -> (f64, f64) {
    summary(stretch.kept.iter().map(figure))
}

fn ratio(stretch: &Stretch, other: usize) -> (f64, f64) {
    of(stretch, |window| window.costs[AGENT].cpu_s / window.costs[other].cpu_s)
}

fn row(stretch: &Stretch, at: usize) -> Row {
    let cost = |figure: fn(&Cost) -> f64| of(stretch, |window| figure(&window.costs[at]));
    let (cpu_s, spread_s) = cost(|cost| cost.cpu_s);
    let (agent_ratio, agent_ratio_spread) = ratio(stretch, at);
    Row {
        program: NAMES[at],
        processes: stretch.processes,
        cpu_s,
        spread_s,
        anonymous_mib: cost(|cost| cost.anonymous_mib).0,
        resident_mib: cost(|cost| cost.resident_mib).0,
        agent_ratio,
        agent_ratio_spread,
    }
}

fn references(many: &Stretch) -> impl Iterator<Item = Reference> {
    KNOWN.iter().map(|&(at, known_cpu_s)| {
        let (cpu_s, _) = of(many, |window| window.costs[at].cpu_s);
        let is_believed = (known_cpu_s / KNOWN_FACTOR..=known_cpu_s * KNOWN_FACTOR).contains(&cpu_s);
        Reference { program: NAMES[at], cpu_s, known_cpu_s, is_believed }
    })
}

fn doubts(stretches: &[Stretch], references: &[Reference]) -> Vec<String> {
    let far_off = references.iter().filter(|reference| !reference.is_believed).map(|reference| {
        let Reference { program, cpu_s, known_cpu_s, .. } = reference;
        format!("{program} took {cpu_s:.1} CPU-s, expected within {KNOWN_FACTOR} x of {known_cpu_s}")
    });
    let disturbed = stretches.iter().filter(|stretch| stretch.is_disturbed);
    let disturbed = disturbed
        .map(|stretch| format!("{} processes: the machine was busy with something else", stretch.processes));
    far_off.chain(disturbed).collect()
}

fn goals(many: &Stretch, is_believed: bool) -> [Goal; 3] {
    let memory = of(many, |window| window.costs[AGENT].anonymous_mib);
    [
        Goal::ratio(
            "agent_cpu_exporter_1k",
            "the agent with its stream / the node exporter with processes, 1000 processes",
            MOST_OF_OTHERS,
            ratio(many, EXPORTER),
            is_believed,
        ),
        Goal::ratio(
            "agent_cpu_sysinfo_1k",
            "the agent with its stream / sysinfo with processes, 1000 processes",
            MOST_OF_OTHERS,
            ratio(many, SYSINFO),
            is_believed,
        ),
        Goal::amount(
            "agent_memory_1k",
            "anonymous memory of the agent, 1000 processes",
            MOST_MEMORY_MIB,
            "MiB",
            memory,
            is_believed,
        ),
    ]
}
