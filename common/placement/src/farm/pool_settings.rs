//! Which settings are in force in a pool?
//!
//! They change in two steps, because they must be stored before anybody decides by them: the version is kept for a
//! change, and the change is in force once the store has it. Of two changes that were based on one version, the second
//! is refused.

use std::sync::Arc;

use thiserror::Error;
use usher_types::{FieldFault, HostId, HostMarks, Policy, PolicyChange, PoolName, Profile, SettingsHash};

use super::{DrainMark, Farm, Pool, SessionIndex};

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

/// Settings that are to be applied.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PoolApply {
    /// The version that they are based on. Absent: whatever is in force.
    pub expected: Option<u64>,
    /// Refused if the pool was applied before.
    pub must_be_new: bool,
    /// Settings of a kind of farm, applied before the change.
    pub profile: Option<Profile>,
    /// What else changes.
    pub change: PolicyChange,
}

impl PoolApply {
    /// A change of whatever is in force.
    pub fn of(change: PolicyChange) -> Self {
        Self { change, ..Self::default() }
    }
}

/// What a host must be told.
#[derive(Copy, Clone, Debug)]
pub struct HostSettings<'a> {
    /// Its pool's settings.
    pub record: &'a PoolRecord,
    /// Their hash.
    pub hash: SettingsHash,
    /// An admin's drain of it.
    pub drain: Option<&'a DrainMark>,
    /// An admin's settings of it.
    pub marks: &'a HostMarks,
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
    /// They were for a pool that was not there before.
    #[error("version {current} exists, the pool must be new")]
    Exists {
        /// The version in force.
        current: u64,
    },
    /// Another change is being stored.
    #[error("another change of this pool is being stored")]
    InProgress,
}

impl Farm {
    /// The settings that a change would make, with the version that they would get; and the version is kept for them
    /// until [`commit_pool`](Self::commit_pool) or [`abandon_pool`](Self::abandon_pool), unless `dry_run`.
    ///
    /// # Errors
    /// [`ApplyRefused`]; the settings in force stay.
    pub fn prepare_pool(
        &mut self,
        name: &PoolName,
        apply: &PoolApply,
        dry_run: bool,
    ) -> Result<PoolRecord, ApplyRefused> {
        let existing = self.pools.get(name);
        let current = existing.map_or(0, |pool| pool.record.version);
        if apply.must_be_new && current > 0 {
            return Err(ApplyRefused::Exists { current });
        }
        if let Some(expected) = apply.expected.filter(|expected| *expected != current) {
            return Err(ApplyRefused::Version { current, expected });
        }
        if existing.is_some_and(|pool| pool.applying) {
            return Err(ApplyRefused::InProgress);
        }
        let base = existing.map(|pool| (*pool.policy).clone()).unwrap_or_default();
        let profile = apply.profile.map(|profile| profile.change().apply_to(&base));
        let base = profile.unwrap_or(Ok(base)).map_err(ApplyRefused::Fields)?;
        let policy = apply.change.apply_to(&base).map_err(ApplyRefused::Fields)?;
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

    /// Puts settings in force that were stored. Not those that another coordinator has replaced meanwhile.
    pub fn commit_pool(&mut self, record: PoolRecord) {
        match self.pools.get_mut(&record.name) {
            Some(pool) if pool.record.version > record.version => pool.applying = false,
            _ => self.put_in_force(record),
        }
    }

    pub(super) fn put_in_force(&mut self, record: PoolRecord) {
        let Some(pool) = self.pools.get_mut(&record.name) else { return };
        let rule_changed = pool.policy.user_match != record.policy.user_match;
        pool.policy = Arc::new(record.policy.clone());
        pool.settings_hash = SettingsHash::of(&record.policy);
        pool.record = record;
        pool.applying = false;
        pool.dirty = true;
        let (name, host_ids) = (pool.record.name.clone(), pool.host_ids.clone());
        if rule_changed {
            pool.sessions = SessionIndex::default();
            self.ledger.rekey_users(&name, pool.policy.user_match);
        }
        for host_id in host_ids {
            self.follow_settings(&host_id, rule_changed);
        }
    }

    /// Computes anew what was computed of a host with the settings before: its availability index, and under which
    /// names its users are found.
    pub(super) fn follow_settings(&mut self, host_id: &HostId, rule_changed: bool) {
        let Some(host) = self.hosts.get_mut(host_id) else { return };
        let Some(pool) = self.pools.get_mut(&host.view.facts.pool) else { return };
        if rule_changed {
            let rule = pool.policy.user_match;
            pool.sessions.replace(host_id, &[], &host.view.sessions, rule, host.sessions_at);
        }
        host.follow_range(&pool.policy);
        self.publish(host_id);
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

    /// What a host must be told. Absent: no such host.
    pub fn settings_of(&self, host_id: &HostId) -> Option<HostSettings<'_>> {
        let view = &self.hosts.get(host_id)?.view;
        let pool = self.pools.get(&view.facts.pool)?;
        Some(HostSettings {
            record: &pool.record,
            hash: pool.settings_hash,
            drain: view.drain.as_deref(),
            marks: &view.marks,
        })
    }

    /// The hosts of a pool.
    pub fn hosts_of(&self, pool: &PoolName) -> &[HostId] {
        self.pools.get(pool).map_or(&[], |pool| &pool.host_ids)
    }

    /// Settings of a pool, as stored.
    pub fn pool_record(&self, name: &PoolName) -> Option<&PoolRecord> {
        self.pools.get(name).filter(|pool| pool.exists()).map(|pool| &pool.record)
    }

    /// Every pool's settings, by name.
    pub fn pool_records(&self) -> impl Iterator<Item = (&PoolRecord, usize)> {
        self.pools.values().filter(|pool| pool.exists()).map(|pool| (&pool.record, pool.host_ids.len()))
    }
}

impl PoolRecord {
    /// A pool that was never applied.
    pub fn default_of(name: PoolName) -> Self {
        Self { name, version: 0, policy: Policy::default(), author: String::new(), applied_unix_ms: None }
    }
}
