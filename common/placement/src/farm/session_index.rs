//! Where are the sessions of a user?
//!
//! Placements read this index in every snapshot, and session lists change all day. It is cut into shards that snapshots
//! share until one changes, so that a login copies one small shard and not the whole farm.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

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
    /// How many users of a host were listed as hashes made with each key.
    keys: Arc<BTreeMap<Box<str>, u32>>,
}

impl Default for SessionIndex {
    fn default() -> Self {
        Self { shards: vec![Arc::default(); SHARDS], keys: Arc::default() }
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

    /// Replaces what is known of one host: `old` is the list taken in before, `new` the list measured at `now`. Users
    /// whose sessions are the same in both are not touched: most lists differ in one login.
    pub fn replace(
        &mut self,
        host_id: &HostId,
        old: &[Session],
        new: &[Session],
        rule: UserMatch,
        now: BootTime,
    ) {
        let (before, after) = (by_user(old, rule), by_user(new, rule));
        for (user, sessions) in &before {
            if !is_same(sessions, after.get(user)) {
                self.forget(host_id, user);
            }
        }
        for (user, sessions) in after {
            if before.get(&user).is_some_and(|before| is_same(before, Some(&sessions))) {
                continue;
            }
            let at = |session: &&Session| SessionAt {
                host_id: host_id.clone(),
                session_id: Arc::from(session.id.as_str()),
                state: session.state,
                began: session.age.map(|age: Duration| now.before(age)),
            };
            if let Some(key_id) = user.hash_key_id() {
                *Arc::make_mut(&mut self.keys).entry(key_id.into()).or_default() += 1;
            }
            let shard = Arc::make_mut(&mut self.shards[shard_of(&user)]);
            shard.entry(user).or_default().extend(sessions.iter().map(at));
        }
    }

    /// The ids of the keys that the listed names were hashed with. None: they are plain.
    pub fn key_ids(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(|key_id| &**key_id)
    }

    fn forget(&mut self, host_id: &HostId, user: &UserKey) {
        let shard = Arc::make_mut(&mut self.shards[shard_of(user)]);
        let Some(sessions) = shard.get_mut(user) else { return };
        let before = sessions.len();
        sessions.retain(|session| session.host_id != *host_id);
        let forgotten = sessions.len() < before;
        if sessions.is_empty() {
            shard.remove(user);
        }
        if let Some(key_id) = user.hash_key_id().filter(|_| forgotten) {
            self.forget_key(key_id);
        }
    }

    fn forget_key(&mut self, key_id: &str) {
        let keys = Arc::make_mut(&mut self.keys);
        if let Some(users) = keys.get_mut(key_id) {
            *users = users.saturating_sub(1);
            if *users == 0 {
                keys.remove(key_id);
            }
        }
    }
}

fn by_user(sessions: &[Session], rule: UserMatch) -> HashMap<UserKey, Vec<&Session>> {
    let mut by_user = HashMap::<UserKey, Vec<&Session>>::new();
    for session in sessions {
        if let Some(user) = rule.key(&session.user) {
            by_user.entry(user).or_default().push(session);
        }
    }
    by_user
}

/// Whether these are the same sessions in the same states. They grow older, which says nothing new: they began when they
/// began.
fn is_same(before: &[&Session], after: Option<&Vec<&Session>>) -> bool {
    let Some(after) = after else { return false };
    let has_age = |session: &Session| session.age.is_some();
    let key = |session: &&Session| (session.id.clone(), session.state, has_age(session));
    let keys = |sessions: &[&Session]| sessions.iter().map(key).collect::<BTreeSet<_>>();
    before.len() == after.len() && keys(before) == keys(after)
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

    #[test]
    fn a_login_copies_the_shard_of_its_user_and_no_other() {
        let (host, rule) = (HostId::new("a").unwrap(), UserMatch::Folded);
        let users = |count: usize| -> Vec<Session> {
            let aged = |n: usize| Session {
                age: Some(Duration::from_secs(9)),
                ..session(&n.to_string(), &format!("u{n}"))
            };
            (0..count).map(aged).collect()
        };
        let mut index = SessionIndex::default();
        index.replace(&host, &[], &users(500), rule, BootTime::from_millis(100_000));
        let before = index.clone();
        index.replace(&host, &users(500), &users(501), rule, BootTime::from_millis(160_000));
        let copied =
            before.shards.iter().zip(&index.shards).filter(|(old, new)| !Arc::ptr_eq(old, new)).count();
        assert_eq!(copied, 1);
        assert_eq!(index.of(&rule.key("u500").unwrap()).len(), 1);
        let began = index.of(&rule.key("u0").unwrap())[0].began.unwrap();
        assert_eq!(began, BootTime::from_millis(91_000), "it began when it began");
        // Another state is news.
        let gone = [Session { state: SessionState::Disconnected, ..session("0", "u0") }];
        index.replace(&host, &users(501), &gone, rule, BootTime::from_millis(170_000));
        assert_eq!(index.of(&rule.key("u0").unwrap())[0].state, SessionState::Disconnected);
        assert!(index.of(&rule.key("u1").unwrap()).is_empty());
    }
}
