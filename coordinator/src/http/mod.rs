//! What can be asked of a coordinator without gRPC?
//!
//! Three things, for tools that every site has: the metrics, whether the process serves at all (`/healthz`: restart it if
//! not), and whether it should be sent calls now (`/readyz`: send them elsewhere if not, the text says why). Plain on
//! loopback, mutual TLS elsewhere, with a certificate of this farm in any role.

mod routes;
mod serve;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

pub use routes::router;
pub use serve::serve;

use crate::metrics::Metrics;

/// What the answers are made from.
#[derive(Clone)]
pub struct HttpState {
    /// Shown at `/metrics`.
    pub metrics: Metrics,
    /// Whether calls should come here now; if not, why, for people: "in grace: heard 3 of 5 hosts". If so, what does not work all
    /// the same; may be empty.
    pub ready: Arc<dyn Fn() -> Result<String, String> + Send + Sync>,
    /// Certificates of other farms are turned away.
    pub farm: String,
}

impl fmt::Debug for HttpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpState").field("farm", &self.farm).finish_non_exhaustive()
    }
}
