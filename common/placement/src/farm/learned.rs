//! What does the farm learn from reports and places for those who predict?
//!
//! Of each host its background: the demand that it has without the logons in progress, as a mean over about 10 s, so that
//! neither one report nor a logon that has just ended moves it. Of each pool what a logon and a session cost. Both follow
//! the reports; nothing here decides anything.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use usher_types::{BootTime, HostId, Load, PoolName};

use super::{Farm, HostEntry, Reading};
use crate::load::{Anchors, CostLearner, CostSample, HostEvidence, LearnedCosts, Typical};

/// Over how much time the background is a mean.
const BACKGROUND_SECONDS: f64 = 10.0;
/// A host is new until it has been heard twice, or for this long: until then the pool's mean stands for its background.
const NEW_FOR: Duration = Duration::from_secs(10);
const NEW_LOADS: u32 = 2;
/// CPU use says nothing of the demand when all cores are busy.
const SATURATED_PERCENT: f64 = 95.0;
/// A gap in the reports counts as this much at most.
const LONGEST_STEP: Duration = Duration::from_secs(60);
/// How often the costs are learned.
const LEARN_EVERY: Duration = Duration::from_secs(5);

/// What is kept of a pool's learned costs over a restart.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LearnedRecord {
    /// The pool.
    pub pool: PoolName,
    /// What was learned.
    pub anchors: Anchors,
}

/// What the reports of one host say.
#[derive(Debug, Default)]
pub(super) struct HostLearning {
    evidence: HostEvidence,
    background: Option<f64>,
    loads: u32,
    first_at: Option<BootTime>,
    last_at: Option<BootTime>,
}

/// What a pool has learned.
#[derive(Debug, Default)]
pub(super) struct PoolLearning {
    learner: CostLearner,
    learned_at: Option<BootTime>,
    typical: Typical,
}

impl PoolLearning {
    pub(super) fn resume(anchors: Anchors) -> Self {
        Self { learner: CostLearner::resume(anchors), ..Self::default() }
    }

    /// As another farm had learned it by `now`.
    pub(super) fn told(costs: &LearnedCosts, typical: Typical, now: BootTime) -> Self {
        Self { learner: CostLearner::starting_from(costs), learned_at: Some(now), typical }
    }

    pub(super) fn costs(&self) -> LearnedCosts {
        self.learner.costs()
    }

    pub(super) fn typical(&self) -> Typical {
        self.typical
    }
}

impl HostLearning {
    fn is_new(&self, now: BootTime) -> bool {
        self.loads < NEW_LOADS && self.first_at.is_none_or(|first| now.since(first) < NEW_FOR)
    }

    /// As decisions take it: of a host that is new the mean of the others. And whether it is that.
    fn shown(&self, typical: &Typical, now: BootTime) -> (Option<f64>, bool) {
        let Some(own) = self.background else { return (None, false) };
        let borrowed = typical.background.filter(|_| self.is_new(now));
        (Some(borrowed.unwrap_or(own)), borrowed.is_some())
    }

    /// A place became a session after this long.
    pub(super) fn connected_after(&mut self, took: Duration) {
        self.evidence.connected_after(took.as_secs_f64());
    }
}

/// Takes in a report, of which `reading` is what is believed; its background is filled in.
pub(super) fn learn_from(
    learning: &mut HostLearning,
    pool: &PoolLearning,
    (load, reading): (&Load, &mut Reading),
    (cores, report_interval): (Option<u32>, Duration),
) {
    let now = reading.measured_at;
    let since_last = learning.last_at.map_or(report_interval, |last| now.since(last)).min(LONGEST_STEP);
    // Reports in between, because something came or went, say the same of the interval again.
    if learning.last_at.is_none() || since_last >= report_interval / 2 {
        let costs = pool.costs();
        let cores = cores.map(f64::from).or(pool.typical.cores).unwrap_or(1.0).max(1.0);
        let mean_logons = load.logons_in_progress.map(|logons| logons.mean);
        // What a host needs in all; beyond every sense it is cut, so that sums stay numbers.
        let by_cpu = reading.cpu_percent.filter(|cpu| *cpu < SATURATED_PERCENT).map(|cpu| cpu / 100.0);
        let demand = load.runnable_demand.or(by_cpu).filter(|demand| demand.is_finite());
        learning.learn_background(
            demand,
            costs.logon_cores.value * mean_logons.unwrap_or(0.0) / cores,
            since_last,
        );
        if load.runnable_demand.is_none() && reading.cpu_percent.is_none() {
            learning.background = None;
        }
        learning.evidence.observe(&CostSample {
            elapsed_seconds: since_last.as_secs_f64(),
            demand_cores: demand.map(|demand| demand.min(MOST_DEMAND) * cores),
            memory_bytes: reading.memory.map(|memory| memory.used_bytes as f64),
            sessions: sessions(reading),
            mean_logons,
            finished: load.finished_logons,
        });
        learning.last_at = Some(now);
        learning.first_at.get_or_insert(now);
        learning.loads = learning.loads.saturating_add(1);
    }
    (reading.background, reading.background_is_borrowed) = learning.shown(&pool.typical, now);
}

