//! The farm at one instant, for everyone who reads.
//!
//! Snapshots are immutable and shared; a reader never waits and is never waited for. Only what changed is new: hosts,
//! pools and indices that did not change are the same objects as in the snapshot before.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use usher_types::{BootTime, HostId, Policy, PoolName, ResourceId};

use super::{CellWord, Grace, HeardShare, HostCell, HostView, SessionIndex, StateInput};

/// Which hosts are in a pool. The same object until one comes or goes, so that a reader can tell whether the cells it
/// read belong to the snapshot it ranks by.
#[derive(Debug, Default)]
pub struct Members {
    /// Cells, in the order of the pool's hosts.
    pub cells: Vec<Arc<HostCell>>,
    index: HashMap<HostId, usize>,
}

impl Members {
    /// The members with these ids and cells.
    pub fn new(members: impl IntoIterator<Item = (HostId, Arc<HostCell>)>) -> Self {
        let mut all = Self::default();
        for (position, (host_id, cell)) in members.into_iter().enumerate() {
            all.index.insert(host_id, position);
            all.cells.push(cell);
        }
        all
    }

    /// The position of a host.
    pub fn position(&self, host_id: &HostId) -> Option<usize> {
        self.index.get(host_id).copied()
    }
}

/// One pool.
#[derive(Clone, Debug)]
pub struct PoolView {
    /// Its name.
    pub name: PoolName,
    /// Its settings.
    pub policy: Arc<Policy>,
    /// Their version. 0: the defaults, never applied.
    pub version: u64,
    /// Its cells.
    pub members: Arc<Members>,
    /// Its hosts, in the order of the cells.
    pub hosts: Vec<Arc<HostView>>,
    /// Positions of the hosts that hold each resource.
    pub replicas: Arc<BTreeMap<ResourceId, Vec<u32>>>,
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
}

/// Below this share of hosts heard, answers say `partial_view`.
const FULL_VIEW: f64 = 0.9;

impl PoolView {
    /// The position of the host that `text` names by id, or by a name that only one host has.
    pub fn find(&self, text: &str) -> Option<usize> {
        let by_id = self.hosts.iter().position(|host| host.facts.host_id.as_str() == text);
        by_id.or_else(|| {
            let mut named = self.hosts.iter().enumerate().filter(|(_, host)| host.facts.name.matches(text));
            let first = named.next().map(|(position, _)| position);
            first.filter(|_| named.next().is_none())
        })
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

    /// Whether placements must wait until more hosts were heard.
    pub fn is_stale(&self, now: BootTime) -> bool {
        self.grace.is_some_and(|grace| grace.may_wait(now)) && !self.heard.is_enough()
    }

    /// Whether the coordinator hears too few hosts for its answers to be taken without a word.
    pub fn is_partial(&self) -> bool {
        f64::from(self.hosts_heard) < FULL_VIEW * f64::from(self.hosts_registered)
    }

    /// Whether the hosts report to more than one coordinator.
    pub fn has_peers(&self) -> bool {
        self.hosts.iter().filter_map(|host| host.reading.as_ref()).any(|reading| reading.streams_held > 1)
    }

    /// Reads every cell.
    pub fn words(&self) -> Vec<CellWord> {
        self.members.cells.iter().map(|cell| cell.load()).collect()
    }
}

/// The farm at one instant.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Grows with every snapshot.
    pub revision: u64,
    /// When it was made.
    pub made_at: BootTime,
    /// Every pool that was applied or has a host.
    pub pools: BTreeMap<PoolName, Arc<PoolView>>,
}

impl Snapshot {
    /// The pool and position of the host that `text` names by id, or by name.
    ///
    /// # Errors
    /// The ids of all hosts of that name, if it is not exactly one.
    pub fn find_host(&self, text: &str) -> Result<(&Arc<PoolView>, usize), Vec<HostId>> {
        let all = || {
            self.pools.values().flat_map(|pool| pool.hosts.iter().enumerate().map(move |(n, h)| (pool, n, h)))
        };
        if let Some((pool, position, _)) = all().find(|(_, _, host)| host.facts.host_id.as_str() == text) {
            return Ok((pool, position));
        }
        let named: Vec<_> = all().filter(|(_, _, host)| host.facts.name.matches(text)).collect();
        match named.as_slice() {
            [(pool, position, _)] => Ok((*pool, *position)),
            several => Err(several.iter().map(|(_, _, host)| host.facts.host_id.clone()).collect()),
        }
    }
}
