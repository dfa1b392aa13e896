//! What time is it on a simulated node?
//!
//! Every node has two clocks of its own on top of the one simulated time: boot time, which starts anew with each boot and
//! may jump ahead as a suspended machine's does, and a wall clock that an administrator or NTP may set to anything.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use usher_runtime::clock::Clock;
use usher_types::BootTime;

/// 2026-01-01T00:00:00Z: where wall clocks begin.
const WALL_START_MS: i64 = 1_767_225_600_000;

/// The clocks of one node. Shared by whatever runs on it, over restarts of its programs.
#[derive(Debug)]
pub struct NodeClock {
    /// Boot time minus simulated time, microseconds.
    ahead_us: AtomicI64,
    /// How fast boot time runs, per cent of what is right.
    rate: i64,
    wall_ahead_ms: AtomicI64,
    last_us: AtomicU64,
}

impl NodeClock {
    /// The clocks of a node that booted `uptime` before `now`, a simulated time.
    pub fn booted(uptime: Duration, now: Duration) -> Self {
        Self {
            rate: 100,
            ahead_us: AtomicI64::new(signed(uptime.as_micros()) - signed(now.as_micros())),
            wall_ahead_ms: AtomicI64::new(0),
            last_us: AtomicU64::new(0),
        }
    }

    /// Those of a node whose boot time runs at so many per cent of what is right: broken on purpose.
    pub fn running_at(rate: u32) -> Self {
        let right = Self::booted(Duration::from_secs(100 * 3600), Duration::ZERO);
        Self { rate: rate.into(), ..right }
    }

    /// What boot time is at `now`, a simulated time; for whoever looks from outside of the node.
    pub fn read(&self, now: Duration) -> BootTime {
        let now = signed(now.as_micros()) * self.rate / 100 + self.ahead_us.load(Ordering::Relaxed);
        BootTime::from_micros(u64::try_from(now).unwrap_or_default())
    }

    /// The machine boots at `now`, a simulated time: boot time starts again, the wall clock goes on.
    pub fn reboot(&self, now: Duration) {
        self.ahead_us.store(1_000_000 - signed(now.as_micros()) * self.rate / 100, Ordering::Relaxed);
        self.last_us.store(0, Ordering::Relaxed);
    }

    /// The machine was suspended for so long: boot time went on, nothing else did.
    pub fn suspend(&self, by: Duration) {
        self.ahead_us.fetch_add(signed(by.as_micros()), Ordering::Relaxed);
    }

    /// Sets the wall clock ahead, or back, of what it is, milliseconds.
    pub fn step_wall(&self, by_ms: i64) {
        self.wall_ahead_ms.fetch_add(by_ms, Ordering::Relaxed);
    }
}

impl Clock for NodeClock {
    fn now(&self) -> BootTime {
        // Absent while a node is torn down: then its time stands still.
        if let Some(elapsed) = turmoil::sim_elapsed() {
            let now = signed(elapsed.as_micros()) * self.rate / 100 + self.ahead_us.load(Ordering::Relaxed);
            self.last_us.fetch_max(u64::try_from(now).unwrap_or_default(), Ordering::Relaxed);
        }
        BootTime::from_micros(self.last_us.load(Ordering::Relaxed))
    }

    fn wall_unix_ms(&self) -> u64 {
        let elapsed = turmoil::sim_elapsed().map_or(0, |elapsed| signed(elapsed.as_millis()));
        let wall = WALL_START_MS + elapsed + self.wall_ahead_ms.load(Ordering::Relaxed);
        u64::try_from(wall).unwrap_or_default()
    }
}

fn signed(number: u128) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_of_a_simulation_time_stands_still() {
        let clock = NodeClock::booted(Duration::from_secs(9), Duration::ZERO);
        assert_eq!(clock.now(), clock.now());
        clock.step_wall(-5);
        assert_eq!(clock.wall_unix_ms(), 1_767_225_600_000 - 5);
    }
}
