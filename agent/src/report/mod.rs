//! How does a host reach every coordinator, whatever happens to one of them?
//!
//! One task for each pair of host and coordinator, and nothing shared between them but the host itself: a coordinator
//! that stalls, refuses or is gone costs the others nothing. State is never queued: each message is made from the
//! newest state at the moment in which the stream has room for it. What must not be lost on the way (answers) has a
//! bounded queue of its own for each stream, which ends with it.
//!
//! Every stream begins with the whole state and needs nothing from an earlier one. A stream on which the coordinator
//! says nothing for 15 s is dead, for it ticks each second.

mod connection;
mod inbound;
mod outbound;
mod pages;
mod stream_set;
mod streams;

pub use connection::{Leaving, Reporter};
pub use stream_set::StreamSet;
pub use streams::{HeldStream, StreamPhase, StreamStatus, StreamsHeld};
