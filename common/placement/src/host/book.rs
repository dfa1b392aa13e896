//! Which places does this host owe, and does it admit one more?
//!
//! The host is where equal coordinators meet: each of them gives places, and only the host sees all. So the host keeps
//! the book, counts the time to live of each place, ends places by evidence, and, where its number of users is limited,
//! decides one after the other whether one more fits. That makes the limit hard with any number of coordinators and no
//! lock between them.
//!
//! A place ends when
//! * the session of its user is seen: one that began up to 10 s before the place was given counts, because a login may be
//!   quicker than the message about it, and that may come late. One new session ends one place: its user's oldest, else
//!   the oldest without a name. A session of another user ends nothing;
//! * the gateway cancels it or reports a failure;
//! * its time to live has passed.
//!
//! A login that is reported connected still counts until its session is seen.

mod held;
mod sessions;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use usher_types::{
    BootTime, EndReason, EndedPlace, PendingPlace, Policy, RefusalReason, Session, SessionCounts, Token,
    UserKey,
};

pub use held::BookRecord;
pub(super) use held::Finished;
use held::{Ended, Held};
use sessions::EarlySession;

use super::{naming::Naming, reach::HeldBack};

/// How long before its place was given a session may have begun.
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
    /// Sessions, and so many users beside theirs whose sessions the source does not name. Negative: so many of the
    /// named ones are no users.
    ListedBeside(Vec<Session>, i64),
}

impl Occupancy {
    /// The sessions. Absent: they are not known one by one.
    pub fn sessions(&self) -> Option<&[Session]> {
        match self {
            Self::Listed(sessions) | Self::ListedBeside(sessions, _) => Some(sessions),
            Self::Counted(_) | Self::Unknown => None,
        }
    }
}

/// The book of one host.
#[derive(Clone, Debug)]
pub struct HostBook {
    naming: Naming,
    shared_accounts: BTreeSet<UserKey>,
    /// That of a new place: what is missing from it is a place's age.
    time_to_live: Duration,
    places: BTreeMap<Token, Held>,
    ended: VecDeque<Ended>,
    /// How many have ended in this run.
    ends: u64,
    /// Sessions of the last list, and when each began.
    known: Option<BTreeMap<String, BootTime>>,
    /// Sessions that an earlier run of the agent knew.
    carried: BTreeMap<String, BootTime>,
    /// When somebody last looked who is on the host.
    observed: BootTime,
    early: Vec<EarlySession>,
    users: Option<u32>,
    named_users: BTreeSet<UserKey>,
    sessions: Option<SessionCounts>,
    /// Ends that nobody has judged yet.
    finished: Vec<Finished>,
}

/// What a place that is asked for must keep within. Absent: unlimited.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Users, places counted.
    pub max_users: Option<u32>,
    /// Logons in progress, this one counted.
    pub max_pending: Option<u32>,
}

impl Limits {
    /// The tighter of both, in each.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let tighter = |a: Option<u32>, b: Option<u32>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self {
            max_users: tighter(self.max_users, other.max_users),
            max_pending: tighter(self.max_pending, other.max_pending),
        }
    }
}

impl HostBook {
    /// An empty book of a host whose users are not known yet.
    pub fn new() -> Self {
        Self {
            naming: Naming::default(),
            shared_accounts: BTreeSet::new(),
            time_to_live: Policy::default().reservation_ttl,
            places: BTreeMap::new(),
            ended: VecDeque::new(),
            ends: 0,
            known: None,
            carried: BTreeMap::new(),
            observed: BootTime::ZERO,
            early: Vec::new(),
            users: None,
            named_users: BTreeSet::new(),
            sessions: None,
            finished: Vec::new(),
        }
    }

    /// The book that an earlier run of the agent kept, in the same boot of the host.
    pub fn restored(record: BookRecord) -> Self {
        let BookRecord { places, ended, sessions } = record;
        let mut book = Self::new();
        book.ended = ended.into();
        book.places = places.into_iter().take(MAX_PLACES).map(|held| (held.token.clone(), held)).collect();
        book.carried = sessions.into_iter().map(|(id, began)| (id, BootTime::from_micros(began))).collect();
        book
    }

