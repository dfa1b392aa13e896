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

/// How a keyed hash of a login name is written: `hmac:KEY:HASH`, the id of the key and the hash in hexadecimal digits.
const HASHED: &str = "hmac:";

/// The id of the key that a login name was hashed with. Absent: it is no hash.
fn hash_key_id(name: &str) -> Option<&str> {
    let (key_id, hash) = name.strip_prefix(HASHED)?.split_once(':')?;
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    (is_hex(key_id) && is_hex(hash)).then_some(key_id)
}

impl UserMatch {
    /// The key of a login name. Absent if nothing is left of it, if it is longer than 256 bytes, or if it holds a
    /// control character. A hashed name is compared as it is: it was folded before it was hashed.
    pub fn key(self, name: &str) -> Option<UserKey> {
        if name.len() > MAX_USER_BYTES || name.chars().any(char::is_control) {
            return None;
        }
        if hash_key_id(name).is_some() {
            return Some(UserKey(Arc::from(name)));
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
    /// A name that was hashed: `key_id` and `hash` in hexadecimal digits.
    pub fn hashed(key_id: &str, hash: &str) -> Self {
        Self(Arc::from(format!("{HASHED}{key_id}:{hash}")))
    }

    /// The id of the key that it was hashed with. Absent: it is a plain name.
    pub fn hash_key_id(&self) -> Option<&str> {
        hash_key_id(&self.0)
    }

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

    // rule: user-match
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

    // rule: user-names
    #[test]
    fn a_hashed_name_is_compared_as_it_is() {
        let key = UserMatch::Folded.key("hmac:1f:ab12").unwrap();
        assert_eq!((key.hash_key_id(), key.as_str()), (Some("1f"), "hmac:1f:ab12"));
        assert_eq!(key, UserKey::hashed("1f", "ab12"));
        assert_eq!(UserMatch::Folded.key("alice").unwrap().hash_key_id(), None);
        assert_eq!(UserMatch::Folded.key("hmac:x:y").unwrap().hash_key_id(), None);
    }

    #[test]
    fn a_user_is_not_printed_by_accident() {
        assert!(!format!("{:?}", UserMatch::Folded.key("alice")).contains("alice"));
    }
}
