//! Who is in the farm: hosts come and go, pools change their settings, admins drain.
//!
//! A host is its id, never its name or address. Two streams under one id are either the same host that connected again
//! (then the newer stream counts, and the end of the older one changes nothing), or two machines that were cloned from
//! one image (then the one that was there first stays, if it still answers).

use std::sync::Arc;

use thiserror::Error;
use usher_availability::AvailabilityTracker;
use usher_types::{
    BootId, BootTime, Drain, DrainMode, EndReason, FieldFault, Goodbye, Hello, HostId, HostState, Memory,
    Policy, PolicyChange, PoolName, Readiness, SessionCounts,
};

use super::{
    DrainMark, Farm, Grace, HostCell, HostEntry, HostFacts, HostView, Members, Pool, Reading, SessionIndex,
};

/// A pool's settings, as they are stored.
#[derive(Clone, PartialEq, Debug)]
pub struct PoolRecord {
    /// Its name.
    pub name: PoolName,
    /// Grows by one with each apply; 0: never applied.
    pub version: u64,
    /// The settings.
    pub policy: Policy,
    /// Who applied them; may be empty.
    pub author: String,
    /// When, wall clock, ms since 1970 UTC.
    pub applied_unix_ms: Option<u64>,
}

/// What was stored of a host before the coordinator stopped.
#[derive(Clone, PartialEq, Debug)]
pub struct LastKnown {
    /// Who it is.
    pub facts: HostFacts,
    /// It was OFFLINE then: nobody waits for it.
    pub was_offline: bool,
    /// It had said goodbye for a shutdown.
    pub shut_down: bool,
    /// Size relative to a normal host.
    pub capacity: Option<f64>,
    /// Busy share, percent.
    pub cpu_percent: Option<f64>,
    /// Memory in use.
    pub memory: Option<Memory>,
    /// Users.
    pub users: Option<u32>,
    /// Processes.
    pub processes: Option<u32>,
    /// Sessions by state.
    pub sessions: Option<SessionCounts>,
}

/// A host that was let in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attached {
    /// The certificate's name belongs to this host from now on; to be stored.
    pub bind: Option<String>,
    /// A host that is gone and whose certificate name this one took over.
    pub retired: Option<HostId>,
    /// A drain that ended because the host has booted again; to be removed from the store.
    pub drain_ended: bool,
    /// The stream that was open before.
    pub replaced_stream: Option<u64>,
}

/// Why a host was not let in.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum AttachRefused {
    /// Another boot of the same id has a stream: whoever answers a ping on it stays.
    #[error("host id {host_id} is in use by {held_by}, and {claimed_by} claims it too")]
    InUse {
        /// The id.
        host_id: HostId,
        /// Name of the host that has it.
        held_by: String,
        /// Name of the host that wants it.
        claimed_by: String,
        /// The stream to ping.
        stream_epoch: u64,
    },
    /// A newer stream of the same boot is open.
    #[error("a newer stream of host {0} is open")]
    OlderStream(HostId),
    /// The certificate belongs to another host.
    #[error("certificate {certificate} belongs to host id {bound_to}, not to {claimed}")]
    OtherHost {
        /// The name in the certificate.
        certificate: String,
        /// The host that it belongs to.
        bound_to: HostId,
        /// The host that came with it.
        claimed: HostId,
    },
    /// The certificate names another host.
    #[error("certificate {certificate} is not for a host called {claimed}")]
    OtherName {
        /// The name in the certificate.
        certificate: String,
        /// The name that the host gives itself.
        claimed: String,
    },
}

/// Why settings were not applied.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum ApplyRefused {
    /// Fields that are out of range.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Fields(Vec<FieldFault>),
    /// They were based on another version.
    #[error("version {current} exists, the change is based on {expected}")]
    Version {
        /// The version in force.
        current: u64,
        /// The one that was named.
        expected: u64,
    },
    /// Another change is being stored.
    #[error("another change of this pool is being stored")]
    InProgress,
}

impl Farm {
    /// Takes over what was stored. With hosts among it, a grace begins.
    pub fn restore(
        &mut self,
        pools: Vec<PoolRecord>,
        bindings: impl IntoIterator<Item = (String, HostId)>,
        known: Vec<LastKnown>,
        drains: Vec<(HostId, DrainMark)>,
        now: BootTime,
    ) {
        for record in pools {
            self.pools.insert(record.name.clone(), Pool::new(record));
        }
        self.bindings.extend(bindings);
        if !known.is_empty() {
            self.grace = Some(Grace { began: now });
        }
        for host in known {
            self.restore_host(host);
        }
        for (host_id, mark) in drains {
            self.set_drain(&host_id, Some(mark));
        }
    }

