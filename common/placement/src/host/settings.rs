//! Which settings are in force at a host to which several coordinators speak?
//!
//! Those of the highest version that is held by any of them. A lower one replaces what the *same* coordinator said before, so
//! that a coordinator whose store was set back is not ignored for ever. Of different settings of one version (coordinators
//! without a common store count them apart) those that are in force stay, as long as whoever said them says so: limits and
//! thresholds must not go to and fro with every word. An admin's marks of a host change without a new version of the pool:
//! of one version those that changed last count.

use std::collections::BTreeMap;

use usher_types::{HostMarks, Policy, SettingsHash};

/// The settings of a pool, as a coordinator told them to one host.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionedSettings {
    /// Grows with every change.
    pub version: u64,
    /// The settings.
    pub policy: Policy,
    /// Their hash, as the coordinator told it.
    pub hash: Option<SettingsHash>,
    /// The admin's settings of this host.
    pub marks: HostMarks,
}

impl VersionedSettings {
    fn is_like(&self, other: &Self) -> bool {
        self.version == other.version && self.hash == other.hash && self.policy == other.policy
    }
}

/// What each coordinator said last, by its number.
#[derive(Debug, Default)]
pub(super) struct ToldSettings {
    told: BTreeMap<usize, (u64, VersionedSettings)>,
    changes: u64,
    in_force: Option<VersionedSettings>,
}

impl ToldSettings {
    /// Takes over what the coordinator `from` says. Whether what is in force changed.
    pub(super) fn tell(&mut self, from: usize, settings: VersionedSettings) -> bool {
        if self.told.get(&from).is_some_and(|(_, before)| *before == settings) {
            return false;
        }
        self.changes += 1;
        self.told.insert(from, (self.changes, settings));
        let next = self.chosen();
        let is_new = next != self.in_force;
        self.in_force = next;
        is_new
    }

    fn chosen(&self) -> Option<VersionedSettings> {
        let newest = self.told.values().max_by_key(|(change, told)| (told.version, *change));
        let (_, newest) = newest?;
        let held = self.in_force.as_ref().filter(|held| {
            held.version == newest.version && self.told.values().any(|(_, told)| told.is_like(held))
        });
        Some(VersionedSettings { marks: newest.marks, ..held.unwrap_or(newest).clone() })
    }

    /// What others than these said counts no more, but for what is in force: a host without settings has no limits.
    pub(super) fn forget_unless(&mut self, is_there: impl Fn(usize) -> bool) {
        let held = self.in_force.as_ref();
        self.told
            .retain(|number, (_, told)| is_there(*number) || held.is_some_and(|held| told.is_like(held)));
    }

    /// Absent before the first.
    pub(super) fn in_force(&self) -> Option<&VersionedSettings> {
        self.in_force.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(version: u64, busy: bool) -> VersionedSettings {
        let marks = HostMarks { busy, ..HostMarks::default() };
        VersionedSettings { version, policy: Policy::default(), hash: None, marks }
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
    fn what_a_coordinator_said_that_is_gone_is_forgotten_unless_it_is_in_force() {
        let mut told = ToldSettings::default();
        told.tell(0, settings(7, false));
        told.tell(1, settings(6, false));
        told.forget_unless(|number| number == 2);
        assert_eq!(told.in_force().map(|told| told.version), Some(7));
        told.tell(2, settings(8, false));
        told.forget_unless(|number| number == 2);
        assert_eq!(told.told.keys().collect::<Vec<_>>(), [&2]);
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

    fn of_policy(version: u64, range: f64) -> VersionedSettings {
        let policy = Policy { range, ..Policy::default() };
        VersionedSettings { hash: Some(SettingsHash::of(&policy)), policy, ..settings(version, false) }
    }

    #[test]
    fn of_two_policies_of_one_version_the_one_in_force_stays_whoever_speaks_last() {
        let mut told = ToldSettings::default();
        let range = |told: &ToldSettings| told.in_force().map(|told| told.policy.range);
        assert!(told.tell(0, of_policy(3, 7.0)));
        assert!(!told.tell(1, of_policy(3, 8.0)), "another file, the same version");
        for busy in [true, false, true] {
            let marks = HostMarks { busy, ..HostMarks::default() };
            told.tell(1, VersionedSettings { marks, ..of_policy(3, 8.0) });
            assert_eq!(range(&told), Some(7.0), "its marks count, its settings do not");
            assert!(told.in_force().is_some_and(|told| told.marks.busy == busy));
        }
        assert!(told.tell(1, of_policy(4, 8.0)), "a higher version counts");
        assert!(!told.tell(0, of_policy(4, 7.0)));
        assert_eq!(range(&told), Some(8.0));
        assert!(told.tell(1, of_policy(4, 7.0)), "nobody says the ones in force any more");
        assert_eq!(range(&told), Some(7.0));
    }
}
