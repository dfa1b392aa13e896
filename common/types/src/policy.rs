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
    Minimum,
    /// A low percentile over qualified hours.
    #[default]
    Robust,
}

/// At which level one resource makes a host BUSY, whatever its load.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum CriticalLevel {
    /// Never.
    Off,
    /// At this percentage and above, > 0, <= 100.
    Percent(f64),
}

impl CriticalLevel {
    /// The percentage, if there is one.
    pub const fn percent(self) -> Option<f64> {
        match self {
            Self::Off => None,
            Self::Percent(percent) => Some(percent),
        }
    }
}

/// How many logons a host may have in progress.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum PendingLimit {
    /// Any number.
    #[default]
    Unlimited,
    /// At most this many, >= 1.
    Logons(u32),
}

impl PendingLimit {
    /// The number, if there is one.
    pub const fn finite(self) -> Option<u32> {
        match self {
            Self::Unlimited => None,
            Self::Logons(logons) => Some(logons),
        }
    }
}

/// What happens when every host that could take a login has as many logons in progress as it may.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PendingMode {
    /// The best one takes it nevertheless.
    #[default]
    Soft,
    /// It is refused; hosts keep the limit themselves.
    Hard,
}

/// What happens when the agents of most of a pool are lost, but perhaps not its hosts.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenBlind {
    /// Hosts whose own door accepts a connection are used after all others.
    #[default]
    Spread,
    /// They are not.
    Refuse,
}

/// What the host's own door speaks: its agent tries it, for a host with a dead door is the emptiest of all.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DoorKind {
    /// The door is not tried.
    #[default]
    None,
    /// An SSH server: it must send its banner.
    Ssh,
    /// An RDP server: it must confirm an X.224 connection.
    Rdp,
    /// An HTTP server: it must answer with a status below 500.
    Http,
    /// Anything that accepts a connection.
    Tcp,
}

/// How login names travel between hosts, gateways and coordinators under TLS.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserNames {
    /// As they are.
    #[default]
    Plain,
    /// As keyed hashes.
    Hashed,
    /// Not at all.
    None,
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
    /// Whether the weighted load adds to CPU and memory what the logins on their way are expected to cost.
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
    /// How login names travel.
    pub user_names: UserNames,
    /// Share of failed calls above which a host is BUSY, percent, 0..=100; it takes 20 calls.
    pub max_error_share_percent: f64,
    /// BUSY at this share of memory in use.
    pub mem_critical: CriticalLevel,
    /// BUSY at this CPU use for 30 s.
    pub cpu_critical: CriticalLevel,
    /// BUSY at this share of time in which all work waited (PSI full) for 30 s.
    pub psi_critical: CriticalLevel,
    /// BUSY at this fullness of a chosen mount.
    pub mount_critical: CriticalLevel,
    /// WARMING while the host says that its replicas are further behind than this.
    pub max_replica_lag: Duration,
    /// Limit of logons in progress of each host.
    pub max_pending: PendingLimit,
    /// What happens when all hosts are at that limit.
    pub max_pending_mode: PendingMode,
    /// What happens when most agents are lost.
    pub when_blind: WhenBlind,
    /// What the hosts' doors speak.
    pub kind: DoorKind,
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
            predict: true,
            affinity: Affinity::default(),
            allow_unknown: false,
            reservation_ttl: Duration::from_secs(120),
            user_match: UserMatch::default(),
            shared_accounts: Vec::new(),
            user_names: UserNames::default(),
            max_error_share_percent: 50.0,
            mem_critical: CriticalLevel::Percent(95.0),
            cpu_critical: CriticalLevel::Percent(95.0),
            psi_critical: CriticalLevel::Percent(50.0),
            mount_critical: CriticalLevel::Percent(98.0),
            max_replica_lag: Duration::from_secs(60),
            max_pending: PendingLimit::default(),
            max_pending_mode: PendingMode::default(),
            when_blind: WhenBlind::default(),
            kind: DoorKind::default(),
        }
    }
}

impl Policy {
    /// Whether decisions use what sessions are expected to cost.
    pub fn predicts(&self) -> bool {
        self.method == Method::Predictive || (self.method == Method::WeightedLoad && self.predict)
    }

    /// Whether this user is one of the shared accounts.
    pub fn is_shared_account(&self, user: &UserKey) -> bool {
        self.shared_accounts.iter().any(|name| self.user_match.key(name).as_ref() == Some(user))
    }
}
