//! What may be typed?
//!
//! The tree of commands and the options that every command takes. Each command's own arguments stand beside what it
//! does, in `commands`.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use usher_runtime::config::{DurationError, HumanDuration};

use crate::commands::{
    backup, baseline, calc, connect, coordinators, decisions, drain, explain, failover, hosts, locate,
    manual, mark, outcome, place, pool, quarantine, replicas, restore, scenario, sessions, simulate,
};
use crate::quickstart;

/// Version, commit and protocol, as `--version` prints them.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{} (commit {}, protocol {})",
        env!("CARGO_PKG_VERSION"),
        usher_runtime::COMMIT,
        usher_proto::PROTOCOL_VERSION
    )
});

/// See and steer a farm of servers: who serves, who is busy, where the next login goes, and why
#[derive(Debug, Parser)]
#[command(
    name = "usherctl",
    version = VERSION.as_str(),
    max_term_width = 110,
    after_help = "Examples:
  usherctl quickstart                       a whole farm on this machine, to look at
  usherctl hosts                            every host: state, load, users
  usherctl place desk --user alice          where does alice go? Counts the place
  usherctl explain DECISION                 why there, and not elsewhere?
  usherctl decisions --since 10m --refused  who was refused lately?
  usherctl scenario run farm.txt            what would a farm do?
  usherctl simulate --hosts 100             how does it bear a storm of logins?

Exit codes: 0 done, 1 refused or not found, 2 wrong use, 3 nobody answered, 4 a check failed;
`connect` as ssh: 255"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Globals {
    /// Coordinators, tried in this order until one answers [default: 127.0.0.1:7443]
    #[arg(
        long,
        global = true,
        env = "USHER_COORDINATORS",
        hide_env_values = true,
        value_name = "HOST:PORT",
        value_delimiter = ','
    )]
    pub(crate) coordinator: Option<Vec<String>>,
    /// Settings of this client [default: /etc/usher/client.toml, if it is there] [env: USHER_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// How long each coordinator may take to answer [default: 5s]
    #[arg(long, global = true, value_name = "TIME", value_parser = parse_timeout)]
    pub(crate) timeout: Option<Duration>,
    /// Act as this gateway; only on loopback, elsewhere the certificate says who you are
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) gateway: Option<String>,
    /// One JSON document on stdout, errors too
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a farm on this machine and show it
    Quickstart(quickstart::Arguments),
    /// List the hosts
    Hosts(hosts::ListArguments),
    /// Look at one host and set what is its own
    #[command(subcommand)]
    Host(hosts::HostCommand),
    /// List the coordinators, and how their store is
    Coordinators(coordinators::Arguments),
    /// List which host holds which resource
    Replicas(replicas::Arguments),
    /// Show every host that holds a resource, and whether it may be sent to
    Locate(locate::Arguments),
    /// Take one host's copy of a resource out of service, or back into it
    Mark(mark::Arguments),
    /// List who has a session where
    Sessions(sessions::Arguments),
    /// Ask where a login goes
    Place(place::Arguments),
    /// Ask where a login goes instead
    Failover(failover::Arguments),
    /// Carry a connection to the host that a login goes to, as ProxyCommand of ssh does
    Connect(connect::Arguments),
    /// Tell what became of a login
    Outcome(outcome::Arguments),
    /// Show why a host was chosen, and no other
    Explain(explain::Arguments),
    /// List the decisions of the last day
    Decisions(decisions::Arguments),
    /// Give a host no new sessions
    Drain(drain::DrainArguments),
    /// Give a drained host sessions again
    Undrain(drain::UndrainArguments),
    /// Look at pools and change their settings
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Write what people decided into a file
    Backup(backup::Arguments),
    /// Bring back what a backup holds
    Restore(restore::Arguments),
    /// List rows of the store that could not be read
    Quarantine(quarantine::Arguments),
    /// Look at how fast operations are without load, and let a host learn it anew
    #[command(subcommand)]
    Baseline(baseline::BaselineCommand),
    /// Run a farm that is written in a text file
    #[command(subcommand)]
    Scenario(scenario::ScenarioCommand),
    /// See what a storm of logins does to a modelled farm, by which method
    Simulate(simulate::Arguments),
    /// Compute by hand what a coordinator computes
    #[command(subcommand)]
    Calc(calc::CalcCommand),
    /// Print a script that completes usherctl in a shell
    Completions(manual::CompletionsArguments),
    /// Write the manual pages
    Man(manual::ManArguments),
}

/// A time longer than nothing, with its unit.
pub(crate) fn parse_timeout(text: &str) -> Result<Duration, String> {
    let duration: HumanDuration = text.parse().map_err(|error: DurationError| error.to_string())?;
    if duration.get().is_zero() { Err("must be longer than 0".to_owned()) } else { Ok(duration.get()) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// The words of an example: up to its explanation, to a pipe, or to a redirection.
    fn words_of(example: &str) -> Vec<String> {
        let line = example.trim_start();
        let end = ["  ", " | ", " > "].iter().filter_map(|stop| line.find(stop)).min().unwrap_or(line.len());
        let parts = line[..end].split('"').enumerate();
        let words = parts.flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        words.collect()
    }

    #[test]
    fn every_command_has_help_with_examples_that_can_be_typed() {
        fn visit(command: &mut clap::Command, path: &str) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples: Vec<&str> = help.lines().filter(|line| line.starts_with("  usherctl ")).collect();
            assert!(help.starts_with("Examples:") && !examples.is_empty(), "{path}");
            for example in examples {
                assert!(example.trim_start().starts_with(path), "{path}: {example}");
                let parsed = Cli::try_parse_from(words_of(example));
                assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
            }
            for sub in command.get_subcommands_mut() {
                let path = format!("{path} {}", sub.get_name());
                visit(sub, &path);
            }
        }
        visit(&mut Cli::command(), "usherctl");
    }

    #[test]
    fn options_of_every_command_may_stand_behind_it() {
        let line = "usherctl hosts --coordinator a:1,b:2 --timeout 250ms --gateway g --json";
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        assert_eq!(cli.globals.coordinator.unwrap(), ["a:1", "b:2"]);
        assert_eq!(cli.globals.timeout, Some(Duration::from_millis(250)));
        assert!(cli.globals.json);
    }

    #[test]
    fn a_timeout_needs_its_unit_and_is_longer_than_nothing() {
        assert_eq!(parse_timeout("5s"), Ok(Duration::from_secs(5)));
        for wrong in ["5", "", "-3s", "0s"] {
            assert!(parse_timeout(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_version_names_commit_and_protocol() {
        let version = Cli::command().render_version();
        assert!(version.contains(" (commit ") && version.contains(", protocol 1)"), "{version}");
    }
}
