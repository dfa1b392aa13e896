//! How wrong do learned baselines make the availability index?
//!
//! The model and its figures are an example of the crate that learns, so that they use what agents use; here it is only
//! built in release mode and run. Its output is the bench's: nothing else may go to standard output beside a document.

use std::process::Stdio;

use anyhow::{Context, bail};

use super::Options;
use crate::process::cargo;
use crate::workspace::Workspace;

/// # Errors
///
/// When it cannot be built or does not end well.
pub(super) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<()> {
    let arguments = [
        "run",
        "--release",
        "--locked",
        "--package",
        "usher-availability",
        "--example",
        "baseline_days",
        "--",
    ];
    let status = cargo(workspace, &arguments)
        .args(options.words())
        .stdin(Stdio::null())
        .status()
        .context("starting cargo for the baseline bench")?;
    if !status.success() {
        bail!("the baseline bench failed: {status}");
    }
    Ok(())
}
