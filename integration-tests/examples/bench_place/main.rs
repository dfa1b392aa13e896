//! What does a placement cost, beside a call that does nothing?
//!
//! Real processes on this machine: a coordinator with its store, agents with modelled hosts, and this program as the
//! gateway. Both kinds of call are served by the same process; they are measured in turn, and the coordinator's own
//! processor time for each call comes first. It says nothing of networks, and nothing of how good placements are.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a bench fails as a test does")]

mod farm;
mod load;
mod report;
mod rows;
mod window;

use std::process::ExitCode;

use load::Call;
use report::Document;

const USAGE: &str = "usage: bench_place [--quick] [--json] [--only WORD] [--hosts N] [--profile LOAD]
  --quick      short windows: all within a minute
  --json       one JSON document on standard output instead of the table
  --only WORD  only measurements whose name contains the word: dry_run, reserve, consent, tls, growth
  --hosts N    hosts of the usual farm, 1000 unless told otherwise
  --profile LOAD  one load for 20 s and nothing else, for a profiler: echo, dry_run, place, consent, outcome";

/// Hosts of the usual farm.
const USUAL: usize = 1000;

/// What was asked for.
#[derive(Debug, Clone)]
struct Options {
    is_quick: bool,
    is_json: bool,
    only: Option<String>,
    usual_hosts: usize,
    profile: Option<Call>,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options =
            Self { is_quick: false, is_json: false, only: None, usual_hosts: USUAL, profile: None };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--quick" => options.is_quick = true,
                "--json" => options.is_json = true,
                "--only" => options.only = Some(arguments.next().ok_or("--only needs a word")?),
                "--hosts" => {
                    let hosts = arguments.next().and_then(|text| text.parse().ok());
                    options.usual_hosts =
                        hosts.filter(|hosts| *hosts > 0).ok_or("--hosts needs a number above 0")?;
                }
                "--profile" => {
                    let load = arguments.next().and_then(|word| Call::named(&word));
                    options.profile =
                        Some(load.ok_or("--profile needs echo, dry_run, place, consent or outcome")?);
                }
                _ => return Err(format!("unknown option `{argument}`")),
            }
        }
        Ok(options)
    }

    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }
}

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(fault) => {
            eprintln!("error: {fault}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Some(load) = options.profile {
        return match runtime.block_on(rows::profile(&options, load)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let measured = runtime.block_on(rows::measure(&options));
    let document = match measured {
        Ok(rows) => Document::new(options.is_quick, rows),
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    if options.is_json {
        println!("{}", serde_json::to_string_pretty(&document).unwrap());
    } else {
        document.print();
    }
    ExitCode::SUCCESS
}
