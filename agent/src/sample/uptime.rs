//! How long ago was the host booted?
//!
//! The kernel says: a wall clock can be set, the boot-time clock cannot and it runs on during suspend.

use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::error::SampleError;
use super::source::read_text;

/// Reads the text of `/proc/uptime`.
///
/// # Errors
/// When its first word is not a number of seconds.
pub fn parse(text: &str) -> Result<Duration, SampleError> {
    let malformed = || SampleError::malformed("/proc/uptime", "does not begin with a number of seconds");
    let seconds: f64 =
        text.split_ascii_whitespace().next().ok_or_else(malformed)?.parse().map_err(|_| malformed())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| malformed())
}

/// Time since boot, from the file below `root`.
///
/// # Errors
/// As [`parse`], and when the file cannot be read.
pub fn read(root: &Path) -> Result<Duration, SampleError> {
    parse(&read_text(root, "proc/uptime")?)
}

/// This machine's boot-time clock: time since boot, suspend included.
#[must_use]
pub fn boot_clock() -> Duration {
    to_duration(clock_gettime(ClockId::Boottime))
}

/// This machine's monotonic clock: as [`boot_clock`] without the time in suspend. logind stamps sessions with it.
pub(crate) fn monotonic_clock() -> Duration {
    to_duration(clock_gettime(ClockId::Monotonic))
}

fn to_duration(time: rustix::time::Timespec) -> Duration {
    // Clocks since boot are never negative.
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptime_is_the_first_number() {
        assert_eq!(parse("350735.47 234388.90\n").expect("readable"), Duration::from_millis(350_735_470));
        for bad in ["", "x 1", "-1 1", "nan 1", "inf 1", "1e300 1"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_file_and_the_clock_of_this_machine_agree() {
        let file = read(Path::new("/")).expect("readable");
        let clock = boot_clock();
        assert!(clock.abs_diff(file) < Duration::from_secs(5), "{file:?} {clock:?}");
        assert!(monotonic_clock() <= boot_clock());
    }
}
