//! Which places need nobody remember any more?

use std::sync::Arc;

use usher_types::{BootTime, EndReason, HostId, Token};

use super::{ENDED_KEPT, Grant, Ledger, MOST_ON_HOST};

impl Ledger {
    /// Forgets the oldest of a host's ended places, if it has more places than any host comes to.
    pub(crate) fn bound_host(&self, host_id: &HostId) {
        let Some(on_host) = self.by_host.pin().get(host_id).cloned() else { return };
        let on_host = on_host.pin();
        if on_host.len() <= MOST_ON_HOST {
            return;
        }
        let mut ended: Vec<Arc<Grant>> = on_host.values().filter(|grant| !grant.counts()).cloned().collect();
        let Some(surplus) = ended.len().checked_sub(ENDED_KEPT).filter(|surplus| *surplus > 0) else {
            return;
        };
        ended.select_nth_unstable_by_key(surplus - 1, |grant| grant.ended_at());
        let grants = self.grants.pin();
        for grant in ended.into_iter().take(surplus) {
            // A token that was given anew meanwhile stays.
            let is_it = |_: &Token, known: &Arc<Grant>| Arc::ptr_eq(known, &grant);
            let _ = grants.remove_if(&grant.token, is_it);
            let _ = on_host.remove_if(&grant.token, is_it);
        }
    }

    /// Ends the places on hosts that are not known any more, and forgets those hosts once nothing is remembered of them.
    ///
    /// Whoever still decides by a snapshot in which such a host was may add a place: it ends with the next call. What is
    /// remembered of a host is empty a minute after its last place ended, long after any such decision.
    pub(crate) fn forget_hosts(&self, is_known: impl Fn(&HostId) -> bool, now: BootTime) {
        let by_host = self.by_host.pin();
        for (host_id, on_host) in by_host.iter().filter(|(host_id, _)| !is_known(host_id)) {
            on_host.pin().values().for_each(|grant| _ = grant.end(EndReason::HostLost, now));
            let _ = by_host.remove_if(host_id, |_, on_host| on_host.pin().is_empty());
        }
    }

    /// Forgets what ended long ago.
    ///
    /// The places of a host and of a user are walked apart from those by token: a place whose token was given anew on
    /// another host is found there only.
    pub fn sweep(&self, now: BootTime) {
        let is_old = |grant: &Arc<Grant>| grant.is_old(now);
        self.grants.pin().retain(|_, grant| !is_old(grant));
        for on_host in self.by_host.pin().values() {
            on_host.pin().retain(|_, grant| !is_old(grant));
        }
        self.by_user.pin().retain(|_, tokens| tokens.iter().any(|token| self.counts(token)));
        self.successes.sweep(now);
    }
}
