//! Which settings did a pool have, and since when?
//!
//! The versions that are kept, as the store holds them: read once at the start and added to when one is applied. What
//! was applied is never changed, so nobody waits for the store to read it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use usher_types::{Policy, PoolName};

use crate::store::{Change, PoolRecord, VERSIONS_KEPT};

/// Why two versions cannot be compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NoVersion {
    /// It has not been applied yet; the newest one.
    NotYet(u64),
    /// It is not kept any more; the oldest one that is.
    Gone(u64),
}

/// Versions of each pool's settings, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PoolHistory {
    versions: Mutex<BTreeMap<PoolName, Vec<PoolRecord>>>,
}

impl PoolHistory {
    /// Of what was stored: oldest first.
    pub(crate) fn new(versions: BTreeMap<PoolName, Vec<PoolRecord>>) -> Self {
        Self { versions: Mutex::new(versions) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PoolName, Vec<PoolRecord>>> {
        // Nothing is done under the lock that could fail half way.
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These settings were applied.
    pub(crate) fn add(&self, name: &PoolName, record: PoolRecord) {
        keep(self.lock().entry(name.clone()).or_default(), record);
    }

    /// What another coordinator has changed, or this one before.
    pub(crate) fn follow(&self, changes: &[Change]) {
        let mut all = self.lock();
        for change in changes {
            match change {
                Change::Pool(name, Some(record)) | Change::Version(name, _, Some(record)) => {
                    keep(all.entry(name.clone()).or_default(), record.clone());
                }
                Change::Pool(name, None) => drop(all.remove(name)),
                Change::Version(name, version, None) => {
                    if let Some(versions) = all.get_mut(name) {
                        versions.retain(|kept| kept.version != *version);
                    }
                }
                _ => {}
            }
        }
    }

    /// The newest `limit` versions, newest first, each with the settings before it: those of the version before, or the
    /// defaults for the first one. Absent settings: not kept.
    pub(crate) fn newest(&self, name: &PoolName, limit: usize) -> Vec<(PoolRecord, Option<Policy>)> {
        let all = self.lock();
        let versions = all.get(name).map_or(&[][..], Vec::as_slice);
        let with_before = |(index, record): (usize, &PoolRecord)| {
            let before = index.checked_sub(1).map(|before| versions[before].policy.clone());
            let first = || (record.version == 1).then(Policy::default);
            (record.clone(), before.or_else(first))
        };
        versions.iter().enumerate().rev().take(limit).map(with_before).collect()
    }

    /// The version before this one. A restore, or a file that names its version, leaves numbers out.
    pub(crate) fn before(&self, name: &PoolName, version: u64) -> u64 {
        let all = self.lock();
        let earlier = all.get(name).into_iter().flatten().rev().find(|kept| kept.version < version);
        earlier.map_or(version.saturating_sub(1), |kept| kept.version)
    }

    /// The settings of one version; 0: the defaults.
    ///
    /// # Errors
    /// [`NoVersion`] if there is none, or not any more.
    pub(crate) fn find(&self, name: &PoolName, version: u64) -> Result<Policy, NoVersion> {
        if version == 0 {
            return Ok(Policy::default());
        }
        let all = self.lock();
        let versions = all.get(name).map_or(&[][..], Vec::as_slice);
        let Some(newest) = versions.last().filter(|newest| newest.version >= version) else {
            return Err(NoVersion::NotYet(versions.last().map_or(0, |newest| newest.version)));
        };
        let found = versions.iter().find(|kept| kept.version == version);
        let oldest = versions.first().unwrap_or(newest).version;
        found.map(|kept| kept.policy.clone()).ok_or(NoVersion::Gone(oldest))
    }
}

/// Adds a version in its place, instead of what was there, and drops what is kept no more.
fn keep(versions: &mut Vec<PoolRecord>, record: PoolRecord) {
    match versions.binary_search_by_key(&record.version, |kept| kept.version) {
        Ok(at) => versions[at] = record,
        Err(at) => versions.insert(at, record),
    }
    let newest = versions.last().map_or(0, |newest| newest.version);
    versions.retain(|kept| kept.version > newest.saturating_sub(VERSIONS_KEPT));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> PoolName {
        PoolName::new("desk").unwrap()
    }

    fn record(version: u64) -> PoolRecord {
        let policy = Policy { users_full_scale: version as f64, ..Policy::default() };
        PoolRecord { version, policy, author: "ann".to_owned(), applied_unix_ms: version }
    }

    #[test]
    fn each_version_comes_with_the_one_before_it() {
        let history = PoolHistory::default();
        assert!(history.newest(&name(), 100).is_empty());
        (1..=3).for_each(|version| history.add(&name(), record(version)));
        let newest = history.newest(&name(), 2);
        assert_eq!(newest, [(record(3), Some(record(2).policy)), (record(2), Some(record(1).policy))]);
        assert_eq!(history.newest(&name(), 9)[2], (record(1), Some(Policy::default())));
    }

    #[test]
    fn a_version_that_is_not_kept_is_told_from_one_that_is_yet_to_come() {
        // A store of an earlier build held the settings in force only.
        let history = PoolHistory::new(BTreeMap::from([(name(), vec![record(7)])]));
        history.add(&name(), record(8));
        assert_eq!(history.find(&name(), 7), Ok(record(7).policy));
        assert_eq!(history.find(&name(), 0), Ok(Policy::default()));
        assert_eq!(history.find(&name(), 6), Err(NoVersion::Gone(7)));
        assert_eq!(history.find(&name(), 9), Err(NoVersion::NotYet(8)));
        assert_eq!(history.newest(&name(), 9)[1], (record(7), None));
    }

    #[test]
    fn a_version_that_comes_late_from_another_coordinator_takes_its_place_and_no_others() {
        let history = PoolHistory::default();
        history.add(&name(), record(3));
        history.follow(&[Change::Pool(name(), Some(record(2))), Change::Version(name(), 1, Some(record(1)))]);
        history.add(&name(), record(3));
        let versions: Vec<u64> = history.newest(&name(), 9).iter().map(|(kept, _)| kept.version).collect();
        assert_eq!(versions, [3, 2, 1]);
        history.follow(&[Change::Version(name(), 1, None)]);
        assert_eq!(history.find(&name(), 1), Err(NoVersion::Gone(2)));
    }

    #[test]
    fn the_version_before_one_is_the_one_that_was_in_force_before_it() {
        let history = PoolHistory::default();
        assert_eq!([0, 1].map(|version| history.before(&name(), version)), [0, 0]);
        [1, 2, 12].into_iter().for_each(|version| history.add(&name(), record(version)));
        assert_eq!([1, 2, 12].map(|version| history.before(&name(), version)), [0, 1, 2]);
    }

    #[test]
    fn the_oldest_version_goes_when_there_are_too_many() {
        let history = PoolHistory::default();
        (1..=VERSIONS_KEPT + 2).for_each(|version| history.add(&name(), record(version)));
        assert_eq!(history.find(&name(), 2), Err(NoVersion::Gone(3)));
        assert!(history.find(&name(), 3).is_ok());
    }
}
