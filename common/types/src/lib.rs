//! The words of usher: what a report, a host, a place and a policy are.
//!
//! Every crate of the project speaks in these types. They refuse what cannot be true when they are made (a NaN, a
//! percentage of 354, an empty id), so that no later code has to ask again. Nothing here knows a clock, a socket or a
//! thread: instants are passed in.

mod ids;
mod place;
mod policy;
mod policy_change;
mod report;
mod session;
mod state;
mod time;
mod units;
mod user;

pub use ids::{
    BootId, DecisionId, GatewayId, HostId, HostName, IdError, OperationName, PoolName, RequestId, ResourceId,
    Zone,
};
pub use place::{EndReason, EndedPlace, Outcome, PendingPlace, RefusalReason, Token};
pub use policy::{Affinity, Baseline, Method, Policy, UserLimit, Weights};
pub use policy_change::{FieldFault, PolicyChange, WeightsChange};
pub use report::{
    CollectorState, Endpoint, Goodbye, Hello, HostOverrides, Latency, Load, Memory, OperationWindow,
    Readiness, Replica,
};
pub use session::{Session, SessionCounts, SessionState};
pub use state::{Drain, DrainMode, HostState};
pub use time::BootTime;
pub use units::{Percent, UnitError};
pub use user::{UserKey, UserMatch};
