//! Does a real machine point the same way as the simulator?
//!
//! A few hosts, each a group of processes that the kernel holds to a small part of this machine; every logon is a process
//! that really computes; reports are made of what the kernel says of these processes; a real coordinator places. The same
//! storm is lived through under two methods, and the ratio of their slowest logons is compared with the simulator's for
//! the same farm. The model says how logons share a host's processors, and that is what is checked: nothing here can say
//! whether real logons cost what the model's do.

#![allow(clippy::unwrap_used, reason = "a bench fails as a test does")]

mod burner;
mod group;
mod host;
mod people;
mod report;
mod scale;
mod storm;
mod stream;

use std::process::ExitCode;
use std::time::Duration;

use people::People;
use report::Document;
use scale::{HOSTS, LOGONS, REPORT_S, WITHIN_S};
use storm::Way;
use usher_simulator::{Method, OwnFarm};

const USAGE: &str = "usage: bench_machine [--quick] [--json]
  --quick  one storm instead of several
  --json   one JSON document on standard output instead of the table";

/// Storms of a whole run, and of a quick one.
const SEEDS: u64 = 5;
const QUICK_SEEDS: u64 = 1;
/// Storms of the simulator.
const SIMULATED: u64 = 60;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if burner::run(&arguments) {
        return ExitCode::SUCCESS;
    }
    let (mut is_quick, mut is_json) = (false, false);
    for argument in &arguments {
        match argument.as_str() {
            "--quick" => is_quick = true,
            "--json" => is_json = true,
            _ => {
                eprintln!("error: unknown option `{argument}`\n{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let seeds = if is_quick { QUICK_SEEDS } else { SEEDS };
    let measured = simulated().and_then(|simulated| {
        let lived = runtime.block_on(lived(seeds))?;
        Ok(Document::new(is_quick, seeds, &lived, &simulated))
    });
    match measured {
        Ok(document) if is_json => println!("{}", serde_json::to_string_pretty(&document).unwrap()),
        Ok(document) => document.print(),
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// For each way and storm, the expansions of all logons. The same people come under both.
async fn lived(seeds: u64) -> anyhow::Result<[Vec<Vec<f64>>; 2]> {
    let mut expansions = [Vec::new(), Vec::new()];
    for seed in 0..seeds {
        let people = People::draw(seed);
        for (way, expansions) in Way::ALL.into_iter().zip(&mut expansions) {
            eprintln!("storm {} of {seeds}, {}", seed + 1, way.name());
            let folder = tempfile::Builder::new().prefix("usher-bench-").tempdir()?;
            let done = storm::live(folder.path(), way, &people).await?;
            let censored = done.iter().filter(|logon| logon.is_censored).count();
            if censored > 0 {
                eprintln!("{censored} logons were not done in time");
            }
            expansions.push(done.iter().map(|logon| logon.expansion).collect());
        }
    }
    Ok(expansions)
}

/// The same by the simulator, for a farm of this size.
fn simulated() -> anyhow::Result<[Vec<f64>; 2]> {
    let farm = OwnFarm {
        hosts: HOSTS,
        logons: LOGONS,
        within: Duration::from_secs_f64(WITHIN_S),
        report_interval: Duration::from_secs_f64(REPORT_S),
        mixed: false,
    };
    let scene = farm.scene()?;
    let of = |way: Way| -> anyhow::Result<Vec<f64>> {
        let method: Method =
            way.name().parse().map_err(|_| anyhow::anyhow!("the simulator knows no {}", way.name()))?;
        let traces = (0..SIMULATED).map(|seed| usher_simulator::trace(&scene, method, seed));
        Ok(traces.flat_map(|trace| expansions(&trace)).collect())
    };
    let [predictive, stale] = Way::ALL.map(of);
    Ok([predictive?, stale?])
}

fn expansions(trace: &usher_simulator::Trace) -> Vec<f64> {
    trace.logins.iter().filter_map(|login| login.expansion(trace.end_s)).collect()
}
