//! Answers, and the errors that say no, as the wire has them.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use usher_placement::{
    decision::{DecisionRecord, Excluded, Placed, PlacementReason, Refusal, RefusalKind, Request},
    farm::{state_of, state_reason},
};
use usher_proto::{
    error::{self, reason},
    v1, write,
};
use usher_types::{BootTime, Method, PoolName, Token};

/// A host for the login, at `now`. Without a record: an answer that was given before.
pub(super) fn placement(placed: &Placed, record: Option<&DecisionRecord>, now: BootTime) -> v1::Placement {
    let pool = &placed.pool;
    let facts = &pool.hosts[placed.position as usize].facts;
    let grant = placed.grant.as_deref();
    v1::Placement {
        host_id: facts.host_id.as_str().to_owned(),
        host_name: facts.name.as_str().to_owned(),
        endpoints: facts.endpoints.iter().map(write::endpoint).collect(),
        reservation: grant.map(|grant| write::token(&grant.token)),
        reservation_left_ms: grant.map(|grant| millis(grant.ends_at.since(now))),
        reason: wire_reason(placed.reason).into(),
        flags: placed.flags.names().map(str::to_owned).collect(),
        weighted_load: weighted_load(placed, placed.score),
        pool: pool.name.as_str().to_owned(),
        policy_version: pool.version,
        alternatives: record.map_or_else(Vec::new, |record| alternatives(placed, record)),
        decision_id: placed.decision_id.as_ref().map(|id| id.as_str().to_owned()).unwrap_or_default(),
        hosts_heard: pool.hosts_heard,
        hosts_registered: pool.hosts_registered,
    }
}

/// The number that a host was ranked by, if that is its weighted load.
fn weighted_load(placed: &Placed, score: Option<f64>) -> Option<f64> {
    score.filter(|_| placed.pool.policy.method == Method::WeightedLoad)
}

