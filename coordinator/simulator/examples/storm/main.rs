//! How near do the placements come to an oracle that knows everything?
//!
//! Every scene of the model, by every method, over many seeds: a table for people, or one document that ends in the
//! goals. Before all that, the model itself is held against what is known of it: if placing at random, in turn and by the
//! oracle do not come out as they should, nothing else means anything, and the bench fails.

mod calibration;
mod document;
mod goals;
mod rows;
mod scenes;
mod weights;

use std::process::ExitCode;

use document::Document;
use rows::Measured;
use scenes::Extent;

const USAGE: &str = "usage: storm [--quick] [--json] | storm --weights
  --quick    fewer seeds and smaller pools
  --json     one JSON document on standard output instead of the table
  --weights  search the best weights of the weighted load instead";

fn main() -> ExitCode {
    let (mut is_quick, mut is_json) = (false, false);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--quick" => is_quick = true,
            "--json" => is_json = true,
            "--weights" => {
                weights::search();
                return ExitCode::SUCCESS;
            }
            _ => {
                eprintln!("error: unknown option `{argument}`\n{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let extent = if is_quick { Extent::QUICK } else { Extent::FULL };
    let measured = measure(extent);
    let document = Document::new(is_quick, &measured);
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
    if document.is_calibrated() {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: the model is off: what is known of it does not come out within 10 %");
    ExitCode::FAILURE
}

fn measure(extent: Extent) -> Vec<Measured> {
    let plan = scenes::plan(extent);
    let count = plan.len();
    let number = plan.into_iter().enumerate();
    let measured = number.map(|(at, item)| {
        eprintln!("{} of {count}: {}, {} seeds", at + 1, item.scene.name, item.seeds);
        Measured::of(item)
    });
    measured.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_in_goals_that_a_program_can_read() {
        let measured = measure(Extent { hosts: 10, seeds: 2, many: (20, 1), large: (30, 1) });
        let document = Document::new(true, &measured);
        let text = serde_json::to_string(&document).unwrap();
        assert!(text.find("\"goals\"") > text.rfind("\"rows\""), "goals come last");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let goals = value["goals"].as_array().unwrap();
        for number in 1..=10 {
            let is_of = |goal: &&serde_json::Value| {
                goal["id"].as_str().unwrap().split('_').next() == Some(&format!("G{number}"))
            };
            assert!(goals.iter().any(|goal| is_of(&goal)), "G{number}");
        }
        for goal in goals {
            let (figure, bound) = (goal["figure"].as_f64().unwrap(), goal["bound"].as_f64().unwrap());
            let is_lower_better = goal["better"] == "lower";
            let met = if is_lower_better { figure <= bound } else { figure >= bound };
            assert_eq!(goal["met"].as_bool(), Some(met), "{goal}");
            assert!(figure.is_finite() && goal["spread"].as_f64().is_some(), "{goal}");
        }
        assert!(document.to_string().contains("oracle"));
    }
}
