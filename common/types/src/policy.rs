//! The settings of a pool: how its hosts are ranked, when they are busy or full, how long a place is kept.
//!
//! A [`Policy`] is always valid. It is changed only through [`PolicyChange`](crate::PolicyChange), which names every
//! field that it refuses, its value and what is allowed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{UserKey, UserMatch};

/// How a pool orders its hosts.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// The lowest weighted load wins.
    #[default]
    WeightedLoad,
    /// The highest availability index wins.
    Availability,
    /// The lowest predicted demand wins.
    Predictive,
    /// The fullest host that still has a place wins.
    FillFirst,
}

/// How the unloaded latency of an operation is estimated.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// The lowest mean of a period ever.
    #[default]
    Minimum,
    /// A low percentile over qualified hours.
    Robust,
}

/// Which existing sessions bring a user back to their host.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Affinity {
    /// Active and disconnected ones.
    #[default]
    Session,
    /// Disconnected ones only.
    Disconnected,
    /// Active, disconnected and lingering ones.
    Linger,
    /// None, not even the user's pending place.
    None,
}

/// How many users a host takes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum UserLimit {
    /// Any number.
    #[default]
    Unlimited,
    /// At most this many, >= 1.
    Users(u32),
}

impl UserLimit {
    /// The number, if there is one.
    pub const fn finite(self) -> Option<u32> {
        match self {
            Self::Unlimited => None,
            Self::Users(users) => Some(users),
        }
    }
}

/// The weights of the weighted load, percent, together 100.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Weights {
    /// Weight of CPU use.
    pub cpu_percent: f64,
    /// Weight of memory use.
    pub memory_percent: f64,
    /// Weight of users against the largest number of users.
    pub users_percent: f64,
    /// Weight of processes against the largest number of processes.
    pub processes_percent: f64,
}

impl Default for Weights {
    /// 15/15/55/15, as in the AADS terminal-server manual.
    fn default() -> Self {
        Self { cpu_percent: 15.0, memory_percent: 15.0, users_percent: 55.0, processes_percent: 15.0 }
    }
}

/// The settings of a pool.
#[derive(Clone, PartialEq, Debug)]
pub struct Policy {
    /// How hosts are ordered.
    pub method: Method,
    /// Weights of the weighted load.
    pub weights: Weights,
    /// Floor under the largest user count, >= 0: for farms where one user at night should not weigh 55 points.
    pub users_full_scale: f64,
    /// Exponent of the availability index, 1..=30: the index reaches 0 at an expansion factor of 2^range.
    pub range: f64,
    /// BUSY at or below this availability index; 0 = off, 100 = always.
    pub threshold_percent: f64,
    /// How far above the threshold the index must rise to leave BUSY, points.
    pub exit_margin_percent: f64,
    /// Limit of users of each host.
    pub max_users: UserLimit,
    /// How baselines are estimated.
    pub baseline: Baseline,
    /// Floor under every baseline, microseconds, > 0.
    pub min_possible_us: f64,
    /// Longer calls count as failed, microseconds.
    pub max_possible_us: f64,
    /// Whether CPU and memory are predicted.
    pub predict: bool,
    /// Which sessions bring a user back.
    pub affinity: Affinity,
    /// Whether hosts that are not measured may be chosen when nobody better is left.
    pub allow_unknown: bool,
    /// How long a place is kept for a login that does not come.
    pub reservation_ttl: Duration,
    /// How login names are compared.
    pub user_match: UserMatch,
    /// Accounts that count one user per session and have no affinity, as written.
    pub shared_accounts: Vec<String>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            method: Method::default(),
            weights: Weights::default(),
            users_full_scale: 0.0,
            range: 6.0,
            threshold_percent: 0.0,
            exit_margin_percent: 5.0,
            max_users: UserLimit::default(),
            baseline: Baseline::default(),
            // One microsecond: below what any timer of a transaction resolves.
            min_possible_us: 1.0,
            max_possible_us: 20_000_000.0,
            predict: false,
            affinity: Affinity::default(),
            allow_unknown: false,
            reservation_ttl: Duration::from_secs(120),
            user_match: UserMatch::default(),
            shared_accounts: Vec::new(),
        }
    }
}

impl Policy {
    /// Whether this user is one of the shared accounts.
    pub fn is_shared_account(&self, user: &UserKey) -> bool {
        self.shared_accounts.iter().any(|name| self.user_match.key(name).as_ref() == Some(user))
    }
}
