//! From expansion factors, or from calls and their times, to the availability index.

use std::str::FromStr;
use std::time::Duration;

use clap::{ArgGroup, Args};
use serde::Serialize;
use usher_placement::availability::{
    Availability, AvailabilityTracker, Basis, availability_index, operation_expansion,
};
use usher_types::{BootTime, Latency, OperationName, OperationWindow};

use crate::commands::Context;
use crate::failure::Failure;
use crate::output::table::{Grid, cell};
use crate::output::text::{decimal, microseconds};
use crate::output::{emit, json::emit_json};

/// Arguments of `calc ai`.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("input").required(true).args(["xf", "op"]),
    after_help = "Examples:
  usherctl calc ai --xf 8                   50: halfway between 1 and 64
  usherctl calc ai --xf 1,2,4,8,16,32,64    the whole scale
  usherctl calc ai --xf 100 --range 8       a wider scale
  usherctl calc ai --op open:90:12ms:3ms --op search:10:640ms:10ms

XF: how many times slower than without load. The index is 100 (1 - log2(XF) / range), from 0 to 100.
Each operation counts as often as it was called; those with fewer than 5 calls only if none has 5"
)]
pub(crate) struct Arguments {
    /// Expansion factors
    #[arg(long, value_name = "XF", value_delimiter = ',', value_parser = parse_factor)]
    xf: Vec<f64>,
    /// An operation: its calls, how long they took in the mean, and how long without load
    #[arg(long, value_name = "NAME:COUNT:MEAN:BASELINE")]
    op: Vec<TypedOperation>,
    /// The exponent at which the index is 0, 1 to 30
    #[arg(long, default_value_t = 6.0, value_parser = parse_range)]
    range: f64,
}

/// An operation as typed in.
#[derive(Debug, Clone, PartialEq)]
struct TypedOperation {
    name: OperationName,
    calls: f64,
    mean: Duration,
    baseline: Duration,
}

impl FromStr for TypedOperation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let [name, calls, mean, baseline] = parts.as_slice() else {
            return Err("write NAME:COUNT:MEAN:BASELINE, like open_db:90:12ms:3ms".to_owned());
        };
        let calls: f64 = calls
            .parse()
            .ok()
            .filter(|calls: &f64| calls.is_finite() && *calls >= 0.0)
            .ok_or_else(|| format!("{calls:?} is no number of calls"))?;
        let (mean, baseline) = (parse_time(mean)?, parse_time(baseline)?);
        if baseline.is_zero() {
            return Err("the baseline must be longer than 0".to_owned());
        }
        let name = OperationName::new(name).map_err(|error| error.to_string())?;
        Ok(Self { name, calls, mean, baseline })
    }
}

/// A time with its unit, fractions allowed: `12ms`, `1.5ms`, `350us`.
fn parse_time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time with its unit, like 12ms, 350us or 1.5s");
    let duration: jiff::SignedDuration = text.trim().parse().map_err(|_| wrong())?;
    Duration::try_from(duration).map_err(|_| wrong())
}

fn parse_factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if f64::is_finite(factor) && factor > 0.0 {
        Ok(factor)
    } else {
        Err("an expansion factor is a number above 0".to_owned())
    }
}

fn parse_range(text: &str) -> Result<f64, String> {
    let range = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if (1.0..=30.0).contains(&range) {
        Ok(range)
    } else {
        Err("allowed are 1 to 30: it is the exponent of the index, not a time".to_owned())
    }
}

/// An index at an expansion factor.
#[derive(Debug, Serialize, PartialEq)]
struct Index {
    /// Absent: not known, or idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    expansion_factor: Option<f64>,
    /// Absent: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    availability_index: Option<f64>,
    /// Rounded, as lists show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    shown: Option<u8>,
}

/// An operation with its factor.
#[derive(Debug, Serialize)]
struct Operation {
    name: String,
    calls: f64,
    mean_us: f64,
    baseline_us: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    expansion_factor: Option<f64>,
}

/// The whole result.
#[derive(Debug, Serialize)]
struct Computed {
    range: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    operations: Vec<Operation>,
    indices: Vec<Index>,
    /// Words on what the index stands on, if it is not simply measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    basis: Option<&'static str>,
}

/// Computes and prints.
pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let result = compute(arguments);
    if context.json() { emit_json(&result) } else { emit(&page(&result)) }
}

fn compute(arguments: &Arguments) -> Computed {
    let range = arguments.range;
    if arguments.op.is_empty() {
        let at = |xf: &f64| index(Some(*xf), Some(availability_index(*xf, range)));
        return Computed {
            range,
            operations: Vec::new(),
            indices: arguments.xf.iter().map(at).collect(),
            basis: None,
        };
    }
    let windows: Vec<OperationWindow> = arguments.op.iter().map(window).collect();
    let operations = windows.iter().zip(&arguments.op).map(|(window, typed)| Operation {
        name: typed.name.to_string(),
        calls: typed.calls,
        mean_us: micros(typed.mean),
        baseline_us: micros(typed.baseline),
        expansion_factor: operation_expansion(window).map(|factor| factor.expansion_factor),
    });
    let operations = operations.collect();
    let latency = Latency { operations: windows, ..Latency::default() };
    let Availability { index: value, expansion_factor, basis, .. } =
        AvailabilityTracker::default().assess(&latency, range, BootTime::ZERO);
    let basis = match basis {
        Basis::Measured => None,
        Basis::Sparse => Some("fewer than 5 calls in all: too few to say anything"),
        Basis::Idle => Some("no call: the host is idle"),
        Basis::Stalled | Basis::NoData => Some("no data"),
    };
    Computed { range, operations, indices: vec![index(expansion_factor, value)], basis }
}

