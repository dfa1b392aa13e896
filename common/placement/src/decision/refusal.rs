//! Why nobody could be chosen, in the terms that a gateway can act on.

use std::time::Duration;

use usher_types::{BootTime, HostState};

use super::{Assessment, Excluded, blind};

/// Why nobody could be chosen.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RefusalKind {
    /// No host of the pool holds the resource.
    UnknownResource,
    /// Hosts hold the resource, but an admin has marked every copy that the request does not exclude.
    OutOfService,
    /// Too little of the farm was heard since the coordinator started or was frozen; try again soon.
    Stale,
    /// At least one candidate is full, and no other could take the login.
    MaxUsers,
    /// At least one candidate has as many logons in progress as it may, and no other could take the login.
    MaxPending,
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

impl RefusalKind {
    /// The code of the error that a gateway gets, as gRPC names it.
    pub const fn code_name(self) -> &'static str {
        match self {
            Self::UnknownResource => "NOT_FOUND",
            Self::OutOfService => "FAILED_PRECONDITION",
            Self::MaxUsers | Self::MaxPending | Self::NoConsentRefused => "RESOURCE_EXHAUSTED",
            Self::Stale
            | Self::NoConsentSilent
            | Self::AllRestricted
            | Self::AllExcluded
            | Self::AllOffline => "UNAVAILABLE",
        }
    }

    /// The reason in that error.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::UnknownResource => "UNKNOWN_RESOURCE",
            Self::OutOfService => "OUT_OF_SERVICE",
            Self::Stale => "STALE",
            Self::MaxUsers => "MAX_USERS",
            Self::MaxPending => "MAX_PENDING",
            Self::NoConsentRefused | Self::NoConsentSilent => "NO_CONSENT",
            Self::AllRestricted => "ALL_RESTRICTED",
            Self::AllExcluded => "ALL_EXCLUDED",
            Self::AllOffline => "ALL_OFFLINE",
        }
    }
}

/// A decision that nobody is chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Why.
    pub kind: RefusalKind,
    /// Each host that is one of the request's pool, by position, and what spoke against it; at most 16.
    pub hosts: Vec<(u32, Excluded)>,
    /// Every host with as many logons in progress as it may have, by position.
    pub at_limit: Vec<u32>,
    /// Hosts that may have room which only other coordinators may give, of those that were looked at: each is full for this one.
    pub kept_hosts: u32,
    /// When it may be worth while to try again. Absent: not before somebody has changed something.
    pub retry_after: Option<Duration>,
}

/// Holders that are looked at where all may be full.
const LOOKED_AT: usize = 256;
/// Hosts named in a refusal: enough to see what is wrong, and little enough for the trailers of an answer.
const NAMED_HOSTS: usize = 16;
/// When to try again where only hearing from hosts is missing: they report every few seconds, and a login waits.
const RETRY_SOON: Duration = Duration::from_secs(1);
/// When to try again where everyone is full, or gone: about one report later.
const RETRY_LATER: Duration = Duration::from_secs(5);

impl Refusal {
    /// The refusal that follows from what speaks against each host.
    pub(super) fn of(assessment: &Assessment<'_>) -> Self {
        let against = |position: u32| Some((position, assessment.class(position).err()?));
        let excluded = assessment.positions().filter_map(against);
        let holders = excluded.filter(|(_, why)| *why != Excluded::NoReplica);
        // A full host decides, whatever the others are: where all are full, nobody needs to look at them all.
        let may_be_at_limit = assessment.inputs().pool.policy.max_pending.finite().is_some();
        let is_full = |(_, why): &(u32, Excluded)| {
            !why.is_by_request() && !matches!(why, Excluded::OutOfService(_)) && why.is_full()
        };
        let first: Vec<(u32, Excluded)> = holders.clone().take(LOOKED_AT).collect();
        if !may_be_at_limit && first.iter().any(is_full) {
            return Self::full(assessment, first);
        }
        let all: Vec<(u32, Excluded)> = holders.collect();
        let holders = || all.iter().copied();
        let at_limit = holders().filter(|(_, why)| *why == Excluded::MaxPending).map(|(n, _)| n).collect();
        match kind(holders().map(|(_, why)| why)) {
            RefusalKind::MaxUsers => Self { at_limit, ..Self::full(assessment, all) },
            kind => Self { hosts: holders().take(NAMED_HOSTS).collect(), at_limit, ..Self::plain(kind) },
        }
    }

