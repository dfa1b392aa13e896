//! Where are the programs under test, and the programs that they are tested with?

use std::path::{Path, PathBuf};

/// One of our programs: in `USHER_BIN_DIR`, else beside the folder of the running test.
///
/// # Panics
/// If it was not built; the message says how.
pub fn binary(name: &str) -> PathBuf {
    let folder = std::env::var_os("USHER_BIN_DIR").map_or_else(|| target_dir().join("debug"), PathBuf::from);
    let path = folder.join(name);
    assert!(
        path.is_file(),
        "{} is not there; `cargo xtask test` builds it, or `cargo build --workspace --bins`",
        path.display()
    );
    path
}

/// The interpreter with grpcio: `USHER_TEST_PYTHON`, else the one that `cargo xtask peers` makes.
///
/// # Panics
/// If it is not there; a missing peer is no reason to skip what is tested with it.
pub fn python() -> PathBuf {
    let path = std::env::var_os("USHER_TEST_PYTHON")
        .map_or_else(|| target_dir().join("peers/venv/bin/python"), PathBuf::from);
    assert!(path.exists(), "{} is not there; `cargo xtask peers` installs it", path.display());
    path
}

/// The folder of the .proto files.
pub fn proto_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto")
}

/// Cargo's target folder: a test runs in `target/debug/deps`.
fn target_dir() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    exe.ancestors().nth(3).unwrap().to_owned()
}
