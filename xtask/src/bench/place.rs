//! What does a placement cost over the wire, beside a call that does nothing?
//!
//! A coordinator and agents with modelled hosts, as an operator would start them, measured from outside.

use super::{Options, example};
use crate::workspace::Workspace;

/// What the bench of placements can be asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct PlaceOptions {
    #[command(flatten)]
    common: Options,
    /// Only measurements whose name contains the word
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
}

/// # Errors
///
/// When it cannot be built or does not end well.
pub(super) fn run(workspace: &Workspace, options: &PlaceOptions) -> anyhow::Result<()> {
    let only = options.only.iter().flat_map(|word| ["--only".to_owned(), word.clone()]);
    let words = options.common.words().map(str::to_owned).chain(only);
    example::run_with_programs(workspace, "bench_place", words)
}
