//! What does a source of values tell its host?
//!
//! A host is either this machine or a model; both tell the same things, so everything behind this line is the same
//! code.

use usher_placement::host::{Measurement, Occupancy};

use crate::latency::listener::TimingBatch;

/// Something that a source tells.
#[derive(Debug, Clone, PartialEq)]
pub enum SourceEvent {
    /// A whole measurement.
    Measured {
        /// The values.
        values: Box<Measurement>,
        /// Who is on the host.
        occupancy: Occupancy,
    },
    /// Who is on the host, between two measurements.
    Sessions {
        /// They.
        occupancy: Occupancy,
        /// How many of them are logging on. Absent: the source cannot tell.
        logons: Option<u32>,
    },
    /// Finished calls of operations.
    Calls(TimingBatch),
    /// A period of the latency window is over.
    PeriodEnded,
}
