//! What time is it, for everybody on this machine?

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds on the boot-time clock, as agents write them.
pub(crate) fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap() * 1000 + u64::try_from(now.tv_nsec).unwrap() / 1_000_000
}
