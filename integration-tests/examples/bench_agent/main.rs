//! What does an agent cost the host that it measures?
//!
//! Four programs look at this machine once a second, all at the same time: our agent, with its stream to a coordinator;
//! Prometheus' node exporter, which is asked each second; collectd; and a sampler made of nothing but the library
//! sysinfo. Each is told to look at CPU, memory and processes. What costs is the number of processes, so it is done with
//! few and with many.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a bench fails as a test does")]

mod contestants;
mod crowd;
mod report;
mod sampler;
mod window;

use std::process::ExitCode;
use std::time::Duration;

use report::Document;
use window::Pace;

const USAGE: &str = "usage: bench_agent [--quick] [--json]
  --quick      short windows: all within a minute
  --json       one JSON document on standard output instead of the table";

/// Says to this program that it is the sampler and not the bench.
const SAMPLER: &str = "--sampler";

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Options {
    is_quick: bool,
    is_json: bool,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        for argument in arguments {
            match argument.as_str() {
                "--quick" => options.is_quick = true,
                "--json" => options.is_json = true,
                _ => return Err(format!("unknown option `{argument}`")),
            }
        }
        Ok(options)
    }

    fn pace(self) -> Pace {
        if self.is_quick {
            Pace { seconds: 4, windows: 5, tries: 6, settle: Duration::from_secs(2) }
        } else {
            Pace { seconds: 20, windows: 7, tries: 15, settle: Duration::from_secs(5) }
        }
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|argument| argument == SAMPLER).is_some() {
        sampler::run();
    }
    let options = match Options::parse(arguments) {
        Ok(options) => options,
        Err(fault) => {
            eprintln!("error: {fault}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let document = match runtime.block_on(window::measure(&options.pace())) {
        Ok(measured) => Document::new(options.is_quick, &measured),
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
    // A reference that is not what it is known to be measures nothing.
    if document.is_measured() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