    /// What must be kept over a restart.
    pub fn record(&self) -> BookRecord {
        BookRecord {
            places: self.places.values().cloned().collect(),
            ended: self.ended.iter().cloned().collect(),
            sessions: self.sessions_to_carry(),
        }
    }

    /// Takes over how the pool compares users.
    pub fn set_users_rule(&mut self, naming: Naming, shared_accounts: &[String]) {
        self.shared_accounts = shared_accounts.iter().filter_map(|name| naming.key(name)).collect();
        self.naming = naming;
    }

    /// Takes over for how long the pool's places live.
    pub(super) fn set_time_to_live(&mut self, time_to_live: Duration) {
        self.time_to_live = time_to_live;
    }

    /// How names are compared and sent.
    pub(super) fn naming(&self) -> &Naming {
        &self.naming
    }

    /// The places that ended since the last call, for whoever judges the host by them.
    pub(super) fn take_finished(&mut self) -> Vec<Finished> {
        std::mem::take(&mut self.finished)
    }

    /// A coordinator gives a place (`ask` false), or asks for one within `limits`, of which `held_back` is kept for others.
    ///
    /// The same token under the same or a lower attempt as one that is held changes nothing; a higher attempt takes
    /// its place. `host_ready` is whether the host takes sessions at all.
    ///
    /// A token names one request. Asked for with other content it is refused; told with other content it was given by a
    /// coordinator that could not know better, and of the two the higher attempt stays, as everywhere.
    ///
    /// # Errors
    /// Why a place that was asked for is not given. A place that is only told is refused only if it had ended before,
    /// if another request holds its token, or if the book is full.
    pub fn expect(
        &mut self,
        place: &PendingPlace,
        ask: bool,
        limits: Limits,
        held_back: HeldBack,
        host_ready: bool,
        now: BootTime,
    ) -> Result<(), RefusalReason> {
        self.expire(now);
        if let Some(held) = self.places.get_mut(&place.token) {
            if held.content_hash == place.content_hash {
                held.attempt = held.attempt.max(place.attempt);
                held.admitted |= ask;
                held.connected |= place.connected;
                return Ok(());
            }
            if ask || held.attempt >= place.attempt {
                return Err(RefusalReason::Reused);
            }
            self.finish(&place.token, EndReason::Superseded, None, now);
        }
        let ended_before = self
            .ended
            .iter()
            .rev()
            .find(|ended| ended.token == place.token && ended.attempt >= place.attempt);
        if let Some(ended) = ended_before {
            let same = ended.content_hash == place.content_hash;
            return Err(if same || !ask { RefusalReason::Ended } else { RefusalReason::Reused });
        }
        if self.places.len() >= MAX_PLACES {
            return Err(RefusalReason::ListFull);
        }
        if ask {
            if !host_ready {
                return Err(RefusalReason::NotReady);
            }
            if limits.max_users.is_some_and(|limit| !self.fits(place, limit, held_back.users)) {
                return Err(RefusalReason::MaxUsers);
            }
            let places = self.len().saturating_add(held_back.places);
            if limits.max_pending.is_some_and(|limit| places >= limit) {
                return Err(RefusalReason::MaxPending);
            }
        }
        self.places.insert(place.token.clone(), Held::new(place, ask, self.time_to_live, now));
        self.end_by_early_session(&place.token, now);
        Ok(())
    }

    /// Users and places, what is held back and this one, within the limit? Users that are not known never fit a limit. A
    /// login that adds nobody takes nothing of what is held back.
    fn fits(&self, place: &PendingPlace, limit: u32, held_back: u32) -> bool {
        let adds = self.counted_users(place.user.as_deref(), place.cost);
        let held_back = if adds == 0 { 0 } else { held_back };
        self.users.is_some_and(|users| {
            let taken = u64::from(users) + u64::from(self.pending_users()) + u64::from(held_back);
            taken + u64::from(adds) <= u64::from(limit)
        })
    }

