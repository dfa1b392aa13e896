//! One place: what never changes about it, and where it stands.
//!
//! Everybody who knows it changes it, without a lock. It leaves its host's cell exactly once: whoever moves it from live to
//! ended takes it out.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use usher_types::{
    BootTime, DecisionId, EndReason, Endpoint, HostId, HostState, PendingPlace, PoolName, Token, UserKey,
};

use crate::farm::HostCell;

/// How long an ended place is remembered, so that a retry of its request is known.
const REMEMBER: Duration = Duration::from_secs(60);

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
/// Its host has listed it.
const LISTED: u64 = 1 << 8;
const USERS_SHIFT: u32 = 9;

fn users(word: u64) -> u32 {
    u32::try_from(word >> USERS_SHIFT).unwrap_or(u32::MAX)
}

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
    /// It was given while its host had no stream here, and perhaps in a later boot than was known: a boot does not end it before its
    /// host has listed it.
    pub untold: bool,
}

/// One place.
#[derive(Debug)]
pub struct Grant {
    parts: GrantParts,
    attempt: AtomicU32,
    /// State in the low byte, whether it is listed, counted users above: they change together.
    word: AtomicU64,
    hearsay: AtomicBool,
    connected: AtomicBool,
    admitted: AtomicBool,
    /// Its host has listed it once: then that is the boot that it is of.
    was_listed: AtomicBool,
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
            was_listed: AtomicBool::new(false),
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
        users(self.word.load(Ordering::Acquire))
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

    /// Whether it may be of a later boot of its host than the one that was known.
    pub(crate) fn may_outlive_a_boot(&self) -> bool {
        self.untold && !self.was_listed.load(Ordering::Acquire)
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
            matches!(word & STATE_BITS, ASKED | LIVE).then_some(word & !STATE_BITS & !LISTED | code(reason))
        })?;
        let users = users(before);
        if before & LISTED != 0 {
            self.cell.unlist(users);
        }
        Some(users)
    }

    /// Its host lists it, or does so no more.
    pub(crate) fn set_listed(&self, is_listed: bool) {
        self.was_listed.fetch_or(is_listed, Ordering::AcqRel);
        let flag = if is_listed { LISTED } else { 0 };
        let changed = self.step(|word| {
            (matches!(word & STATE_BITS, ASKED | LIVE) && word & LISTED != flag).then_some(word ^ LISTED)
        });
        match changed.map(users) {
            Some(users) if is_listed => self.cell.list(users),
            Some(users) => self.cell.unlist(users),
            None => {}
        }
    }

    /// Its host counts it as `counted` users now. By how much that changes the cell.
    pub(crate) fn recount(&self, counted: u32) -> i64 {
        let recounted = self.step(|word| {
            matches!(word & STATE_BITS, ASKED | LIVE)
                .then_some(u64::from(counted) << USERS_SHIFT | word & (STATE_BITS | LISTED))
        });
        let Some(before) = recounted else { return 0 };
        if before & LISTED != 0 {
            self.cell.relist(users(before), counted);
        }
        i64::from(counted) - i64::from(users(before))
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
    pub(super) fn is_old(&self, now: BootTime) -> bool {
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
