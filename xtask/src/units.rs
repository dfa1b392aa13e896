//! Would systemd and the binaries accept what `deploy` tells an operator to install?
//!
//! `systemd-analyze verify` refuses a unit whose program does not exist, so copies are checked in which
//! /usr/bin stands for the folder of the built binaries; everything else is as shipped.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::process::execute;
use crate::workspace::Workspace;

/// The units, the users they run as, and the folder where packages put the binaries they start.
const UNITS: &str = "deploy/systemd";
const USERS: &str = "deploy/systemd/usher.sysusers.conf";
const INSTALLED_BINARIES: &str = "/usr/bin";

/// Each example config and the binary that must accept it.
const EXAMPLES: &[(&str, &str)] = &[
    ("usher-agent", "deploy/examples/agent.toml"),
    ("usher-coordinator", "deploy/examples/coordinator.toml"),
];

/// Checks every unit and every example config.
///
/// # Errors
///
/// When there is none to check, or one is refused; systemd's words are in the error.
pub(crate) fn verify(workspace: &Workspace) -> anyhow::Result<()> {
    let bin_dir = workspace.bin_dir();
    let scratch = tempfile::tempdir().context("making a folder for the rewritten units")?;
    let units = unit_files(&workspace.root.join(UNITS))?;
    let users = workspace.root.join(USERS);
    execute(Command::new("systemd-sysusers").arg("--dry-run").arg(&users))?;
    let users = std::fs::read_to_string(&users).with_context(|| format!("reading {USERS}"))?;
    for unit in &units {
        verify_unit(unit, &bin_dir, scratch.path(), &users)?;
    }
    println!("  systemd accepts {} units", units.len());
    for (binary, example) in EXAMPLES {
        let check = |file: &Path| execute(Command::new(bin_dir.join(binary)).arg("check-config").arg(file));
        let example = workspace.root.join(example);
        check(&example)?;
        let text =
            std::fs::read_to_string(&example).with_context(|| format!("reading {}", example.display()))?;
        let all_set = scratch.path().join(format!("{binary}-all-set.toml"));
        std::fs::write(&all_set, set_all(&text)).with_context(|| format!("writing {}", all_set.display()))?;
        check(&all_set)?;
        all_shown(&bin_dir.join(binary), &all_set)?;
    }
    Ok(())
}

/// The examples promise to show every setting: none may be left at its default when all that they show are on.
fn all_shown(binary: &Path, all_set: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(binary);
    let output = command.arg("--config").arg(all_set).arg("--dump-config").output();
    let output = output.with_context(|| format!("starting {}", binary.display()))?;
    let dump = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || dump.is_empty() {
        bail!("{} --dump-config failed: {}", binary.display(), String::from_utf8_lossy(&output.stderr));
    }
    match left_at_default(&dump).as_slice() {
        [] => Ok(()),
        missing => bail!("the example of {} does not show: {}", binary.display(), missing.join(", ")),
    }
}

/// The settings of a dump that no source gave.
fn left_at_default(dump: &str) -> Vec<&str> {
    let lines = dump.lines().filter(|line| line.ends_with("  # default"));
    lines.map(|line| line.split(' ').next().unwrap_or(line)).collect()
}

fn unit_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut units = Vec::new();
    for entry in folder.read_dir().with_context(|| format!("reading {}", folder.display()))? {
        units.push(entry?.path());
    }
    units.retain(|unit| unit.extension().is_some_and(|extension| extension == "service"));
    units.sort();
    if units.is_empty() {
        bail!("no unit in {}", folder.display());
    }
    Ok(units)
}

fn verify_unit(unit: &Path, bin_dir: &Path, scratch: &Path, users: &str) -> anyhow::Result<()> {
    let name = unit.file_name().context("a unit without a name")?.to_string_lossy().into_owned();
    let text = std::fs::read_to_string(unit).with_context(|| format!("reading {}", unit.display()))?;
    if let Some(user) = unknown_user(&text, users) {
        bail!("{name} runs as {user}, whom {USERS} does not make");
    }
    let copy = scratch.join(&name);
    std::fs::write(&copy, start_from(&text, bin_dir)?)
        .with_context(|| format!("writing {}", copy.display()))?;
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=one"])
        .arg(&copy)
        .stdin(Stdio::null())
        .output()
        .context("starting systemd-analyze")?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    // systemd warns of an unknown key and still exits with 0; what it says of other units on the machine is
    // not ours.
    let complaints: Vec<&str> = said.lines().filter(|line| line.contains(&name)).collect();
    if !output.status.success() || !complaints.is_empty() {
        bail!("systemd refuses {name}: {}", said.trim());
    }
    Ok(())
}

