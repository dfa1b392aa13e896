//! Does the farm stay right whatever goes wrong?
//!
//! Each seed is one process of `usher-simulation`: real coordinators and agents on a simulated network, with faults and
//! invariants. Seeds run side by side. An invariant that breaks ends in the exit code 4, with the seed, the last events and the
//! command that runs it again.

mod child;
mod totals;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Context;

use self::child::{Ended, run_seed};
use self::totals::Totals;
use crate::process::{cargo, execute};
use crate::workspace::Workspace;

/// What CI runs.
pub(crate) const CI_SEEDS: u64 = 50;
/// Failures that are shown with their last events; the others by their seed.
const SHOWN: usize = 3;
const PACKAGE: &str = "usher-simulation";

/// What `cargo xtask sim` was asked for.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// How many seeds
    #[arg(long, default_value_t = CI_SEEDS, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Print one JSON document that ends in the goals instead of a table
    #[arg(long)]
    json: bool,
    /// Print every event of each seed to standard error; seeds run one after the other then
    #[arg(long)]
    trace: bool,
    /// Print what the product logs, in the syntax of RUST_LOG, among the events
    #[arg(long, value_name = "FILTER", requires = "trace")]
    log: Option<String>,
}

/// An invariant broke.
#[derive(Debug)]
pub(crate) struct Broken {
    seeds: usize,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} seeds broke an invariant", self.seeds)
    }
}

impl std::error::Error for Broken {}

/// The simulation as every change is tested with.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn run_ci(workspace: &Workspace) -> anyhow::Result<()> {
    run(workspace, &Options { seeds: CI_SEEDS, from: 1, json: false, trace: false, log: None })
}

/// # Errors
///
/// [`Broken`], or when it cannot be built or run.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<()> {
    let program = build(workspace, options)?;
    let begun = Instant::now();
    let ended = run_seeds(&program, options);
    let mut totals = Totals::default();
    for ended in ended.values() {
        totals.add(ended);
    }
    let seconds = begun.elapsed().as_secs_f64();
    if options.json {
        println!("{}", totals.document(options.from, options.seeds, seconds)?);
    } else {
        print!("{}", totals.table(seconds));
    }
    let broken: Vec<_> = ended.iter().filter(|(_, ended)| ended.is_broken()).collect();
    for (seed, ended) in broken.iter().take(SHOWN) {
        eprintln!("{}", ended.told(**seed));
    }
    if broken.len() > SHOWN {
        let rest: Vec<_> = broken.iter().skip(SHOWN).map(|(seed, _)| seed.to_string()).collect();
        eprintln!("and seeds {}", rest.join(", "));
    }
    match broken.len() {
        0 => Ok(()),
        seeds => Err(Broken { seeds }.into()),
    }
}

fn build(workspace: &Workspace, options: &Options) -> anyhow::Result<PathBuf> {
    // As a release: it runs ten times as many seeds in the same time.
    let mut command = cargo(workspace, &["build", "--release", "--locked", "--package", PACKAGE]);
    if options.json {
        // Standard output is the document's.
        let status = command.arg("--quiet").status().context("starting cargo")?;
        anyhow::ensure!(status.success(), "the simulation cannot be built: {status}");
    } else {
        execute(&mut command)?;
    }
    Ok(workspace.release_dir().join(PACKAGE))
}

fn run_seeds(program: &std::path::Path, options: &Options) -> BTreeMap<u64, Ended> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = if options.trace { 1 } else { cores };
    let (next, ended) = (AtomicU64::new(0), Mutex::new(BTreeMap::new()));
    let every = (options.seeds / 10).max(1);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= options.seeds {
                        return;
                    }
                    let seed = options.from + number;
                    let outcome = run_seed(program, seed, options.trace, options.log.as_deref());
                    // A thread that panicked ends the whole run below.
                    let Ok(mut ended) = ended.lock() else { return };
                    if outcome.is_broken() {
                        eprintln!("seed {seed}: BROKEN");
                    }
                    ended.insert(seed, outcome);
                    if (ended.len() as u64).is_multiple_of(every) {
                        eprintln!("{} of {} seeds", ended.len(), options.seeds);
                    }
                }
            });
        }
    });
    ended.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
