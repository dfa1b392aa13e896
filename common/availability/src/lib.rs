//! How well does a host answer, compared with itself when it is not loaded?
//!
//! A host that is asked for twice as much does not answer twice as late at once: it answers as before until it is
//! nearly full, then ever later. So the ratio of the latency now to the latency without load, the **expansion factor**
//! (XF), says how close a host is to its limit, whatever its hardware and whatever its users do. The **availability
//! index** (AI) turns it into 100 (as fast as ever) down to 0 (2^range times slower), as Domino's server availability
//! index does.
//!
//! The latency without load, the **baseline**, is the hard part: nobody tells it, and most hosts are never without load
//! while they are watched. It is learned, from quiet hours where there are any; until one confirms it, it is
//! *provisional*, and so is the index.
//!
//! * [`Operations`] counts the calls of each operation over a window of periods and learns its baseline, with both
//!   [`RobustBaseline`] and [`MinimumBaseline`]; it runs in the agent, and its [`BaselineRecord`]s outlive it.
//! * [`assess`](AvailabilityTracker::assess) turns one window into XF and AI; the agent and every coordinator run it on
//!   the same numbers and come to the same result.
//! * [`Latches`] decide with hysteresis whether the index, memory, CPU or anything else makes the host BUSY; [`judge`]
//!   comes to the same result from what they last said.
//!
//! Nothing here ever divides by a zero, takes a missing number for a fast one, or lets a failed call look like a quick
//! one. A host whose calls are always late for another reason than its load (a slow disk of somebody else's) looks
//! loaded, and should.

mod assess;
mod baseline;
mod index;
mod latch;
mod operations;

pub use assess::{Availability, AvailabilityTracker, Basis, error_share_percent, operation_expansion};
pub use baseline::{
    BaselineRecord, Carried, HourRecord, MinimumBaseline, MinimumRecord, RecordFault, RobustBaseline,
    RobustRecord,
};
pub use index::{OperationFactor, availability_index, host_expansion_factor};
pub use latch::{LatchInput, Latches, holds_busy, judge};
pub use operations::{OperationSettings, Operations, PeriodCounts, RejectedSample};

/// Calls below which a mean says too little to be compared.
pub const MIN_CALLS: f64 = 5.0;
