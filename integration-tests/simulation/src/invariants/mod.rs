//! What must hold whatever goes wrong, checked from outside of the product.
//!
//! Each check is pure: it is told what was seen and when, and says what broke. It knows hosts by their own book and by who
//! sits at them, gateways by what they were answered, and coordinators by what they list; never by each other. Its own tests
//! show that it can fail.

mod grace;
mod kept;
mod limits;
mod one_host;
mod views;

use std::time::Duration;

pub use grace::{Grace, Sighting};
pub use kept::Kept;
pub use limits::{Hold, HostBookSeen, Limits};
pub use one_host::OneHost;
pub use views::{HostView, Views};

/// The invariants, as the report names them.
pub const NAMES: [&str; 9] =
    ["limit", "one_host", "seen", "views_agree", "grace", "kept", "no_panic", "no_leak", "deadline"];

/// One that broke.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Violation {
    /// Which, of [`NAMES`].
    pub invariant: String,
    /// When, in simulated milliseconds.
    pub at_ms: u64,
    /// What was seen.
    pub what: String,
}

impl Violation {
    /// One at a simulated time.
    pub fn new(invariant: &str, at: Duration, what: impl Into<String>) -> Self {
        let at_ms = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        Self { invariant: invariant.to_owned(), at_ms, what: what.into() }
    }
}
