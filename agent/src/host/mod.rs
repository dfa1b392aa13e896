//! What is a host, and who may change it?
//!
//! A host is this machine, or a model that behaves like one. [`HostCore`] is its state and decides, without clock or
//! task; [`HostTask`] owns one core and puts everything that happens to it into one order; a [`HostHandle`] is what
//! the streams to coordinators hold of it. Nothing else can change a host, so no two coordinators can be promised the
//! same last place.

pub mod baselines;
pub mod core;
pub(crate) mod files;
pub mod handle;
pub mod identity;
pub mod listing;
pub mod machine;
pub mod measurement;
mod open;
pub mod task;

pub use self::core::{CoreSettings, HostCore, VersionedPolicy};
pub use handle::{Answer, HostCommand, HostHandle, PlaceNews};
pub use listing::Listing;
pub use measurement::{Measurement, SourceEvent};
pub use open::{BaselineSource, HostSetup, OpenError, OpenHost, open};
pub use task::HostTask;
