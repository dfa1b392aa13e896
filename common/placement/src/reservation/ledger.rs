//! Every place that this coordinator knows, its own and those that hosts list from others.
//!
//! The ledger answers three questions: is this request a retry, does this user have a place already, and which places
//! does a report confirm or end? It is written by placements (which add), outcomes (which end) and the farm task (which
//! follows the hosts' lists) at the same time, without a lock. A place leaves its host's cell exactly once: whoever
//! moves it from live to ended takes it out.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use usher_types::{
    BootTime, DecisionId, EndReason, Endpoint, HostId, HostState, KeyHasher, PendingPlace, PoolName, Token,
    UserKey, UserMatch,
};

use super::GatewaySuccesses;
use crate::farm::HostCell;

/// How long an ended place is remembered, so that a retry of its request is known.
const REMEMBER: Duration = Duration::from_secs(60);
/// Most places of one host that are remembered, and how many of the ended ones then stay: as many as a host keeps itself.
/// Only a fault comes to these in a minute, and a host must not fill the memory by making up places.
const MOST_ON_HOST: usize = 4 * ENDED_KEPT;
const ENDED_KEPT: usize = 4095;

/// Where a place stands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum GrantState {
    /// The host is being asked; it counts already.
    Asked,
    /// Given.
    Live,
    /// Ended, and why.
    Ended(EndReason),
}

const ASKED: u64 = 0;
const LIVE: u64 = 1;
const STATE_BITS: u64 = 0xff;
const USERS_SHIFT: u32 = 8;

fn code(reason: EndReason) -> u64 {
    match reason {
        EndReason::Session => 2,
        EndReason::Cancelled => 3,
        EndReason::Failed => 4,
        EndReason::Expired => 5,
        EndReason::HostLost => 6,
        EndReason::Superseded => 7,
    }
}

fn state(word: u64) -> GrantState {
    match word & STATE_BITS {
        ASKED => GrantState::Asked,
        LIVE => GrantState::Live,
        2 => GrantState::Ended(EndReason::Session),
        3 => GrantState::Ended(EndReason::Cancelled),
        4 => GrantState::Ended(EndReason::Failed),
        5 => GrantState::Ended(EndReason::Expired),
        6 => GrantState::Ended(EndReason::HostLost),
        _ => GrantState::Ended(EndReason::Superseded),
    }
}

/// What a place is made of, and what never changes about it.
#[derive(Clone, Debug)]
pub struct GrantParts {
    /// Its name.
    pub token: Token,
    /// The attempt under which it was made; retries may raise the one under which it stands.
    pub made_under: u32,
    /// Tells a retry from a reuse of the id.
    pub content_hash: u64,
    /// The pool it was asked in.
    pub pool: PoolName,
    /// The host that owes it.
    pub host_id: HostId,
    /// That host's cell.
    pub cell: Arc<HostCell>,
    /// Where clients reach the host.
    pub endpoints: Arc<[Endpoint]>,
    /// Login name as the gateway spells it.
    pub user: Option<String>,
    /// The same as the pool compares it.
    pub user_key: Option<UserKey>,
    /// As asked, 1..=100.
    pub cost: u32,
    /// What it added to the users of its host at first.
    pub counted_at_first: u32,
    /// When this coordinator gave it, or first heard of it.
    pub since: BootTime,
    /// When its time to live has passed.
    pub ends_at: BootTime,
    /// The decision that gave it. Absent: another coordinator's.
    pub decision_id: Option<DecisionId>,
    /// It was given although its host's agent was not heard: that the host is OFFLINE does not end it.
    pub blind: bool,
    /// It was given while its host had no stream here, and perhaps in a later boot than was known: a boot does not end it.
    pub untold: bool,
}

/// One place.
#[derive(Debug)]
pub struct Grant {
    parts: GrantParts,
    attempt: AtomicU32,
    /// State in the low byte, counted users above: they change together.
    word: AtomicU64,
    hearsay: AtomicBool,
    connected: AtomicBool,
    admitted: AtomicBool,
    ended_at_us: AtomicU64,
}

impl Deref for Grant {
    type Target = GrantParts;

    fn deref(&self) -> &GrantParts {
        &self.parts
    }
}

