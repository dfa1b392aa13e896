//! The programs of other makers that usher is compared with.
//!
//! Each is the one that Debian ships, started by the test on a free port of this machine's loopback with settings of
//! its own, and ended with the test. A missing one is a failure that says how to get it: a comparison that is skipped
//! proves nothing.

mod node_exporter;
mod sshd;
mod utmp_file;

pub use node_exporter::{Figures, NodeExporter};
pub use sshd::{Login, Sshd};
pub use utmp_file::UtmpFile;

use std::path::PathBuf;

use anyhow::Context;

/// Where a program is, searching PATH and then the folders of system programs, which an ordinary user's PATH leaves
/// out.
///
/// # Errors
/// When it is not installed.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .with_context(|| format!("the program {name} is not installed; `cargo xtask peers` installs it"))
}
