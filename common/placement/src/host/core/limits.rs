//! What the host admits, and what it keeps free for coordinators that it does not hear.

use usher_types::{BootTime, PendingLimit, PendingMode, PendingPlace, Readiness, RefusalReason};

use super::{HostCore, Limits};
use crate::host::ToldShare;
use crate::host::reach::{HeldBack, Report, any_more};

impl HostCore {
    /// The coordinator number `from` gives a place, or asks for one within `limits`.
    ///
    /// # Errors
    /// Why it is not in the book.
    pub fn expect(
        &mut self,
        from: usize,
        place: &PendingPlace,
        ask: bool,
        limits: Limits,
        now: BootTime,
    ) -> Result<(), RefusalReason> {
        let ready = self.readiness() == Readiness::Ready;
        let limits = limits.and(self.own_limits());
        let held = self.reach.held_back(Some(from), limits, now);
        let decided = self.book.expect(place, ask, limits, held, ready, now);
        // What expired meanwhile is judged, whatever the answer is.
        self.judge_ends(now);
        decided
    }

    fn own_limits(&self) -> Limits {
        let pool = self.told.in_force().map(|told| &told.policy);
        let own = self.overrides().max_users;
        let hard = pool.filter(|policy| policy.max_pending_mode == PendingMode::Hard);
        Limits {
            max_users: own.or(pool.map(|policy| policy.max_users)).and_then(|limit| limit.finite()),
            max_pending: hard.map(|policy| policy.max_pending).and_then(PendingLimit::finite),
        }
    }

    /// The agent is configured to report to these coordinators from now on, as in
    /// [`CoreSettings::coordinators`](super::CoreSettings::coordinators).
    pub fn set_coordinators(&mut self, coordinators: &[String]) {
        self.number_coordinators(coordinators.iter().map(String::as_str).enumerate());
    }

    /// As [`HostCore::set_coordinators`], each under a number of its own that stays the same while others come and go.
    pub fn number_coordinators<'a>(&mut self, coordinators: impl Iterator<Item = (usize, &'a str)>) {
        self.reach.configure(coordinators);
        let reach = &self.reach;
        self.told.forget_unless(|number| reach.knows(number));
    }

    /// A stream to the coordinator number `from` is open. It is heard from its first tick on, which comes after all the
    /// places that it has given.
    pub fn stream_opened(&mut self, from: usize) {
        self.reach.stream_opened(from);
    }

    /// The stream to the coordinator number `from` has ended, however it did. Whether there was one.
    pub fn stream_closed(&mut self, from: usize) -> bool {
        self.reach.stream_closed(from)
    }

    /// A tick came on the stream of the coordinator number `from`.
    pub fn tick_heard(&mut self, from: usize, now: BootTime) {
        self.reach.tick_heard(from, now);
    }

    /// What is kept free for coordinators that are not heard.
    #[must_use]
    pub fn held_back(&self, now: BootTime) -> HeldBack {
        self.reach.held_back(None, self.own_limits(), now)
    }

    /// The coordinators that are not heard.
    pub fn unheard(&self, now: BootTime) -> impl Iterator<Item = &str> {
        self.reach.unheard(now)
    }

    /// Whether what is kept free has changed since the last call, for whatever reason: then a report is due.
    pub fn reach_changed(&mut self, now: BootTime) -> bool {
        let held_back = self.held_back(now);
        std::mem::replace(&mut self.held_back, held_back) != held_back
    }

    /// When a coordinator is next heard, or not heard, by the clock alone.
    #[must_use]
    pub fn next_reach_change(&self, now: BootTime) -> Option<BootTime> {
        self.reach.next_change(now)
    }

    /// The whole state as a report that is sent now to everybody who has a stream: what they may give by it is noted. See
    /// [`HostCore::load`].
    #[must_use]
    pub fn publish(&mut self, now: BootTime, wall_clock_unix_ms: u64) -> Option<Report> {
        let load = self.load(now, wall_clock_unix_ms)?;
        let limits = self.own_limits();
        // Users that are not known leave nothing free.
        let used = self.book.users().map(|users| users.saturating_add(self.book.pending_users()));
        let free = Limits {
            max_users: limits.max_users.map(|limit| limit.saturating_sub(used.unwrap_or(limit))),
            max_pending: limits.max_pending.map(|limit| limit.saturating_sub(self.book.len())),
        };
        let held_back = self.reach.told(limits, free, now);
        Some(Report::new(load, held_back, self.book.ends()))
    }

    /// What coordinators may have been told, as [`HostCore::record`] keeps it.
    #[must_use]
    pub fn told_shares(&self) -> Vec<ToldShare> {
        self.reach.record()
    }

    /// Whether coordinators may have been told more than `kept` says, so that it must be kept anew before a report goes out.
    #[must_use]
    pub fn told_more_than(&self, kept: &[ToldShare]) -> bool {
        any_more(&self.reach.record(), kept)
    }
}
