//! What do programs of other makers say of the same machine?
//!
//! Each is the one that Debian ships, started by the test on a free port of this machine's loopback with settings of
//! its own, and ended with the test. A missing one is a failure that says how to get it: a comparison that is skipped
//! proves nothing.

mod collectd;
mod message_bus;
mod mock_logind;
mod node_exporter;
mod sshd;
mod utmp_file;

pub use collectd::Collectd;
pub use message_bus::MessageBus;
pub use mock_logind::MockLogind;
pub use node_exporter::{Figures, NodeExporter};
pub use sshd::{Login, Sshd};
pub use utmp_file::UtmpFile;

use std::path::PathBuf;

/// Where a program of the system is, searching PATH and then the folders that an ordinary user's PATH leaves out.
///
/// # Panics
/// If it is not installed; the message says how.
pub fn system_program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .unwrap_or_else(|| panic!("the program {name} is not installed; `cargo xtask peers` installs it"))
}
