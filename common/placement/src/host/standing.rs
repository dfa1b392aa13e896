//! What does a host say of itself beside what it measures?
//!
//! Its own door that does not open, the programs that its operator lets speak for it, and a drain given on the host.
//! Unlike measured values these change seldom, and when they change everybody should know at once; so they are kept
//! apart from the last measurement and hold until they are changed.

use std::time::Duration;

use usher_types::{CollectorState, Drain, OwnAvailability, Readiness};

/// What holds of a host until it is changed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Standing {
    /// Why it takes no sessions. Absent: nothing here keeps it from that; a measurement may.
    pub not_ready: Option<String>,
    /// Its warm-up is not done.
    pub is_warming_up: bool,
    /// It is BUSY because somebody on it says so.
    pub is_busy: bool,
    /// An availability index that a program computes; it is used instead of a measured one.
    pub own_availability: Option<OwnAvailability>,
    /// How far a program says that the host's replicas are behind.
    pub replica_lag: Option<Duration>,
    /// Drained on the host itself.
    pub drain: Option<Drain>,
    /// How those fare that speak here.
    pub collectors: Vec<CollectorState>,
}

impl Standing {
    /// With what was measured: the measured reason comes first, for it is the system's own.
    pub(super) fn readiness(&self, measured: Option<&Readiness>) -> Readiness {
        match (measured, &self.not_ready) {
            (Some(Readiness::NotReady(reason)), _) | (_, Some(reason)) => Readiness::NotReady(reason.clone()),
            _ => Readiness::Ready,
        }
    }
}
