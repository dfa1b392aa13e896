//! Places given out, as a coordinator keeps them. The host's own book is in [`host`](crate::host).

mod grant;
mod ledger;
mod successes;

pub use grant::{Grant, GrantParts, GrantState};
pub use ledger::{Ledger, Retry};
pub use successes::GatewaySuccesses;
pub(crate) use successes::LatestTwo;