impl Grant {
    /// A place that is already counted in its host's cell; `asked`: the host has not admitted it yet.
    pub fn new(parts: GrantParts, asked: bool) -> Self {
        let state = if asked { ASKED } else { LIVE };
        Self {
            attempt: AtomicU32::new(parts.made_under),
            word: AtomicU64::new(u64::from(parts.counted_at_first) << USERS_SHIFT | state),
            parts,
            hearsay: AtomicBool::new(false),
            connected: AtomicBool::new(false),
            admitted: AtomicBool::new(false),
            ended_at_us: AtomicU64::new(0),
        }
    }

    /// Where it stands.
    pub fn state(&self) -> GrantState {
        state(self.word.load(Ordering::Acquire))
    }

    /// Whether it counts.
    pub fn counts(&self) -> bool {
        !matches!(self.state(), GrantState::Ended(_))
    }

    /// What it adds to the users of its host.
    pub fn counted_users(&self) -> u32 {
        u32::try_from(self.word.load(Ordering::Acquire) >> USERS_SHIFT).unwrap_or(u32::MAX)
    }

    /// The attempt under which it stands.
    pub fn attempt(&self) -> u32 {
        self.attempt.load(Ordering::Acquire)
    }

    /// Whether an end that its host reports under `attempt` is the end of this place, and not of an earlier one of the
    /// same token. The host may not have heard yet that a retry raised the attempt.
    pub(crate) fn is_ended_by(&self, attempt: u32) -> bool {
        attempt >= self.made_under
    }

    /// Whether a retry of its request is decided anew, its host being in `state`: nobody is sent again to a host that is
    /// gone or takes no sessions.
    pub fn is_void_on(&self, state: HostState) -> bool {
        match state {
            HostState::NotReady => true,
            HostState::Offline => !self.blind,
            _ => false,
        }
    }

    /// The lowest attempt, at least `attempt`, that hosts will not take for an echo of this place when its token is given
    /// anew.
    pub fn anew(&self, attempt: u32) -> u32 {
        attempt.max(self.attempt().saturating_add(1))
    }

    /// A retry came under this attempt.
    pub fn raise_attempt(&self, attempt: u32) {
        self.attempt.fetch_max(attempt, Ordering::AcqRel);
    }

    /// The gateway said that the login connected.
    pub fn set_connected(&self) {
        self.connected.store(true, Ordering::Release);
    }

    /// Whether the gateway said so.
    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Acquire)
    }

    /// Whether it was given elsewhere, and is known from its host's list only.
    pub fn is_hearsay(&self) -> bool {
        self.hearsay.load(Ordering::Acquire)
    }

    /// It was answered here too, and its host is told so: a list of the host that does not speak of it yet does not end it.
    pub fn adopt(&self) {
        self.hearsay.store(false, Ordering::Release);
    }

    /// It was found in its host's list.
    pub(crate) fn set_hearsay(&self) {
        self.hearsay.store(true, Ordering::Release);
    }

    /// The host admitted it. Whether it was still waiting for that.
    pub fn admit(&self) -> bool {
        self.set_admitted();
        self.step(|word| (word & STATE_BITS == ASKED).then_some(word | LIVE)).is_some()
    }

    /// The host gave it by its consent.
    pub(crate) fn set_admitted(&self) {
        self.admitted.store(true, Ordering::Release);
    }

    /// Ends it and takes it out of its host's cell. Whether it still counted.
    pub fn end(&self, reason: EndReason, now: BootTime) -> bool {
        match self.take(reason, now) {
            Some(users) => {
                self.cell.release(users);
                true
            }
            None => false,
        }
    }

    /// Ends it without touching the cell: the caller takes the returned users and one place out of it.
    pub(crate) fn take(&self, reason: EndReason, now: BootTime) -> Option<u32> {
        // Before the state, so that nobody ever sees an ended place without its time and forgets it at once.
        let _ = self.ended_at_us.compare_exchange(0, now.as_micros(), Ordering::AcqRel, Ordering::Acquire);
        let before = self.step(|word| {
            matches!(word & STATE_BITS, ASKED | LIVE).then_some(word & !STATE_BITS | code(reason))
        })?;
        u32::try_from(before >> USERS_SHIFT).ok()
    }

    /// Its host counts it as `users` users now. By how much that changes the cell.
    pub(crate) fn recount(&self, users: u32) -> i64 {
        let recounted = self.step(|word| {
            matches!(word & STATE_BITS, ASKED | LIVE)
                .then_some(u64::from(users) << USERS_SHIFT | word & STATE_BITS)
        });
        recounted.map_or(0, |before| i64::from(users) - i64::try_from(before >> USERS_SHIFT).unwrap_or(0))
    }

    /// The word before the step, if it was taken.
    fn step(&self, next: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok()
    }

    /// When it ended. Absent: it counts.
    pub fn ended_at(&self) -> Option<BootTime> {
        (!self.counts()).then(|| BootTime::from_micros(self.ended_at_us.load(Ordering::Acquire)))
    }

    /// Whether nobody need remember it: a retry of its request would come no more. The place of a host that was lost is
    /// void for good: it is remembered for as long as the host may still list it.
    fn is_old(&self, now: BootTime) -> bool {
        let Some(ended) = self.ended_at() else { return false };
        let may_be_listed = self.state() == GrantState::Ended(EndReason::HostLost) && now <= self.ends_at;
        now.since(ended) > REMEMBER && !may_be_listed
    }

    /// As it is told to its host at `now`.
    pub fn to_place(&self, now: BootTime) -> Option<PendingPlace> {
        Some(PendingPlace {
            token: self.token.clone(),
            attempt: self.attempt(),
            content_hash: self.content_hash,
            pool: self.pool.clone(),
            endpoint: self.endpoints.first()?.clone(),
            user: self.user.clone(),
            cost: self.cost,
            counted_users: self.counted_users(),
            left: self.ends_at.since(now),
            connected: self.is_connected(),
            admitted: self.admitted.load(Ordering::Acquire),
        })
    }
}

