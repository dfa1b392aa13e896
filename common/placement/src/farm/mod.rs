//! The farm as this coordinator knows it: who is in it, what each host said last, what state that makes.
//!
//! One owner changes it ([`Farm`]); everyone else reads [`Snapshot`]s that the owner makes. Changes come as
//! observations with the instant at which they were measured; what has to be done about them is returned as
//! [`Effect`]s, for the caller to do.

mod attach;
mod busy;
mod cells;
mod columns;
mod follow;
mod grace;
mod host_view;
mod hosts;
mod last_good;
mod learned;
mod marks;
mod observe;
mod pool_settings;
mod reconcile;
mod registry;
mod restore;
mod session_index;
mod settings_watch;
mod shown;
mod snapshot;
mod state;
mod ticks;
mod watch;
mod watched;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

pub use attach::{AttachRefused, Attached};
use cells::CellRow;
pub(crate) use cells::SeenWords;
pub use cells::{CellChange, CellWord, HostCell, Listed};
pub(crate) use columns::{Columns, NO_TIER, Ranked, lack};
use grace::FROZEN_AFTER;
pub use grace::{GRACE, Grace, HeardShare, STALE};
pub use host_view::{DrainMark, HostFacts, HostView, LatencyReading, Reading};
pub use hosts::Hosts;
use last_good::LastGood;
pub use learned::LearnedRecord;
use learned::{HostLearning, PoolLearning};
pub use marks::MarkedReplica;
use marks::{AdminMarks, ReplicaMarks};
pub use pool_settings::{ApplyRefused, HostSettings, PoolApply, PoolRecord};
pub use restore::{Given, LastKnown, Restored};
pub use session_index::{SessionAt, SessionIndex};
use settings_watch::Differing;
use shown::Shown;
pub use snapshot::{LostShare, Members, PoolView, Snapshot};
pub(crate) use state::is_over;
pub use state::{StateInput, state_of, state_reason};
pub use ticks::Ticks;
use usher_availability::{AvailabilityTracker, Latches};
use usher_types::{
    BootTime, EndReason, HostId, HostState, Policy, PoolName, ReplicaMark, ResourceId, SettingsHash, Token,
};
pub use watched::{WatchedHost, WatchedPool};

use crate::{
    decision::Crowd,
    reservation::{LatestTwo, Ledger},
};

/// What follows from an observation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Tell the host that a place has ended.
    EndPlace {
        /// The host.
        host_id: HostId,
        /// The place.
        token: Token,
        /// Ended if it was given under this attempt or a lower one.
        attempt: u32,
        /// Why.
        reason: EndReason,
    },
    /// A host changed its state.
    StateChanged {
        /// The host.
        host_id: HostId,
        /// What it was.
        from: HostState,
        /// What it is.
        to: HostState,
        /// Why; may be empty.
        reason: String,
    },
    /// The mark of a replica that its host lists no more was kept long enough; to be removed from the store.
    MarkExpired {
        /// The host.
        host_id: HostId,
        /// What it held a copy of.
        resource_id: ResourceId,
    },
    /// Hosts have had other settings of their pool than ours for long: another coordinator gives them. Or none has any more.
    SettingsDiffer {
        /// The pool.
        pool: PoolName,
        /// Of the settings in force here.
        ours: SettingsHash,
        /// How many hosts.
        hosts: usize,
        /// Of the others'. Empty: it is over.
        theirs: BTreeSet<SettingsHash>,
    },
    /// The coordinator's clock stood still: a grace begins.
    Thawed {
        /// For how long.
        after: Duration,
    },
}

/// One host, as its owner keeps it.
#[derive(Debug)]
struct HostEntry {
    view: HostView,
    cell: Arc<HostCell>,
    tracker: AvailabilityTracker,
    /// What holds it BUSY as this coordinator sees it, for a host that keeps no latches itself.
    latches: Latches,
    /// Its last Load said what its own latches hold.
    keeps_latches: bool,
    /// Of the stream that is open.
    stream_epoch: Option<u64>,
    /// The state that was announced last.
    last_state: HostState,
    /// It counted as alive when the running grace began.
    was_alive: bool,
    /// It has told through the stream that is open what it serves.
    has_listed: bool,
    /// When its sessions were listed: their ages are of that instant.
    sessions_at: BootTime,
    /// The last good value of each number that may stand for a wrong one.
    last_good: LastGood,
    /// What its reports say of the cost of sessions.
    learning: HostLearning,
    /// Since when it has had other settings than its pool has here.
    differing: Option<Differing>,
}

