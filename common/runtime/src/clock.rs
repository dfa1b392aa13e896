//! What time is it, for ages and for display?
//!
//! Ages are counted on the boot-time clock: it never steps, and unlike the monotonic clock it runs on
//! while the machine sleeps, so a report taken before a suspend is as old as it really is. The wall
//! clock may jump at any moment; it is for display, logs and audit only and never enters a decision.
//! The clock is a trait, so that tests move time by hand.

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use usher_types::BootTime;

/// A source of time, passed to every task that needs one.
pub trait Clock: Send + Sync + Debug {
    /// Time since boot, suspend included. Never goes back.
    fn now(&self) -> BootTime;

    /// Milliseconds since 1970-01-01T00:00:00Z on the wall clock, for display and audit only. 0 if the
    /// wall clock stands before 1970.
    fn wall_unix_ms(&self) -> u64;
}

/// The machine's own clocks: `CLOCK_BOOTTIME` and the wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> BootTime {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let micros = u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000;
        BootTime::from_micros(seconds.saturating_mul(1_000_000).saturating_add(micros))
    }

    fn wall_unix_ms(&self) -> u64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A clock that moves only when it is told to. For tests and simulations.
///
/// Its wall clock can be set apart from its boot time, as real ones drift apart.
#[derive(Debug)]
pub struct ManualClock {
    boot_us: AtomicU64,
    wall_ms: AtomicU64,
    // Serialises the movers, so that both hands move together; readers take no lock.
    moving: Mutex<()>,
}

impl ManualClock {
    /// A clock that stands at `now`, its wall clock at 1 000 000 000 s (2001-09-09).
    pub fn at(now: BootTime) -> Self {
        Self {
            boot_us: AtomicU64::new(now.as_micros()),
            wall_ms: AtomicU64::new(1_000_000_000_000),
            moving: Mutex::new(()),
        }
    }

    /// Moves boot time and wall clock forward.
    pub fn advance(&self, by: Duration) {
        let _guard = self.moving.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let us = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        let boot = self.boot_us.load(Ordering::Acquire).saturating_add(us);
        let wall = self.wall_ms.load(Ordering::Acquire).saturating_add(us / 1_000);
        self.boot_us.store(boot, Ordering::Release);
        self.wall_ms.store(wall, Ordering::Release);
    }

    /// Steps the wall clock alone, as an administrator or NTP does. Milliseconds since 1970.
    pub fn set_wall_unix_ms(&self, unix_ms: u64) {
        let _guard = self.moving.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.wall_ms.store(unix_ms, Ordering::Release);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> BootTime {
        BootTime::from_micros(self.boot_us.load(Ordering::Acquire))
    }

    fn wall_unix_ms(&self) -> u64 {
        self.wall_ms.load(Ordering::Acquire)
    }
}

/// The kernel's random id of this boot, new after each restart of the machine.
///
/// `root` is the root of the file system, `/` outside tests.
///
/// # Errors
/// When the file cannot be read, or is empty.
pub fn boot_id(root: &Path) -> io::Result<String> {
    let path = root.join("proc/sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(&path)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display())))?;
    let id = text.trim();
    if id.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} is empty", path.display())));
    }
    Ok(id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_time_does_not_go_back() {
        let first = SystemClock.now();
        let second = SystemClock.now();
        assert!(second >= first);
        assert!(first.as_micros() > 0);
    }

    #[test]
    fn case_132_an_age_against_a_later_instant_is_zero() {
        let clock = ManualClock::at(BootTime::from_micros(5_000));
        let stored = clock.now();
        assert_eq!(BootTime::from_micros(4_000).since(stored), Duration::ZERO);
        clock.advance(Duration::from_secs(2));
        assert_eq!(clock.now().since(stored), Duration::from_secs(2));
    }

    #[test]
    fn a_wall_clock_step_leaves_boot_time_alone() {
        let clock = ManualClock::at(BootTime::from_micros(1));
        clock.set_wall_unix_ms(7);
        assert_eq!(clock.now(), BootTime::from_micros(1));
        clock.advance(Duration::from_millis(3));
        assert_eq!(clock.wall_unix_ms(), 10);
    }

    #[test]
    fn the_boot_id_is_trimmed_and_never_empty() {
        let root = tempfile::tempdir().unwrap();
        assert!(boot_id(root.path()).unwrap_err().to_string().contains("boot_id"));
        let folder = root.path().join("proc/sys/kernel/random");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("boot_id"), "\n").unwrap();
        assert!(boot_id(root.path()).is_err());
        std::fs::write(folder.join("boot_id"), "8f6e-1\n").unwrap();
        assert_eq!(boot_id(root.path()).unwrap(), "8f6e-1");
    }
}
