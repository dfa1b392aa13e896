//! Which places does this host owe, and does it admit one more?
//!
//! The host is where equal coordinators meet: each of them gives places, and only the host sees all. So the host keeps
//! the book, counts the time to live of each place, ends places by evidence, and, where its number of users is limited,
//! decides one after the other whether one more fits. That makes the limit hard with any number of coordinators and no
//! lock between them.
//!
//! A place ends when
//! * the session of its user is seen: one that began up to 10 s before the place came counts, because a login may be
//!   quicker than the message about it. One new session ends one place: its user's oldest, else the oldest without a
//!   name. A session of another user ends nothing;
//! * the gateway cancels it or reports a failure;
//! * its time to live has passed.
//!
//! A login that is reported connected still counts until its session is seen.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use usher_types::{
    BootTime, EndReason, EndedPlace, Endpoint, PendingPlace, PoolName, RefusalReason, Session, SessionCounts,
    SessionState, Token, UserKey, UserMatch,
};

/// How long before its place a session may have begun.
const EARLY_SESSION: Duration = Duration::from_secs(10);
/// How long ended places are reported.
const REPORT_ENDED: Duration = Duration::from_secs(60);
/// Most places kept: far above the logins that any host starts within a time to live, a bound on memory, and as many as a
/// coordinator can count on one host.
const MAX_PLACES: usize = 4095;

/// Who is on the host, as far as its session source knows.
#[derive(Clone, PartialEq, Debug)]
pub enum Occupancy {
    /// The source gave nothing: unknown, which is not zero.
    Unknown,
    /// So many distinct users, without names.
    Counted(u32),
    /// Every session.
    Listed(Vec<Session>),
}

/// A place in the book.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Held {
    token: Token,
    attempt: u32,
    content_hash: u64,
    pool: PoolName,
    endpoint: Endpoint,
    user: Option<String>,
    cost: u32,
    connected: bool,
    admitted: bool,
    came_us: u64,
    ends_us: u64,
}

/// A place that ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Ended {
    token: Token,
    attempt: u32,
    content_hash: u64,
    pool: PoolName,
    endpoint: Endpoint,
    reason: EndReason,
    at_us: u64,
}

/// The book as it is kept over a restart of the agent. Its times are of one boot and mean nothing after another.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BookRecord {
    places: Vec<Held>,
    ended: Vec<Ended>,
}

impl BookRecord {
    /// Places in it.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether it holds no live place.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

/// A session that has ended no place yet, but began recently enough to end one that is still to come.
#[derive(Clone, Debug)]
struct EarlySession {
    user: UserKey,
    began: BootTime,
}

/// The book of one host.
#[derive(Clone, Debug)]
pub struct HostBook {
    user_match: UserMatch,
    shared_accounts: BTreeSet<UserKey>,
    places: BTreeMap<Token, Held>,
    ended: VecDeque<Ended>,
    known_sessions: Option<BTreeSet<String>>,
    early: Vec<EarlySession>,
    users: Option<u32>,
    named_users: BTreeSet<UserKey>,
    sessions: Option<SessionCounts>,
}

impl HostBook {
    /// An empty book of a host whose users are not known yet.
    pub fn new() -> Self {
        Self {
            user_match: UserMatch::default(),
            shared_accounts: BTreeSet::new(),
            places: BTreeMap::new(),
            ended: VecDeque::new(),
            known_sessions: None,
            early: Vec::new(),
            users: None,
            named_users: BTreeSet::new(),
            sessions: None,
        }
    }

    /// The book that an earlier run of the agent kept, in the same boot of the host.
    pub fn restored(record: BookRecord) -> Self {
        let mut book = Self::new();
        book.ended = record.ended.into();
        book.places =
            record.places.into_iter().take(MAX_PLACES).map(|held| (held.token.clone(), held)).collect();
        book
    }

    /// What must be kept over a restart.
    pub fn record(&self) -> BookRecord {
        BookRecord {
            places: self.places.values().cloned().collect(),
            ended: self.ended.iter().cloned().collect(),
        }
    }

    /// Takes over how the pool compares users.
    pub fn set_users_rule(&mut self, user_match: UserMatch, shared_accounts: &[String]) {
        self.user_match = user_match;
        self.shared_accounts = shared_accounts.iter().filter_map(|name| user_match.key(name)).collect();
    }

