//! Every place that this coordinator knows, its own and those that hosts list from others.
//!
//! The ledger answers three questions: is this request a retry, does this user have a place already, and which places
//! does a report confirm or end? It is written by placements (which add), outcomes (which end) and the farm task (which
//! follows the hosts' lists) at the same time, without a lock.

use std::sync::Arc;

use usher_types::{BootTime, EndReason, HostId, KeyHasher, PoolName, Token, UserKey, UserMatch};

use super::{GatewaySuccesses, Grant, GrantState};

/// Most places of one host that are remembered, and how many of the ended ones then stay: as many as a host keeps itself.
/// Only a fault comes to these in a minute, and a host must not fill the memory by making up places.
const MOST_ON_HOST: usize = 4 * ENDED_KEPT;
const ENDED_KEPT: usize = 4095;

/// What is known of a request that comes.
#[derive(Clone, Debug)]
pub enum Retry {
    /// Nothing: decide. Its attempt must be at least this: an earlier place of the same request ended under a lower one.
    New {
        /// The lowest attempt that hosts will not take for an echo of the ended one.
        attempt: u32,
    },
    /// It has a place: answer it again. If its host is still being asked ([`GrantState::Asked`]), wait for that first.
    Repeat(Arc<Grant>),
    /// Its session came: answer the same host, without a place.
    Arrived(Arc<Grant>),
    /// Another request under the same id.
    Reused,
}

/// All places.
#[derive(Debug, Default)]
pub struct Ledger {
    grants: papaya::HashMap<Token, Arc<Grant>, KeyHasher>,
    by_user: papaya::HashMap<(PoolName, UserKey), Arc<[Token]>, KeyHasher>,
    by_host: papaya::HashMap<HostId, Arc<OnHost>, KeyHasher>,
    successes: GatewaySuccesses,
}

/// The places of one host by token, those that ended in the last minute among them.
type OnHost = papaya::HashMap<Token, Arc<Grant>, KeyHasher>;

impl Ledger {
    /// No place yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where gateways' logins succeeded lately.
    pub fn successes(&self) -> &GatewaySuccesses {
        &self.successes
    }

    /// The place of a token, live or ended.
    pub fn get(&self, token: &Token) -> Option<Arc<Grant>> {
        self.grants.pin().get(token).cloned()
    }

    /// Places that are remembered, live or ended.
    pub(crate) fn remembered(&self) -> usize {
        self.grants.len()
    }

    /// Whether this request is a retry.
    pub fn retry(&self, token: &Token, content_hash: u64, attempt: u32) -> Retry {
        let Some(grant) = self.get(token) else { return Retry::New { attempt } };
        if grant.content_hash != content_hash {
            return Retry::Reused;
        }
        match grant.state() {
            GrantState::Live | GrantState::Asked => {
                grant.raise_attempt(attempt);
                Retry::Repeat(grant)
            }
            GrantState::Ended(EndReason::Session) => Retry::Arrived(grant),
            GrantState::Ended(_) => Retry::New { attempt: grant.anew(attempt) },
        }
    }

    /// Adds a place that was decided on, unless its token has one that counts.
    ///
    /// # Errors
    /// The place that the token has: another call, or another coordinator, was quicker.
    pub fn claim(&self, grant: Arc<Grant>) -> Result<(), Arc<Grant>> {
        let grants = self.grants.pin();
        let claimed = grants.compute(grant.token.clone(), |entry| match entry {
            Some((_, known)) if known.counts() => papaya::Operation::Abort(known.clone()),
            _ => papaya::Operation::Insert(grant.clone()),
        });
        if let papaya::Compute::Aborted(known) = claimed {
            return Err(known);
        }
        self.index(grant);
        Ok(())
    }

    /// Adds a place. One that another one of the same token replaces must have been ended before.
    pub fn insert(&self, grant: Arc<Grant>) {
        // By token first: what the other two name must be found there.
        self.grants.pin().insert(grant.token.clone(), grant.clone());
        self.index(grant);
    }

