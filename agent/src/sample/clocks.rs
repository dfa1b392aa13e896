//! What time is it for the files below a root?
//!
//! Below the root of a running system, or of a host that a container sees under a mount, it is now. A copy of another
//! machine's files has a time of its own: its uptime, and its boot on the wall clock, both as the files say. Ages of
//! sessions in it are of that moment, so a copy reads the same on every day.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{PROC_SUPER_MAGIC, statfs};

use super::source::read_text;
use super::uptime::{self, boot_clock, monotonic_clock};

/// Times of one moment. What is not known is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clocks {
    /// On the clock since boot that stands still in suspend.
    pub monotonic: Option<Duration>,
    /// Since 1970 UTC.
    pub wall_unix: Option<Duration>,
    /// Boot of the host, since 1970 UTC.
    pub booted_unix: Option<Duration>,
}

/// Whether the files below `root` are those of a running kernel, and not a copy.
#[must_use]
pub fn is_live(root: &Path) -> bool {
    statfs(root.join("proc")).is_ok_and(|facts| facts.f_type == PROC_SUPER_MAGIC)
}

/// The clocks for the files below `root`.
#[must_use]
pub fn read(root: &Path) -> Clocks {
    if is_live(root) {
        // A wall clock before 1970 gives no ages.
        let wall_unix = SystemTime::now().duration_since(UNIX_EPOCH).ok();
        let booted_unix = wall_unix.and_then(|wall| wall.checked_sub(boot_clock()));
        return Clocks { monotonic: Some(monotonic_clock()), wall_unix, booted_unix };
    }
    let monotonic = uptime::read(root).ok();
    let booted_unix = read_text(root, "proc/stat").ok().and_then(|text| boot_time(&text));
    let wall_unix = monotonic.zip(booted_unix).and_then(|(uptime, booted)| booted.checked_add(uptime));
    Clocks { monotonic, wall_unix, booted_unix }
}

/// The line `btime` of `/proc/stat`.
fn boot_time(stat: &str) -> Option<Duration> {
    let seconds = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::test_tree::tree;

    #[test]
    fn this_machine_is_live_and_a_copy_has_its_own_time() {
        assert!(is_live(Path::new("/")));
        let now = read(Path::new("/"));
        assert!(now.wall_unix > now.booted_unix && now.monotonic.is_some());

        let copy = tree(&[("proc/uptime", "60.5 1\n"), ("proc/stat", "cpu 1\nbtime 1000\n")]);
        let clocks = read(copy.path());
        assert_eq!(clocks.wall_unix, Some(Duration::from_millis(1_060_500)));
        assert_eq!(clocks.booted_unix, Some(Duration::from_secs(1000)));
        assert_eq!(read(tree(&[]).path()), Clocks::default());
    }
}
