//! How does a farm behave that nobody has bought yet?
//!
//! N hosts from one process, each with an identity, a book and streams of its own: for coordinators they differ from
//! real ones only in the mark that they are modelled. Their users come from the places that are given on them, 1 to 4 s
//! later, and are reported as sessions, so that a storm of logins can be watched from end to end. With fixed values
//! they are a ruler instead: nothing moves but the book of places.
//!
//! One shared ticker moves all models. A model at rest is moved once a report; one in which somebody logs on is moved
//! in tenths of a second.

mod draws;
mod fixed;
mod model;
mod options;
mod ticker;

pub(crate) use fixed::BASELINE_US as FIXED_BASELINE_US;
pub use fixed::FixedValues;
pub use model::ModelHost;
pub use options::{MAX_HOSTS, ModelKind, VirtualOptions};
pub use ticker::{Slot, Source, Ticker};

/// Logical CPUs of a modelled host.
pub const CORES: u32 = 8;
/// Memory of a modelled host.
pub const MEMORY_BYTES: u64 = 32 << 30;
/// The operation whose latency a modelled host tells.
pub const OPERATION: &str = "logon";

/// The collectors of a modelled host: all of them know everything.
fn collectors() -> Vec<usher_types::CollectorState> {
    let state = |name: &str| usher_types::CollectorState {
        name: name.to_owned(),
        source: "model".to_owned(),
        error: None,
        warning: None,
    };
    ["cpu", "memory", "processes", "users"].map(state).to_vec()
}
