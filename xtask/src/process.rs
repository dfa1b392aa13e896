//! How other programs are run: shown before they start, their output left to the reader, their failure an
//! error that names them.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::workspace::Workspace;

/// A cargo command in the workspace's root.
///
/// What `cargo run` told this program about itself is taken out of the environment: build scripts that watch
/// those variables would otherwise rebuild their crates each time a developer changes between `cargo build`
/// and `cargo xtask`.
pub(crate) fn cargo(workspace: &Workspace, arguments: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&workspace.root);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let about_us = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];
        if about_us.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs a command to its end, its output on ours.
///
/// # Errors
///
/// When it cannot be started or does not exit with 0.
pub(crate) fn execute(command: &mut Command) -> anyhow::Result<()> {
    let shown = show(command);
    println!("  $ {shown}");
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("starting `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    Ok(())
}

/// Whether a command can be started and exits with 0; its output is thrown away.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Where a program is, searching PATH and then the folders of system programs, which an ordinary user's PATH
/// leaves out.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(show_word).collect::<Vec<_>>().join(" ")
}

fn show_word(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    if text.contains('\n') {
        return "'...'".to_owned(); // a script, which nobody wants to read here
    }
    let name = if text.ends_with("/cargo") { "cargo".into() } else { text };
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || "\"'$;&|".contains(c)) {
        format!("{name:?}")
    } else {
        name.into_owned()
    }
}
