//! The words of usher: what a report, a host, a place and a policy are.
//!
//! Every crate of the project speaks in these types. They refuse what cannot be true when they are made (a NaN, a
//! percentage of 354, an empty id), so that no later code has to ask again. Nothing here knows a clock, a socket or a
//! thread: instants are passed in.

mod hashing;
mod hook_word;
mod ids;
mod limit_words;
mod marks;
mod place;
mod policy;
mod policy_change;
mod policy_check;
mod policy_text;
mod profile;
mod report;
mod session;
mod settings_hash;
mod state;
mod time;
mod units;
mod user;

pub use hashing::KeyHasher;
pub use hook_word::{HookWord, UnknownHookWord};
pub use ids::{
    BootId, DecisionId, GatewayId, HostId, HostName, IdError, OperationName, PoolName, RequestId, ResourceId,
    Zone,
};
pub use marks::{Change, HostMarks, HostMarksChange, ReplicaMark};
pub use place::{
    EndReason, EndedPlace, FailureCause, Outcome, Penalty, PenaltyCause, PendingPlace, RefusalReason, Token,
    ToldOutcome,
};
pub use policy::{
    Affinity, Baseline, CriticalLevel, DoorKind, Method, PendingLimit, PendingMode, Policy, UserLimit,
    UserNames, Weights, WhenBlind,
};
pub use policy_change::{FieldFault, PolicyChange, WeightsChange};
pub use policy_text::{FieldChange, SettingError};
pub use profile::Profile;
pub use report::{
    CollectorState, Endpoint, FinishedLogons, Goodbye, Hello, HostOverrides, Latency, Load, LogonsInProgress,
    Memory, MountFullness, OperationWindow, OwnAvailability, Readiness, Replica,
};
pub use session::{Session, SessionCounts, SessionState};
pub use settings_hash::SettingsHash;
pub use state::{BusyReasons, Drain, DrainMode, HostState};
pub use time::BootTime;
pub use units::{Percent, UnitError};
pub use user::{UserKey, UserMatch};
