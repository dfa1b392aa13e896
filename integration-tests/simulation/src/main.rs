//! Runs one seed, and prints what came of it as one JSON document.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use mad_turmoil::time::SimClocksGuard;
use tracing_subscriber::EnvFilter;
use usher_simulation::plan::{Plan, Sabotage, rng};
use usher_simulation::run::{catch_panics, run};

/// A check failed.
const BROKEN: u8 = 4;

/// One run of the simulated farm.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  usher-simulation --seed 7
  usher-simulation --seed 7 --trace 2>trace.txt
  usher-simulation --seed 7 --sabotage admit-all     must break an invariant")]
struct Arguments {
    /// Of all chance
    #[arg(long)]
    seed: u64,
    /// Print every event as it happens
    #[arg(long)]
    trace: bool,
    /// What the product logs, in the syntax of RUST_LOG
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Break a part on purpose
    #[arg(long, value_enum, default_value = "none")]
    sabotage: Sabotage,
    /// Length of the busy part, seconds; drawn if absent
    #[arg(long)]
    busy_seconds: Option<u64>,
}

fn main() -> ExitCode {
    match simulate(&Arguments::parse()) {
        Ok(is_sound) => {
            if is_sound {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(BROKEN)
            }
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn simulate(arguments: &Arguments) -> anyhow::Result<bool> {
    // In memory where there is such a folder: the book is written in place then, as on real hosts.
    let memory = std::path::Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
    let filter = arguments.log.as_deref().unwrap_or("off");
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_new(filter)?)
        .with_writer(std::io::stderr)
        .without_time()
        .init();
    let (seed, sabotage) = (arguments.seed, arguments.sabotage);
    let plan = match arguments.busy_seconds {
        Some(seconds) => Plan::with_busy(seed, sabotage, Duration::from_secs(seconds)),
        None => Plan::draw(seed, sabotage),
    };
    // From here on the whole process has one source of chance, and simulated clocks.
    mad_turmoil::rand::set_rng(mad_rng(seed));
    let _clocks = SimClocksGuard::init();
    catch_panics();
    // On a thread of its own: what the standard library draws for hash maps it draws once for each thread, and this one has
    // done so.
    let (folder_path, is_shown) = (folder.path().to_owned(), arguments.trace);
    let running = std::thread::spawn(move || run(&plan, &folder_path, is_shown));
    let outcome = running.join().map_err(|_| anyhow::anyhow!("the simulation itself panicked"))??;
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(outcome.violations.is_empty())
}

fn mad_rng(seed: u64) -> rand::rngs::StdRng {
    rng(seed, "system")
}
