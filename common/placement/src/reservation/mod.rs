//! Places given out, as a coordinator keeps them. The host's own book is in [`host`](crate::host).

mod ledger;
mod successes;

pub use ledger::{Grant, GrantParts, GrantState, Ledger, Retry};
pub use successes::GatewaySuccesses;
pub(crate) use successes::LatestTwo;
