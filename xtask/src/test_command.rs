//! What must pass before a change lands, in the order in which a failure is cheapest to find.
//!
//! Peers come first: a machine that cannot have them fails before it has compiled anything. The run of the
//! tests comes last, so that its closing line is near the end of the output, where people and CI look.

use std::process::Command;

use anyhow::Context;

use crate::peers::{self, Peers};
use crate::process::{cargo, run, succeeds};
use crate::steps::Steps;
use crate::workspace::Workspace;
use crate::{tidy, units};

/// The crate whose tests start processes and talk to peers.
const INTEGRATION: &str = "usher-integration-tests";
/// Tests that compare figures of the machine: nothing may run beside them.
const ALONE: &str = "alone_";

/// What `cargo xtask test` was asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Leave out what takes long: peers, processes, documentation, deploy
    #[arg(long, conflicts_with = "filters")]
    quick: bool,
    /// Run only the tests whose name contains one of these words, and no other check
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

/// Runs the steps; the first that fails ends the run.
///
/// # Errors
///
/// The failed step's, with its name.
pub(crate) fn run_steps(workspace: &Workspace, options: &Options, steps: &mut Steps) -> anyhow::Result<()> {
    if options.quick {
        static_checks(workspace, steps)?;
        return steps.run("tests", || unit_tests(workspace));
    }
    let peers = steps.run("peers", || peers::install(workspace))?;
    if options.filters.is_empty() {
        static_checks(workspace, steps)?;
        steps.run("buf lint", || {
            run(Command::new(&peers.buf).arg("lint").current_dir(workspace.root.join("proto")))
        })?;
    }
    steps.run("binaries", || run(&mut cargo(workspace, &["build", "--workspace", "--bins", "--locked"])))?;
    if options.filters.is_empty() {
        steps.run("deploy", || units::verify(workspace))?;
        steps.run("documentation", || {
            let arguments = ["doc", "--workspace", "--no-deps", "--locked"];
            run(cargo(workspace, &arguments).env("RUSTDOCFLAGS", "-Dwarnings"))
        })?;
        steps.run("documentation tests", || run(&mut cargo(workspace, &["test", "--workspace", "--doc"])))?;
    }
    steps.run("tests", || all_tests(workspace, &peers, &options.filters))
}

/// Runs the steps and says in one line how it ended.
///
/// # Errors
///
/// As [`run_steps`].
pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<()> {
    let mut steps = Steps::new();
    let result = run_steps(workspace, options, &mut steps);
    let left_out = if options.quick {
        "; --quick left out peers, processes, documentation, deploy"
    } else if !options.filters.is_empty() {
        "; only the tests asked for"
    } else {
        ""
    };
    let verdict = if result.is_ok() { "passed" } else { "FAILED" };
    println!("xtask test: {verdict}, {}{left_out}", steps.summary());
    result
}