#[derive(Debug)]
struct Pool {
    record: PoolRecord,
    policy: Arc<Policy>,
    /// An apply is on its way to the store.
    applying: bool,
    host_ids: Vec<HostId>,
    positions: HashMap<HostId, usize>,
    /// As of the last snapshot; made anew for the next one if hosts came, went or changed their names.
    members: Arc<Members>,
    members_changed: bool,
    views: Vec<Arc<HostView>>,
    shown: Shown,
    replicas: Arc<BTreeMap<ResourceId, Vec<u32>>>,
    marked: Arc<BTreeMap<ResourceId, Vec<(u32, ReplicaMark)>>>,
    /// Replicas or their marks have.
    replicas_changed: bool,
    sessions: SessionIndex,
    /// Where places became sessions last.
    confirmed: LatestTwo,
    learned: PoolLearning,
    /// Of `policy`.
    settings_hash: SettingsHash,
    /// Hashes of other settings that hosts have, as told last.
    foreign_hashes: BTreeSet<SettingsHash>,
    dirty: bool,
}

/// The farm, as its one owner keeps it.
#[derive(Debug)]
pub struct Farm {
    hosts: BTreeMap<HostId, HostEntry>,
    pools: BTreeMap<PoolName, Pool>,
    /// Which host a certificate's name belongs to.
    bindings: BTreeMap<String, HostId>,
    /// Hosts whose certificate's name belongs to another one now, as another coordinator has seen: by their id, that one. They
    /// are here until they are gone.
    displaced: BTreeMap<HostId, HostId>,
    /// Where the cells of each pool's hosts are taken from.
    cells: HashMap<PoolName, CellRow>,
    ledger: Arc<Ledger>,
    /// Of the reports of all hosts. Absent: hosts have come or gone since it was looked for.
    shortest_interval: Option<Duration>,
    /// Marks that were stored of hosts that nothing else is known of yet.
    waiting: BTreeMap<HostId, AdminMarks>,
    replica_marks: BTreeMap<HostId, ReplicaMarks>,
    grace: Option<Grace>,
    last_tick: BootTime,
    /// When what need not be remembered was last looked for.
    last_sweep: BootTime,
    snapshot: Arc<Snapshot>,
    counts: (u32, u32),
    /// When a value that stands for a wrong one is next known no more.
    next_expiry: Option<BootTime>,
}

impl Farm {
    /// An empty farm whose places are kept in `ledger`.
    pub fn new(ledger: Arc<Ledger>, now: BootTime) -> Self {
        Self {
            hosts: BTreeMap::new(),
            pools: BTreeMap::new(),
            bindings: BTreeMap::new(),
            displaced: BTreeMap::new(),
            cells: HashMap::new(),
            ledger,
            shortest_interval: None,
            waiting: BTreeMap::new(),
            replica_marks: BTreeMap::new(),
            grace: None,
            last_tick: now,
            last_sweep: now,
            snapshot: Arc::default(),
            counts: (0, 0),
            next_expiry: None,
        }
    }

    /// The farm at `now`, for everyone who reads. The same object as before if nothing has changed.
    pub fn snapshot(&mut self, now: BootTime) -> Arc<Snapshot> {
        self.expire_values(now);
        for pool in self.pools.values_mut() {
            let learned = (&pool.learned.costs(), &pool.learned.typical());
            pool.shown.renew(&pool.views, &pool.policy, self.grace, learned, now);
        }
        let counts = self.count_heard();
        if counts != self.counts {
            self.counts = counts;
            self.pools.values_mut().for_each(|pool| pool.dirty = true);
        }
        let visible = self.pools.values().filter(|pool| pool.exists());
        if visible.clone().all(|pool| !pool.dirty) && visible.count() == self.snapshot.pools.len() {
            return self.snapshot.clone();
        }
        let mut pools = self.snapshot.pools.clone();
        pools.retain(|name, _| self.pools.get(name).is_some_and(Pool::exists));
        let names: Vec<PoolName> = self
            .pools
            .iter()
            .filter(|(_, pool)| pool.dirty && pool.exists())
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            let heard = self.heard_share(&name);
            let (hosts, marks) = (&self.hosts, &self.replica_marks);
            if let Some(pool) = self.pools.get_mut(&name) {
                pool.dirty = false;
                pool.renew(hosts, marks);
                let mut view = pool.view(self.grace, heard, counts);
                view.crowd = Crowd::of(&view, now);
                pools.insert(name, Arc::new(view));
            }
        }
        let revision = self.snapshot.revision + 1;
        let frozen_after = self.frozen_after();
        self.snapshot = Arc::new(Snapshot { revision, made_at: now, pools, frozen_after });
        self.snapshot.clone()
    }

    /// Hosts heard in time and hosts registered, without those that said goodbye.
    fn count_heard(&self) -> (u32, u32) {
        let counts = self.pools.values().map(|pool| pool.shown.hosts().heard());
        counts.fold((0, 0), |(heard, all), (more, of)| (heard + more, all + of))
    }

    /// A gap of this length between two ticks means that the coordinator was frozen: what it knows may be older than a
    /// report then.
    fn frozen_after(&mut self) -> Duration {
        let intervals = self.hosts.values().map(|host| host.view.facts.report_interval);
        let shortest = *self.shortest_interval.get_or_insert_with(|| intervals.min().unwrap_or_default());
        shortest.max(FROZEN_AFTER)
    }

    fn is_heard(&self, host: &HostEntry) -> bool {
        host.view
            .reading
            .as_ref()
            .is_some_and(|reading| self.grace.is_none_or(|grace| reading.measured_at >= grace.began))
    }

    fn heard_share(&self, pool: &PoolName) -> HeardShare {
        let Some(pool) = self.pools.get(pool).filter(|_| self.grace.is_some()) else {
            return HeardShare::default();
        };
        let mut share = HeardShare::default();
        let hosts = pool.host_ids.iter().filter_map(|host_id| self.hosts.get(host_id));
        for host in hosts.filter(|host| host.was_alive && !host.view.said_goodbye) {
            share.expected += host.view.capacity();
            share.heard += if self.is_heard(host) { host.view.capacity() } else { 0.0 };
        }
        share
    }

    /// Puts what is kept of a host where snapshots find it.
    fn publish(&mut self, host_id: &HostId) {
        let Some(host) = self.hosts.get(host_id) else { return };
        let Some(pool) = self.pools.get_mut(&host.view.facts.pool) else { return };
        if let Some(position) = pool.positions.get(host_id) {
            pool.views[*position] = Arc::new(host.view.clone());
            pool.shown.changed(*position);
            pool.dirty = true;
        }
    }
}

