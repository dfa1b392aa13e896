//! Why nobody could be chosen, in the terms that a gateway can act on.

use usher_types::HostState;

use super::Excluded;

/// Why nobody could be chosen.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RefusalKind {
    /// No host of the pool holds the resource.
    UnknownResource,
    /// Too little of the farm was heard since the coordinator started or was frozen; try again soon.
    Stale,
    /// At least one candidate is full, and no other could take the login.
    MaxUsers,
    /// Hosts were asked, and at least one refused.
    NoConsentRefused,
    /// Hosts were asked, and none answered.
    NoConsentSilent,
    /// Every candidate is drained.
    AllRestricted,
    /// The request itself leaves no host.
    AllExcluded,
    /// Nobody is alive, or none of those that are takes new sessions.
    AllOffline,
}

/// A decision that nobody is chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Why.
    pub kind: RefusalKind,
    /// Each host that is one of the request's pool, by position, and what spoke against it; at most 16.
    pub hosts: Vec<(u32, Excluded)>,
}

/// Hosts named in a refusal: enough to see what is wrong, and little enough for the trailers of an answer.
const NAMED_HOSTS: usize = 16;

impl Refusal {
    /// The refusal that follows from what spoke against each host.
    pub(super) fn of(excluded: impl Iterator<Item = (u32, Excluded)> + Clone) -> Self {
        let candidates = || excluded.clone().map(|(_, why)| why).filter(|why| *why != Excluded::NoReplica);
        let by_request =
            |why: &Excluded| matches!(why, Excluded::ByRequest | Excluded::Tried | Excluded::FromHost);
        let left = || candidates().filter(|why| !by_request(why));
        let full = |why: Excluded| {
            matches!(why, Excluded::State(HostState::MaxUsers) | Excluded::OutOfShare | Excluded::CellFull)
        };
        let kind = if left().any(full) {
            RefusalKind::MaxUsers
        } else if left().any(|why| why == Excluded::RefusedConsent) {
            RefusalKind::NoConsentRefused
        } else if left().any(|why| why == Excluded::NoAnswer) {
            RefusalKind::NoConsentSilent
        } else if left().next().is_none() && candidates().next().is_some() {
            RefusalKind::AllExcluded
        } else if left().next().is_some() && left().all(|why| why == Excluded::State(HostState::Restricted)) {
            RefusalKind::AllRestricted
        } else {
            RefusalKind::AllOffline
        };
        let hosts = excluded.filter(|(_, why)| *why != Excluded::NoReplica).take(NAMED_HOSTS).collect();
        Self { kind, hosts }
    }

    /// A refusal that no host is to blame for.
    pub(super) fn plain(kind: RefusalKind) -> Self {
        Self { kind, hosts: Vec::new() }
    }
}
