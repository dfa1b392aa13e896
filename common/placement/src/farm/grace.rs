//! What may be believed right after a start, or after a freeze?
//!
//! A coordinator that has just started, or was stopped by a snapshot of its machine, knows old things only. It must
//! neither declare the farm dead nor send users by what it knew before. For a while hosts that it has not heard are
//! UNKNOWN; placements are refused as STALE until most of the farm was heard again, or ten seconds have passed.

use std::time::Duration;

use usher_types::BootTime;

/// How long hosts that were not heard stay UNKNOWN.
pub const GRACE: Duration = Duration::from_secs(60);
/// How long placements are refused at most.
pub const STALE: Duration = Duration::from_secs(10);
/// Share of the pool's capacity that must be heard before placements go on.
const HEARD_SHARE: f64 = 0.8;
/// The coordinator's own clock ticks each second; a gap of this length, or of the hosts' shortest report interval if
/// that is longer, means that it was frozen.
pub(super) const FROZEN_AFTER: Duration = Duration::from_secs(2);

/// A grace that began.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Grace {
    /// When. Reports measured before are from before the start or the freeze.
    pub began: BootTime,
}

impl Grace {
    /// Whether hosts that were not heard are still UNKNOWN rather than OFFLINE.
    pub fn holds(self, now: BootTime) -> bool {
        now.since(self.began) <= GRACE
    }

    /// Whether placements wait for hosts to be heard.
    pub fn may_wait(self, now: BootTime) -> bool {
        now.since(self.began) <= STALE
    }
}

/// How much of a pool was heard since the grace began.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct HeardShare {
    /// Capacity heard.
    pub heard: f64,
    /// Capacity of the hosts that were alive before.
    pub expected: f64,
}

impl HeardShare {
    /// Whether it is enough to place by.
    pub fn is_enough(self) -> bool {
        self.heard >= HEARD_SHARE * self.expected
    }
}
