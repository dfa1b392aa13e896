//! The states of a host, best first, and the drains that restrict one.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The state of a host. One function of the placement crate computes it; everything else calls that.
///
/// Ordered by who is chosen first.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum HostState {
    /// Takes sessions.
    Available,
    /// Served only if nobody better is left.
    Busy,
    /// Connected but not measured, or not heard since the coordinator started.
    Unknown,
    /// At its limit of users: no new sessions.
    #[serde(rename = "MAXUSERS")]
    MaxUsers,
    /// Drained: no new sessions.
    Restricted,
    /// The host says that it cannot take sessions.
    NotReady,
    /// Gone, or silent for too long.
    Offline,
}

impl HostState {
    /// As everyone writes it: `AVAILABLE`, `MAXUSERS`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "AVAILABLE",
            Self::Busy => "BUSY",
            Self::Unknown => "UNKNOWN",
            Self::MaxUsers => "MAXUSERS",
            Self::Restricted => "RESTRICTED",
            Self::NotReady => "NOT_READY",
            Self::Offline => "OFFLINE",
        }
    }

    /// Whether its numbers take part in the maxima and medians of the pool.
    pub const fn is_eligible(self) -> bool {
        matches!(self, Self::Available | Self::Busy)
    }
}

impl fmt::Display for HostState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How long a drain lasts.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrainMode {
    /// Until the host has booted again.
    #[default]
    UntilRestart,
    /// Until somebody undrains the host.
    Persistent,
}

/// No new sessions on a host, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Drain {
    /// How long it lasts.
    pub mode: DrainMode,
    /// For people; may be empty.
    pub reason: String,
    /// Who drained it; may be empty.
    pub author: String,
    /// Reconnects are refused too.
    pub no_reconnect: bool,
}
