//! What does a host know of itself at this moment, for whoever asks on the machine?
//!
//! More than its reports carry: counts since the start, the period that is still open, and what waits.

use std::collections::BTreeMap;

use usher_availability::PeriodCounts;
use usher_types::{Load, OperationName, OperationWindow};

/// The host at one moment.
#[derive(Debug, Clone)]
pub struct HostStatus {
    /// The report that it would send now. Absent before the first measurement.
    pub load: Option<Load>,
    /// What was counted of every operation since the start, the open period included.
    pub totals: Vec<(OperationName, PeriodCounts)>,
    /// The window that it reports.
    pub window: Vec<OperationWindow>,
    /// Calls of names beyond the cap, since the start.
    pub overflow_calls: u64,
    /// Words about calls that were refused since the start, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Coordinators that are not heard: seats may be kept free for them.
    pub unheard: Vec<String>,
    /// Sessions that the list leaves out, because it is long or because names must not travel.
    pub unlisted_sessions: u32,
    /// Commands of coordinators that wait.
    pub commands_waiting: usize,
    /// What was measured and is not taken over yet.
    pub events_waiting: usize,
    /// Checks of sessions that wait for a look.
    pub checks_waiting: usize,
    /// The last write of the book of places failed: nobody is admitted.
    pub book_is_unkept: bool,
}