    fn index(&self, grant: Arc<Grant>) {
        // With the place in it from the first: one without any is forgotten.
        let first = || Arc::new(OnHost::from_iter([(grant.token.clone(), grant.clone())]));
        let on_host = self.by_host.pin().get_or_insert_with(grant.host_id.clone(), first).clone();
        on_host.pin().insert(grant.token.clone(), grant.clone());
        if let Some(user) = &grant.user_key {
            self.add_to_user(&grant, user.clone());
        }
    }

    /// The pool compares its users by another rule from now on.
    pub(crate) fn rekey_users(&self, pool: &PoolName, rule: UserMatch) {
        let live: Vec<Arc<Grant>> = self
            .grants
            .pin()
            .values()
            .filter(|grant| grant.pool == *pool && grant.counts())
            .cloned()
            .collect();
        self.by_user.pin().retain(|(of_pool, _), _| of_pool != pool);
        for grant in live {
            if let Some(user) = grant.user.as_deref().and_then(|user| rule.key(user)) {
                self.add_to_user(&grant, user);
            }
        }
    }

    fn add_to_user(&self, grant: &Grant, user: UserKey) {
        let token = grant.token.clone();
        self.by_user.pin().update_or_insert_with(
            (grant.pool.clone(), user),
            |tokens| {
                let known = tokens.iter().filter(|known| **known != token && self.counts(known));
                known.cloned().chain([token.clone()]).collect()
            },
            || Arc::from([token.clone()]),
        );
    }

    fn counts(&self, token: &Token) -> bool {
        self.grants.pin().get(token).is_some_and(|grant| grant.counts())
    }

    /// The live places of a user in a pool, oldest first.
    pub fn of_user(&self, pool: &PoolName, user: &UserKey) -> Vec<Arc<Grant>> {
        let tokens = self.by_user.pin().get(&(pool.clone(), user.clone())).cloned();
        let live = |token: &Token| self.get(token).filter(|grant| grant.counts());
        tokens.iter().flat_map(|tokens| tokens.iter()).filter_map(live).collect()
    }

    /// The live places on a host, in no order.
    pub fn on_host(&self, host_id: &HostId) -> Vec<Arc<Grant>> {
        let Some(on_host) = self.by_host.pin().get(host_id).cloned() else { return Vec::new() };
        on_host.pin().values().filter(|grant| grant.counts()).cloned().collect()
    }

    /// How many of the live places on a host were given, or first heard of, before `given_before`.
    pub(crate) fn aged_on(&self, host_id: &HostId, given_before: BootTime) -> u32 {
        let Some(on_host) = self.by_host.pin().get(host_id).cloned() else { return 0 };
        let on_host = on_host.pin();
        let aged = on_host.values().filter(|grant| grant.since < given_before && grant.counts());
        u32::try_from(aged.count()).unwrap_or(u32::MAX)
    }

    /// The place that was given last, or heard of last, on a host under this token, live or ended.
    pub(crate) fn last_on(&self, host_id: &HostId, token: &Token) -> Option<Arc<Grant>> {
        let on_host = self.by_host.pin().get(host_id)?.clone();
        on_host.pin().get(token).cloned()
    }

    /// The places on a host, live and ended, in no order.
    pub(crate) fn remembered_on(&self, host_id: &HostId) -> Vec<Arc<Grant>> {
        let Some(on_host) = self.by_host.pin().get(host_id).cloned() else { return Vec::new() };
        on_host.pin().values().cloned().collect()
    }

    /// When the first of the live places on a host will have ended by its time to live. Absent: there is none.
    pub fn oldest_end_on(&self, host_id: &HostId) -> Option<BootTime> {
        let on_host = self.by_host.pin().get(host_id)?.clone();
        on_host.pin().values().filter(|grant| grant.counts()).map(|grant| grant.ends_at).min()
    }

    /// Number of live places.
    pub fn live(&self) -> usize {
        self.grants.pin().values().filter(|grant| grant.counts()).count()
    }
}

mod forgetting;
mod to_tell;

#[cfg(test)]
mod tests;
