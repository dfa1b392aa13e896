//! Who is logged in, as systemd-logind tells it?
//!
//! logind lists more than logins. Each user gets a session of class `manager` beside the real one, display managers
//! have `greeter` sessions, screen lockers and timers theirs, and a session that the user has left stays in the state
//! `closing` for as long as logind sees any of its processes, which can be for ever. Only the classes of people count
//! (`user`, `user-early`, `user-light`, unless the operator says otherwise), and only while `active` or `online`.
//!
//! A closing session of which processes do live on uses memory like any other, so it is told as `lingering`; its user
//! is not there and does not count. One that is `opening` is a logon in progress, and so may be one that began lately:
//! [`begun`] lists them.
//!
//! Some remote access programs set no terminal, so logind files their people as `background`. They do not count by
//! themselves (a cron job looks the same), but they are warned about, and the operator can name their services.
//!
//! Deciding is apart from asking: [`decide`] is pure; rows come from the bus, or from logind's files.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

use super::logons::{Begun, CpuGroup, LONGEST};
use super::logons_cpu;
use super::session_config::SessionConfig;
use super::sessions::{SessionSeen, SessionState};
use super::source::read_optional_text;

/// Classes of sessions that people sit in.
pub const USER_CLASSES: [&str; 3] = ["user", "user-early", "user-light"];
/// Classes of jobs, and of people whose program set no terminal.
const BACKGROUND_CLASSES: [&str; 2] = ["background", "background-light"];

/// One session as logind describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogindRow {
    /// logind's name of the session.
    pub id: String,
    /// The account's number. Absent: not told.
    pub uid: Option<u32>,
    /// Login name.
    pub user: String,
    /// `user`, `manager`, `background`, `greeter` and so on.
    pub class: String,
    /// `opening`, `online`, `active` or `closing`.
    pub state: String,
    /// The PAM service that made it.
    pub service: String,
    /// The unit that holds its processes, such as `session-16.scope`. Empty: none.
    pub scope: String,
    /// Came over the network.
    pub remote: bool,
    /// When it began, on the monotonic clock. Absent if logind does not say.
    pub since_monotonic: Option<Duration>,
}

/// Which rows are sessions of people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogindDecision {
    /// Those that count, in logind's order.
    pub sessions: Vec<SessionSeen>,
    /// What an operator should look at.
    pub warning: Option<String>,
}

/// Whether sessions of this class can count at all, whatever the operator says.
#[must_use]
pub fn can_count(class: &str) -> bool {
    USER_CLASSES.contains(&class) || BACKGROUND_CLASSES.contains(&class)
}

/// Picks the rows that count as sessions; `now_monotonic` is the monotonic clock at the reading, `living` the ids of
/// closing sessions of which processes live on.
#[must_use]
pub fn decide(
    rows: &[LogindRow],
    config: &SessionConfig,
    now_monotonic: Option<Duration>,
    living: &BTreeSet<String>,
) -> LogindDecision {
    let mut decision = LogindDecision::default();
    let mut background = 0_usize;
    for row in rows.iter().filter(|row| !config.ignores(&row.user, row.uid)) {
        let state = match row.state.as_str() {
            "active" | "online" => Some(SessionState::Active),
            "closing" if living.contains(&row.id) => Some(SessionState::Lingering),
            _ => None,
        };
        if !counts(row, config) {
            let is_warned_about = BACKGROUND_CLASSES.contains(&row.class.as_str()) && row.remote;
            background += usize::from(is_warned_about && state == Some(SessionState::Active));
        } else if let Some(state) = state {
            let age = row.since_monotonic.zip(now_monotonic).and_then(|(since, now)| now.checked_sub(since));
            decision.sessions.push(SessionSeen { id: row.id.clone(), user: row.user.clone(), state, age });
        }
    }
    if background > 0 {
        decision.warning = Some(format!("remote background sessions present: {background}"));
    }
    decision
}

/// The sessions that count, or will when they are set up, and began at most [`LONGEST`] ago. `now` is the monotonic clock
/// at the reading.
#[must_use]
pub fn begun(rows: &[LogindRow], config: &SessionConfig, now: Duration) -> Vec<Begun> {
    // Whoever runs beside a session in its user's group: jobs and other logins, but not the manager that belongs to it.
    // A closing session has run its course.
    let mut of_user = HashMap::<u32, usize>::new();
    for uid in
        rows.iter().filter(|row| can_count(&row.class) && row.state != "closing").filter_map(|row| row.uid)
    {
        *of_user.entry(uid).or_default() += 1;
    }
    let begun = |row: &LogindRow| {
        let is_opening = row.state == "opening";
        let is_there = is_opening || matches!(row.state.as_str(), "active" | "online");
        if !is_there || config.ignores(&row.user, row.uid) || !counts(row, config) {
            return None;
        }
        let began = row.since_monotonic.or(is_opening.then_some(now))?;
        (now.saturating_sub(began) <= LONGEST).then(|| Begun {
            id: row.id.clone(),
            uid: row.uid,
            scope: row.scope.clone(),
            began,
            is_opening,
            is_alone: row.uid.and_then(|uid| of_user.get(&uid)) == Some(&1),
        })
    };
    rows.iter().filter_map(begun).collect()
}

fn counts(row: &LogindRow, config: &SessionConfig) -> bool {
    let (class, service) = (row.class.as_str(), &row.service);
    config.counts_class(class)
        || (BACKGROUND_CLASSES.contains(&class) && config.session_services_extra.contains(service))
}

/// The ids of closing sessions of which processes live on, as the control groups below `root` tell. Blocks.
#[must_use]
pub fn living(root: &Path, rows: &[LogindRow], config: &SessionConfig) -> BTreeSet<String> {
    let closing = rows.iter().filter(|row| row.state == "closing" && counts(row, config));
    closing.filter(|row| has_processes(root, row)).map(|row| row.id.clone()).collect()
}

fn has_processes(root: &Path, row: &LogindRow) -> bool {
    let group = row.uid.and_then(|uid| logons_cpu::folder(&CpuGroup::Session(uid, row.scope.clone())));
    let Some(folder) = group else { return false };
    // Version 2, the part of it beside version 1, version 1.
    let mounts = ["sys/fs/cgroup", "sys/fs/cgroup/unified", "sys/fs/cgroup/systemd"];
    let text = |mount: &str, file: &str| {
        // A group that has gone while it is looked at has no processes.
        read_optional_text(root, &format!("{mount}/{folder}/{file}")).ok().flatten()
    };
    mounts.iter().any(|mount| match text(mount, "cgroup.events") {
        Some(events) => events.lines().any(|line| line == "populated 1"),
        None => text(mount, "cgroup.procs").is_some_and(|pids| !pids.trim().is_empty()),
    })
}

#[cfg(test)]
#[path = "logind_tests.rs"]
mod tests;
