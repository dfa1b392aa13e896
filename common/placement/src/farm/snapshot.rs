//! The farm at one instant, for everyone who reads.
//!
//! Snapshots are immutable and shared; a reader never waits and is never waited for. Only what changed is new: hosts,
//! pools and indices that did not change are the same objects as in the snapshot before.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use usher_types::{
    BootTime, HostId, HostName, HostState, KeyHasher, Policy, PoolName, ReplicaMark, ResourceId, SettingsHash,
};

use super::{
    CellWord, FROZEN_AFTER, Grace, HeardShare, HostCell, Hosts, SessionIndex, StateInput, cells::CellRuns,
    columns::Zones, state_of,
};
use crate::decision::Crowd;
use crate::load::{LearnedCosts, Typical};

/// Which hosts are in a pool. The same object until one comes or goes, so that a reader can tell whether the cells it
/// read belong to the snapshot it ranks by.
#[derive(Debug, Default)]
pub struct Members {
    /// Cells, in the order of the pool's hosts.
    pub cells: Vec<Arc<HostCell>>,
    runs: CellRuns,
    /// The same as `cells`, without a step in between.
    near: Vec<HostCell>,
    by_id: HashMap<HostId, u32, KeyHasher>,
    /// By the compared form of the name; several machines may have one.
    by_name: HashMap<String, Vec<u32>>,
}

impl Members {
    /// The members with these ids, names and cells.
    pub(super) fn new(members: impl Iterator<Item = (HostId, HostName, Arc<HostCell>)>) -> Self {
        let mut all = Self::default();
        for (position, (host_id, name, cell)) in (0u32..).zip(members) {
            all.by_id.insert(host_id, position);
            all.by_name.entry(name.key().to_owned()).or_default().push(position);
            all.runs.push(&cell);
            all.near.push((*cell).clone());
            all.cells.push(cell);
        }
        all
    }

    /// Reads the cell of the host at `position`.
    pub(crate) fn word(&self, position: usize) -> CellWord {
        self.near[position].load()
    }

    /// The position of a host.
    pub fn position(&self, host_id: &HostId) -> Option<usize> {
        self.by_id.get(host_id).map(|position| *position as usize)
    }

    /// The positions of the hosts that `text` may mean: the one with this id, else all of this name.
    pub fn named(&self, text: &str) -> &[u32] {
        if let Some(position) = self.by_id.get(text) {
            return std::slice::from_ref(position);
        }
        let key = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        self.by_name.get(&key).map_or(&[], Vec::as_slice)
    }
}

/// One pool.
#[derive(Clone, Debug)]
pub struct PoolView {
    /// Its name.
    pub name: PoolName,
    /// Its settings.
    pub policy: Arc<Policy>,
    /// Their hash.
    pub settings_hash: SettingsHash,
    /// Their version. 0: the defaults, never applied.
    pub version: u64,
    /// Its cells.
    pub members: Arc<Members>,
    /// Its hosts, in the order of the cells.
    pub hosts: Hosts,
    pub(crate) zones: Arc<Zones>,
    /// The instant to which the columns refer logons in progress.
    pub(crate) logons_since: BootTime,
    pub(super) has_peers: bool,
    /// Of a pool too large to be looked at as a whole: who is worth looking at.
    pub(crate) crowd: Option<Arc<Crowd>>,
    /// Positions of the hosts that hold each resource.
    pub replicas: Arc<BTreeMap<ResourceId, Vec<u32>>>,
    /// Positions of the hosts whose copy of a resource an admin marked, in ascending order; whether they list it now or
    /// not.
    pub marked: Arc<BTreeMap<ResourceId, Vec<(u32, ReplicaMark)>>>,
    /// Sessions by user.
    pub sessions: SessionIndex,
    /// The grace that is running.
    pub grace: Option<Grace>,
    /// How much of the pool was heard since it began.
    pub heard: HeardShare,
    /// Hosts heard in time and hosts registered, over the whole farm; those that said goodbye count in neither.
    pub hosts_heard: u32,
    /// See `hosts_heard`.
    pub hosts_registered: u32,
    /// What one more session costs, as learned so far.
    pub costs: LearnedCosts,
    /// What stands for values that a host does not know, where its demand is predicted.
    pub typical: Typical,
}

/// Below this share of hosts heard, answers say `partial_view`.
const FULL_VIEW: f64 = 0.9;

impl PoolView {
    /// The position of the host that `text` names by id, or by a name that only one host has.
    pub fn find(&self, text: &str) -> Option<usize> {
        match self.members.named(text) {
            [position] => Some(*position as usize),
            _ => None,
        }
    }