/// What is known of a request that comes.
#[derive(Clone, Debug)]
pub enum Retry {
    /// Nothing: decide. Its attempt must be at least this: an earlier place of the same request ended under a lower one.
    New {
        /// The lowest attempt that hosts will not take for an echo of the ended one.
        attempt: u32,
    },
    /// It has a place: answer it again. If its host is still being asked ([`GrantState::Asked`]), wait for that first.
    Repeat(Arc<Grant>),
    /// Its session came: answer the same host, without a place.
    Arrived(Arc<Grant>),
    /// Another request under the same id.
    Reused,
}

/// All places.
#[derive(Debug, Default)]
pub struct Ledger {
    grants: papaya::HashMap<Token, Arc<Grant>, KeyHasher>,
    by_user: papaya::HashMap<(PoolName, UserKey), Arc<[Token]>, KeyHasher>,
    by_host: papaya::HashMap<HostId, Arc<OnHost>, KeyHasher>,
    successes: GatewaySuccesses,
}

/// The places of one host by token, those that ended in the last minute among them.
type OnHost = papaya::HashMap<Token, Arc<Grant>, KeyHasher>;

impl Ledger {
    /// No place yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where gateways' logins succeeded lately.
    pub fn successes(&self) -> &GatewaySuccesses {
        &self.successes
    }

    /// The place of a token, live or ended.
    pub fn get(&self, token: &Token) -> Option<Arc<Grant>> {
        self.grants.pin().get(token).cloned()
    }

    /// Places that are remembered, live or ended.
    pub(crate) fn remembered(&self) -> usize {
        self.grants.len()
    }

    /// Whether this request is a retry.
    pub fn retry(&self, token: &Token, content_hash: u64, attempt: u32) -> Retry {
        let Some(grant) = self.get(token) else { return Retry::New { attempt } };
        if grant.content_hash != content_hash {
            return Retry::Reused;
        }
        match grant.state() {
            GrantState::Live | GrantState::Asked => {
                grant.raise_attempt(attempt);
                Retry::Repeat(grant)
            }
            GrantState::Ended(EndReason::Session) => Retry::Arrived(grant),
            GrantState::Ended(_) => Retry::New { attempt: grant.anew(attempt) },
        }
    }

    /// Adds a place that was decided on, unless its token has one that counts.
    ///
    /// # Errors
    /// The place that the token has: another call, or another coordinator, was quicker.
    pub fn claim(&self, grant: Arc<Grant>) -> Result<(), Arc<Grant>> {
        let grants = self.grants.pin();
        let claimed = grants.compute(grant.token.clone(), |entry| match entry {
            Some((_, known)) if known.counts() => papaya::Operation::Abort(known.clone()),
            _ => papaya::Operation::Insert(grant.clone()),
        });
        if let papaya::Compute::Aborted(known) = claimed {
            return Err(known);
        }
        self.index(grant);
        Ok(())
    }