fn window(typed: &TypedOperation) -> OperationWindow {
    OperationWindow {
        name: typed.name.clone(),
        ok: typed.calls,
        failed: 0.0,
        too_long: 0.0,
        sum_us: typed.calls * micros(typed.mean),
        min_us: None,
        in_flight: 0,
        oldest_in_flight: None,
        baseline_us: Some(micros(typed.baseline)),
        baseline_age: None,
        baseline_samples: 0,
        baseline_is_provisional: false,
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn index(expansion_factor: Option<f64>, availability_index: Option<f64>) -> Index {
    Index { expansion_factor, availability_index, shown: availability_index.map(|index| index.round() as u8) }
}

fn page(result: &Computed) -> String {
    let mut text = String::new();
    if !result.operations.is_empty() {
        let mut grid = Grid::new(&["OPERATION", "CALLS", "MEAN", "BASELINE", "XF"], &[1, 2, 3, 4]);
        for operation in &result.operations {
            grid.row([
                cell(&operation.name),
                cell(operation.calls.to_string()),
                cell(microseconds(Some(operation.mean_us))),
                cell(microseconds(Some(operation.baseline_us))),
                cell(decimal(operation.expansion_factor, 2)),
            ]);
        }
        text = grid.render() + "\n\n";
    }
    let mut grid = Grid::new(&["XF", "RANGE", "AI EXACT", "AI SHOWN"], &[0, 1, 2, 3]);
    for index in &result.indices {
        grid.row([
            cell(decimal(index.expansion_factor, 2)),
            cell(result.range.to_string()),
            cell(decimal(index.availability_index, 4)),
            cell(decimal(index.availability_index, 0)),
        ]);
    }
    text += &grid.render();
    if let Some(basis) = result.basis {
        text += "\n\n";
        text += basis;
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::commands::calc::CalcCommand;

    fn arguments(line: &str) -> Result<Arguments, clap::Error> {
        let cli = Cli::try_parse_from(format!("usherctl calc ai {line}").split_whitespace())?;
        let Command::Calc(CalcCommand::Ai(arguments)) = cli.command else { panic!("another command") };
        Ok(arguments)
    }

    fn result(line: &str) -> Computed {
        compute(&arguments(line).unwrap())
    }

    #[test]
    fn case_053_the_published_table() {
        let result = result("--xf 1,2,4,8,16,32,64");
        let shown: Vec<u8> = result.indices.iter().filter_map(|index| index.shown).collect();
        assert_eq!(shown, [100, 83, 67, 50, 33, 17, 0]);
        let column: Vec<String> = page(&result)
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().last().unwrap().to_owned())
            .collect();
        assert_eq!(column, ["100", "83", "67", "50", "33", "17", "0"]);
    }

    #[test]
    fn case_055_operations_count_as_often_as_they_are_called() {
        let result = result("--op open:90:12ms:3ms --op search:10:640ms:10ms");
        let factors: Vec<f64> = result.operations.iter().filter_map(|op| op.expansion_factor).collect();
        assert!((factors[0] - 4.0).abs() < 1e-9 && (factors[1] - 64.0).abs() < 1e-9, "{factors:?}");
        let text = page(&result);
        let row: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(row, ["10.00", "6", "44.6345", "45"]);
    }

    #[test]
    fn the_range_widens_the_scale() {
        assert_eq!(result("--xf 100 --range 8").indices[0].shown, Some(17));
        assert_eq!(result("--xf 256 --range 8").indices[0].shown, Some(0));
        assert_eq!(result("--xf 0.5").indices[0].shown, Some(100));
    }

    #[test]
    fn too_few_calls_say_so_instead_of_a_number() {
        let result = result("--op open:4:12ms:3ms");
        assert_eq!(result.indices[0], index(None, None));
        assert!(page(&result).contains("fewer than 5 calls"));
        let document = serde_json::to_value(&result).unwrap();
        assert_eq!(document["indices"][0], serde_json::json!({}));
    }

    #[test]
    fn case_058_what_cannot_be_is_refused_with_what_can() {
        let refusal = |line| arguments(line).unwrap_err().to_string();
        assert!(refusal("--xf 2 --range 120").contains("1 to 30"));
        assert!(refusal("--xf NaN").contains("above 0"));
        assert!(refusal("--op open:90:12:3ms").contains("unit"));
        assert!(refusal("--op open:90:12ms:0ms").contains("longer than 0"));
        assert!(refusal("--op open:-1:12ms:3ms").contains("number of calls"));
        assert!(refusal("--op open:90:12ms").contains("NAME:COUNT:MEAN:BASELINE"));
        assert!(refusal("").contains("required"));
        assert!(refusal("--xf 2 --op open:90:12ms:3ms").contains("cannot be used with"));
    }

    #[test]
    fn times_may_have_fractions() {
        assert_eq!(parse_time("1.5ms"), Ok(Duration::from_micros(1500)));
        for wrong in ["5", "", "-3s", "5 lightyears", "NaN"] {
            assert!(parse_time(wrong).is_err(), "{wrong:?}");
        }
    }
}