    fn restore_host(&mut self, known: LastKnown) {
        let reading = Reading {
            measured_at: BootTime::ZERO,
            cpu_percent: known.cpu_percent,
            memory: known.memory,
            users: known.users,
            processes: known.processes,
            sessions: known.sessions,
            readiness: Readiness::Ready,
            availability_latched: false,
            overrides: usher_types::HostOverrides { capacity: known.capacity, ..Default::default() },
            streams_held: 1,
            listed_pending_users: 0,
            uptime: None,
            settings_version: None,
            collectors: Vec::new(),
            clock_skew_ms: None,
            stale: Vec::new(),
        };
        let entry = HostEntry {
            view: HostView {
                facts: Arc::new(known.facts),
                connected: false,
                shut_down: known.shut_down,
                reading: Some(Arc::new(reading)),
                latency: None,
                drain: None,
                sessions: Arc::new([]),
                replicas: Arc::new([]),
                rejected_values: 0,
            },
            cell: Arc::new(HostCell::new()),
            tracker: AvailabilityTracker::default(),
            stream_epoch: None,
            certificate_name: None,
            last_state: if known.was_offline { HostState::Offline } else { HostState::Unknown },
            was_alive: !known.was_offline,
        };
        self.insert_host(entry);
    }

    /// Lets a host in, or says why not. `certificate_name` is absent on plain loopback. With `old_is_dead`, a stream
    /// of another boot that did not answer gives way.
    ///
    /// # Errors
    /// [`AttachRefused`]; nothing has changed then.
    pub fn attach(
        &mut self,
        hello: &Hello,
        certificate_name: Option<&str>,
        old_is_dead: bool,
    ) -> Result<Attached, AttachRefused> {
        self.check_stream(hello, old_is_dead)?;
        let retired = match certificate_name.filter(|_| !hello.is_virtual) {
            Some(name) => self.check_certificate(hello, name)?,
            None => None,
        };
        let inherited =
            retired.as_ref().and_then(|old| self.remove_host(old)).and_then(|entry| entry.view.drain);
        let mut attached = Attached {
            bind: None,
            retired,
            drain_ended: false,
            replaced_stream: self.stream_of(&hello.host_id),
        };
        if let Some(name) = certificate_name.filter(|_| !hello.is_virtual)
            && self.bindings.get(name) != Some(&hello.host_id)
        {
            self.bindings.insert(name.to_owned(), hello.host_id.clone());
            attached.bind = Some(name.to_owned());
        }
        attached.drain_ended = self.introduce(hello, certificate_name, inherited);
        Ok(attached)
    }

    fn stream_of(&self, host_id: &HostId) -> Option<u64> {
        self.hosts.get(host_id).and_then(|host| host.stream_epoch)
    }

    fn check_stream(&self, hello: &Hello, old_is_dead: bool) -> Result<(), AttachRefused> {
        let Some(host) = self.hosts.get(&hello.host_id) else { return Ok(()) };
        let Some(stream_epoch) = host.stream_epoch else { return Ok(()) };
        if host.view.facts.boot_id != hello.boot_id {
            if old_is_dead {
                return Ok(());
            }
            return Err(AttachRefused::InUse {
                host_id: hello.host_id.clone(),
                held_by: host.view.facts.name.to_string(),
                claimed_by: hello.host_name.to_string(),
                stream_epoch,
            });
        }
        if hello.stream_epoch < stream_epoch {
            return Err(AttachRefused::OlderStream(hello.host_id.clone()));
        }
        Ok(())
    }

    /// The host that must give way, if the certificate's name belongs to one that is gone.
    fn check_certificate(&self, hello: &Hello, certificate: &str) -> Result<Option<HostId>, AttachRefused> {
        if !hello.host_name.matches(certificate) {
            return Err(AttachRefused::OtherName {
                certificate: certificate.to_owned(),
                claimed: hello.host_name.to_string(),
            });
        }
        let of_other = self.bindings.iter().find(|(name, id)| **id == hello.host_id && *name != certificate);
        if let Some((name, bound_to)) = of_other {
            let (certificate, claimed) =
                (format!("{certificate} (the host has {name})"), hello.host_id.clone());
            return Err(AttachRefused::OtherHost { certificate, bound_to: bound_to.clone(), claimed });
        }
        match self.bindings.get(certificate) {
            Some(bound) if *bound != hello.host_id => match self.hosts.get(bound) {
                Some(host) if host.last_state != HostState::Offline => Err(AttachRefused::OtherHost {
                    certificate: certificate.to_owned(),
                    bound_to: bound.clone(),
                    claimed: hello.host_id.clone(),
                }),
                _ => Ok(Some(bound.clone())),
            },
            _ => Ok(None),
        }
    }

