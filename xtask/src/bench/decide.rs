//! How long does one decision take, by method and size of the pool?
//!
//! An example of the crate that decides: no wire, no clock, no other thread. What a whole call costs is another bench.

use super::{Options, example};
use crate::workspace::Workspace;

/// # Errors
///
/// When it cannot be built or does not end well.
pub(super) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<()> {
    example::run(workspace, "usher-placement", "decide", options)
}
