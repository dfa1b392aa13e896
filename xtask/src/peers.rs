//! Which programs the tests talk to, and how they come onto a machine that has only Debian, Rust and gcc.
//!
//! The tests compare usher with real peers: an sshd that logs a user in, another exporter's view of the same
//! host, a client that shares no code with ours. Debian's packages come by apt, without starting the services
//! in them; Python's come into an environment under `target`, so the machine's own Python stays as it is. A
//! peer that cannot be had is an error that says what to install: no test is skipped for it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::process::{execute, find_program, succeeds};
use crate::workspace::Workspace;

/// Debian's packages: the package and a program in it, or a file that only it has, by which we see that it is there.
const DEBIAN: &[(&str, &str)] = &[
    ("collectd-core", "collectd"),
    ("dbus-daemon", "dbus-daemon"),
    ("etcd-client", "/usr/bin/etcdctl"),
    ("etcd-server", "/usr/bin/etcd"),
    ("faketime", "faketime"),
    ("iproute2", "ip"),
    ("mount", "mount"),
    ("openssh-client", "ssh"),
    ("openssh-server", "sshd"),
    ("procps", "free"),
    ("prometheus-node-exporter", "prometheus-node-exporter"),
    ("python3-dbusmock", "/usr/lib/python3/dist-packages/dbusmock/__main__.py"),
    ("systemd", "systemd-analyze"),
];

/// Debian's package that lets `python3 -m venv` make an environment with pip in it.
const DEBIAN_VENV: &str = "python3-venv";

/// PyPI's packages, pinned: buf lints the .proto files, the others are a client of another make.
const PYPI: &[&str] = &[
    "buf-bin==1.75.0",
    "grpcio==1.85.1",
    "grpcio-tools==1.85.1",
    "grpcio-status==1.85.1",
    "googleapis-common-protos==1.76.0",
];

/// Installs packages given as arguments and starts none of the services in them.
const APT_SCRIPT: &str = include_str!("install-debian.sh");

/// What the tests are told about the peers.
#[derive(Debug)]
pub(crate) struct Peers {
    /// The interpreter of the environment with the packages from PyPI.
    pub(crate) python: PathBuf,
    /// buf, the linter of .proto files.
    pub(crate) buf: PathBuf,
}

/// Installs what is missing and touches nothing when nothing is.
///
/// # Errors
///
/// When a peer is missing and cannot be installed, with the command that installs it.
pub(crate) fn install(workspace: &Workspace) -> anyhow::Result<Peers> {
    install_debian(&missing_from_debian(|program| find_program(program).is_some()))?;
    let venv = workspace.venv_dir();
    install_pypi(&venv)?;
    let peers = Peers { python: venv.join("bin/python"), buf: venv.join("bin/buf") };
    println!("  peers: {} programs from Debian, {} packages in {}", DEBIAN.len(), PYPI.len(), venv.display());
    Ok(peers)
}

fn missing_from_debian(is_there: impl Fn(&str) -> bool) -> Vec<&'static str> {
    DEBIAN.iter().filter(|(_, program)| !is_there(program)).map(|(package, _)| *package).collect()
}

fn install_debian(packages: &[&str]) -> anyhow::Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let by_hand = format!("apt-get install --no-install-recommends {}", packages.join(" "));
    if find_program("apt-get").is_none() {
        bail!(
            "the tests need programs of Debian's packages {}, and there is no apt-get",
            packages.join(", ")
        );
    }
    let mut command = if succeeds(Command::new("sh").args(["-c", "test \"$(id -u)\" = 0"])) {
        Command::new("sh")
    } else if succeeds(Command::new("sudo").args(["-n", "true"])) {
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", "sh"]);
        sudo
    } else {
        bail!("the tests need missing packages, and this user may not install them; as root: {by_hand}");
    };
    println!("  installing {}", packages.join(", "));
    execute(command.args(["-c", APT_SCRIPT, "install-debian"]).args(packages))
        .with_context(|| format!("installing packages; by hand it is, as root: {by_hand}"))
}

fn install_pypi(venv: &Path) -> anyhow::Result<()> {
    let wanted = PYPI.join("\n");
    let stamp = venv.join("usher-peers.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    // Made anew rather than upgraded, so that what a machine has never depends on what it had before.
    if venv.exists() {
        std::fs::remove_dir_all(venv).with_context(|| format!("removing {}", venv.display()))?;
    }
    execute(Command::new(python_with_venv()?).args(["-m", "venv"]).arg(venv))?;
    execute(
        Command::new(venv.join("bin/python"))
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"])
            .args(PYPI),
    )?;
    std::fs::write(&stamp, wanted).with_context(|| format!("writing {}", stamp.display()))
}

/// An interpreter that can make environments: the first of PATH, else Debian's.
fn python_with_venv() -> anyhow::Result<&'static str> {
    let able = |python: &&str| succeeds(Command::new(python).args(["-c", "import venv, ensurepip"]));
    let find = || ["python3", "/usr/bin/python3"].into_iter().find(able);
    if let Some(python) = find() {
        return Ok(python);
    }
    install_debian(&[DEBIAN_VENV])?;
    find().context("python3 cannot make environments although python3-venv is installed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_installed() {
        assert_eq!(missing_from_debian(|_| true), Vec::<&str>::new());
        assert_eq!(missing_from_debian(|program| program != "sshd"), ["openssh-server"]);
    }

    #[test]
    fn every_python_package_is_pinned_to_one_version() {
        for package in PYPI {
            let (name, version) = package.split_once("==").unwrap();
            assert!(
                !name.is_empty() && version.split('.').all(|part| part.parse::<u32>().is_ok()),
                "{package}"
            );
        }
    }
}
