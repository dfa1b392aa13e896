//! How wrong do learned baselines make the availability index?
//!
//! The model and its figures are an example of the crate that learns, so that they use what agents use; here it is only
//! built in release mode and run.

use super::{Options, example};
use crate::workspace::Workspace;

/// # Errors
///
/// When it cannot be built or does not end well.
pub(super) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<()> {
    example::run(workspace, "usher-availability", "baseline_days", options)
}
