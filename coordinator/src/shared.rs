//! What every call of a coordinator can reach without waiting for anybody.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use arc_swap::ArcSwap;
use tokio::sync::mpsc;
use usher_placement::{farm::Snapshot, reservation::Ledger};
use usher_runtime::{clock::Clock, doors::Doors};
use usher_types::{BootTime, DecisionId};

use crate::{
    config::CoordinatorConfig, farm_command::FarmCommand, history::History, in_flight::InFlight,
    links::Links, metrics::Metrics, placing::Teller, publish::Feed, virtual_hosts::VirtualHosts,
};

/// What every call can reach.
#[derive(Debug)]
pub(crate) struct Shared {
    pub config: CoordinatorConfig,
    pub clock: Arc<dyn Clock>,
    pub snapshot: ArcSwap<Snapshot>,
    pub ledger: Arc<Ledger>,
    pub links: Links,
    pub doors: Doors,
    pub feed: Feed,
    pub teller: Teller,
    pub history: History,
    pub in_flight: InFlight,
    pub farm: mpsc::Sender<FarmCommand>,
    pub virtual_hosts: VirtualHosts,
    pub metrics: Metrics,
    /// Of the store.
    pub coordinator_id: String,
    /// Of this run.
    pub instance_id: String,
    /// The first part of every decision id: names this run of this coordinator.
    pub decision_prefix: String,
    pub decisions: AtomicU64,
    pub last_tick_us: AtomicU64,
    pub seed: AtomicU64,
}

/// The odd constant of splitmix64: consecutive states give independent seeds.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
impl Shared {
    /// Now, on the boot-time clock.
    pub(crate) fn now(&self) -> BootTime {
        self.clock.now()
    }

    /// Whether the farm task has not ticked for so long that this process must have been frozen, or is choking: what
    /// it knows is old then.
    pub(crate) fn is_frozen(&self, now: BootTime) -> bool {
        let since_tick = now.since(BootTime::from_micros(self.last_tick_us.load(Ordering::Acquire)));
        since_tick > self.snapshot.load().frozen_after
    }

    /// The farm as it is now, for whoever looks at it: nobody is shown hosts that are lost because this process was frozen
    /// and its farm task has not noticed yet.
    pub(crate) fn look(&self) -> (Arc<Snapshot>, BootTime) {
        let (snapshot, now) = (self.snapshot.load_full(), self.now());
        if self.is_frozen(now) { (Arc::new(snapshot.after_standstill(now)), now) } else { (snapshot, now) }
    }

    /// A seed that no other decision has.
    pub(crate) fn next_seed(&self) -> u64 {
        self.seed.fetch_add(SEED_STEP, Ordering::Relaxed)
    }

    /// The next decision's number and id.
    pub(crate) fn next_decision(&self) -> Option<(u64, DecisionId)> {
        let sequence = self.decisions.fetch_add(1, Ordering::Relaxed) + 1;
        DecisionId::new(format!("{}-{sequence}", self.decision_prefix)).ok().map(|id| (sequence, id))
    }

    /// The number in a decision id of this run. Absent: another coordinator's, or of an earlier run.
    pub(crate) fn sequence_of(&self, id: &DecisionId) -> Option<u64> {
        let (prefix, sequence) = id.as_str().rsplit_once('-')?;
        (prefix == self.decision_prefix).then(|| sequence.parse().ok()).flatten()
    }

    /// Bound of the random wait of an agent before it connects again, milliseconds.
    pub(crate) fn reconnect_spread_ms(&self) -> u32 {
        // Those that were known before a start come back too, though their streams are not open yet.
        let registered = self.snapshot.load().pools.values().map(|pool| pool.hosts.len()).sum::<usize>();
        // A thirtieth of a second each, so that a thousand agents come back over half a minute.
        let spread_ms = (registered.max(self.links.len()) * 1000 / 30).clamp(2000, 30_000);
        u32::try_from(spread_ms).unwrap_or(u32::MAX)
    }
}