    /// At least one of these holders is full.
    fn full(assessment: &Assessment<'_>, mut holders: Vec<(u32, Excluded)>) -> Self {
        let others = || holders.iter().filter(|(_, why)| why.is_others());
        let kept_hosts = u32::try_from(others().count()).unwrap_or(u32::MAX);
        let passes_soon = others().any(|(position, why)| passes_soon(assessment, *position, *why));
        holders.truncate(NAMED_HOSTS);
        let refusal = Self { hosts: holders, kept_hosts, ..Self::plain(RefusalKind::MaxUsers) };
        if passes_soon { Self { retry_after: Some(RETRY_SOON), ..refusal } } else { refusal }
    }

    /// A refusal that no host is to blame for.
    pub(super) fn plain(kind: RefusalKind) -> Self {
        let retry_after = match kind {
            RefusalKind::Stale | RefusalKind::NoConsentRefused | RefusalKind::NoConsentSilent => {
                Some(RETRY_SOON)
            }
            RefusalKind::MaxUsers | RefusalKind::MaxPending | RefusalKind::AllOffline => Some(RETRY_LATER),
            RefusalKind::UnknownResource
            | RefusalKind::OutOfService
            | RefusalKind::AllRestricted
            | RefusalKind::AllExcluded => None,
        };
        Self { kind, hosts: Vec::new(), at_limit: Vec::new(), kept_hosts: 0, retry_after }
    }

    /// Where only logons in progress are in the way: says to try again when the first of them ends at the latest.
    pub(super) fn wait_for(&mut self, first_end: Option<BootTime>, now: BootTime) {
        if self.kind == RefusalKind::MaxPending
            && let Some(end) = first_end
        {
            self.retry_after = Some(end.since(now));
        }
    }
}

/// Whether a full host has room again when a stream that broke is there again, or was given up for good: its own one, or the one
/// of a coordinator for which it keeps what is free.
fn passes_soon(assessment: &Assessment<'_>, position: u32, why: Excluded) -> bool {
    let position = position as usize;
    let is_reporter = || assessment.inputs().pool.hosts[position].facts.is_reporter;
    match why {
        Excluded::KeptForOthers => true,
        Excluded::OutOfShare => !is_reporter() && !blind::is_lost(assessment, position),
        _ => false,
    }
}

/// Why none of these holders of the resource could be chosen. What a gateway can wait for comes first.
fn kind(holders: impl Iterator<Item = Excluded> + Clone) -> RefusalKind {
    let left = || holders.clone().filter(|why| !why.is_by_request());
    let in_service = || left().filter(|why| !matches!(why, Excluded::OutOfService(_)));
    if in_service().any(Excluded::is_full) {
        RefusalKind::MaxUsers
    } else if in_service().any(|why| why == Excluded::MaxPending) {
        RefusalKind::MaxPending
    } else if in_service().any(|why| why == Excluded::RefusedConsent) {
        RefusalKind::NoConsentRefused
    } else if in_service().any(|why| why == Excluded::NoAnswer) {
        RefusalKind::NoConsentSilent
    } else if left().next().is_none() && holders.clone().next().is_some() {
        RefusalKind::AllExcluded
    } else if in_service().next().is_none() && left().next().is_some() {
        RefusalKind::OutOfService
    } else if in_service().next().is_some()
        && in_service().all(|why| why == Excluded::State(HostState::Restricted))
    {
        RefusalKind::AllRestricted
    } else {
        RefusalKind::AllOffline
    }
}
