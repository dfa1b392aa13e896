//! What stands for a value that came wrong?
//!
//! A number that cannot be is dropped where it arrives. For a few intervals the last good one stands for it, marked as
//! stale, so that one garbled report changes no order; then it is not known.

use std::{sync::Arc, time::Duration};

use usher_types::{BootTime, Memory, MountFullness, OwnAvailability, Percent, UserLimit};

/// For how many intervals the last good value stands for a wrong one.
pub(super) const KEEP_GOOD_INTERVALS: u32 = 3;

/// A good value, and when it was measured.
pub(super) type Good<T> = Option<(T, BootTime)>;

/// The last good value of each number that may come wrong, and when it was measured.
#[derive(Clone, Debug, Default)]
pub(super) struct LastGood {
    pub(super) cpu_percent: Good<f64>,
    pub(super) memory: Good<Memory>,
    pub(super) users: Good<u32>,
    pub(super) processes: Good<u32>,
    pub(super) capacity: Good<f64>,
    pub(super) max_users: Good<UserLimit>,
    pub(super) threshold: Good<Percent>,
    pub(super) range: Good<f64>,
    pub(super) psi_full: Good<Percent>,
    pub(super) mounts: Good<Arc<[MountFullness]>>,
    pub(super) own_availability: Good<Arc<OwnAvailability>>,
}

/// Lets the last good value stand for a wrong one.
pub(super) struct Kept {
    pub(super) keep_for: Duration,
    pub(super) now: BootTime,
    pub(super) stale: Vec<&'static str>,
}

impl Kept {
    /// The value to believe: the one that came, or, if it came wrong, the last good one while it is young enough. One
    /// that the host says it does not know is not known, and the older one is forgotten.
    pub(super) fn value<T: Clone>(
        &mut self,
        name: &'static str,
        good: &mut Good<T>,
        came: Option<T>,
        wrong: bool,
    ) -> Option<T> {
        if came.is_some() || !wrong {
            *good = came.clone().map(|value| (value, self.now));
            return came;
        }
        let (value, _) =
            good.as_ref().filter(|(_, measured_at)| self.now.since(*measured_at) <= self.keep_for)?;
        self.stale.push(name);
        Some(value.clone())
    }
}
