//! One login of one user on a host.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a session is doing. Each kind uses memory.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// Somebody works in it.
    Active,
    /// It runs, nobody is connected to it.
    Disconnected,
    /// Logged out, but its processes live on.
    Lingering,
}

/// A session as its host lists it.
#[derive(Clone, PartialEq, Debug)]
pub struct Session {
    /// As the host's session source names it.
    pub id: String,
    /// Login name as the host spells it; not empty.
    pub user: String,
    /// What it is doing.
    pub state: SessionState,
    /// Age when the list was made. Absent if the source does not say.
    pub age: Option<Duration>,
}

/// Sessions by state.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionCounts {
    /// Sessions in which somebody works.
    pub active: u32,
    /// Sessions that nobody is connected to.
    pub disconnected: u32,
    /// Logged out, processes live on.
    pub lingering: u32,
}
