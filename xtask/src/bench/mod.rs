//! What the product costs and how well it does, in figures that a goal can be held against.
//!
//! Each bench prints a table for people or, with `--json`, one document that ends in `goals`: for each its id, what it
//! is, its bound, the figure, the unit, the spread and whether it is met. A goal that is missed is a result and no
//! failure of the bench: the exit code says only whether it could be measured.

mod agent;
mod baseline;
mod decide;
mod example;
mod machine;
mod place;
mod storm;

pub(crate) use example::run_with_programs;

use crate::workspace::Workspace;

/// Which bench.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Bench {
    /// What an agent costs, beside other makers' that look at the same machine; wants an idle machine
    #[command(after_help = "Examples:
  cargo xtask bench agent              100 and 1000 processes: about five minutes
  cargo xtask bench agent --quick      the same within a minute
  cargo xtask bench agent --json       one document that ends in the goals")]
    Agent(Options),
    /// How wrong learned baselines make the availability index, on modelled days
    #[command(after_help = "Examples:
  cargo xtask bench baseline           20 seeds of 14 days for each scene
  cargo xtask bench baseline --quick   4 seeds
  cargo xtask bench baseline --json    one document that ends in the goals")]
    Baseline(Options),
    /// How long one decision takes, by method and size of the pool
    #[command(after_help = "Examples:
  cargo xtask bench decide             every method, 100 to 100 000 hosts
  cargo xtask bench decide --quick     shorter runs")]
    Decide(Options),
    /// Whether storms of real processes point the same way as the simulator's; wants root and an idle machine
    #[command(after_help = "Examples:
  cargo xtask bench machine            5 storms under two methods: some minutes
  cargo xtask bench machine --quick    one storm")]
    Machine(Options),
    /// What a placement costs over gRPC, beside a call that does nothing; wants an idle machine
    #[command(after_help = "Examples:
  cargo xtask bench place              1000 and 10 000 modelled hosts, plain and mutual TLS: some minutes
  cargo xtask bench place --quick      the same within a minute
  cargo xtask bench place --only tls   one measurement")]
    Place(place::PlaceOptions),
    /// How near placements come to an oracle that knows everything, in modelled storms of logins
    #[command(after_help = "Examples:
  cargo xtask bench storm              every scene and method, 30 seeds
  cargo xtask bench storm --quick      fewer seeds, a few minutes
  cargo xtask bench storm --json       one document that ends in the goals")]
    Storm(Options),
}

/// What every bench can be asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Fewer repetitions
    #[arg(long)]
    quick: bool,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

impl Options {
    /// As words, for the program that measures.
    fn words(&self) -> impl Iterator<Item = &'static str> {
        [(self.quick, "--quick"), (self.json, "--json")]
            .into_iter()
            .filter_map(|(is_set, word)| is_set.then_some(word))
    }
}

/// # Errors
///
/// When the bench cannot be built or run.
pub(crate) fn run(workspace: &Workspace, bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Agent(options) => agent::run(workspace, options),
        Bench::Baseline(options) => baseline::run(workspace, options),
        Bench::Decide(options) => decide::run(workspace, options),
        Bench::Machine(options) => machine::run(workspace, options),
        Bench::Place(options) => place::run(workspace, options),
        Bench::Storm(options) => storm::run(workspace, options),
    }
}

/// The bench of storms with few seeds, as every change is tested with.
///
/// # Errors
///
/// When it cannot be built, or when the model is off.
pub(crate) fn quick_storm(workspace: &Workspace) -> anyhow::Result<()> {
    storm::run(workspace, &Options { quick: true, json: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_reach_the_program_that_measures() {
        let words = |quick, json| Options { quick, json }.words().collect::<Vec<_>>();
        assert_eq!(words(false, false), [""; 0]);
        assert_eq!(words(true, true), ["--quick", "--json"]);
    }
}