fn alternatives(placed: &Placed, record: &DecisionRecord) -> Vec<v1::Alternative> {
    let alternative = |(position, score): &(u32, Option<f64>)| {
        let at = *position as usize;
        let facts = &record.pool.hosts[at].facts;
        let state = state_of(&record.pool.state_input(at, record.words[at], 1, record.decided_at));
        v1::Alternative {
            host_id: facts.host_id.as_str().to_owned(),
            host_name: facts.name.as_str().to_owned(),
            state: v1::HostState::from(state).into(),
            endpoints: facts.endpoints.iter().map(write::endpoint).collect(),
            weighted_load: weighted_load(placed, *score),
        }
    };
    placed.alternatives.iter().map(alternative).collect()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The reason of a choice on the wire.
pub(crate) fn wire_reason(reason: PlacementReason) -> v1::PlacementReason {
    match reason {
        PlacementReason::OwnSession => v1::PlacementReason::OwnSession,
        PlacementReason::Pending => v1::PlacementReason::Pending,
        PlacementReason::Preferred => v1::PlacementReason::Preferred,
        PlacementReason::LowestLoad => v1::PlacementReason::LowestLoad,
        PlacementReason::HighestAvailability => v1::PlacementReason::HighestAvailability,
        PlacementReason::Predicted => v1::PlacementReason::Predicted,
        PlacementReason::Fill => v1::PlacementReason::Fill,
        PlacementReason::Original => v1::PlacementReason::Original,
    }
}

fn refusal_code(kind: RefusalKind) -> Code {
    match kind {
        RefusalKind::UnknownResource => Code::NotFound,
        RefusalKind::OutOfService => Code::FailedPrecondition,
        RefusalKind::MaxUsers | RefusalKind::MaxPending | RefusalKind::NoConsentRefused => {
            Code::ResourceExhausted
        }
        RefusalKind::Stale
        | RefusalKind::NoConsentSilent
        | RefusalKind::AllRestricted
        | RefusalKind::AllExcluded
        | RefusalKind::AllOffline => Code::Unavailable,
    }
}

fn refusal_text(kind: RefusalKind, request: &Request) -> String {
    let resource = || request.resource.as_ref().map(ToString::to_string).unwrap_or_default();
    let text = match kind {
        RefusalKind::UnknownResource => {
            return format!("no host of pool {} holds resource {:?}", request.pool, resource());
        }
        RefusalKind::OutOfService => {
            return format!("every replica of resource {:?} is out of service", resource());
        }
        RefusalKind::Stale => "too little of the farm was heard since the coordinator started or was frozen",
        RefusalKind::MaxUsers => "every host is full",
        RefusalKind::MaxPending => "every host has as many logons in progress as it may have",
        RefusalKind::NoConsentRefused => "no host that was asked gave a place",
        RefusalKind::NoConsentSilent => "no host that was asked answered in time",
        RefusalKind::AllRestricted => "every host is drained",
        RefusalKind::AllExcluded => "the request excludes every host",
        RefusalKind::AllOffline => "no host takes new sessions",
    };
    text.to_owned()
}

/// The error that says why nobody was chosen, for each host. Without a record: nothing was decided at all.
pub(super) fn refused(refusal: &Refusal, record: Option<&DecisionRecord>, request: &Request) -> Status {
    let details = record.map_or_else(Vec::new, |record| host_reasons(refusal, record));
    let listed: Vec<String> = details.iter().map(|(host, why)| format!("{host} {why}")).collect();
    let what = refusal_text(refusal.kind, request);
    let message = if listed.is_empty() { what } else { format!("{what}: {}", listed.join(", ")) };
    let mut metadata: HashMap<String, String> =
        details.into_iter().map(|(host, why)| (format!("host:{host}"), why)).collect();
    if let Some(record) = record {
        metadata.insert(error::HOSTS_HEARD.to_owned(), record.pool.hosts_heard.to_string());
        metadata.insert(error::HOSTS_REGISTERED.to_owned(), record.pool.hosts_registered.to_string());
    }
    if refusal.kept_hosts > 0 {
        metadata.insert(error::KEPT_HOSTS.to_owned(), refusal.kept_hosts.to_string());
    }
    let (code, name) = (refusal_code(refusal.kind), refusal.kind.reason());
    error::status(code, name, message, metadata, refusal.retry_after)
}

fn host_reasons(refusal: &Refusal, record: &DecisionRecord) -> Vec<(String, String)> {
    let pool = &record.pool;
    let why = |(position, excluded): &(u32, Excluded)| {
        let at = *position as usize;
        let text = match excluded {
            Excluded::State(state) => {
                let input = pool.state_input(at, record.words[at], record.request.cost, record.decided_at);
                let reason = state_reason(&input, *state);
                if reason.is_empty() { state.to_string() } else { format!("{state} ({reason})") }
            }
            other => other.as_str().to_owned(),
        };
        (pool.hosts[at].facts.name.to_string(), text)
    };
    refusal.hosts.iter().map(why).collect()
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

/// As the metrics name an answer: by the reason of the choice, or of the error.
pub(super) fn outcome_name(outcome: &Result<v1::Placement, Status>) -> &'static str {
    match outcome {
        Ok(placement) => match placement.reason() {
            v1::PlacementReason::OwnSession => "OWN_SESSION",
            v1::PlacementReason::Pending => "PENDING",
            v1::PlacementReason::Preferred => "PREFERRED",
            v1::PlacementReason::HighestAvailability => "HIGHEST_AVAILABILITY",
            v1::PlacementReason::Predicted => "PREDICTED",
            v1::PlacementReason::Fill => "FILL",
            v1::PlacementReason::Original => "ORIGINAL",
            v1::PlacementReason::LowestLoad
            | v1::PlacementReason::LocalDecision
            | v1::PlacementReason::Unspecified => "LOWEST_LOAD",
        },
        Err(status) => error_name(status),
    }
}

fn error_name(status: &Status) -> &'static str {
    const NAMES: [&str; 11] = [
        reason::MAX_USERS,
        reason::MAX_PENDING,
        reason::NO_CONSENT,
        reason::ALL_OFFLINE,
        reason::ALL_RESTRICTED,
        reason::ALL_EXCLUDED,
        reason::STALE,
        reason::UNKNOWN_POOL,
        reason::UNKNOWN_RESOURCE,
        reason::OUT_OF_SERVICE,
        reason::REQUEST_ID_REUSED,
    ];
    let info = error::error_info(status);
    info.and_then(|info| NAMES.into_iter().find(|name| *name == info.reason)).unwrap_or("OTHER")
}
