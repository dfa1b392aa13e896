//! Do two coordinators mean the same by "the settings of this pool"?
//!
//! Versions cannot tell: two coordinators without a common store count them apart. So each puts a short hash of what it
//! has beside them, its hosts repeat the hash of what they hold in their reports, and whoever hears another one than its
//! own knows that somebody decides by other settings.
//!
//! The hash is of every setting that differs from its default, as `name=value` in the form in which it is typed, ordered by
//! name, one a line. A build that knows one setting more has the same hash until somebody sets it, and neither the order of
//! a file nor the form of a number plays a part. It finds mistakes; it keeps nobody from making two settings alike.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Policy;

/// A short hash of a pool's settings. Shown as 16 hexadecimal digits.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct SettingsHash(pub u64);

impl SettingsHash {
    /// Of these settings.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        let mut changes = Policy::default().changes_to(policy);
        changes.sort_by(|a, b| a.field.cmp(&b.field));
        let lines = changes.iter().flat_map(|change| [&change.field, "=", &change.after, "\n"]);
        // FNV-1a: short, the same everywhere, and good enough for a handful of texts.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(lines.flat_map(str::bytes).fold(0xcbf2_9ce4_8422_2325, mix))
    }
}

impl fmt::Display for SettingsHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PolicyChange, UserLimit};

    #[test]
    fn settings_have_the_hash_that_other_builds_give_them() {
        // A change of these numbers is an alert in every farm that has two builds at work.
        assert_eq!(SettingsHash::of(&Policy::default()).to_string(), "cbf29ce484222325");
        let mut change = PolicyChange::default();
        for (name, value) in [("max_users", "40"), ("weights", "30/30/25/15"), ("reservation_ttl", "90s")] {
            change.set(name, value).unwrap();
        }
        let policy = change.apply_to(&Policy::default()).unwrap();
        assert_eq!(SettingsHash::of(&policy).to_string(), "2e3680e2a891e664");
    }

    #[test]
    fn every_setting_plays_a_part() {
        let policy = |users| Policy { max_users: UserLimit::Users(users), ..Policy::default() };
        assert_eq!(SettingsHash::of(&policy(4)), SettingsHash::of(&policy(4)));
        assert_ne!(SettingsHash::of(&policy(4)), SettingsHash::of(&policy(5)));
        let other = Policy { range: 7.0, ..policy(4) };
        assert_ne!(SettingsHash::of(&policy(4)), SettingsHash::of(&other));
    }
}
