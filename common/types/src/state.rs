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
    /// It says that it is not warm yet: its replicas are behind, or its warm-up is not done.
    Warming,
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
            Self::Warming => "WARMING",
            Self::Busy => "BUSY",
            Self::Unknown => "UNKNOWN",
            Self::MaxUsers => "MAXUSERS",
            Self::Restricted => "RESTRICTED",
            Self::NotReady => "NOT_READY",
            Self::Offline => "OFFLINE",
        }
    }

    /// Whether its last numbers are of now: it was heard in time.
    pub const fn is_measured(self) -> bool {
        !matches!(self, Self::Unknown | Self::Offline)
    }

    /// Whether its numbers take part in the maxima and medians of the pool.
    pub const fn is_eligible(self) -> bool {
        matches!(self, Self::Available | Self::Warming | Self::Busy)
    }
}

impl fmt::Display for HostState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What makes a host BUSY. Several may hold at once.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default)]
pub struct BusyReasons(u8);

impl BusyReasons {
    /// None.
    pub const NONE: Self = Self(0);
    /// Its availability index is at or below the threshold.
    pub const AVAILABILITY: Self = Self(1);
    /// Its memory is nearly full.
    pub const MEMORY: Self = Self(1 << 1);
    /// Its CPUs were nearly all busy for 30 s.
    pub const CPU: Self = Self(1 << 2);
    /// All work waited for a resource for 30 s.
    pub const PSI: Self = Self(1 << 3);
    /// A chosen mount is nearly full.
    pub const MOUNT: Self = Self(1 << 4);
    /// Too many of its calls fail.
    pub const ERRORS: Self = Self(1 << 5);
    /// Somebody set it so.
    pub const USER_SET: Self = Self(1 << 6);

    const NAMES: [(Self, &'static str); 7] = [
        (Self::AVAILABILITY, "availability"),
        (Self::MEMORY, "memory"),
        (Self::CPU, "cpu"),
        (Self::PSI, "psi"),
        (Self::MOUNT, "mount"),
        (Self::ERRORS, "errors"),
        (Self::USER_SET, "user_set"),
    ];

    /// Whether `reason` is among them.
    pub const fn has(self, reason: Self) -> bool {
        self.0 & reason.0 == reason.0
    }

    /// Whether there is any.
    pub const fn any(self) -> bool {
        self.0 != 0
    }

    /// With `reason` too, if `set`.
    #[must_use]
    pub const fn with(self, reason: Self, set: bool) -> Self {
        if set { Self(self.0 | reason.0) } else { self }
    }

    /// Without `reason`.
    #[must_use]
    pub const fn without(self, reason: Self) -> Self {
        Self(self.0 & !reason.0)
    }

    /// Their names, as everyone writes them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter_map(move |(reason, name)| self.has(reason).then_some(name))
    }

    /// The reason of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(reason, _)| *reason)
    }
}

impl fmt::Debug for BusyReasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
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
