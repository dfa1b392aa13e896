//! Where are the sessions of a user?
//!
//! Placements read this index in every snapshot, and session lists change all day. It is cut into shards that snapshots
//! share until one changes, so that a login copies one small shard and not the whole farm.

use std::{collections::HashMap, sync::Arc, time::Duration};

use usher_types::{BootTime, HostId, Session, SessionState, UserKey, UserMatch};

/// Enough that a shard of a farm of a hundred thousand users is copied in microseconds.
const SHARDS: usize = 256;

/// One session of a user.
#[derive(Clone, PartialEq, Debug)]
pub struct SessionAt {
    /// The host that it runs on.
    pub host_id: HostId,
    /// As the host names it.
    pub session_id: Arc<str>,
    /// What it is doing.
    pub state: SessionState,
    /// When it began. Absent if the host does not say.
    pub began: Option<BootTime>,
}

type Shard = HashMap<UserKey, Vec<SessionAt>>;

/// The sessions of a pool by user; cheap to clone.
#[derive(Clone, Debug)]
pub struct SessionIndex {
    shards: Vec<Arc<Shard>>,
}

impl Default for SessionIndex {
    fn default() -> Self {
        Self { shards: vec![Arc::default(); SHARDS] }
    }
}

fn shard_of(user: &UserKey) -> usize {
    (crate::fnv::hash([user.as_str().as_bytes()]) % SHARDS as u64) as usize
}

impl SessionIndex {
    /// The sessions of a user, in no order.
    pub fn of(&self, user: &UserKey) -> &[SessionAt] {
        self.shards[shard_of(user)].get(user).map_or(&[], Vec::as_slice)
    }

    /// Replaces what is known of one host: `old` is the list taken in before, `new` the list measured at `now`.
    pub fn replace(
        &mut self,
        host_id: &HostId,
        old: &[Session],
        new: &[Session],
        rule: UserMatch,
        now: BootTime,
    ) {
        for user in old.iter().filter_map(|session| rule.key(&session.user)) {
            let shard = Arc::make_mut(&mut self.shards[shard_of(&user)]);
            if let Some(sessions) = shard.get_mut(&user) {
                sessions.retain(|session| session.host_id != *host_id);
                if sessions.is_empty() {
                    shard.remove(&user);
                }
            }
        }
        for session in new {
            let Some(user) = rule.key(&session.user) else { continue };
            let at = SessionAt {
                host_id: host_id.clone(),
                session_id: Arc::from(session.id.as_str()),
                state: session.state,
                began: session.age.map(|age: Duration| now.before(age)),
            };
            Arc::make_mut(&mut self.shards[shard_of(&user)]).entry(user).or_default().push(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str, user: &str) -> Session {
        Session { id: id.into(), user: user.into(), state: SessionState::Active, age: None }
    }

    #[test]
    fn a_new_list_replaces_the_old_one_of_that_host_only() {
        let (a, b) = (HostId::new("a").unwrap(), HostId::new("b").unwrap());
        let rule = UserMatch::Folded;
        let (first, second) = ([session("1", "alice"), session("2", "bob")], [session("3", "CORP\\Alice")]);
        let mut index = SessionIndex::default();
        index.replace(&a, &[], &first, rule, BootTime::ZERO);
        index.replace(&b, &[], &second, rule, BootTime::ZERO);
        let before = index.clone();
        index.replace(&a, &first, &[session("2", "bob")], rule, BootTime::ZERO);
        let alice = rule.key("alice").unwrap();
        assert_eq!(index.of(&alice).len(), 1);
        assert_eq!(index.of(&alice)[0].host_id, b);
        assert_eq!(index.of(&rule.key("bob").unwrap()).len(), 1);
        assert_eq!(before.of(&alice).len(), 2, "a snapshot taken before keeps what it knew");
    }
}
