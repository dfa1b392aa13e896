//! Which decisions are kept, how much of each, and which go first?
//!
//! The newest are kept in full: their inputs, on the snapshots they were made on. What is older is reduced to a few hosts
//! with their numbers, which keeps no snapshot alive, and then forgotten. When memory runs out, those in full are reduced
//! early, as long as they hold more than half of it; otherwise the oldest are forgotten, so that neither kind leaves no
//! room for the other.
//!
//! Reducing computes the explanation, which costs about as much as the decision did for each host. In a storm that would
//! be as dear as the storm itself, so it has a budget; what comes beyond it leaves only its headline behind.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use usher_placement::{decision::DecisionRecord, farm::PoolView};
use usher_types::{BootTime, PoolName};

use super::{
    bytes,
    entry::{Detail, Headline, KeptDecision, ListFilter, Listed, NewDecision, UserHasher},
};

/// In full: for how long, and how many.
pub(super) const KEEP_FULL: Duration = Duration::from_secs(600);
pub(super) const MOST_FULL: usize = 10_000;
/// Reduced, likewise.
pub(super) const KEEP_REDUCED: Duration = Duration::from_secs(24 * 3600);
pub(super) const MOST_REDUCED: usize = 100_000;
/// Of all together.
pub(super) const MOST_BYTES: usize = 64 * 1024 * 1024;
/// Hosts explained in one second of decisions: a hundredth of a core, and ten decisions in a pool of a thousand, which is a
/// storm of logins already.
const EXPLAINED_PER_SECOND: f64 = 10_000.0;
/// What a quiet time saves up: more at once would hold a thread up that others wait for.
const EXPLAINED_AT_ONCE: f64 = 2.0 * EXPLAINED_PER_SECOND;

/// The decisions that are kept, oldest first. Those made at the same time may come out of order, so they are only nearly
/// sorted.
#[derive(Debug)]
pub(super) struct Kept {
    full: VecDeque<Full>,
    reduced: VecDeque<Reduced>,
    full_bytes: usize,
    reduced_bytes: usize,
    /// The newest record's view of each pool: what the next one shares with it is counted already.
    newest: HashMap<PoolName, Arc<PoolView>>,
    users: UserHasher,
    budget: Budget,
}

#[derive(Debug)]
struct Full {
    headline: Arc<Headline>,
    record: Arc<DecisionRecord>,
    bytes: usize,
}

#[derive(Debug)]
struct Reduced {
    headline: Arc<Headline>,
    detail: Detail,
    bytes: usize,
}

/// Time that may be spent on explanations, in hosts.
#[derive(Debug)]
struct Budget {
    hosts: f64,
    filled_at: BootTime,
}

impl Budget {
    /// Whether there is time to explain so many hosts; it is spent then.
    fn spend(&mut self, hosts: usize, now: BootTime) -> bool {
        let earned = now.since(self.filled_at).as_secs_f64() * EXPLAINED_PER_SECOND;
        self.hosts = (self.hosts + earned).min(EXPLAINED_AT_ONCE);
        self.filled_at = self.filled_at.max(now);
        // Exact: pools have far less than 2^53 hosts.
        let cost = hosts as f64;
        let enough = self.hosts >= cost;
        if enough {
            self.hosts -= cost;
        }
        enough
    }
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            full: VecDeque::new(),
            reduced: VecDeque::new(),
            full_bytes: 0,
            reduced_bytes: 0,
            newest: HashMap::new(),
            users: UserHasher::default(),
            budget: Budget { hosts: EXPLAINED_AT_ONCE, filled_at: BootTime::ZERO },
        }
    }
}

impl Kept {
    pub(super) fn push(&mut self, new: NewDecision) {
        let headline = Arc::new(Headline::new(&new, &self.users));
        let record = new.record;
        let before = self.newest.insert(record.pool.name.clone(), record.pool.clone());
        let bytes = bytes::of_record(&record, before.as_ref());
        let now = record.decided_at;
        self.full_bytes += bytes;
        self.full.push_back(Full { headline, record: Arc::new(record), bytes });
        while self.full_is_over(now) {
            self.reduce_oldest(now);
        }
        while self.reduced_is_over(now) {
            self.forget_oldest();
        }
        while self.bytes() > MOST_BYTES {
            if self.full_bytes > MOST_BYTES / 2 || self.reduced.is_empty() {
                self.reduce_oldest(now);
            } else {
                self.forget_oldest();
            }
        }
    }

    fn full_is_over(&self, now: BootTime) -> bool {
        let is_old = |oldest: &Full| now.since(oldest.headline.decided_at) > KEEP_FULL;
        self.full.len() > MOST_FULL || self.full.front().is_some_and(is_old)
    }

    fn reduced_is_over(&self, now: BootTime) -> bool {
        let is_old = |oldest: &Reduced| now.since(oldest.headline.decided_at) > KEEP_REDUCED;
        self.reduced.len() > MOST_REDUCED || self.reduced.front().is_some_and(is_old)
    }

    fn reduce_oldest(&mut self, now: BootTime) {
        let Some(Full { headline, record, bytes }) = self.full.pop_front() else { return };
        self.full_bytes -= bytes;
        let (detail, bytes) = if self.budget.spend(record.words.len(), now) {
            let explained = record.reduce();
            let bytes = bytes::of_explained(&explained);
            (Detail::Reduced(Arc::new(explained)), bytes)
        } else {
            (Detail::Headline, bytes::HEADLINE)
        };
        self.reduced_bytes += bytes;
        self.reduced.push_back(Reduced { headline, detail, bytes });
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.reduced.pop_front() {
            self.reduced_bytes -= oldest.bytes;
        }
    }

    /// Decisions kept, in full and reduced.
    pub(super) fn len(&self) -> usize {
        self.full.len() + self.reduced.len()
    }

    fn bytes(&self) -> usize {
        self.full_bytes + self.reduced_bytes
    }

    /// Newest first.
    fn newest_first(&self) -> impl Iterator<Item = (&Arc<Headline>, Detail)> {
        let full = self.full.iter().rev().map(|kept| (&kept.headline, Detail::Full(kept.record.clone())));
        full.chain(self.reduced.iter().rev().map(|kept| (&kept.headline, kept.detail.clone())))
    }

    pub(super) fn find(&self, sequence: u64) -> Option<KeptDecision> {
        let mut kept = self.newest_first().filter(|(headline, _)| headline.sequence == sequence);
        kept.next().map(|(headline, detail)| KeptDecision { headline: headline.clone(), detail })
    }

    pub(super) fn list(&self, filter: &ListFilter) -> Listed {
        let is_wanted = filter.test(&self.users);
        let mut wanted = self
            .newest_first()
            .filter(|(headline, _)| is_wanted(headline))
            .map(|(headline, detail)| KeptDecision { headline: headline.clone(), detail });
        let decisions = wanted.by_ref().take(filter.limit).collect();
        Listed { decisions, truncated: wanted.next().is_some() }
    }
}

#[cfg(test)]
#[path = "kept_tests.rs"]
mod tests;
