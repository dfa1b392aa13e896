//! Are seats kept free for coordinators that cannot be reached, and does the operator know?
//!
//! A coordinator that restarts is away for seconds: nobody need read of that. One that stays away costs places, and then
//! the log says so once, and once when it is over.

use std::time::Duration;

use usher_placement::host::HostCore;
use usher_types::BootTime;

/// For how long seats are held back before it is told: longer than any restart of a coordinator, and any start of a farm.
const TELL_AFTER: Duration = Duration::from_secs(30);

/// Since when seats are held back.
#[derive(Debug, Default)]
pub(super) struct HeldSeats {
    since: Option<BootTime>,
    is_told: bool,
}

impl HeldSeats {
    /// Looks again.
    pub(super) fn look(&mut self, core: &HostCore, now: BootTime) {
        let held = core.held_back(now);
        if !held.any() {
            if std::mem::take(&mut self.is_told) {
                tracing::info!("every coordinator is heard: no seats are held back any more");
            }
            self.since = None;
            return;
        }
        let since = *self.since.get_or_insert(now);
        if !self.is_told && now.since(since) >= TELL_AFTER {
            self.is_told = true;
            let unreachable: Vec<&str> = core.unheard(now).collect();
            tracing::info!(
                users = held.users,
                logons = held.places,
                unreachable = unreachable.join(", "),
                "seats are held back for coordinators that cannot be reached; one that is gone for good should be taken \
                 out of the agent's list"
            );
        }
    }
}
