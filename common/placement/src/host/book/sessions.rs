//! Which places do the sessions on the host end?
//!
//! A session is new once: it ends one place, or, if it was quicker than the message about its place, waits for it.

use std::collections::BTreeMap;

use usher_types::{BootTime, EndReason, Session, SessionCounts, SessionState, Token, UserKey};

use super::{EARLY_SESSION, Held, HostBook, Occupancy};

/// A session that has ended no place yet, but began recently enough to end one that is still to be told: a coordinator that
/// had no stream to here tells its places as late as it gets one.
#[derive(Clone, Debug)]
pub(super) struct EarlySession {
    id: String,
    user: UserKey,
    began: BootTime,
}

impl HostBook {
    /// Takes over who is on the host now, and ends the places whose sessions came. Whether users or places changed.
    pub fn observe(&mut self, occupancy: Occupancy, now: BootTime) -> bool {
        let before = (self.users, self.sessions, self.places.len());
        self.observed = now;
        match occupancy {
            Occupancy::Unknown => self.forget_users(None),
            Occupancy::Counted(users) => self.forget_users(Some(users)),
            Occupancy::Listed(sessions) => self.observe_sessions(&sessions, now),
            Occupancy::ListedBeside(sessions, beside) => {
                self.observe_sessions(&sessions, now);
                let users = i64::from(self.users.unwrap_or_default()).saturating_add(beside);
                self.users = Some(u32::try_from(users.max(0)).unwrap_or(u32::MAX));
            }
        }
        self.expire(now);
        before != (self.users, self.sessions, self.places.len())
    }

    fn forget_users(&mut self, users: Option<u32>) {
        self.users = users;
        self.named_users.clear();
        self.sessions = None;
    }

    fn observe_sessions(&mut self, sessions: &[Session], now: BootTime) {
        let mut counts = SessionCounts::default();
        let mut shared_sessions = 0u32;
        self.named_users.clear();
        for session in sessions {
            let count = match session.state {
                SessionState::Active => &mut counts.active,
                SessionState::Disconnected => &mut counts.disconnected,
                SessionState::Lingering => &mut counts.lingering,
            };
            *count = count.saturating_add(1);
            if session.state == SessionState::Lingering {
                continue;
            }
            if let Some(user) = self.naming.key(&session.user) {
                if self.shared_accounts.contains(&user) {
                    shared_sessions = shared_sessions.saturating_add(1);
                }
                self.named_users.insert(user);
            }
        }
        let distinct = self.named_users.difference(&self.shared_accounts).count();
        self.users = Some(u32::try_from(distinct).unwrap_or(u32::MAX).saturating_add(shared_sessions));
        self.sessions = Some(counts);
        self.match_new_sessions(sessions, now);
    }

    /// New sessions end places, the oldest session first.
    fn match_new_sessions(&mut self, sessions: &[Session], now: BootTime) {
        let before = self.known.take();
        self.early.retain(|early| now.since(early.began) <= EARLY_SESSION + self.time_to_live);
        let mut known = BTreeMap::new();
        let mut fresh: Vec<(BootTime, String, UserKey)> = Vec::new();
        for session in sessions {
            let seen =
                before.as_ref().and_then(|known| known.get(&session.id)).or(self.carried.get(&session.id));
            let began = seen.copied().unwrap_or_else(|| now.before(session.age.unwrap_or_default()));
            known.insert(session.id.clone(), began);
            // Without an age, a session of the very first list may be days old.
            let is_new = seen.is_none() && (session.age.is_some() || before.is_some());
            if is_new
                && session.state != SessionState::Lingering
                && let Some(user) = self.naming.key(&session.user)
            {
                fresh.push((began, session.id.clone(), user));
            }
        }
        self.known = Some(known);
        self.carried.clear();
        fresh.sort();
        for (began, id, user) in fresh {
            match self.place_of(&user, began) {
                Some(token) => {
                    self.finish(&token, EndReason::Session, Some((id, began)), now);
                }
                None if now.since(began) <= EARLY_SESSION + self.time_to_live => {
                    self.early.push(EarlySession { id, user, began })
                }
                None => {}
            }
        }
    }

    /// Sessions that a later run of the agent must not take for new: each has ended its place, or come too early for
    /// any, and would end a second one. Those that still wait for their place are not among them.
    pub(super) fn sessions_to_carry(&self) -> Vec<(String, u64)> {
        let oldest_place = self.places.values().map(Held::given).min();
        // One that is still to be told may have been given a whole time to live ago.
        let oldest_to_come = self.observed.before(self.time_to_live);
        let since =
            oldest_place.map_or(oldest_to_come, |oldest| oldest.min(oldest_to_come)).before(EARLY_SESSION);
        let waits = |id: &String| self.early.iter().any(|early| early.id == *id);
        // Before the first list what an earlier run knew is all that is known.
        self.known
            .as_ref()
            .unwrap_or(&self.carried)
            .iter()
            .filter(|(id, began)| **began >= since && !waits(id))
            .map(|(id, began)| (id.clone(), began.as_micros()))
            .collect()
    }

    /// The place that a session of `user` ends: the user's oldest, else the oldest without a name; none that was given
    /// more than 10 s after the session began.
    fn place_of(&self, user: &UserKey, began: BootTime) -> Option<Token> {
        let oldest = |of_user: bool| {
            self.places
                .values()
                .filter(|held| match held.user.as_deref() {
                    Some(name) => of_user && self.naming.key(name).as_ref() == Some(user),
                    None => !of_user,
                })
                .filter(|held| held.given().before(EARLY_SESSION) <= began)
                .min_by_key(|held| held.given())
                .map(|held| held.token.clone())
        };
        oldest(true).or_else(|| oldest(false))
    }

    /// The session was quicker than the message about its place. Only for a named user: an unnamed place must not be
    /// ended by a login that was there before it.
    pub(super) fn end_by_early_session(&mut self, token: &Token, now: BootTime) {
        let Some(held) = self.places.get(token) else { return };
        let Some(user) = held.user.as_deref().and_then(|user| self.naming.key(user)) else { return };
        let began_after = held.given().before(EARLY_SESSION);
        let early = self.early.iter().position(|early| early.user == user && early.began >= began_after);
        if let Some(position) = early {
            let EarlySession { id, began, .. } = self.early.swap_remove(position);
            self.finish(token, EndReason::Session, Some((id, began)), now);
        }
    }
}
