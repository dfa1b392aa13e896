//! Answers, and the errors that say no.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use usher_placement::{
    decision::{Choice, Excluded, Flags, PlacementReason, Refusal, RefusalKind, Request, Reserved},
    farm::{CellWord, PoolView, state_reason},
    reservation::{Grant, GrantState},
};
use usher_proto::{
    error::{self, reason},
    v1, write,
};
use usher_types::{BootTime, HostState, PoolName, Token};

use crate::shared::Shared;

/// When to try again where only hearing from hosts is missing.
const RETRY_SOON: Duration = Duration::from_secs(1);
/// When to try again where everyone is full: about one report later.
const RETRY_FULL: Duration = Duration::from_secs(5);

/// The host was chosen by rank at `now`; absent grant: a dry run.
pub(super) fn taken(
    reserved: &Reserved,
    choice: &Choice,
    grant: Option<&Grant>,
    now: BootTime,
    decision_id: String,
) -> v1::Placement {
    let pool = &reserved.pool;
    let host = OnHost { position: choice.position, reason: choice.reason, flags: choice.flags };
    v1::Placement {
        weighted_load: choice.terms.map(|terms| terms.weighted_load()),
        alternatives: alternatives(pool, &reserved.words, &choice.alternatives, now),
        ..on_host(pool, &host, grant, now, decision_id)
    }
}

/// The user has a session there, or, with a grant, a place.
pub(super) fn own(
    pool: &PoolView,
    position: u32,
    grant: Option<&Grant>,
    now: BootTime,
    decision_id: String,
) -> v1::Placement {
    let flags = Flags::NONE.with(Flags::PARTIAL_VIEW, pool.is_partial());
    let reason = if grant.is_some() { PlacementReason::Pending } else { PlacementReason::OwnSession };
    on_host(pool, &OnHost { position, reason, flags }, grant, now, decision_id)
}

struct OnHost {
    position: u32,
    reason: PlacementReason,
    flags: Flags,
}

fn on_host(
    pool: &PoolView,
    host: &OnHost,
    grant: Option<&Grant>,
    now: BootTime,
    decision_id: String,
) -> v1::Placement {
    let facts = &pool.hosts[host.position as usize].facts;
    v1::Placement {
        host_id: facts.host_id.to_string(),
        host_name: facts.name.to_string(),
        endpoints: facts.endpoints.iter().map(write::endpoint).collect(),
        reservation: grant.map(|grant| write::token(&grant.token)),
        reservation_left_ms: grant.map(|grant| millis(grant.ends_at.since(now))),
        reason: wire_reason(host.reason).into(),
        flags: host.flags.names().map(str::to_owned).collect(),
        weighted_load: None,
        pool: pool.name.to_string(),
        policy_version: pool.version,
        alternatives: Vec::new(),
        decision_id,
        hosts_heard: pool.hosts_heard,
        hosts_registered: pool.hosts_registered,
    }
}

