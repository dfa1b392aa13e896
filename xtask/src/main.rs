//! The developer's commands: what a contributor and CI type, and nothing that an operator needs.
//!
//! Everything here works on a machine with only Debian, Rust and gcc; whatever else the tests need is
//! installed by `peers`, because a test that is skipped for a missing program proves nothing.

mod bench;
mod peers;
mod process;
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
    /// Measure against the goals
    #[command(subcommand)]
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
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
        Task::Bench(bench) => bench::run(&workspace, &bench),
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
