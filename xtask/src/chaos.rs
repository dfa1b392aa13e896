//! Does a farm of real processes keep its promises while everything around it breaks?
//!
//! The program is an example of the integration tests, and so are its faults; here it is built as a release is, with the
//! programs that it starts, and run. It makes network namespaces, so it wants root.

use crate::bench;
use crate::workspace::Workspace;

/// What `cargo xtask chaos` was asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// About how long; what the other faults leave of it, coordinators are killed in [default: 18]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "quick")]
    minutes: Option<u64>,
    /// The schedule: the same seed makes the same one
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Each fault once, shortly: about a minute
    #[arg(long)]
    quick: bool,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

impl Options {
    fn words(&self) -> Vec<String> {
        let minutes = self.minutes.map(|minutes| vec!["--minutes".to_owned(), minutes.to_string()]);
        let seed = vec!["--seed".to_owned(), self.seed.to_string()];
        let flags = [(self.quick, "--quick"), (self.json, "--json")];
        let flags = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| (*word).to_owned());
        minutes.into_iter().flatten().chain(seed).chain(flags).collect()
    }
}

/// # Errors
///
/// When it cannot be built or does not run to its end. A promise that was broken is a result.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<()> {
    bench::run_with_programs(workspace, "chaos", options.words().iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_reach_the_program_that_runs_it() {
        let options = Options { minutes: Some(3), seed: 7, quick: false, json: true };
        assert_eq!(options.words(), ["--minutes", "3", "--seed", "7", "--json"]);
        let quick = Options { minutes: None, seed: 1, quick: true, json: false };
        assert_eq!(quick.words(), ["--seed", "1", "--quick"]);
    }
}
