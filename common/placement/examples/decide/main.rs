//! What does a decision cost, by method and size of the pool?
//!
//! The farm, the snapshot and the decision are those of a coordinator; only the wire is missing. Beside each figure stands
//! a plain scan over three plain arrays that computes a weighted load and keeps the lowest, measured in the same rounds:
//! machines differ and are noisy, ratios less so.
//!
//! It answers for a farm that nothing reports to meanwhile, on one thread, and counts what that thread spends on the CPU:
//! others that use the machine move it little. What the wire costs it does not say.

mod farm;
mod report;

use std::{hint::black_box, process::ExitCode};

use farm::{BenchFarm, request};
use report::{Document, Figure, Row};
use rustix::time::{ClockId, clock_gettime};
use usher_placement::decision::{Asked, Decision, reserve_best};
use usher_types::Method;

const USAGE: &str = "usage: decide [--quick] [--json]
  --quick  fewer rounds, and no pool of 100 000
  --json   one JSON document on standard output instead of the table";

const METHODS: [(Method, &str); 4] = [
    (Method::WeightedLoad, "weighted_load"),
    (Method::Predictive, "predictive"),
    (Method::Availability, "availability"),
    (Method::FillFirst, "fill_first"),
];
const SIZES: [usize; 4] = [100, 1000, 10_000, 100_000];
/// Rounds of a whole run and of a quick one. Medians are of these, so they must be odd.
const ROUNDS: usize = 21;
const QUICK_ROUNDS: usize = 7;
/// How long one figure is measured in one round, ns: far above what reading the clock costs.
const ROUND_NS: f64 = 20e6;
const QUICK_ROUND_NS: f64 = 5e6;

fn main() -> ExitCode {
    let (mut is_quick, mut is_json) = (false, false);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--quick" => is_quick = true,
            "--json" => is_json = true,
            _ => {
                eprintln!("error: unknown option `{argument}`\n{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let document = measure(is_quick);
    if is_json {
        match serde_json::to_string_pretty(&document) {
            Ok(text) => println!("{text}"),
            Err(error) => {
                eprintln!("error: writing the document: {error}");
                return ExitCode::FAILURE;
            }
        }
    } else {
        print!("{document}");
    }
    ExitCode::SUCCESS
}

fn measure(is_quick: bool) -> Document {
    let sizes = if is_quick { &SIZES[..3] } else { &SIZES[..] };
    let rows = METHODS.into_iter().map(|method| {
        let farms: Vec<BenchFarm> = sizes.iter().map(|size| BenchFarm::new(method, *size)).collect();
        rows(&farms, is_quick)
    });
    Document::new(is_quick, rows.flatten().collect())
}

/// The rows of one method. All sizes are measured in turn, so that their ratios are of the same minutes.
fn rows(farms: &[BenchFarm], is_quick: bool) -> Vec<Row> {
    let (rounds, round_ns) = if is_quick { (QUICK_ROUNDS, QUICK_ROUND_NS) } else { (ROUNDS, ROUND_NS) };
    let mut benches: Vec<Bench<'_>> = farms.iter().map(|farm| Bench::new(farm, round_ns)).collect();
    for _ in 0..rounds {
        benches.iter_mut().for_each(Bench::round);
    }
    benches.into_iter().map(Bench::row).collect()
}

/// One farm under measurement.
struct Bench<'a> {
    farm: &'a BenchFarm,
    plain: Timed,
    dry_run: Timed,
    place: Timed,
    publish: Timed,
}

impl<'a> Bench<'a> {
    fn new(farm: &'a BenchFarm, round_ns: f64) -> Self {
        let timed = || Timed { round_ns, times: 1, ns: Vec::new() };
        Self { farm, plain: timed(), dry_run: timed(), place: timed(), publish: timed() }
    }

    fn round(&mut self) {
        let farm = self.farm;
        self.plain.round(|_| _ = black_box(farm.plain_scan()));
        let dry = request(true);
        self.dry_run.round(|seed| {
            let asked = Asked { request: &dry, unwilling: &[], doors: &[], now: farm.now, seed };
            black_box(reserve_best(|| farm.snapshot.clone(), &farm.ledger, &asked));
        });
        let wet = request(false);
        self.place.round(|seed| {
            let asked = Asked { request: &wet, unwilling: &[], doors: &[], now: farm.now, seed };
            let reserved = reserve_best(|| farm.snapshot.clone(), &farm.ledger, &asked);
            if let Some(reserved) = reserved
                && let Decision::Take(choice) = &reserved.decision
            {
                reserved.pool.members.cells[choice.position as usize].release(choice.adds_users);
            }
        });
        self.publish.round(|seed| _ = black_box(farm.publish_one_report(seed)));
    }

    fn row(self) -> Row {
        Row {
            method: self.farm.method,
            hosts: self.farm.snapshot.pools.values().map(|pool| pool.hosts.len()).sum(),
            plain_scan_ns: Figure::of(&self.plain.ns),
            dry_run_ns: Figure::of(&self.dry_run.ns),
            reserve_ns: Figure::of(&self.place.ns),
            publish_ns: Figure::of(&self.publish.ns),
            dry_run_rounds: self.dry_run.ns,
            reserve_rounds: self.place.ns,
            plain_rounds: self.plain.ns,
        }
    }
}

/// One thing that is measured round by round.
struct Timed {
    round_ns: f64,
    /// How often it is done in a round.
    times: u32,
    ns: Vec<f64>,
}

impl Timed {
    fn round(&mut self, mut once: impl FnMut(u64)) {
        if self.ns.is_empty() {
            // A first try says how often it fits into a round; it warms up what it touches too.
            let one = spent(|| (0..8).for_each(&mut once)) / 8.0;
            self.times = (self.round_ns / one.max(1.0)).clamp(4.0, 1e6) as u32;
        }
        // The caches are to be those of a coordinator that decides, not those of what was measured before.
        (0..u64::from(self.times) / 2).for_each(&mut once);
        let ns = spent(|| (0..u64::from(self.times)).for_each(&mut once));
        self.ns.push(ns / f64::from(self.times));
    }
}

/// What this thread spends on the CPU for it, ns.
fn spent(work: impl FnOnce()) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    let started = now();
    work();
    now() - started
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_ends_in_goals_that_a_program_can_read() {
        let farms: Vec<BenchFarm> =
            [100, 1000, 10_000].iter().map(|size| BenchFarm::new(METHODS[0], *size)).collect();
        let text = serde_json::to_string(&Document::new(true, rows(&farms, true))).unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(text.find("\"goals\"") > text.rfind("\"rows\""), "goals come last");
        for goal in document["goals"].as_array().unwrap() {
            for key in ["id", "what", "unit"] {
                assert!(goal[key].is_string(), "{key} in {goal}");
            }
            let (figure, bound) = (goal["figure"].as_f64().unwrap(), goal["bound"].as_f64().unwrap());
            assert_eq!(goal["met"].as_bool(), Some(figure <= bound), "{goal}");
            assert!(figure > 0.0 && goal["spread"].as_f64().is_some(), "{goal}");
        }
    }
}