    /// A coordinator gives a place (`ask` false), or asks for one under `limit` users (absent: unlimited).
    ///
    /// The same token under the same or a lower attempt as one that is held changes nothing; a higher attempt takes
    /// its place. `host_ready` is whether the host takes sessions at all.
    ///
    /// # Errors
    /// Why a place that was asked for is not given. A place that is only told is refused only if it had ended before
    /// or the book is full.
    pub fn expect(
        &mut self,
        place: &PendingPlace,
        ask: bool,
        limit: Option<u32>,
        host_ready: bool,
        now: BootTime,
    ) -> Result<(), RefusalReason> {
        self.expire(now);
        if let Some(held) = self.places.get_mut(&place.token) {
            held.attempt = held.attempt.max(place.attempt);
            held.admitted |= ask;
            held.connected |= place.connected;
            return Ok(());
        }
        let ended_before =
            self.ended.iter().any(|ended| ended.token == place.token && ended.attempt >= place.attempt);
        if ended_before {
            return Err(RefusalReason::Ended);
        }
        if self.places.len() >= MAX_PLACES {
            return Err(RefusalReason::ListFull);
        }
        if ask {
            if !host_ready {
                return Err(RefusalReason::NotReady);
            }
            let fits = limit.is_none_or(|limit| self.fits(place, limit));
            if !fits {
                return Err(RefusalReason::MaxUsers);
            }
        }
        let held = Held {
            token: place.token.clone(),
            attempt: place.attempt,
            content_hash: place.content_hash,
            pool: place.pool.clone(),
            endpoint: place.endpoint.clone(),
            user: place.user.clone(),
            cost: place.cost,
            connected: place.connected,
            admitted: ask || place.admitted,
            came_us: now.as_micros(),
            ends_us: (now + place.left).as_micros(),
        };
        self.places.insert(place.token.clone(), held);
        self.end_by_early_session(&place.token, now);
        Ok(())
    }

    /// Users and places and this one, within the limit? Users that are not known never fit a limit.
    fn fits(&self, place: &PendingPlace, limit: u32) -> bool {
        let adds = self.counted_users(place.user.as_deref(), place.cost);
        self.users.is_some_and(|users| {
            u64::from(users) + u64::from(self.pending_users()) + u64::from(adds) <= u64::from(limit)
        })
    }

    /// What a login adds to the users: nothing if its user is here already.
    fn counted_users(&self, user: Option<&str>, cost: u32) -> u32 {
        let here = user
            .and_then(|user| self.user_match.key(user))
            .is_some_and(|user| self.named_users.contains(&user) && !self.shared_accounts.contains(&user));
        if here { 0 } else { cost }
    }

    /// Ends a place given under `attempt` or a lower one. Whether anything changed.
    pub fn end(&mut self, token: &Token, attempt: u32, reason: EndReason, now: BootTime) -> bool {
        let Some(held) = self.places.get(token) else { return false };
        if held.attempt > attempt {
            return false;
        }
        self.finish(token, reason, now)
    }

    fn finish(&mut self, token: &Token, reason: EndReason, now: BootTime) -> bool {
        let Some(held) = self.places.remove(token) else { return false };
        self.ended.push_back(Ended {
            token: held.token,
            attempt: held.attempt,
            content_hash: held.content_hash,
            pool: held.pool,
            endpoint: held.endpoint,
            reason,
            at_us: now.as_micros(),
        });
        if self.ended.len() > MAX_PLACES {
            self.ended.pop_front();
        }
        true
    }

    /// The gateway says that the login reached the host. Whether anything changed.
    pub fn connected(&mut self, token: &Token) -> bool {
        self.places.get_mut(token).is_some_and(|held| !std::mem::replace(&mut held.connected, true))
    }