/// Demand beyond this many times all cores is no demand but a fault.
const MOST_DEMAND: f64 = 100.0;

impl HostLearning {
    fn learn_background(&mut self, demand: Option<f64>, of_logons: f64, elapsed: Duration) {
        let Some(demand) = demand else { return };
        let sample = (demand.min(MOST_DEMAND) - of_logons).max(0.0);
        let share = 1.0 - (-elapsed.as_secs_f64() / BACKGROUND_SECONDS).exp();
        self.background = Some(self.background.map_or(sample, |mean| mean + share * (sample - mean)));
    }
}

/// Those that use the host: where sessions are not counted, its users.
fn sessions(reading: &Reading) -> Option<f64> {
    let counted = |counts: usher_types::SessionCounts| {
        f64::from(counts.active) + f64::from(counts.disconnected) + f64::from(counts.lingering)
    };
    reading.sessions.map(counted).or(reading.users.map(f64::from))
}

impl Farm {
    /// A second has passed: counts which places are old by now, and learns.
    pub(super) fn learn(&mut self, now: BootTime) {
        let names: Vec<PoolName> = self.pools.keys().cloned().collect();
        for name in names {
            self.learn_pool(&name, now);
        }
    }

    fn learn_pool(&mut self, name: &PoolName, now: BootTime) {
        let Some(pool) = self.pools.get_mut(name) else { return };
        let before = (pool.learned.costs(), pool.learned.typical);
        let elapsed = pool.learned.learned_at.map(|learned_at| now.since(learned_at));
        // Not each second: whatever depends on them is made anew for all hosts.
        if elapsed.is_none_or(|elapsed| elapsed >= LEARN_EVERY) {
            let (ids, hosts) = (&pool.host_ids, &self.hosts);
            let all = || ids.iter().filter_map(|id| hosts.get(id));
            pool.learned.typical = typical(all(), now);
            let elapsed = elapsed.unwrap_or_default().min(LONGEST_STEP).as_secs_f64();
            pool.learned.learner.learn(elapsed, || all().map(|host| &host.learning.evidence));
            pool.learned.learned_at = Some(now);
            pool.dirty |= before != (pool.learned.costs(), pool.learned.typical);
        }
        let (costs, typical) = (pool.learned.costs(), pool.learned.typical);
        let ids = pool.host_ids.clone();
        for host_id in ids {
            self.follow(&host_id, &costs, &typical, now);
        }
    }

    /// What changes of a host because time passes: the age of its places, and that it is new no more.
    fn follow(&mut self, host_id: &HostId, costs: &LearnedCosts, typical: &Typical, now: BootTime) {
        let Some(host) = self.hosts.get_mut(host_id) else { return };
        let aged = if host.cell.load().places() == 0 {
            0
        } else {
            self.ledger.aged_on(host_id, young_since(costs, now))
        };
        let shown = host.learning.shown(typical, now);
        let is_as_shown = |reading: &std::sync::Arc<Reading>| {
            (reading.background, reading.background_is_borrowed) == shown || host.learning.loads == 0
        };
        if aged == host.view.aged_places && host.view.reading.as_ref().is_none_or(is_as_shown) {
            return;
        }
        host.view.aged_places = aged;
        if let Some(reading) = host.view.reading.as_mut().filter(|_| host.learning.loads > 0) {
            let reading = std::sync::Arc::make_mut(reading);
            (reading.background, reading.background_is_borrowed) = shown;
        }
        self.publish(host_id);
    }

    /// What should be stored of every pool that has learned something.
    pub fn learned(&self) -> Vec<LearnedRecord> {
        let learned = self.pools.values().map(|pool| (pool, pool.learned.learner.anchors()));
        let some = learned.filter(|(_, anchors)| *anchors != Anchors::default());
        some.map(|(pool, anchors)| LearnedRecord { pool: pool.record.name.clone(), anchors }).collect()
    }
}

/// Places given before this instant are old.
pub(super) fn young_since(costs: &LearnedCosts, now: BootTime) -> BootTime {
    now.before(Duration::from_secs_f64(costs.young_for_seconds()))
}

/// Means over the hosts that are not new.
fn typical<'a>(hosts: impl Iterator<Item = &'a HostEntry>, now: BootTime) -> Typical {
    let mut means = [(0.0, 0u32); 4];
    let mut add = |at: usize, value: Option<f64>| {
        let value = value.filter(|value| value.is_finite());
        means[at].0 += value.unwrap_or(0.0);
        means[at].1 += u32::from(value.is_some());
    };
    for host in hosts {
        let memory = host.view.reading.as_ref().and_then(|reading| reading.memory);
        add(0, host.learning.background.filter(|_| !host.learning.is_new(now)));
        add(1, host.view.facts.cores.map(f64::from));
        add(2, host.view.facts.memory_bytes.map(|bytes| bytes as f64));
        add(3, memory.map(|memory| memory.used().get() / 100.0));
    }
    let mean = |at: usize| (means[at].1 > 0).then(|| means[at].0 / f64::from(means[at].1));
    Typical { background: mean(0), cores: mean(1), memory_bytes: mean(2), memory_used: mean(3) }
}
