//! What speaks against a host.

use usher_types::{HostState, ReplicaMark};

/// What speaks against a host.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Excluded {
    /// It does not hold the resource.
    NoReplica,
    /// It holds the resource, but an admin has marked that copy.
    OutOfService(ReplicaMark),
    /// The request excludes it.
    ByRequest,
    /// The login was tried there before.
    Tried,
    /// The login comes from there.
    FromHost,
    /// Its state.
    State(HostState),
    /// As many logons are on their way to it as may be, and the pool's limit is a hard one.
    MaxPending,
    /// It was asked in this call and refused.
    RefusedConsent,
    /// It was asked in this call and did not answer.
    NoAnswer,
    /// It cannot be asked, and this coordinator's share of its free places is given out.
    OutOfShare,
    /// It keeps what is free of it for coordinators that have no stream to it, as their shares.
    KeptForOthers,
    /// More places are on their way to it than can be counted.
    CellFull,
    /// Its agent is lost, and its own door accepts nobody.
    DoorShut,
}

impl Excluded {
    /// For people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoReplica => "does not hold the resource",
            Self::OutOfService(ReplicaMark::OutOfService) => "its replica is out of service",
            Self::OutOfService(ReplicaMark::PendingDelete) => "its replica is about to be deleted",
            Self::ByRequest => "excluded by the request",
            Self::Tried => "tried before",
            Self::FromHost => "the login comes from there",
            Self::State(state) => state.as_str(),
            Self::MaxPending => "as many logons in progress as it may have",
            Self::RefusedConsent => "refused its consent",
            Self::NoAnswer => "did not answer when asked",
            Self::OutOfShare => "cannot be asked, and its share is given out",
            Self::KeptForOthers => "keeps what is free for coordinators that cannot reach it",
            Self::CellFull => "too many places on their way",
            Self::DoorShut => "its agent is lost and its door is shut",
        }
    }

    /// Whether the request itself rules the host out.
    pub(super) const fn is_by_request(self) -> bool {
        matches!(self, Self::ByRequest | Self::Tried | Self::FromHost)
    }

    /// Whether the host is full, as far as this coordinator may give its places.
    pub(super) const fn is_full(self) -> bool {
        matches!(
            self,
            Self::State(HostState::MaxUsers) | Self::OutOfShare | Self::KeptForOthers | Self::CellFull
        )
    }

    /// Whether the host may have room that other coordinators may give: it is full for this one only, because somebody has
    /// lost it.
    pub(super) const fn is_others(self) -> bool {
        matches!(self, Self::OutOfShare | Self::KeptForOthers)
    }
}
