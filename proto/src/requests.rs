//! Which calls of gateways and operators are more than one of the project's types, and hold only checked values?
//!
//! Who calls, and whether they may, is not part of a request: the connection says that.

use std::time::Duration;

use usher_types::{FailureCause, Outcome, PolicyChange, PoolName, Profile, ReplicaMark, ResourceId, Token};

/// What a gateway says of a login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportOutcome {
    /// The login's place, which the gateway named itself.
    pub token: Token,
    /// What became of it.
    pub outcome: Outcome,
    /// Of one that failed: why, if the gateway says.
    pub cause: Option<FailureCause>,
}

/// A pool is to be created or changed.
#[derive(Clone, PartialEq, Debug)]
pub struct ApplyPool {
    /// The pool.
    pub pool: PoolName,
    /// The version that the change is based on. Absent: whatever is in force.
    pub expected_version: Option<u64>,
    /// Its settings are applied before those of `change`.
    pub profile: Option<Profile>,
    /// The settings that change. Their ranges are checked when they are applied.
    pub change: PolicyChange,
    /// Check only.
    pub dry_run: bool,
    /// To be refused if the pool was applied before.
    pub must_be_new: bool,
}

/// Which versions of a pool's settings are wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolHistory {
    /// The pool.
    pub pool: PoolName,
    /// How many versions at most, 1..=1000.
    pub limit: usize,
}

/// Which two versions of a pool's settings are compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiffPool {
    /// The pool.
    pub pool: PoolName,
    /// The older version; 0: the defaults. Absent: the one before `to`.
    pub from: Option<u64>,
    /// The newer version. Absent: the one in force.
    pub to: Option<u64>,
}

/// Whether one host's copy of a resource is in service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MarkReplica {
    /// Name or id of the host.
    pub host: String,
    /// The resource.
    pub resource: ResourceId,
    /// Absent: in service again.
    pub mark: Option<ReplicaMark>,
}

/// Which hosts hold a resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocateResource {
    /// The resource.
    pub resource: ResourceId,
    /// Absent: in every pool.
    pub pool: Option<PoolName>,
}

/// Which decisions are wanted. What is absent restricts nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecisionFilter {
    /// Login name, as the asker spells it.
    pub user: Option<String>,
    /// Name or id of a host that was chosen, or passed over for another.
    pub host: Option<String>,
    /// The pool.
    pub pool: Option<PoolName>,
    /// Not older than this.
    pub since: Option<Duration>,
    /// Only those that refused.
    pub refused_only: bool,
    /// How many at most, 1..=1000.
    pub limit: usize,
}

/// Which sessions are wanted. What is absent restricts nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionFilter {
    /// Login name, as the asker spells it.
    pub user: Option<String>,
    /// Name or id of the host.
    pub host: Option<String>,
    /// The pool.
    pub pool: Option<PoolName>,
}
