//! Is this host a container, and whose figures does it see?
//!
//! A container sees the machine's `/proc`, unless lxcfs puts the container's own figures in its place. Whoever looks at
//! the numbers must know which of the two they are, so the report says it. The question is answered by what container
//! managers leave behind; a machine that none of them has marked is taken for one.

use std::path::Path;

use super::source::read_optional_text;

/// Bound of a manager's name.
const MAX_KIND_BYTES: usize = 32;

/// What kind of container a host is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// `docker`, `lxc`, `podman`, ... as its manager calls it.
    pub kind: String,
    /// lxcfs shows the container's own figures in `/proc`.
    pub has_lxcfs: bool,
}

/// The container whose files lie below `root`. Absent: none that can be told. What cannot be read tells nothing, and is
/// no failure: the figures have their own.
#[must_use]
pub fn detect(root: &Path) -> Option<Container> {
    let text = |file: &str| read_optional_text(root, file).ok().flatten();
    let has_lxcfs = text("proc/self/mounts").or_else(|| text("proc/mounts")).is_some_and(|m| shows_lxcfs(&m));
    let marker = |file: &str, kind: &str| root.join(file).exists().then(|| kind.to_owned());
    // systemd writes the first inside a container; the environment of process 1 is for root's eyes.
    let kind = text("run/systemd/container")
        .and_then(|text| word(&text))
        .or_else(|| marker(".dockerenv", "docker"))
        .or_else(|| marker("run/.containerenv", "podman"))
        .or_else(|| text("proc/1/environ").and_then(|text| from_environment(&text)))
        .or_else(|| has_lxcfs.then(|| "lxc".to_owned()))?;
    Some(Container { kind, has_lxcfs })
}

/// Whether a list of mounts has one of lxcfs over a file of `/proc`.
#[must_use]
pub fn shows_lxcfs(mounts: &str) -> bool {
    mounts.lines().any(|line| {
        let mut words = line.split_ascii_whitespace();
        let (place, kind) = (words.nth(1).unwrap_or_default(), words.next().unwrap_or_default());
        kind == "fuse.lxcfs" && (place.ends_with("/proc/stat") || place.ends_with("/proc/meminfo"))
    })
}

fn from_environment(text: &str) -> Option<String> {
    text.split('\0').find_map(|variable| variable.strip_prefix("container=")).and_then(word)
}

/// A manager's name, if it is one.
fn word(text: &str) -> Option<String> {
    let text = text.trim();
    let is_name = !text.is_empty()
        && text.len() <= MAX_KIND_BYTES
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    is_name.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::test_tree::tree;

    fn kind(files: &[(&str, &str)]) -> Option<(String, bool)> {
        detect(tree(files).path()).map(|container| (container.kind, container.has_lxcfs))
    }

    #[test]
    fn a_container_is_known_by_what_its_manager_left() {
        assert_eq!(kind(&[]), None);
        assert_eq!(
            kind(&[("run/systemd/container", "systemd-nspawn\n")]),
            Some(("systemd-nspawn".into(), false))
        );
        assert_eq!(kind(&[(".dockerenv", "")]), Some(("docker".into(), false)));
        assert_eq!(kind(&[("run/.containerenv", "")]), Some(("podman".into(), false)));
        assert_eq!(kind(&[("proc/1/environ", "PATH=/bin\0container=lxc\0")]), Some(("lxc".into(), false)));
        assert_eq!(kind(&[("run/systemd/container", "\u{1b}[31m")]), None);
    }

    #[test]
    fn lxcfs_is_seen_in_the_mounts() {
        let line = "lxcfs /proc/stat fuse.lxcfs rw,nosuid,nodev,relatime 0 0\n";
        assert_eq!(kind(&[("proc/mounts", line)]), Some(("lxc".into(), true)));
        assert!(!shows_lxcfs("lxcfs /var/lib/lxcfs fuse.lxcfs rw 0 0\nproc /proc proc rw 0 0\n\n x"));
    }
}
