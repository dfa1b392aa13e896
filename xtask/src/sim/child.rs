//! One seed, run by a process of its own.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// A run that takes so long hangs: one takes a second or two, some more on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What came of a seed, as the simulation prints it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Outcome {
    pub(super) hash: String,
    pub(super) events: u64,
    pub(super) simulated_seconds: f64,
    pub(super) counts: BTreeMap<String, u64>,
    pub(super) checks: BTreeMap<String, u64>,
    pub(super) violations: Vec<Violation>,
    pub(super) seen_seconds: Option<f64>,
    pub(super) agreed_seconds: Option<f64>,
    pub(super) longest_call_ms: u64,
    last_events: Vec<String>,
}

/// An invariant that broke.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Violation {
    pub(super) invariant: String,
    at_ms: u64,
    what: String,
}

/// How a process ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// With an outcome, good or not.
    Told(Box<Outcome>),
    /// Without one: it crashed or hung.
    Lost(String),
}

impl Ended {
    pub(super) fn is_broken(&self) -> bool {
        match self {
            Self::Told(outcome) => !outcome.violations.is_empty(),
            Self::Lost(_) => true,
        }
    }

    /// For people: what broke, what happened before, and how to see it again.
    pub(super) fn told(&self, seed: u64) -> String {
        let mut text = format!("\nseed {seed}\n");
        // Writing to a string cannot fail.
        match self {
            Self::Lost(why) => {
                let _ = writeln!(text, "  the simulation itself failed: {why}");
            }
            Self::Told(outcome) => {
                for broken in outcome.violations.iter().take(10) {
                    let (at, what) = (broken.at_ms as f64 / 1000.0, &broken.what);
                    let _ = writeln!(text, "  {} at {at:.3} s: {what}", broken.invariant);
                }
                let _ = writeln!(text, "  its last events:");
                for event in &outcome.last_events {
                    let _ = writeln!(text, "    {event}");
                }
            }
        }
        let _ = write!(text, "  run it again: cargo xtask sim --from {seed} --seeds 1 --trace");
        text
    }
}

/// Runs one seed.
pub(super) fn run_seed(program: &Path, seed: u64, is_traced: bool, log: Option<&str>) -> Ended {
    let mut command = Command::new(program);
    command.args(["--seed", &seed.to_string()]).stdin(Stdio::null()).stdout(Stdio::piped());
    if is_traced {
        command.arg("--trace");
    }
    if let Some(filter) = log {
        command.args(["--log", filter]);
    }
    match command.spawn().map_err(|error| error.to_string()).and_then(finish) {
        Ok(text) => match serde_json::from_str(&text) {
            Ok(outcome) => Ended::Told(Box::new(outcome)),
            Err(error) => Ended::Lost(format!("what it printed is no outcome: {error}")),
        },
        Err(why) => Ended::Lost(why),
    }
}

fn finish(mut child: Child) -> Result<String, String> {
    let mut output = child.stdout.take().ok_or("no output")?;
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    let until = Instant::now() + PATIENCE;
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        if Instant::now() >= until {
            // It may end at this very moment.
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("it did not end within {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let text = reading.join().map_err(|_| "its output could not be read".to_owned())?;
    text.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_tells_nothing_is_broken_and_its_seed_is_named() {
        let ended = run_seed(Path::new("/bin/true"), 77, false, None);
        assert!(ended.is_broken());
        assert!(
            ended.told(77).ends_with("cargo xtask sim --from 77 --seeds 1 --trace"),
            "{}",
            ended.told(77)
        );
    }
}
