//! Who is on a host of a scenario?
//!
//! A session is the same one for as long as it is listed, so that it ends one place and no second one. A list that names
//! a user twice names two sessions; which of them goes is told by their order.

use std::collections::{BTreeMap, HashMap};

use usher_types::{BootTime, Session, SessionState};

use crate::{
    host::Occupancy,
    scenario::syntax::{SessionChange, SessionEntry},
};

#[derive(Clone, Debug)]
struct Known {
    id: String,
    user: String,
    state: SessionState,
    /// Absent: it was there before anybody looked, and nobody said how old it is.
    began: Option<BootTime>,
}

/// How many users a report gave.
#[derive(Copy, Clone, Debug)]
pub(in crate::scenario) enum Users {
    /// So many; no session was ever listed.
    Counted(u32),
    /// So many beside those of the listed sessions.
    Beside(i64),
}

/// The sessions of one host.
#[derive(Debug, Default)]
pub(in crate::scenario) struct Sessions {
    known: Vec<Known>,
    /// Sessions of each user so far, for their ids.
    numbers: HashMap<String, u64>,
    /// They were ever listed.
    pub are_listed: bool,
    /// As reported. Absent: those of the sessions.
    pub users: Option<Users>,
}

impl Sessions {
    /// Takes over a whole list. A session that was not there before has come now, unless it is the first list and no
    /// login is on its way (`are_old`): then it may have been there for days.
    pub(in crate::scenario) fn replace(&mut self, entries: &[SessionEntry], are_old: bool, now: BootTime) {
        let are_old = are_old && !self.are_listed;
        let mut before = BTreeMap::<String, Vec<Known>>::new();
        for known in self.known.drain(..).rev() {
            before.entry(known.user.clone()).or_default().push(known);
        }
        self.are_listed = true;
        for entry in entries {
            let known = before.get_mut(&entry.user).and_then(Vec::pop);
            let began = match (entry.age, &known) {
                (Some(age), _) => Some(now.before(age)),
                (None, Some(known)) => known.began,
                (None, None) => (!are_old).then_some(now),
            };
            // One that began at another time is another one.
            let known = known.filter(|known| known.began.is_none() || known.began == began);
            let id = known.map_or_else(|| self.new_id(&entry.user), |known| known.id);
            self.known.push(Known { id, user: entry.user.clone(), state: entry.state, began });
        }
    }

    /// One comes or goes. Whether it could.
    pub(in crate::scenario) fn change(&mut self, change: &SessionChange, now: BootTime) -> bool {
        self.are_listed = true;
        if let Some(Users::Counted(users)) = self.users {
            // Whoever was counted has no session with a name yet.
            self.users = Some(Users::Beside(i64::from(users)));
        }
        match change {
            SessionChange::Comes(entry) => {
                let began = Some(now.before(entry.age.unwrap_or_default()));
                let id = self.new_id(&entry.user);
                self.known.push(Known { id, user: entry.user.clone(), state: entry.state, began });
                true
            }
            SessionChange::Goes(user) => {
                let found = self.known.iter().position(|known| known.user == *user);
                found.map(|at| self.known.remove(at)).is_some()
            }
        }
    }

    /// The host went down. It still counts users by its sessions, if it did so before.
    pub(in crate::scenario) fn end_all(&mut self) {
        self.known.clear();
        self.users = None;
    }

    /// The list as it is told at `now`.
    pub(in crate::scenario) fn list(&self, now: BootTime) -> Vec<Session> {
        let session = |known: &Known| Session {
            id: known.id.clone(),
            user: known.user.clone(),
            state: known.state,
            age: known.began.map(|began| now.since(began)),
        };
        self.known.iter().map(session).collect()
    }

    /// What the host knows of its users at `now`.
    pub(in crate::scenario) fn occupancy(&self, now: BootTime) -> Occupancy {
        match self.users {
            Some(Users::Counted(users)) => Occupancy::Counted(users),
            Some(Users::Beside(beside)) => Occupancy::ListedBeside(self.list(now), beside),
            None if self.are_listed => Occupancy::Listed(self.list(now)),
            None => Occupancy::Unknown,
        }
    }

    fn new_id(&mut self, user: &str) -> String {
        let number = self.numbers.entry(user.to_owned()).or_default();
        *number += 1;
        format!("{user}-{number}")
    }
}