impl Pool {
    fn new(record: PoolRecord) -> Self {
        Self {
            policy: Arc::new(record.policy.clone()),
            settings_hash: SettingsHash::of(&record.policy),
            foreign_hashes: BTreeSet::new(),
            record,
            applying: false,
            host_ids: Vec::new(),
            positions: HashMap::new(),
            members: Arc::default(),
            members_changed: false,
            views: Vec::new(),
            shown: Shown::default(),
            replicas: Arc::default(),
            marked: Arc::default(),
            replicas_changed: false,
            sessions: SessionIndex::default(),
            confirmed: LatestTwo::default(),
            learned: PoolLearning::default(),
            dirty: true,
        }
    }

    /// Whether anybody may see it: it was applied, or a host is in it. One that is only being applied is not there yet.
    fn exists(&self) -> bool {
        self.record.version > 0 || !self.host_ids.is_empty()
    }

    /// Makes anew what depends on which hosts there are and what they hold. Once for a snapshot, however many came: a
    /// thousand hosts that attach in a second must not cost a thousand rounds over all of them.
    fn renew(&mut self, hosts: &BTreeMap<HostId, HostEntry>, marks: &BTreeMap<HostId, ReplicaMarks>) {
        if std::mem::take(&mut self.members_changed) {
            let member = |(host_id, view): (&HostId, &Arc<HostView>)| {
                Some((host_id.clone(), view.facts.name.clone(), hosts.get(host_id)?.cell.clone()))
            };
            self.members = Arc::new(Members::new(self.host_ids.iter().zip(&self.views).filter_map(member)));
        }
        if std::mem::take(&mut self.replicas_changed) {
            let mut replicas = BTreeMap::<ResourceId, Vec<u32>>::new();
            for (position, view) in (0u32..).zip(&self.views) {
                for replica in view.replicas.iter() {
                    let positions = replicas.entry(replica.resource_id.clone()).or_default();
                    if positions.last() != Some(&position) {
                        positions.push(position);
                    }
                }
            }
            self.replicas = Arc::new(replicas);
            let mut marked = BTreeMap::<ResourceId, Vec<(u32, ReplicaMark)>>::new();
            for (position, host_id) in (0u32..).zip(&self.host_ids) {
                for (resource_id, mark) in marks.get(host_id).into_iter().flat_map(ReplicaMarks::iter) {
                    marked.entry(resource_id.clone()).or_default().push((position, mark));
                }
            }
            self.marked = Arc::new(marked);
        }
    }

    fn view(&self, grace: Option<Grace>, heard: HeardShare, counts: (u32, u32)) -> PoolView {
        PoolView {
            name: self.record.name.clone(),
            policy: self.policy.clone(),
            settings_hash: self.settings_hash,
            version: self.record.version,
            members: self.members.clone(),
            hosts: self.shown.hosts().clone(),
            zones: self.shown.zones().clone(),
            logons_since: self.shown.since(),
            has_peers: self.shown.hosts().has_peers(),
            crowd: None,
            replicas: self.replicas.clone(),
            marked: self.marked.clone(),
            sessions: self.sessions.clone(),
            grace,
            heard,
            hosts_heard: counts.0,
            hosts_registered: counts.1,
            costs: self.learned.costs(),
            typical: self.learned.typical(),
        }
    }
}
