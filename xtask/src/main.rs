//! The developer's commands: what a contributor and CI type, and nothing that an operator needs.
//!
//! Everything here works on a machine with only Debian, Rust and gcc; whatever else the tests need is
//! installed by `peers`, because a test that is skipped for a missing program proves nothing.

mod bench;
mod chaos;
mod peers;
mod process;
mod sim;
mod steps;
mod test_command;
mod tidy;
mod units;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "The developer's commands of usher")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run every check that a change must pass; CI runs exactly this
    #[command(after_help = "Examples:
  cargo xtask test                 everything, as CI does
  cargo xtask test --quick         the daily loop: no peers, no processes, no documentation
  cargo xtask test latch drain     only the tests whose name contains `latch` or `drain`")]
    Test(test_command::Options),
    /// Check the rules of the house: imports, licences, manifests, links, purity
    #[command(after_help = "Examples:
  cargo xtask tidy                 check them
  cargo xtask tidy --list          say what they are")]
    Tidy {
        /// Print the rules instead of checking them
        #[arg(long)]
        list: bool,
    },
    /// Write the table that says which test keeps which rule of the decision core
    #[command(after_help = "Examples:
  cargo xtask rules                common/placement/TESTED.md, from RULES.md and the tests")]
    Rules,
    /// Install the programs and Python packages that the tests talk to
    #[command(after_help = "Examples:
  cargo xtask peers                install what is missing; the services that come along are not started")]
    Peers,
    /// Break everything around a farm of real processes, and see whether it keeps its promises; wants root
    #[command(after_help = "Examples:
  cargo xtask chaos                        about 18 minutes: 30 deaths of coordinators, then every other fault
  cargo xtask chaos --quick --seed 7       each fault once, in the order of seed 7: about a minute
  cargo xtask chaos --json                 one document that ends in the goals")]
    Chaos(chaos::Options),
    /// Measure against the goals
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Run real coordinators and agents on a simulated network that goes wrong, and check what must hold all the same
    #[command(after_help = "Examples:
  cargo xtask sim                                  50 seeds, as CI does: about a minute
  cargo xtask sim --seeds 1000                     a thorough run
  cargo xtask sim --from 77 --seeds 1 --trace      one seed again, with every event on standard error
  cargo xtask sim --json                           one document that ends in the goals

Ends with 4 if an invariant broke.")]
    Sim(sim::Options),
}

/// As `usherctl` ends when a check failed.
const CHECK_FAILED: u8 = 4;

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            if error.is::<sim::Broken>() { ExitCode::from(CHECK_FAILED) } else { ExitCode::FAILURE }
        }
    }
}

fn run(task: Task) -> anyhow::Result<()> {
    let workspace = Workspace::load()?;
    match task {
        Task::Test(options) => test_command::run(&workspace, &options),
        Task::Tidy { list: true } => {
            tidy::print_rules();
            Ok(())
        }
        Task::Tidy { list: false } => tidy::run(&workspace),
        Task::Rules => {
            let changed = tidy::write_rule_table(&workspace)?;
            println!("the table is {}", if changed { "written" } else { "up to date" });
            Ok(())
        }
        Task::Peers => peers::install(&workspace).map(drop),
        Task::Chaos(options) => chaos::run(&workspace, &options),
        Task::Bench(bench) => bench::run(&workspace, &bench),
        Task::Sim(options) => sim::run(&workspace, &options),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Arguments::command().debug_assert();
    }
}