    /// Takes over who is on the host now, and ends the places whose sessions came. Whether users or places changed.
    pub fn observe(&mut self, occupancy: Occupancy, now: BootTime) -> bool {
        let before = (self.users, self.sessions, self.places.len());
        match occupancy {
            Occupancy::Unknown => self.forget_users(None),
            Occupancy::Counted(users) => self.forget_users(Some(users)),
            Occupancy::Listed(sessions) => self.observe_sessions(&sessions, now),
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
            if let Some(user) = self.user_match.key(&session.user) {
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
        let ids = sessions.iter().map(|session| session.id.clone()).collect();
        let known = self.known_sessions.replace(ids);
        self.early.retain(|early| now.since(early.began) <= EARLY_SESSION);
        let mut fresh: Vec<(BootTime, UserKey)> = sessions
            .iter()
            .filter(|session| session.state != SessionState::Lingering)
            .filter(|session| known.as_ref().is_none_or(|known| !known.contains(&session.id)))
            // Without an age, a session of the very first list may be days old.
            .filter(|session| session.age.is_some() || known.is_some())
            .filter_map(|session| {
                let began = now.before(session.age.unwrap_or_default());
                Some((began, self.user_match.key(&session.user)?))
            })
            .collect();
        fresh.sort();
        for (began, user) in fresh {
            match self.place_of(&user, began) {
                Some(token) => {
                    self.finish(&token, EndReason::Session, now);
                }
                None if now.since(began) <= EARLY_SESSION => self.early.push(EarlySession { user, began }),
                None => {}
            }
        }
    }

    /// The place that a session of `user` ends: the user's oldest, else the oldest without a name; none that came
    /// more than 10 s after the session began.
    fn place_of(&self, user: &UserKey, began: BootTime) -> Option<Token> {
        let oldest = |of_user: bool| {
            self.places
                .values()
                .filter(|held| match held.user.as_deref() {
                    Some(name) => of_user && self.user_match.key(name).as_ref() == Some(user),
                    None => !of_user,
                })
                .filter(|held| BootTime::from_micros(held.came_us).before(EARLY_SESSION) <= began)
                .min_by_key(|held| held.came_us)
                .map(|held| held.token.clone())
        };
        oldest(true).or_else(|| oldest(false))
    }

    /// The session was quicker than the message about its place. Only for a named user: an unnamed place must not be
    /// ended by a login that was there before it.
    fn end_by_early_session(&mut self, token: &Token, now: BootTime) {
        let user =
            self.places.get(token).and_then(|held| held.user.as_deref()).and_then(|u| self.user_match.key(u));
        let Some(user) = user else { return };
        let early =
            self.early.iter().position(|early| early.user == user && now.since(early.began) <= EARLY_SESSION);
        if let Some(position) = early {
            self.early.swap_remove(position);
            self.finish(token, EndReason::Session, now);
        }
    }

    /// Ends the places whose time to live has passed, and forgets what ended long ago. Whether places ended.
    pub fn expire(&mut self, now: BootTime) -> bool {
        let due = |held: &&Held| held.ends_us <= now.as_micros();
        let tokens: Vec<Token> = self.places.values().filter(due).map(|held| held.token.clone()).collect();
        for token in &tokens {
            self.finish(token, EndReason::Expired, now);
        }
        while self.ended.front().is_some_and(|e| now.since(BootTime::from_micros(e.at_us)) > REPORT_ENDED) {
            self.ended.pop_front();
        }
        !tokens.is_empty()
    }

    /// When the next place ends by itself.
    pub fn next_expiry(&self) -> Option<BootTime> {
        self.places.values().map(|held| BootTime::from_micros(held.ends_us)).min()
    }

    /// Distinct users on the host. Absent: not known.
    pub fn users(&self) -> Option<u32> {
        self.users
    }

    /// Sessions by state. Absent: not known.
    pub fn sessions(&self) -> Option<SessionCounts> {
        self.sessions
    }

    /// Users that the live places add.
    pub fn pending_users(&self) -> u32 {
        let adds = |held: &Held| self.counted_users(held.user.as_deref(), held.cost);
        self.places.values().map(adds).fold(0, u32::saturating_add)
    }

    /// Live places, for a report measured at `now`.
    pub fn pending(&self, now: BootTime) -> Vec<PendingPlace> {
        let report = |held: &Held| PendingPlace {
            token: held.token.clone(),
            attempt: held.attempt,
            content_hash: held.content_hash,
            pool: held.pool.clone(),
            endpoint: held.endpoint.clone(),
            user: held.user.clone(),
            cost: held.cost,
            counted_users: self.counted_users(held.user.as_deref(), held.cost),
            left: BootTime::from_micros(held.ends_us).since(now),
            connected: held.connected,
            admitted: held.admitted,
        };
        self.places.values().map(report).collect()
    }

    /// Places that ended in the last 60 s, for a report measured at `now`.
    pub fn ended(&self, now: BootTime) -> Vec<EndedPlace> {
        let report = |ended: &Ended| EndedPlace {
            token: ended.token.clone(),
            attempt: ended.attempt,
            reason: ended.reason,
            ended_ago: now.since(BootTime::from_micros(ended.at_us)),
            content_hash: ended.content_hash,
            pool: ended.pool.clone(),
            endpoint: ended.endpoint.clone(),
        };
        self.ended.iter().map(report).collect()
    }
}

impl Default for HostBook {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
