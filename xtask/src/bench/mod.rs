//! What the product costs and how well it does, in figures that a goal can be held against.
//!
//! Each bench prints a table for people or, with `--json`, one document that ends in `goals`: for each its id, what it
//! is, its bound, the figure, the unit, the spread and whether it is met. A goal that is missed is a result and no
//! failure of the bench: the exit code says only whether it could be measured.

mod baseline;

use crate::workspace::Workspace;

/// Which bench.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Bench {
    /// How wrong learned baselines make the availability index, on modelled days
    #[command(after_help = "Examples:
  cargo xtask bench baseline           20 seeds of 14 days for each scene
  cargo xtask bench baseline --quick   4 seeds
  cargo xtask bench baseline --json    one document that ends in the goals")]
    Baseline(Options),
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
        Bench::Baseline(options) => baseline::run(workspace, options),
    }
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
