//! What is a host, and who may change it?
//!
//! A host is this machine, or a model that behaves like one. Its state decides without clock or task, in
//! [`usher_placement::host`]; [`HostTask`] owns one and puts everything that happens to it into one order; a
//! [`HostHandle`] is what the streams to coordinators hold of it. Nothing else can change a host, so no two
//! coordinators can be promised the same last place.

pub mod baselines;
mod calls;
pub(crate) mod files;
pub mod handle;
mod held_seats;
pub mod identity;
pub mod listing;
pub mod machine;
mod occupancy_log;
mod open;
mod source;
pub mod status;
pub mod task;

pub use handle::{Answer, HostCommand, HostHandle, PlaceNews};
pub use listing::Listing;
pub use open::{BaselineSource, HostSetup, OpenError, OpenHost, open};
pub use source::SourceEvent;
pub use status::HostStatus;
pub use task::HostTask;
