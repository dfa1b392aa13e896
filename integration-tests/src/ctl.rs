//! What does the command line answer, and with which exit code?

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

use crate::binaries::binary;
use crate::farm::Farm;
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

/// What a command tells people about this farm, when it must succeed. Words are separated by single blanks.
///
/// # Panics
/// If it fails.
pub async fn page(farm: &Farm, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    farm.ctl(&words).await.exited(0).stdout
}

/// The words of the line of `page` that begins with `first`.
///
/// # Panics
/// If there is none.
#[track_caller]
pub fn row<'page>(page: &'page str, first: &str) -> Vec<&'page str> {
    let rows = page.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = rows.into_iter().find(|row| row.first() == Some(&first));
    found.unwrap_or_else(|| panic!("no line of {first:?} in:\n{page}"))
}

/// Every part is somewhere on the page.
///
/// # Panics
/// If one is not.
#[track_caller]
pub fn holds(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "{part:?} is not in:\n{page}");
    }
}