    fn members_named<'a>(pool: &'a Arc<Self>, text: &str) -> impl Iterator<Item = usize> + use<'a> {
        pool.members.named(text).iter().map(|position| *position as usize)
    }

    /// What the state of the host at `position` is computed with.
    pub fn state_input(
        &self,
        position: usize,
        word: CellWord,
        adds_users: u32,
        now: BootTime,
    ) -> StateInput<'_> {
        let host = &self.hosts[position];
        StateInput { host, word, adds_users, policy: &self.policy, grace: self.grace, now }
    }

    /// An admin's mark of the copy of a resource on the host at `position`. Absent: it is in service, if there is one.
    pub fn replica_mark(&self, position: usize, resource: &ResourceId) -> Option<ReplicaMark> {
        let marked = self.marked.get(resource)?;
        let found = marked.binary_search_by_key(&position, |(position, _)| *position as usize).ok()?;
        Some(marked[found].1)
    }

    /// The positions of the hosts that are lost: heard once, and silent without having said why.
    pub fn lost(&self, now: BootTime) -> impl Iterator<Item = usize> {
        (0..self.hosts.len()).filter(move |position| {
            // Users and places make no host silent.
            let input = self.state_input(*position, CellWord::default(), 1, now);
            self.hosts[*position].is_lost(state_of(&input))
        })
    }

    /// How much of the pool is lost.
    pub fn lost_share(&self, now: BootTime) -> LostShare {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let counted = self.hosts.iter().filter(|host| !host.said_goodbye).count();
        LostShare { lost: count(self.lost(now).count()), counted: count(counted) }
    }

    /// Whether placements must wait until more hosts were heard.
    pub fn is_stale(&self, now: BootTime) -> bool {
        self.grace.is_some_and(|grace| grace.may_wait(now)) && !self.heard.is_enough()
    }

    /// Whether a host may hold a resource that none is known to hold: it has not said what it holds since this coordinator
    /// started, and can yet.
    pub fn awaits_replicas(&self, now: BootTime) -> bool {
        (0..self.hosts.len()).any(|position| {
            self.hosts[position].replicas_unheard
                && state_of(&self.state_input(position, CellWord::default(), 1, now)) != HostState::Offline
        })
    }

    /// Whether the coordinator hears too few hosts for its answers to be taken without a word.
    pub fn is_partial(&self) -> bool {
        f64::from(self.hosts_heard) < FULL_VIEW * f64::from(self.hosts_registered)
    }

    /// Whether the hosts report to more than one coordinator.
    pub fn has_peers(&self) -> bool {
        self.has_peers
    }

    /// Bytes that this view keeps beside those of `before`, without the hosts themselves, sessions and replicas.
    pub fn bytes_beside(&self, before: Option<&Self>) -> usize {
        let crowd = self.crowd.as_ref().map_or(0, |crowd| crowd.bytes());
        size_of::<Self>() + crowd + self.hosts.bytes_beside(before.map(|before| &before.hosts))
    }

    /// Reads every cell.
    pub fn words(&self) -> Vec<CellWord> {
        let mut words = Vec::with_capacity(self.hosts.len());
        self.members.runs.load_into(&mut words);
        words
    }
}

/// How much of a pool is lost; hosts that said goodbye count in neither.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct LostShare {
    /// Hosts that were heard once and are silent.
    pub lost: u32,
    /// All hosts.
    pub counted: u32,
}

impl LostShare {
    /// Whether it is over half of the pool.
    pub fn is_over_half(self) -> bool {
        u64::from(self.lost) * 2 > u64::from(self.counted)
    }
}

/// The farm at one instant.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Grows with every snapshot.
    pub revision: u64,
    /// When it was made.
    pub made_at: BootTime,
    /// Every pool that was applied or has a host.
    pub pools: BTreeMap<PoolName, Arc<PoolView>>,
    /// A gap of this length between two ticks means that the coordinator was frozen.
    pub frozen_after: Duration,
}

impl Default for Snapshot {
    /// A farm of which nothing is known.
    fn default() -> Self {
        Self { revision: 0, made_at: BootTime::ZERO, pools: BTreeMap::new(), frozen_after: FROZEN_AFTER }
    }
}

impl Snapshot {
    /// The same farm for a coordinator that has just found that it stood still until `now`: a grace begins, before its
    /// own clock has ticked. What it heard is old, and no silence says anything.
    #[must_use]
    pub fn after_standstill(&self, now: BootTime) -> Self {
        let in_grace = |pool: &Arc<PoolView>| {
            let heard = HeardShare { heard: 0.0, ..pool.heard };
            Arc::new(PoolView {
                grace: Some(Grace { began: now }),
                heard,
                hosts_heard: 0,
                ..(**pool).clone()
            })
        };
        let pools = self.pools.iter().map(|(name, pool)| (name.clone(), in_grace(pool))).collect();
        Self { pools, ..self.clone() }
    }

    /// The pool and position of the host that `text` names by id, or by name.
    ///
    /// # Errors
    /// The ids of all hosts of that name, if it is not exactly one.
    pub fn find_host(&self, text: &str) -> Result<(&Arc<PoolView>, usize), Vec<HostId>> {
        let in_pool = |pool: &PoolView| pool.members.by_id.get(text).map(|position| *position as usize);
        if let Some(found) = self.pools.values().find_map(|pool| Some((pool, in_pool(pool)?))) {
            return Ok(found);
        }
        let named = |pool| PoolView::members_named(pool, text).map(move |position| (pool, position));
        let named: Vec<(&Arc<PoolView>, usize)> = self.pools.values().flat_map(named).collect();
        match named.as_slice() {
            [found] => Ok(*found),
            several => Err(several.iter().map(|(pool, at)| pool.hosts[*at].facts.host_id.clone()).collect()),
        }
    }
}
