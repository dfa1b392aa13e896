//! Which coordinators does this agent report to?
//!
//! Those that its settings name, and those that DNS names for a service (`srv:_usher._tcp.example.org`). A service is
//! looked up again when its answer has grown old, and soon after a stream was lost. Who appears in an answer is reported
//! to at once. Who is missing from one stays until three answers in a row were without them: a host keeps seats free for
//! a coordinator that it does not hear, and must not give them away because one answer was cut short. While DNS does not
//! answer, or names nobody, the last answer holds; it is remembered on disk, so that an agent that starts while DNS is
//! away reports to whom it knew.
//!
//! Names are not turned into addresses here: that is done anew at each attempt to connect.

mod follow;
mod lookup;
mod remembered;
mod roster;

use std::sync::Arc;

use tokio::sync::watch;

pub use follow::{Follower, Losses};
pub use lookup::{DnsLookup, Found, LookingUp, Lookup, LookupError};
pub use remembered::RememberedFile;
pub use roster::{Coordinator, MAX_COORDINATORS, Origin, Roster, ServiceStatus, check_service, service_of};

/// The coordinators in force. All hosts of a process share them.
pub type Coordinators = watch::Receiver<Arc<[Coordinator]>>;
