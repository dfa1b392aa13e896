//! How wrong is the availability index because its baseline is learned?
//!
//! A modelled host lives for 14 days; the real estimators learn from its calls, as in an agent. Each period, the index
//! with the learned baseline is compared with the index that the same calls give with the true unloaded latency of the
//! model. The difference in points is the error that an operator would see.
//!
//! It answers for the model's hosts only: a host whose latency does not come from its own load is not among them.

mod days;
mod host;
mod report;

use std::process::ExitCode;

use days::{Errors, live};
use host::{SCENES, SERVICES};
use report::{Document, Row};

const USAGE: &str = "usage: baseline_days [--quick] [--json]
  --quick  fewer seeds
  --json   one JSON document on standard output instead of the table";

/// Seeds of a whole run, and of a quick one: at least two, or there is no spread.
const SEEDS: u64 = 20;
const QUICK_SEEDS: u64 = 4;

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
    let document = measure(is_quick, if is_quick { QUICK_SEEDS } else { SEEDS });
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

fn measure(is_quick: bool, seeds: u64) -> Document {
    let mut rows = Vec::new();
    for scene in SCENES {
        for service in SERVICES {
            eprintln!("{}, {}", scene.name(), service.name);
            let errors: Vec<Errors> = (0..seeds).map(|seed| live(scene, service, seed)).collect();
            rows.push(Row::new(scene, service, &errors));
        }
    }
    Document::new(is_quick, seeds, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_ends_in_goals_that_a_program_can_read() {
        let text = serde_json::to_string(&measure(true, 1)).unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(text.find("\"goals\"") > text.rfind("\"rows\""), "goals come last");
        let goals = document["goals"].as_array().unwrap();
        assert_eq!(goals.len(), 2);
        for goal in goals {
            for key in ["id", "what", "unit"] {
                assert!(goal[key].is_string(), "{key} in {goal}");
            }
            let (figure, bound) = (goal["figure"].as_f64().unwrap(), goal["bound"].as_f64().unwrap());
            assert_eq!(goal["met"].as_bool(), Some(figure <= bound), "{goal}");
            assert!(figure > 0.0 && goal["spread"].as_f64().is_some(), "{goal}");
        }
    }

    #[test]
    fn the_same_seed_lives_the_same_days() {
        let again = || live(SCENES[0], SERVICES[1], 7);
        assert_eq!(again(), again());
    }
}
