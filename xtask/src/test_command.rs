//! What must pass before a change lands, in the order in which a failure is cheapest to find.
//!
//! Peers come first: a machine that cannot have them fails before it has compiled anything. The run of the
//! tests comes last, so that its closing line is near the end of the output, where people and CI look.

use std::process::Command;

use anyhow::Context;

use crate::peers::{self, Peers};
use crate::process::{cargo, execute, succeeds};
use crate::steps::Steps;
use crate::workspace::Workspace;
use crate::{bench, sim, tidy, units};

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

/// The first step that fails ends the run.
fn run_steps(workspace: &Workspace, options: &Options, steps: &mut Steps) -> anyhow::Result<()> {
    if options.quick {
        static_checks(workspace, steps)?;
        return steps.run("tests", || unit_tests(workspace));
    }
    let peers = steps.run("peers", || peers::install(workspace))?;
    if options.filters.is_empty() {
        static_checks(workspace, steps)?;
        steps.run("buf lint", || {
            execute(Command::new(&peers.buf).arg("lint").current_dir(workspace.root.join("proto")))
        })?;
    }
    steps.run("binaries", || {
        execute(&mut cargo(workspace, &["build", "--workspace", "--bins", "--locked"]))
    })?;
    if options.filters.is_empty() {
        steps.run("deploy", || units::verify(workspace))?;
        steps.run("documentation", || {
            let arguments = ["doc", "--workspace", "--no-deps", "--locked"];
            execute(cargo(workspace, &arguments).env("RUSTDOCFLAGS", "-Dwarnings"))
        })?;
        steps.run("documentation tests", || {
            execute(&mut cargo(workspace, &["test", "--workspace", "--doc", "--locked"]))
        })?;
    }
    if options.filters.is_empty() {
        steps.run("loom", || loom(workspace))?;
        // Fails where the model of storms is off; how good the placements are is printed.
        steps.run("storms", || bench::quick_storm(workspace))?;
        steps.run("simulation", || sim::run_ci(workspace))?;
    }
    steps.run("tests", || all_tests(workspace, &peers, &options.filters))
}

/// Runs the steps and says in one line how it ended.
///
/// # Errors
///
/// The failed step's, with its name.
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

fn static_checks(workspace: &Workspace, steps: &mut Steps) -> anyhow::Result<()> {
    steps.run("tidy", || tidy::run(workspace))?;
    steps.run("format", || execute(&mut cargo(workspace, &["fmt", "--all", "--check"])))?;
    steps.run("clippy", || {
        let arguments = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-Dwarnings"];
        execute(&mut cargo(workspace, &arguments))
    })
}

fn has_nextest(workspace: &Workspace) -> bool {
    succeeds(&mut cargo(workspace, &["nextest", "--version"]))
}

fn unit_tests(workspace: &Workspace) -> anyhow::Result<()> {
    let runner: &[&str] = if has_nextest(workspace) { &["nextest", "run"] } else { &["test"] };
    execute(cargo(workspace, runner).args(["--workspace", "--locked", "--exclude", INTEGRATION]))
}

/// Every order in which threads can touch a host's cell. Its own folder: the flag would build everything else anew.
fn loom(workspace: &Workspace) -> anyhow::Result<()> {
    let arguments = ["test", "--release", "--locked", "--package", "usher-placement", "--test", "loom_cells"];
    let folder = workspace.metadata.target_directory.join("loom");
    execute(cargo(workspace, &arguments).env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", folder))
}

/// Every test, with nextest where it is installed and with plain cargo elsewhere.
fn all_tests(workspace: &Workspace, peers: &Peers, filters: &[String]) -> anyhow::Result<()> {
    let told = |mut command: Command| -> anyhow::Result<()> {
        let bin_dir = workspace.bin_dir();
        execute(command.env("USHER_TEST_PYTHON", &peers.python).env("USHER_BIN_DIR", bin_dir))
    };
    if has_nextest(workspace) {
        let profile = if std::env::var_os("CI").is_some() { "ci" } else { "default" };
        let mut command =
            cargo(workspace, &["nextest", "run", "--workspace", "--locked", "--profile", profile]);
        command.args(filters);
        return told(command);
    }
    for arguments in plain_runs(filters) {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        told(cargo(workspace, &arguments)).context("without nextest")?;
    }
    Ok(())
}

/// The runs of plain `cargo test` that keep what nextest's test groups promise: at most two tests with
/// processes at a time, and nothing beside a test that needs the machine alone.
fn plain_runs(filters: &[String]) -> Vec<Vec<String>> {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let units = format!("test --workspace --locked --exclude {INTEGRATION} --");
    let with_processes = format!("test --locked --package {INTEGRATION} --");
    let runs = if filters.is_empty() {
        vec![
            units,
            format!("{with_processes} --test-threads=2 --skip {ALONE}"),
            format!("{with_processes} --test-threads=1 {ALONE}"),
        ]
    } else {
        // cargo cannot say "these words and alone_": one at a time is right for both kinds.
        vec![units, format!("{with_processes} --test-threads=1")]
    };
    runs.iter().map(|line| words(line).into_iter().chain(filters.iter().cloned()).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_nextest_a_test_that_needs_the_machine_alone_runs_alone() {
        let runs = plain_runs(&[]);
        let (beside, alone) = (runs[1].join(" "), runs[2].join(" "));
        assert!(beside.ends_with("--test-threads=2 --skip alone_"), "{beside}");
        assert!(alone.ends_with("--test-threads=1 alone_"), "{alone}");
    }

    #[test]
    fn without_nextest_every_run_gets_the_filters() {
        let filters = ["latch".to_owned(), "drain".to_owned()];
        for run in plain_runs(&filters) {
            assert!(run.join(" ").ends_with("latch drain"), "{run:?}");
        }
    }
}