/// As the metrics name the reason of an answer.
pub(super) fn reason_name(placement: &v1::Placement) -> &'static str {
    match placement.reason() {
        v1::PlacementReason::OwnSession => "OWN_SESSION",
        v1::PlacementReason::Pending => "PENDING",
        v1::PlacementReason::Preferred => "PREFERRED",
        v1::PlacementReason::Original => "ORIGINAL",
        v1::PlacementReason::LowestLoad | v1::PlacementReason::Unspecified => "LOWEST_LOAD",
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn wire_reason(reason: PlacementReason) -> v1::PlacementReason {
    match reason {
        PlacementReason::OwnSession => v1::PlacementReason::OwnSession,
        PlacementReason::Pending => v1::PlacementReason::Pending,
        PlacementReason::Preferred => v1::PlacementReason::Preferred,
        PlacementReason::LowestLoad => v1::PlacementReason::LowestLoad,
        PlacementReason::Original => v1::PlacementReason::Original,
    }
}

/// The answer to a retry. Absent: the host of the place takes nobody any more, so it must be decided anew.
pub(super) fn repeat(shared: &Shared, grant: &Grant) -> Option<v1::Placement> {
    let now = shared.now();
    let snapshot = shared.snapshot.load();
    let pool = snapshot.pools.get(&grant.pool)?;
    let position = pool.members.position(&grant.host_id)?;
    let state = usher_placement::farm::state_of(&pool.state_input(position, grant.cell.load(), 0, now));
    if matches!(state, HostState::Offline | HostState::NotReady) {
        return None;
    }
    let position = u32::try_from(position).ok()?;
    let live = grant.state() == GrantState::Live;
    let id = grant.decision_id.as_ref().map(ToString::to_string).unwrap_or_default();
    let host = OnHost {
        position,
        reason: PlacementReason::Pending,
        flags: Flags::NONE.with(Flags::PARTIAL_VIEW, pool.is_partial()),
    };
    Some(on_host(pool, &host, live.then_some(grant), now, id))
}

fn alternatives(
    pool: &PoolView,
    words: &[CellWord],
    positions: &[(u32, Option<f64>)],
    now: BootTime,
) -> Vec<v1::Alternative> {
    let alternative = |(position, weighted_load): &(u32, Option<f64>)| {
        let at = *position as usize;
        let facts = &pool.hosts[at].facts;
        let state = usher_placement::farm::state_of(&pool.state_input(at, words[at], 1, now));
        v1::Alternative {
            host_id: facts.host_id.to_string(),
            host_name: facts.name.to_string(),
            state: v1::HostState::from(state).into(),
            endpoints: facts.endpoints.iter().map(write::endpoint).collect(),
            weighted_load: *weighted_load,
        }
    };
    positions.iter().map(alternative).collect()
}

/// The error that says why nobody was chosen, for each host.
pub(super) fn refused(
    pool: &PoolView,
    refusal: &Refusal,
    request: &Request,
    words: &[CellWord],
    now: BootTime,
) -> Status {
    let (code, reason, what, retry) = match refusal.kind {
        RefusalKind::UnknownResource => {
            let resource = request.resource.as_ref().map(ToString::to_string).unwrap_or_default();
            let what = format!("no host of pool {} holds resource {resource:?}", pool.name);
            (Code::NotFound, reason::UNKNOWN_RESOURCE, what, None)
        }
        RefusalKind::Stale => return stale(),
        RefusalKind::MaxUsers => {
            (Code::ResourceExhausted, reason::MAX_USERS, "every host is full".to_owned(), Some(RETRY_FULL))
        }
        RefusalKind::NoConsentRefused => {
            let what = "no host that was asked gave a place".to_owned();
            (Code::ResourceExhausted, reason::NO_CONSENT, what, Some(RETRY_SOON))
        }
        RefusalKind::NoConsentSilent => {
            let what = "no host that was asked answered in time".to_owned();
            (Code::Unavailable, reason::NO_CONSENT, what, Some(RETRY_SOON))
        }
        RefusalKind::AllRestricted => {
            (Code::Unavailable, reason::ALL_RESTRICTED, "every host is drained".to_owned(), None)
        }
        RefusalKind::AllExcluded => {
            (Code::Unavailable, reason::ALL_EXCLUDED, "the request excludes every host".to_owned(), None)
        }
        RefusalKind::AllOffline => (
            Code::Unavailable,
            reason::ALL_OFFLINE,
            "no host takes new sessions".to_owned(),
            Some(RETRY_FULL),
        ),
    };
    let details = host_reasons(pool, refusal, request, words, now);
    let listed: Vec<String> = details.iter().map(|(host, why)| format!("{host} {why}")).collect();
    let message = if listed.is_empty() { what } else { format!("{what}: {}", listed.join(", ")) };
    let metadata = details.into_iter().map(|(host, why)| (format!("host:{host}"), why)).collect();
    error::status(code, reason, message, metadata, retry)
}

fn host_reasons(
    pool: &PoolView,
    refusal: &Refusal,
    request: &Request,
    words: &[CellWord],
    now: BootTime,
) -> Vec<(String, String)> {
    let why = |(position, excluded): &(u32, Excluded)| {
        let at = *position as usize;
        let text = match excluded {
            Excluded::State(state) => {
                let reason = state_reason(&pool.state_input(at, words[at], request.cost, now), *state);
                if reason.is_empty() { state.to_string() } else { format!("{state} ({reason})") }
            }
            other => other.as_str().to_owned(),
        };
        (pool.hosts[at].facts.name.to_string(), text)
    };
    refusal.hosts.iter().map(why).collect()
}

/// The coordinator does not know enough yet.
pub(super) fn stale() -> Status {
    let what = "too little of the farm was heard since the coordinator started or was frozen";
    error::status(Code::Unavailable, reason::STALE, what, HashMap::new(), Some(RETRY_SOON))
}

/// There is no such pool.
pub(crate) fn unknown_pool(pool: &PoolName) -> Status {
    let metadata = HashMap::from([("pool".to_owned(), pool.to_string())]);
    error::status(Code::NotFound, reason::UNKNOWN_POOL, format!("there is no pool {pool}"), metadata, None)
}

/// Another request came under the same id.
pub(super) fn reused(token: &Token) -> Status {
    let what = format!("request_id {:?} was used for another request", token.request_id.as_str());
    let metadata = HashMap::from([("request_id".to_owned(), token.request_id.to_string())]);
    error::status(Code::InvalidArgument, reason::REQUEST_ID_REUSED, what, metadata, None)
}

/// As the metrics and the history name a refusal: one of the fixed reasons.
pub(super) fn refusal_name(status: &Status) -> &'static str {
    const NAMES: [&str; 11] = [
        reason::MAX_USERS,
        reason::NO_CONSENT,
        reason::ALL_OFFLINE,
        reason::ALL_RESTRICTED,
        reason::ALL_EXCLUDED,
        reason::STALE,
        reason::UNKNOWN_POOL,
        reason::UNKNOWN_RESOURCE,
        reason::REQUEST_ID_REUSED,
        reason::INVALID_FIELD,
        reason::NOT_AUTHORIZED,
    ];
    let info = error::error_info(status);
    info.and_then(|info| NAMES.into_iter().find(|name| *name == info.reason)).unwrap_or("OTHER")
}
