//! Which settings are in force at a host to which several coordinators speak?
//!
//! The highest version that is held by any of them. A lower one replaces what the *same* coordinator said before, so
//! that a coordinator whose store was set back is not ignored for ever. Of equal versions the one whose words changed
//! last counts: an admin's marks of a host change without a new version of the pool.

use std::collections::BTreeMap;

use usher_types::{HostMarks, Policy};

/// The settings of a pool, as a coordinator told them to one host.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionedSettings {
    /// Grows with every change.
    pub version: u64,
    /// The settings.
    pub policy: Policy,
    /// The admin's settings of this host.
    pub marks: HostMarks,
}

/// What each coordinator said last, by its number.
#[derive(Debug, Default)]
pub(super) struct ToldSettings {
    told: BTreeMap<usize, (u64, VersionedSettings)>,
    changes: u64,
}

impl ToldSettings {
    /// Takes over what the coordinator `from` says. Whether what is in force changed.
    pub(super) fn tell(&mut self, from: usize, settings: VersionedSettings) -> bool {
        if self.told.get(&from).is_some_and(|(_, before)| *before == settings) {
            return false;
        }
        let before = self.in_force().cloned();
        self.changes += 1;
        self.told.insert(from, (self.changes, settings));
        self.in_force() != before.as_ref()
    }

    /// Absent before the first.
    pub(super) fn in_force(&self) -> Option<&VersionedSettings> {
        let newest = self.told.values().max_by_key(|(change, told)| (told.version, *change));
        newest.map(|(_, told)| told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(version: u64, busy: bool) -> VersionedSettings {
        let marks = HostMarks { busy, ..HostMarks::default() };
        VersionedSettings { version, policy: Policy::default(), marks }
    }

    #[test]
    fn the_highest_version_is_in_force_whoever_told_it() {
        let mut told = ToldSettings::default();
        assert!(told.tell(0, settings(7, false)));
        assert!(!told.tell(1, settings(6, false)));
        // The first coordinator's store was set back: what it said before counts no more.
        assert!(told.tell(0, settings(2, false)));
        assert_eq!(told.in_force().map(|told| told.version), Some(6));
    }

    #[test]
    fn of_one_version_the_last_change_counts_and_a_repetition_is_none() {
        let mut told = ToldSettings::default();
        told.tell(0, settings(1, false));
        assert!(!told.tell(1, settings(1, false)), "the same words");
        assert!(told.tell(0, settings(1, true)));
        assert!(!told.tell(1, settings(1, false)), "a coordinator that came back has nothing new to say");
        assert!(told.in_force().is_some_and(|told| told.marks.busy));
    }
}