    /// Whether a drain ended because the host has booted again.
    fn introduce(
        &mut self,
        hello: &Hello,
        certificate: Option<&str>,
        inherited: Option<Arc<DrainMark>>,
    ) -> bool {
        let old = self.remove_host(&hello.host_id);
        let same_boot = old.as_ref().is_some_and(|old| old.view.facts.boot_id == hello.boot_id);
        let mut drain_ended = false;
        let mut entry = old.unwrap_or_else(|| new_entry(hello));
        entry.view.facts = Arc::new(HostFacts::from(hello));
        entry.view.connected = true;
        entry.view.shut_down = false;
        entry.view.drain = entry.view.drain.or(inherited);
        entry.stream_epoch = Some(hello.stream_epoch);
        entry.certificate_name = certificate.map(str::to_owned);
        if !same_boot {
            // Nothing that was measured or promised in an earlier boot is true in this one.
            for grant in self.ledger.on_host(&hello.host_id) {
                grant.end(EndReason::HostLost, self.last_tick);
            }
            drain_ended = entry.view.drain.as_ref().is_some_and(|mark| ends_with_boot(mark, &hello.boot_id));
            if drain_ended {
                entry.view.drain = None;
            }
            entry.view.reading = None;
            entry.view.latency = None;
            entry.view.sessions = Arc::new([]);
            entry.tracker = AvailabilityTracker::default();
        }
        self.insert_host(entry);
        drain_ended
    }

    /// The end of a stream. Absent goodbye: it broke. The end of a stream that another one has replaced changes
    /// nothing. Whether it was the living one.
    pub fn detach(
        &mut self,
        host_id: &HostId,
        stream_epoch: u64,
        goodbye: Option<Goodbye>,
        now: BootTime,
    ) -> bool {
        let Some(host) = self.hosts.get_mut(host_id) else { return false };
        if host.stream_epoch != Some(stream_epoch) {
            return false;
        }
        host.stream_epoch = None;
        host.view.connected = false;
        if goodbye == Some(Goodbye::HostShutdown) {
            host.view.shut_down = true;
            for grant in self.ledger.on_host(host_id) {
                grant.end(EndReason::HostLost, now);
            }
        }
        self.publish(host_id);
        true
    }

    fn insert_host(&mut self, entry: HostEntry) {
        let facts = entry.view.facts.clone();
        let pool = self
            .pools
            .entry(facts.pool.clone())
            .or_insert_with(|| Pool::new(PoolRecord::default_of(facts.pool.clone())));
        pool.host_ids.push(facts.host_id.clone());
        pool.views.push(Arc::new(entry.view.clone()));
        pool.sessions.replace(
            &facts.host_id,
            &[],
            &entry.view.sessions,
            pool.policy.user_match,
            self.last_tick,
        );
        self.hosts.insert(facts.host_id.clone(), entry);
        self.rebuild_members(&facts.pool);
    }

    fn remove_host(&mut self, host_id: &HostId) -> Option<HostEntry> {
        let entry = self.hosts.remove(host_id)?;
        let pool_name = entry.view.facts.pool.clone();
        if let Some(pool) = self.pools.get_mut(&pool_name)
            && let Some(position) = pool.members.position(host_id)
        {
            pool.host_ids.remove(position);
            pool.views.remove(position);
            pool.sessions.replace(host_id, &entry.view.sessions, &[], pool.policy.user_match, self.last_tick);
        }
        self.rebuild_members(&pool_name);
        Some(entry)
    }

    fn rebuild_members(&mut self, pool: &PoolName) {
        let hosts = &self.hosts;
        if let Some(pool) = self.pools.get_mut(pool) {
            let cells = pool.host_ids.iter().filter_map(|id| Some((id.clone(), hosts.get(id)?.cell.clone())));
            pool.members = Arc::new(Members::new(cells));
        }
        self.rebuild_replicas(pool);
    }

    pub(super) fn rebuild_replicas(&mut self, pool: &PoolName) {
        let Some(pool) = self.pools.get_mut(pool) else { return };
        let mut replicas = std::collections::BTreeMap::<_, Vec<u32>>::new();
        for (position, view) in (0u32..).zip(&pool.views) {
            for replica in view.replicas.iter() {
                let positions = replicas.entry(replica.resource_id.clone()).or_default();
                if positions.last() != Some(&position) {
                    positions.push(position);
                }
            }
        }
        pool.replicas = Arc::new(replicas);
        pool.dirty = true;
    }

