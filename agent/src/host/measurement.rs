//! What does a source of values tell its host?
//!
//! A host is either this machine or a model; both tell the same things, so everything behind this line is the same
//! code. A value that the source could not give is absent.

use std::time::Duration;

use crate::latency::listener::TimingBatch;
use usher_placement::reservation::Occupancy;
use usher_types::{CollectorState, Memory, Percent, Readiness};

/// The state of the host at one moment, without its users.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measurement {
    /// Busy share since the last measurement.
    pub cpu: Option<Percent>,
    /// Busy time plus run-queue wait over elapsed time x CPUs, >= 0; may pass 1.
    pub runnable_demand: Option<f64>,
    /// Memory in use.
    pub memory: Option<Memory>,
    /// Processes, not threads.
    pub processes: Option<u32>,
    /// Whether the host takes sessions.
    pub readiness: Readiness,
    /// Time since boot.
    pub uptime: Option<Duration>,
    /// How each collector fares.
    pub collectors: Vec<CollectorState>,
}

/// Something that a source tells.
#[derive(Debug, Clone, PartialEq)]
pub enum SourceEvent {
    /// A whole measurement.
    Measured {
        /// The values.
        values: Measurement,
        /// Who is on the host.
        occupancy: Occupancy,
    },
    /// Who is on the host, between two measurements.
    Sessions(Occupancy),
    /// Finished calls of operations.
    Calls(TimingBatch),
    /// A period of the latency window is over.
    PeriodEnded,
}