    /// Adds a place. One that another one of the same token replaces must have been ended before.
    pub fn insert(&self, grant: Arc<Grant>) {
        // By token first: what the other two name must be found there.
        self.grants.pin().insert(grant.token.clone(), grant.clone());
        self.index(grant);
    }

    fn index(&self, grant: Arc<Grant>) {
        // With the place in it from the first: one without any is forgotten.
        let first = || Arc::new(OnHost::from_iter([(grant.token.clone(), grant.clone())]));
        let on_host = self.by_host.pin().get_or_insert_with(grant.host_id.clone(), first).clone();
        on_host.pin().insert(grant.token.clone(), grant.clone());
        if let Some(user) = &grant.user_key {
            self.add_to_user(&grant, user.clone());
        }
    }

    /// The pool compares its users by another rule from now on.
    pub(crate) fn rekey_users(&self, pool: &PoolName, rule: UserMatch) {
        let live: Vec<Arc<Grant>> = self
            .grants
            .pin()
            .values()
            .filter(|grant| grant.pool == *pool && grant.counts())
            .cloned()
            .collect();
        self.by_user.pin().retain(|(of_pool, _), _| of_pool != pool);
        for grant in live {
            if let Some(user) = grant.user.as_deref().and_then(|user| rule.key(user)) {
                self.add_to_user(&grant, user);
            }
        }
    }

    fn add_to_user(&self, grant: &Grant, user: UserKey) {
        let token = grant.token.clone();
        self.by_user.pin().update_or_insert_with(
            (grant.pool.clone(), user),
            |tokens| {
                let known = tokens.iter().filter(|known| **known != token && self.counts(known));
                known.cloned().chain([token.clone()]).collect()
            },
            || Arc::from([token.clone()]),
        );
    }

    fn counts(&self, token: &Token) -> bool {
        self.grants.pin().get(token).is_some_and(|grant| grant.counts())
    }

    /// The live places of a user in a pool, oldest first.
    pub fn of_user(&self, pool: &PoolName, user: &UserKey) -> Vec<Arc<Grant>> {
        let tokens = self.by_user.pin().get(&(pool.clone(), user.clone())).cloned();
        let live = |token: &Token| self.get(token).filter(|grant| grant.counts());
        tokens.iter().flat_map(|tokens| tokens.iter()).filter_map(live).collect()
    }

    /// The live places on a host, in no order.
    pub fn on_host(&self, host_id: &HostId) -> Vec<Arc<Grant>> {
        let Some(on_host) = self.by_host.pin().get(host_id).cloned() else { return Vec::new() };
        on_host.pin().values().filter(|grant| grant.counts()).cloned().collect()
    }

    /// How many of the live places on a host were given, or first heard of, before `given_before`.
    pub(crate) fn aged_on(&self, host_id: &HostId, given_before: BootTime) -> u32 {
        let Some(on_host) = self.by_host.pin().get(host_id).cloned() else { return 0 };
        let on_host = on_host.pin();
        let aged = on_host.values().filter(|grant| grant.since < given_before && grant.counts());
        u32::try_from(aged.count()).unwrap_or(u32::MAX)
    }

    /// The place that was given last, or heard of last, on a host under this token, live or ended.
    pub(crate) fn last_on(&self, host_id: &HostId, token: &Token) -> Option<Arc<Grant>> {
        let on_host = self.by_host.pin().get(host_id)?.clone();
        on_host.pin().get(token).cloned()
    }

    /// The places on a host, live and ended, in no order.
    pub(crate) fn remembered_on(&self, host_id: &HostId) -> Vec<Arc<Grant>> {
        let Some(on_host) = self.by_host.pin().get(host_id).cloned() else { return Vec::new() };
        on_host.pin().values().cloned().collect()
    }

    /// When the first of the live places on a host will have ended by its time to live. Absent: there is none.
    pub fn oldest_end_on(&self, host_id: &HostId) -> Option<BootTime> {
        let on_host = self.by_host.pin().get(host_id)?.clone();
        on_host.pin().values().filter(|grant| grant.counts()).map(|grant| grant.ends_at).min()
    }

    /// Number of live places.
    pub fn live(&self) -> usize {
        self.grants.pin().values().filter(|grant| grant.counts()).count()
    }
}

mod forgetting;
mod to_tell;

#[cfg(test)]
mod tests;
