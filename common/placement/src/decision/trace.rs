//! Where is this user already?
//!
//! A decision can be explained for as long as its inputs are kept, and login names are not to be kept. So the caller
//! looks the user up once and passes on where they were found; the name itself never enters a decision.

use std::{collections::HashMap, sync::Arc};

use usher_types::{HostId, SessionState, UserKey, UserNames};

use crate::{
    farm::{PoolView, SessionAt},
    reservation::Ledger,
};

/// With more sessions on one host than this, a login name is a service, not a person who comes back.
const MAX_OWN_SESSIONS: usize = 8;

/// What is known of the user of a request, without the name.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct UserTrace {
    /// Their sessions on hosts of the pool, in no order.
    pub sessions: Arc<[SessionAt]>,
    /// Hosts with a live place of theirs, oldest first.
    pub places: Vec<HostId>,
    /// It is an account that many people share.
    pub is_shared: bool,
    /// The request named somebody.
    pub is_known: bool,
    /// Login names come hashed, and some host hashes them with another key than the gateway.
    pub key_id_mismatch: bool,
}

impl UserTrace {
    /// Looks a login name up, as its gateway spells it.
    pub fn find(pool: &PoolView, ledger: &Ledger, user: Option<&str>) -> Self {
        let Some(user) = user.and_then(|user| pool.policy.user_match.key(user)) else {
            return Self::default();
        };
        Self {
            sessions: pool.sessions.of(&user).into(),
            places: ledger.of_user(&pool.name, &user).iter().map(|grant| grant.host_id.clone()).collect(),
            is_shared: pool.policy.is_shared_account(&user),
            is_known: true,
            key_id_mismatch: pool.policy.user_names == UserNames::Hashed && is_hashed_otherwise(pool, &user),
        }
    }

    /// Whether the user is somebody who comes back to their own session: not an account that many share, and not a
    /// service that holds many sessions on one host.
    pub(super) fn is_a_person(&self) -> bool {
        self.is_known && !self.is_shared && !self.is_service()
    }

    fn is_service(&self) -> bool {
        if self.sessions.len() <= MAX_OWN_SESSIONS {
            return false;
        }
        let mut on_host = HashMap::<&HostId, usize>::new();
        self.sessions.iter().any(|session| {
            let count = on_host.entry(&session.host_id).or_default();
            *count += 1;
            *count > MAX_OWN_SESSIONS
        })
    }

    /// Hosts that count this user already. One who has logged out does not count, though their processes live on; and
    /// everybody behind a shared account counts.
    pub(super) fn counted_on(&self) -> impl Iterator<Item = &HostId> {
        self.sessions
            .iter()
            .filter(|session| !self.is_shared && session.state != SessionState::Lingering)
            .map(|session| &session.host_id)
    }
}

/// Whether some host lists its users under another key than this one's.
fn is_hashed_otherwise(pool: &PoolView, user: &UserKey) -> bool {
    pool.sessions.key_ids().any(|listed| Some(listed) != user.hash_key_id())
}
