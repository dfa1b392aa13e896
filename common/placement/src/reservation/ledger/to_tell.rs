//! What is a host told of the places that were given while it was away?

use usher_types::{BootTime, HostId, PendingPlace};

use super::Ledger;

impl Ledger {
    /// The live places that a host is told when it connects, in the order of their tokens. One whose time to live has
    /// passed is none of them: the host would take it for a login that never came.
    pub fn to_tell(&self, host_id: &HostId, now: BootTime) -> Vec<PendingPlace> {
        let mut places: Vec<PendingPlace> =
            self.on_host(host_id).iter().filter_map(|grant| grant.to_place(now)).collect();
        places.retain(|place| !place.left.is_zero());
        places.sort_by(|a, b| a.token.cmp(&b.token));
        places
    }
}
