//! What does the command line answer, and with which exit code?

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

use crate::binaries::binary;
use crate::wait::LONG;

/// What a run of `usherctl` left.
#[derive(Debug, Clone)]
pub struct CtlOutput {
    /// Exit code.
    pub code: i32,
    /// For programs, or for people.
    pub stdout: String,
    /// For people.
    pub stderr: String,
}

impl CtlOutput {
    /// The one JSON document on stdout.
    ///
    /// # Panics
    /// If it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Fails unless the exit code is `code`.
    ///
    /// # Panics
    /// With everything that it said.
    #[track_caller]
    pub fn exited(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }
}

/// Runs `usherctl` with exactly these arguments, in `folder`, without settings from this test's environment.
///
/// # Panics
/// If it does not end.
pub async fn run_ctl(folder: &Path, arguments: &[&str]) -> CtlOutput {
    let mut command = Command::new(binary("usherctl"));
    for name in ["USHER_COORDINATORS", "USHER_CONFIG", "USHER_LOG", "USHER_FARM"] {
        command.env_remove(name);
    }
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(LONG, command.output()).await;
    let output = output.unwrap_or_else(|_| panic!("usherctl {arguments:?} does not end")).unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    CtlOutput {
        code: output.status.code().unwrap_or_else(|| panic!("usherctl {arguments:?}: {}", output.status)),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}