    /// The settings that a change would make, with the version that they would get; and the version is kept for them
    /// until [`commit_pool`](Self::commit_pool) or [`abandon_pool`](Self::abandon_pool), unless `dry_run`.
    ///
    /// # Errors
    /// [`ApplyRefused`]; the settings in force stay.
    pub fn prepare_pool(
        &mut self,
        name: &PoolName,
        expected: Option<u64>,
        change: &PolicyChange,
        dry_run: bool,
    ) -> Result<PoolRecord, ApplyRefused> {
        let existing = self.pools.get(name);
        let current = existing.map_or(0, |pool| pool.record.version);
        if let Some(expected) = expected.filter(|expected| *expected != current) {
            return Err(ApplyRefused::Version { current, expected });
        }
        if existing.is_some_and(|pool| pool.applying) {
            return Err(ApplyRefused::InProgress);
        }
        let base = existing.map(|pool| (*pool.policy).clone()).unwrap_or_default();
        let policy = change.apply_to(&base).map_err(ApplyRefused::Fields)?;
        let record = PoolRecord { version: current + 1, policy, ..PoolRecord::default_of(name.clone()) };
        if !dry_run {
            let pool = self
                .pools
                .entry(name.clone())
                .or_insert_with(|| Pool::new(PoolRecord::default_of(name.clone())));
            pool.applying = true;
        }
        Ok(record)
    }

    /// Puts settings in force that were stored.
    pub fn commit_pool(&mut self, record: PoolRecord, now: BootTime) {
        let Some(pool) = self.pools.get_mut(&record.name) else { return };
        let rule_changed = pool.policy.user_match != record.policy.user_match;
        pool.policy = Arc::new(record.policy.clone());
        pool.record = record;
        pool.applying = false;
        pool.dirty = true;
        if rule_changed {
            pool.sessions = SessionIndex::default();
            for view in &pool.views {
                let (id, rule) = (&view.facts.host_id, pool.policy.user_match);
                pool.sessions.replace(id, &[], &view.sessions, rule, now);
            }
        }
    }

    /// The store did not take the settings: the old ones stay. A pool that never was goes again.
    pub fn abandon_pool(&mut self, name: &PoolName) {
        if let Some(pool) = self.pools.get_mut(name) {
            pool.applying = false;
            if pool.record.version == 0 && pool.host_ids.is_empty() {
                self.pools.remove(name);
            }
        }
    }

    /// Settings of a pool, as stored.
    pub fn pool_record(&self, name: &PoolName) -> Option<&PoolRecord> {
        self.pools.get(name).map(|pool| &pool.record)
    }

    /// Every pool's settings, by name.
    pub fn pool_records(&self) -> impl Iterator<Item = (&PoolRecord, usize)> {
        self.pools.values().map(|pool| (&pool.record, pool.host_ids.len()))
    }

    /// Sets or removes an admin's drain. The one that was there before.
    pub fn set_drain(&mut self, host_id: &HostId, mark: Option<DrainMark>) -> Option<Arc<DrainMark>> {
        let host = self.hosts.get_mut(host_id)?;
        let before = std::mem::replace(&mut host.view.drain, mark.map(Arc::new));
        self.publish(host_id);
        before
    }

    /// The mark that a drain set now would be. Absent: no such host.
    pub fn drain_mark(&self, host_id: &HostId, drain: Drain) -> Option<DrainMark> {
        let host = self.hosts.get(host_id)?;
        Some(DrainMark { drain, boot_id: Some(host.view.facts.boot_id.clone()) })
    }

    /// What should be stored of every host.
    pub fn last_known(&self) -> Vec<LastKnown> {
        let known = |host: &HostEntry| {
            let reading = host.view.reading.as_deref();
            LastKnown {
                facts: (*host.view.facts).clone(),
                was_offline: host.last_state == HostState::Offline,
                shut_down: host.view.shut_down,
                capacity: host.view.overrides().capacity,
                cpu_percent: reading.and_then(|r| r.cpu_percent),
                memory: reading.and_then(|r| r.memory),
                users: reading.and_then(|r| r.users),
                processes: reading.and_then(|r| r.processes),
                sessions: reading.and_then(|r| r.sessions),
            }
        };
        self.hosts.values().map(known).collect()
    }
}

fn ends_with_boot(mark: &DrainMark, boot_id: &BootId) -> bool {
    mark.drain.mode == DrainMode::UntilRestart && mark.boot_id.as_ref().is_none_or(|set_in| set_in != boot_id)
}

fn new_entry(hello: &Hello) -> HostEntry {
    HostEntry {
        view: HostView {
            facts: Arc::new(HostFacts::from(hello)),
            connected: true,
            shut_down: false,
            reading: None,
            latency: None,
            drain: None,
            sessions: Arc::new([]),
            replicas: Arc::new([]),
            rejected_values: 0,
        },
        cell: Arc::new(HostCell::new()),
        tracker: AvailabilityTracker::default(),
        stream_epoch: Some(hello.stream_epoch),
        certificate_name: None,
        last_state: HostState::Unknown,
        was_alive: false,
    }
}

impl PoolRecord {
    /// A pool that was never applied.
    pub fn default_of(name: PoolName) -> Self {
        Self { name, version: 0, policy: Policy::default(), author: String::new(), applied_unix_ms: None }
    }
}
