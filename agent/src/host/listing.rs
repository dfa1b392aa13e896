//! What changes rarely and is long: the sessions and the resources of a host, each as one numbered list.
//!
//! A list is sent whole when it changes and whole to every new stream, so its number need only differ from that of the
//! list before it.

use usher_types::{BootTime, Session};

/// One state of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing<T> {
    /// Its number, from 1.
    pub generation: u64,
    /// When it was made: ages in it are of that moment.
    pub taken_at: BootTime,
    /// What is in it.
    pub items: Vec<T>,
    /// How many were left out to keep it short.
    pub unlisted: u32,
}

impl<T> Listing<T> {
    /// The list that comes after `before`.
    #[must_use]
    pub fn after(before: Option<&Self>, items: Vec<T>, unlisted: u32, taken_at: BootTime) -> Self {
        let generation = before.map_or(1, |before| before.generation.saturating_add(1));
        Self { generation, taken_at, items, unlisted }
    }
}

/// Whether two lists name the same sessions in the same states, whatever their ages.
#[must_use]
pub fn same_sessions(a: &[Session], b: &[Session]) -> bool {
    let same = |(a, b): (&Session, &Session)| (&a.id, &a.user, a.state) == (&b.id, &b.user, b.state);
    a.len() == b.len() && a.iter().zip(b).all(same)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use usher_types::SessionState;

    use super::*;

    fn session(id: usize, user: &str) -> Session {
        let age = Some(Duration::from_secs(id as u64));
        Session { id: id.to_string(), user: user.to_owned(), state: SessionState::Active, age }
    }

    #[test]
    fn growing_older_is_no_change() {
        let older = Session { age: Some(Duration::from_secs(99)), ..session(1, "a") };
        assert!(same_sessions(&[session(1, "a")], &[older]));
        assert!(!same_sessions(&[session(1, "a")], &[session(2, "a")]));
        assert!(!same_sessions(&[session(1, "a")], &[]));
    }
}