/// The user that a unit runs as and nobody makes.
fn unknown_user<'unit>(unit: &'unit str, users: &str) -> Option<&'unit str> {
    let makes = |line: &str, user: &str| line.split_whitespace().take(2).eq(["u", user]);
    let wanted = unit.lines().filter_map(|line| line.strip_prefix("User="));
    wanted.into_iter().find(|user| !users.lines().any(|line| makes(line, user)))
}

/// The example with every setting on that it shows behind a `#`: prose has a space there. What an operator gets by
/// taking the `#` away must be accepted too.
fn set_all(example: &str) -> String {
    let setting = |line: &str| {
        line.strip_prefix('#').filter(|rest| rest.starts_with(char::is_alphabetic)).map(str::to_owned)
    };
    example.lines().map(|line| setting(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
}

/// The unit with its programs taken from `bin_dir`.
fn start_from(unit: &str, bin_dir: &Path) -> anyhow::Result<String> {
    let mut programs = 0;
    let mut copy = String::with_capacity(unit.len());
    for line in unit.lines() {
        let program = line.strip_prefix("ExecStart=").and_then(|rest| rest.strip_prefix(INSTALLED_BINARIES));
        match program {
            Some(rest) => {
                programs += 1;
                copy.push_str(&format!("ExecStart={}{rest}", bin_dir.display()));
            }
            None => copy.push_str(line),
        }
        copy.push('\n');
    }
    if programs != 1 {
        bail!("{programs} lines ExecStart={INSTALLED_BINARIES}/... in a unit, there must be one");
    }
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: &str = "[Service]\nExecStart=/usr/bin/sh -c true\n";

    #[test]
    fn only_the_program_of_a_unit_is_rewritten() {
        let copy = start_from("[Service]\nType=notify\nExecStart=/usr/bin/x --a /etc/b\n", Path::new("/t"));
        assert_eq!(copy.unwrap(), "[Service]\nType=notify\nExecStart=/t/x --a /etc/b\n");
    }

    #[test]
    fn settings_are_switched_on_and_prose_is_not() {
        let on = set_all("# The port.\n#port = 1\n#\n[log]\n");
        assert_eq!(on, "# The port.\nport = 1\n#\n[log]\n");
    }

    #[test]
    fn a_setting_that_an_example_does_not_show_is_found() {
        let dump =
            "pool = \"a\"  # /x.toml:1\nroot = \"/\"  # default\n\n[log]\nformat = \"human\"  # default\n";
        assert_eq!(left_at_default(dump), ["root", "format"]);
    }

    #[test]
    fn a_unit_that_starts_nothing_of_ours_is_refused() {
        assert!(start_from("[Service]\nExecStart=/opt/x\n", Path::new("/t")).is_err());
    }

    #[test]
    fn systemd_is_asked_and_its_warnings_count_as_refusals() {
        let scratch = tempfile::tempdir().unwrap();
        let copies = tempfile::tempdir().unwrap();
        let verify = |text: &str| {
            let unit = scratch.path().join("usher-example.service");
            std::fs::write(&unit, text).unwrap();
            verify_unit(&unit, Path::new("/bin"), copies.path(), "u usher-x -")
        };
        verify(UNIT).unwrap();
        let unknown_key = verify(&format!("{UNIT}ProtectSytem=strict\n")).unwrap_err();
        assert!(unknown_key.to_string().contains("ProtectSytem"), "{unknown_key}");
        assert!(verify(&UNIT.replace("/sh", "/no-such-program")).is_err());
        verify(&format!("{UNIT}User=usher-x\n")).unwrap();
        let unknown_user = verify(&format!("{UNIT}User=usher-y\n")).unwrap_err();
        assert!(unknown_user.to_string().contains("runs as usher-y"), "{unknown_user}");
    }
}
