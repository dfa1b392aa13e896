//! When are two login names the same person?

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// How two spellings of a login name are compared.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserMatch {
    /// Case folded, a leading `DOMAIN\` and a trailing `@realm` cut off.
    #[default]
    Folded,
    /// Byte by byte.
    Exact,
}

/// A login name in the form in which a pool compares it.
///
/// Its `Debug` form hides the name: users' names never appear in logs by accident.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserKey(Arc<str>);

/// Longest login name taken, in bytes; longer ones are cut by nobody and refused.
pub(crate) const MAX_USER_BYTES: usize = 256;

impl UserMatch {
    /// The key of a login name. Absent if nothing is left of it, if it is longer than 256 bytes, or if it holds a
    /// control character.
    pub fn key(self, name: &str) -> Option<UserKey> {
        if name.len() > MAX_USER_BYTES || name.chars().any(char::is_control) {
            return None;
        }
        let cut = match self {
            Self::Exact => return (!name.is_empty()).then(|| UserKey(Arc::from(name))),
            Self::Folded => {
                let account = name.rsplit_once('\\').map_or(name, |(_, account)| account);
                account.split_once('@').map_or(account, |(account, _)| account)
            }
        };
        (!cut.is_empty()).then(|| UserKey(Arc::from(cut.to_lowercase())))
    }
}

impl UserKey {
    /// The compared form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_names_lose_case_domain_and_realm() {
        let folded = UserMatch::Folded;
        let alice = folded.key("alice").unwrap();
        for other in ["Alice", "CORP\\alice", "alice@EXAMPLE.ORG", "CORP\\Alice@example.org"] {
            assert_eq!(folded.key(other).unwrap(), alice, "{other}");
        }
        assert_ne!(folded.key("bob").unwrap(), alice);
        assert!(folded.key("CORP\\").is_none());
        assert!(folded.key("@realm").is_none());
        assert!(folded.key("").is_none());
        assert!(folded.key("a\0b").is_none());
    }

    #[test]
    fn exact_names_keep_everything() {
        assert_ne!(UserMatch::Exact.key("Alice"), UserMatch::Exact.key("alice"));
        assert!(UserMatch::Exact.key(&"x".repeat(257)).is_none());
    }

    #[test]
    fn a_user_is_not_printed_by_accident() {
        assert!(!format!("{:?}", UserMatch::Folded.key("alice")).contains("alice"));
    }
}
