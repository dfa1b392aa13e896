//! Who was passed over, and why?
//!
//! A login that was not sent where it came from, where its user has a session, or where the user is at home, was
//! redirected. Operators count these: they are the logins that noticed something. A user who goes back to their own
//! session or place instead of their home server was not redirected: that is where they belong now.

use usher_types::{FailureCause, HostState, PenaltyCause};

use super::{Assessment, Excluded, own};

/// A host that was passed over.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Redirect {
    /// Its position in the pool.
    pub position: u32,
    /// Why.
    pub why: RedirectReason,
}

/// Why a host was passed over.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RedirectReason {
    /// The login failed over from it, for this.
    Cause(FailureCause),
    /// It was no candidate, for this.
    Rule(Excluded),
    /// It was a candidate, but others were in a better state.
    State(HostState),
    /// Logins fail on it.
    Penalised(PenaltyCause),
}

impl RedirectReason {
    /// One word for a metric; there are about 25 of them.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Cause(FailureCause::Busy) => "busy",
            Self::Cause(FailureCause::Unreachable) => "unreachable",
            Self::Cause(FailureCause::Refused) => "refused",
            Self::Cause(FailureCause::Auth) => "auth",
            Self::Cause(FailureCause::Other) => "other",
            Self::Penalised(PenaltyCause::Failed) => "penalised",
            Self::Penalised(PenaltyCause::Unconfirmed) => "unconfirmed",
            Self::State(state) | Self::Rule(Excluded::State(state)) => state_label(state),
            Self::Rule(Excluded::NoReplica) => "no_replica",
            Self::Rule(Excluded::OutOfService(_)) => "out_of_service",
            Self::Rule(Excluded::ByRequest) => "excluded",
            Self::Rule(Excluded::Tried) => "tried",
            Self::Rule(Excluded::FromHost) => "from_host",
            Self::Rule(Excluded::MaxPending) => "max_pending",
            Self::Rule(Excluded::RefusedConsent) => "no_consent",
            Self::Rule(Excluded::NoAnswer) => "silent",
            Self::Rule(Excluded::OutOfShare) => "out_of_share",
            Self::Rule(Excluded::KeptForOthers) => "kept_for_others",
            Self::Rule(Excluded::CellFull) => "cell_full",
            Self::Rule(Excluded::DoorShut) => "door_shut",
        }
    }
}

const fn state_label(state: HostState) -> &'static str {
    match state {
        HostState::Available => "available",
        HostState::Warming => "warming",
        HostState::Busy => "busy",
        HostState::Unknown => "unknown",
        HostState::MaxUsers => "maxusers",
        HostState::Restricted => "restricted",
        HostState::NotReady => "not_ready",
        HostState::Offline => "offline",
    }
}

/// The host that a login to `chosen` was passed over from, if that is the user's own.
pub(super) fn of_own(assessment: &Assessment<'_>, chosen: u32) -> Option<Redirect> {
    let of_session = || {
        let home = own::home_of_session(assessment).filter(|home| *home != chosen)?;
        Some(Redirect { position: home, why: why(assessment, home) })
    };
    from_host(assessment, chosen).or_else(of_session)
}

/// The host that a login to `chosen`, found by rank, was passed over from.
pub(super) fn of_ranked(assessment: &Assessment<'_>, chosen: u32) -> Option<Redirect> {
    let preferred = || {
        let inputs = assessment.inputs();
        let preferred = inputs.pool.find(inputs.request.prefer_host.as_deref()?)?;
        let preferred = u32::try_from(preferred).ok().filter(|preferred| *preferred != chosen)?;
        Some(Redirect { position: preferred, why: why(assessment, preferred) })
    };
    of_own(assessment, chosen).or_else(preferred)
}

fn from_host(assessment: &Assessment<'_>, chosen: u32) -> Option<Redirect> {
    let failover = assessment.inputs().request.failover.as_ref()?;
    let from = assessment.from_host.filter(|from| *from != chosen)?;
    Some(Redirect { position: from, why: RedirectReason::Cause(failover.cause) })
}

fn why(assessment: &Assessment<'_>, position: u32) -> RedirectReason {
    match assessment.class(position) {
        Err(rule) => RedirectReason::Rule(rule),
        Ok(class) if class.silent => RedirectReason::Rule(Excluded::NoAnswer),
        Ok(class) => match assessment.penalised(position as usize) {
            Some(cause) => RedirectReason::Penalised(cause),
            None => RedirectReason::State(class.tier.state()),
        },
    }
}
