//! What does an agent cost the host that it measures?
//!
//! Ours with its stream, and three of other makers, at the same time on the same machine. `cargo xtask peers` installs
//! them.

use super::{Options, example};
use crate::workspace::Workspace;

/// # Errors
///
/// When it cannot be built or does not end well.
pub(super) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<()> {
    example::run_with_programs(workspace, "bench_agent", options.words())
}
