//! How is a program that measures built and run?
//!
//! It is an example of some crate, built as a release is. Its output is the bench's: nothing else may go to standard
//! output beside a document.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::Options;
use crate::process::cargo;
use crate::workspace::Workspace;

/// Builds an example and runs it.
///
/// # Errors
///
/// When it cannot be built or does not end well.
pub(super) fn run(
    workspace: &Workspace,
    package: &str,
    example: &str,
    options: &Options,
) -> anyhow::Result<()> {
    let arguments = ["run", "--release", "--locked", "--package", package, "--example", example, "--"];
    finish(example, cargo(workspace, &arguments).args(options.words()))
}

/// Builds an example of the integration tests with the programs that it starts, and runs it.
///
/// # Errors
///
/// When they cannot be built or it does not end well.
pub(crate) fn run_with_programs(
    workspace: &Workspace,
    example: &str,
    words: impl Iterator<Item = impl AsRef<OsStr>>,
) -> anyhow::Result<()> {
    // Together, so that cargo builds each library once for all.
    let packages = ["usher-coordinator", "usher-agent", "usher-integration-tests"];
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    let build = ["build", "--release", "--locked", "--bins", "--example", example];
    finish("the build for a bench", cargo(workspace, &build).args(packages))?;
    let folder = workspace.release_dir();
    let program = folder.join("examples").join(example);
    finish(example, Command::new(program).env("USHER_BIN_DIR", &folder).args(words))
}

fn finish(what: &str, command: &mut Command) -> anyhow::Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("starting {what}"))?;
    if !status.success() {
        bail!("{what} failed: {status}");
    }
    Ok(())
}
