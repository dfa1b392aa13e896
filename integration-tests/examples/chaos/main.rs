//! Does the farm keep its promises while everything around it breaks?
//!
//! Real coordinators, agents and etcd in network namespaces, calls through usher's library and beside it, and faults by a
//! schedule that a seed makes. Wants root. A promise that was broken is a result and no failure of the program: the exit code
//! says only whether it ran to its end.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "it fails as a test does")]

mod run;

use std::process::ExitCode;

use run::Options;
use usher_integration_tests::chaos::Length;

const USAGE: &str = "usage: chaos [--minutes N] [--seed S] [--quick] [--json]
  --minutes N  about so long, 18 unless told otherwise: the other faults take 8, coordinators are killed in the rest
  --seed S     another schedule; 1 unless told otherwise
  --quick      each fault once, shortly: about a minute
  --logs DIR   keep what the hosts and the processes wrote, and every call, in this folder
  --json       one JSON document on standard output instead of the table";

const MINUTES: u64 = 18;

fn main() -> ExitCode {
    let (options, is_json) = match parse(std::env::args().skip(1)) {
        Ok(parsed) => parsed,
        Err(error) => {
            eprintln!("error: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let document = runtime.block_on(run::run(options));
    if is_json {
        println!("{}", serde_json::to_string_pretty(&document).unwrap());
    } else {
        document.print();
    }
    ExitCode::SUCCESS
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<(Options, bool), String> {
    let mut options = Options { seed: 1, length: Length::Minutes(MINUTES), tells: true, logs: None };
    let mut is_json = false;
    while let Some(argument) = arguments.next() {
        let mut number = |least: u64| {
            let number =
                arguments.next().and_then(|text| text.parse().ok()).filter(|number| *number >= least);
            number.ok_or(format!("{argument} needs a number of at least {least}"))
        };
        match argument.as_str() {
            "--minutes" => options.length = Length::Minutes(number(1)?),
            "--seed" => options.seed = number(0)?,
            "--quick" => options.length = Length::Quick,
            "--json" => is_json = true,
            "--logs" => options.logs = Some(arguments.next().ok_or("--logs needs a folder")?.into()),
            _ => return Err(format!("unknown option `{argument}`")),
        }
    }
    Ok((options, is_json))
}
