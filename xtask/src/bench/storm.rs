//! How near do the placements come to an oracle that knows everything?

use super::{Options, example};
use crate::workspace::Workspace;

/// # Errors
///
/// When it cannot be built, or when the model is off: what is known of it does not come out.
pub(super) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<()> {
    example::run(workspace, "usher-simulator", "storm", options)
}
