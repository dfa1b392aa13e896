//! Which sessions does a host name to its coordinators?
//!
//! All of them, up to a number of users that no known host has, and up to so many of one user: the list must end
//! somewhere, and one account with thousands of sessions is a service, which nobody is sent back to. Names go in the
//! form in which the pool lets them travel; where they may not travel at all there is nothing to list, and the sessions
//! are only counted.

use std::collections::BTreeMap;

use usher_types::{BootTime, Session};

use super::naming::Naming;

/// Most users whose sessions are listed; the sessions of the others are counted.
pub const MAX_LISTED_USERS: usize = 10_000;
/// Most sessions listed of one user; the others are counted. Twice as many as a person may have to be sent back to one of
/// them, so that whoever hears the list still sees that this is no person.
pub const MAX_LISTED_OF_USER: usize = 16;

/// The sessions of a host, as it tells them.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionList {
    /// Those that are named.
    pub sessions: Vec<Session>,
    /// How many were left out.
    pub unlisted: u32,
    /// When they were seen: their ages are of that moment.
    pub taken_at: BootTime,
}

impl SessionList {
    pub(super) fn of(sessions: &[Session], naming: &Naming, taken_at: BootTime) -> Self {
        let mut users = BTreeMap::<&str, usize>::new();
        let mut listed = Vec::new();
        let named = if naming.lists_sessions() { sessions } else { &[] };
        for session in named {
            let user = session.user.as_str();
            let is_listed = match users.get(user) {
                Some(of_user) => *of_user < MAX_LISTED_OF_USER,
                None => users.len() < MAX_LISTED_USERS,
            };
            if is_listed && let Some(sent) = naming.sent(user) {
                *users.entry(user).or_default() += 1;
                listed.push(Session { user: sent, ..session.clone() });
            }
        }
        let unlisted = u32::try_from(sessions.len() - listed.len()).unwrap_or(u32::MAX);
        Self { sessions: listed, unlisted, taken_at }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use usher_types::{SessionState, UserMatch, UserNames};

    use super::*;
    use crate::host::naming::tests::with_key;

    fn session(id: usize, user: &str) -> Session {
        let age = Some(Duration::from_secs(id as u64));
        Session { id: id.to_string(), user: user.to_owned(), state: SessionState::Active, age }
    }

    fn list(sessions: &[Session], names: UserNames) -> SessionList {
        SessionList::of(sessions, &Naming::new(UserMatch::Folded, names, &with_key()), BootTime::ZERO)
    }

    #[test]
    fn the_list_is_cut_by_users_and_says_what_it_left_out() {
        let mut sessions: Vec<_> = (0..=MAX_LISTED_USERS).map(|n| session(n, &format!("u{n}"))).collect();
        sessions.push(session(99_999, "u0"));
        let list = list(&sessions, UserNames::Plain);
        assert_eq!((list.sessions.len(), list.unlisted), (MAX_LISTED_USERS + 1, 1));
        assert_eq!(list.sessions.last().unwrap().user, "u0");
    }

    #[test]
    fn one_account_with_thousands_of_sessions_is_cut_and_hides_nobody() {
        let mut sessions: Vec<_> = (0..8000).map(|n| session(n, "svc")).collect();
        sessions.push(session(9000, "alice"));
        let list = list(&sessions, UserNames::Plain);
        assert_eq!((list.sessions.len(), list.unlisted), (MAX_LISTED_OF_USER + 1, 8000 - 16));
        assert_eq!(list.sessions.last().unwrap().user, "alice");
    }

    #[test]
    fn names_travel_as_the_pool_says() {
        let sessions = [session(1, "alice")];
        let hashed = list(&sessions, UserNames::Hashed);
        assert!(hashed.sessions[0].user.starts_with("hmac:ab12:"));
        let none = list(&sessions, UserNames::None);
        assert_eq!((none.sessions.len(), none.unlisted), (0, 1));
    }
}
