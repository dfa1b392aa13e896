//! In which form does this host compare login names, and in which does it send them?
//!
//! Coordinators send names in one form and get them back in the same: plain, or as keyed hashes that only the hosts and
//! gateways of the pool can make, or not at all. The host sees plain names in its own sessions. So where the pool says
//! `hashed`, it hashes what it sees before it compares, and a token that came hashed meets the session that it stands
//! for. Names only need hiding on their way: on the plain loopback they stay as they are.

use std::{fmt, sync::Arc};

use usher_types::{UserKey, UserMatch, UserNames};

/// Hashes login names with the key of the pool. Cryptography belongs to the shell around the core.
pub trait NameHasher: fmt::Debug + Send + Sync {
    /// The hash of a plain name that is in the form in which it is compared; see [`UserKey::hashed`].
    fn hash(&self, name: &UserKey) -> UserKey;
}

/// What a host has to hide names with.
#[derive(Debug, Clone, Default)]
pub struct NameSettings {
    /// Its streams leave the machine, under TLS: the pool's `user_names` holds.
    pub secured: bool,
    /// Has the pool's key. Absent: there is none here.
    pub hasher: Option<Arc<dyn NameHasher>>,
}

/// How names are compared and sent, as the pool and the host's own key say.
#[derive(Debug, Clone, Default)]
pub struct Naming {
    user_match: UserMatch,
    names: UserNames,
    hasher: Option<Arc<dyn NameHasher>>,
}

impl Naming {
    /// What `settings` make of the pool's rules.
    pub fn new(user_match: UserMatch, names: UserNames, settings: &NameSettings) -> Self {
        let names = if settings.secured { names } else { UserNames::Plain };
        let hasher = if names == UserNames::Hashed { settings.hasher.clone() } else { None };
        Self { user_match, names, hasher }
    }

    /// A name as it is compared. Absent if it cannot be one.
    pub fn key(&self, name: &str) -> Option<UserKey> {
        let key = self.user_match.key(name)?;
        Some(match &self.hasher {
            Some(hasher) if key.hash_key_id().is_none() => hasher.hash(&key),
            _ => key,
        })
    }

    /// A name as it is sent. Absent: it is not. A hash that somebody else made is sent on: it hides the name already.
    pub fn sent(&self, name: &str) -> Option<String> {
        match self.names {
            UserNames::Plain => Some(name.to_owned()),
            UserNames::Hashed => {
                let key = self.key(name)?;
                key.hash_key_id().is_some().then(|| key.as_str().to_owned())
            }
            UserNames::None => None,
        }
    }

    /// Names shall be hashed and there is no key to do it with.
    pub fn lacks_key(&self) -> bool {
        self.names == UserNames::Hashed && self.hasher.is_none()
    }

    /// Whether the sessions of the host can be listed at all: a list without names says nothing but their number.
    pub fn lists_sessions(&self) -> bool {
        match self.names {
            UserNames::Plain => true,
            UserNames::Hashed => self.hasher.is_some(),
            UserNames::None => false,
        }
    }

    /// Whether both compare and send alike.
    pub fn same_rules(&self, other: &Self) -> bool {
        (self.user_match, self.names, self.hasher.is_some())
            == (other.user_match, other.names, other.hasher.is_some())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Stands for a keyed hash: what matters here is that it is one.
    #[derive(Debug)]
    pub(in crate::host) struct Reversed;

    impl NameHasher for Reversed {
        fn hash(&self, name: &UserKey) -> UserKey {
            let hash: String = name.as_str().bytes().rev().map(|byte| format!("{byte:02x}")).collect();
            UserKey::hashed("ab12", &hash)
        }
    }

    pub(in crate::host) fn with_key() -> NameSettings {
        NameSettings { secured: true, hasher: Some(Arc::new(Reversed)) }
    }

    fn hashed(settings: &NameSettings) -> Naming {
        Naming::new(UserMatch::Folded, UserNames::Hashed, settings)
    }

    #[test]
    fn a_plain_name_and_its_hash_are_one_user_to_a_host_with_the_key() {
        let naming = hashed(&with_key());
        let sent = naming.sent("CORP\\Alice").unwrap();
        assert!(sent.starts_with("hmac:ab12:"), "{sent}");
        assert_eq!(naming.key(&sent), naming.key("alice"));
        assert_eq!(naming.sent(&sent), Some(sent.clone()));
    }

    #[test]
    fn without_the_key_no_plain_name_is_sent() {
        let naming = hashed(&NameSettings { secured: true, hasher: None });
        assert!(naming.lacks_key() && !naming.lists_sessions());
        assert_eq!(naming.sent("alice"), None);
        assert_eq!(naming.sent("hmac:1f:ab"), Some("hmac:1f:ab".into()));
    }

    #[test]
    fn on_the_plain_loopback_names_stay_as_they_are() {
        for names in [UserNames::Plain, UserNames::Hashed, UserNames::None] {
            let naming =
                Naming::new(UserMatch::Folded, names, &NameSettings { secured: false, ..with_key() });
            assert_eq!(naming.sent("Alice"), Some("Alice".into()));
            assert!(naming.lists_sessions() && !naming.lacks_key());
        }
    }

    #[test]
    fn a_pool_without_names_sends_none() {
        let naming = Naming::new(UserMatch::Folded, UserNames::None, &with_key());
        assert_eq!((naming.sent("alice"), naming.lists_sessions()), (None, false));
    }
}