    /// What a login adds to the users: nothing if its user is here already.
    fn counted_users(&self, user: Option<&str>, cost: u32) -> u32 {
        let here = user
            .and_then(|user| self.naming.key(user))
            .is_some_and(|user| self.named_users.contains(&user) && !self.shared_accounts.contains(&user));
        if here { 0 } else { cost }
    }

    /// Ends a place given under `attempt` or a lower one. Whether anything changed.
    pub fn end(&mut self, token: &Token, attempt: u32, reason: EndReason, now: BootTime) -> bool {
        let Some(held) = self.places.get(token) else { return false };
        if held.attempt > attempt {
            return false;
        }
        self.finish(token, reason, None, now)
    }

    /// `session`: the one that came of it, and when it began.
    fn finish(
        &mut self,
        token: &Token,
        reason: EndReason,
        session: Option<(String, BootTime)>,
        now: BootTime,
    ) -> bool {
        let Some(held) = self.places.remove(token) else { return false };
        let mut finished = Finished::new(&held, reason, session);
        // The word of the place may have come long after its user, from a coordinator that had no stream to here.
        finished.connected |=
            reason == EndReason::Expired && self.counted_users(held.user.as_deref(), held.cost) == 0;
        self.finished.push(finished);
        self.ended.push_back(Ended::new(held, reason, now));
        self.ends += 1;
        if self.ended.len() > MAX_PLACES {
            self.ended.pop_front();
        }
        true
    }

    /// The gateway says that the login reached the host. Whether anything changed.
    pub fn connected(&mut self, token: &Token) -> bool {
        self.places.get_mut(token).is_some_and(|held| !std::mem::replace(&mut held.connected, true))
    }

    /// Ends the places whose time to live has passed, and forgets what ended long ago. Whether places ended.
    pub fn expire(&mut self, now: BootTime) -> bool {
        let due = |held: &&Held| held.ends_us <= now.as_micros();
        let tokens: Vec<Token> = self.places.values().filter(due).map(|held| held.token.clone()).collect();
        for token in &tokens {
            self.finish(token, EndReason::Expired, None, now);
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

    /// When each session began, as far as that is known. Absent: they are not known one by one.
    pub(super) fn begun(&self) -> Option<impl Iterator<Item = BootTime>> {
        self.known.as_ref().filter(|_| self.sessions.is_some()).map(|known| known.values().copied())
    }

    /// Distinct users on the host. Absent: not known.
    pub fn users(&self) -> Option<u32> {
        self.users
    }

    /// Sessions by state. Absent: not known.
    pub fn sessions(&self) -> Option<SessionCounts> {
        self.sessions
    }

    /// Logons on their way: the live places.
    pub fn len(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// Whether no logon is on its way.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Users that the live places add.
    pub fn pending_users(&self) -> u32 {
        let adds = |held: &Held| self.counted_users(held.user.as_deref(), held.cost);
        self.places.values().map(adds).fold(0, u32::saturating_add)
    }

    /// Live places, for a report measured at `now`. Names are in the form in which they travel.
    pub fn pending(&self, now: BootTime) -> Vec<PendingPlace> {
        let report = |held: &Held| {
            let user = held.user.as_deref();
            let counted_users = self.counted_users(user, held.cost);
            held.report(user.and_then(|user| self.naming.sent(user)), counted_users, now)
        };
        self.places.values().map(report).collect()
    }

    /// How many places have ended in this run.
    pub(super) fn ends(&self) -> u64 {
        self.ends
    }

    /// Why a place ended, by the last time that it did.
    pub(super) fn end_of(&self, token: &Token) -> Option<EndReason> {
        self.ended.iter().rev().find(|ended| ended.token == *token).map(|ended| ended.reason)
    }

    /// Places that ended in the last 60 s, for a report measured at `now`.
    pub fn ended(&self, now: BootTime) -> Vec<EndedPlace> {
        self.ended.iter().map(|ended| ended.report(now)).collect()
    }
}

impl Default for HostBook {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
