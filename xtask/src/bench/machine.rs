//! Do real processes on this machine point the same way as the simulator?
//!
//! Hosts are groups of processes that the kernel holds to a small part of the machine, which needs root.

use super::{Options, example};
use crate::workspace::Workspace;

/// # Errors
///
/// When it cannot be built or does not end well.
pub(super) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<()> {
    example::run_with_programs(workspace, "bench_machine", options.words())
}
