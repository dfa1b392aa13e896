//! Which commit is this? Asked from git where there is one; a build from a bare archive says `unknown`.

use std::{path::Path, process::Command};

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=USHER_COMMIT={commit}");
    println!("cargo::rerun-if-changed=build.rs");
    // Grows with every commit and checkout. Watching a file that is not there would rebuild each time.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|path| Path::new(path).exists())
    {
        println!("cargo::rerun-if-changed={log}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
