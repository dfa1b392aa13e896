//! How well does a host answer, compared with itself when it is not loaded?
//!
//! A host that is asked for twice as much does not answer twice as late at once: it answers as before until it is
//! nearly full, then ever later. So the ratio of the latency now to the latency without load, the **expansion factor**
//! (XF), says how close a host is to its limit, whatever its hardware and whatever its users do. The **availability
//! index** (AI) turns it into 100 (as fast as ever) down to 0 (2^range times slower), as Domino's server availability
//! index does.
//!
//! * [`Operations`] counts the calls of each operation over a window of periods and keeps its [`MinimumBaseline`]; it
//!   runs in the agent.
//! * [`assess`](AvailabilityTracker::assess) turns one window into XF and AI; the agent and every coordinator run it on
//!   the same numbers and come to the same result.
//! * [`holds_busy`] decides with hysteresis whether that makes the host BUSY.
//!
//! Nothing here ever divides by a zero, takes a missing number for a fast one, or lets a failed call look like a quick
//! one.

mod assess;
mod baseline;
mod index;
mod latch;
mod operations;

pub use assess::{Availability, AvailabilityTracker, Basis, operation_expansion};
pub use baseline::MinimumBaseline;
pub use index::{OperationFactor, availability_index, host_expansion_factor};
pub use latch::holds_busy;
pub use operations::{OperationSettings, Operations, RejectedSample};

/// Calls below which a mean says too little to be compared.
pub const MIN_CALLS: f64 = 5.0;
