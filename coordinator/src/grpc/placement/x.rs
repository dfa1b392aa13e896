//! `PlacementService`: where does this login go?

use std::{collections::HashMap, sync::Arc};

use tonic::{Code, Request, Response, Status};
use usher_placement::decision::{self, Decision, ExplainedHost, Inputs, Request as PlacementRequest};
use usher_proto::{
    enums,
    error::{self, reason},
    fault::id,
    read,
    v1::{self, placement_service_server::PlacementService},
    write,
};
use usher_types::{DecisionId, FieldFault, GatewayId, Outcome, PoolName, RequestId, ResourceId, Token, Zone};

use super::{deadline, gateway, invalid};
use crate::{
    history::{DecisionRecord, retention},
    placing::{self, wire_reason},
    shared::Shared,
};

/// Hosts that a request may name.
const MAX_NAMED_HOSTS: usize = 1024;
/// Longest name or id of a host in a request, bytes.
const MAX_HOST_BYTES: usize = 256;

/// The service.
pub(crate) struct Placements(pub Arc<Shared>);

/// A request, checked field by field, so that all faults are named at once.
struct Fields {
    faults: Vec<FieldFault>,
}

impl Fields {
    fn take<T>(&mut self, checked: Result<T, FieldFault>) -> Option<T> {
        checked.map_err(|fault| self.faults.push(fault)).ok()
    }

    fn hosts(&mut self, field: &str, hosts: Vec<String>) -> Vec<String> {
        if hosts.len() > MAX_NAMED_HOSTS {
            let count = format!("{} hosts", hosts.len());
            self.faults.push(FieldFault::new(field, count, format!("at most {MAX_NAMED_HOSTS}")));
            return Vec::new();
        }
        if let Some(host) = hosts.iter().find(|host| !is_host(host)) {
            let shown = usher_proto::fault::cut(host.escape_debug().to_string(), 64);
            self.faults.push(FieldFault::new(field, format!("{shown:?}"), "names or ids of hosts"));
        }
        hosts
    }

    fn host(&mut self, field: &str, host: Option<String>) -> Option<String> {
        host.and_then(|host| self.hosts(field, vec![host]).pop())
    }

    fn done<T>(self, value: Option<T>) -> Result<T, Status> {
        match value {
            Some(value) if self.faults.is_empty() => Ok(value),
            _ => Err(error::invalid_fields(&self.faults)),
        }
    }
}

fn is_host(host: &str) -> bool {
    !host.is_empty() && host.len() <= MAX_HOST_BYTES && !host.chars().any(char::is_control)
}

fn place_request(gateway: GatewayId, msg: v1::PlaceRequest) -> Result<PlacementRequest, Status> {
    let mut fields = Fields { faults: Vec::new() };
    let request_id = fields.take(id::<RequestId>("request_id", &msg.request_id));
    let pool = fields.take(id::<PoolName>("pool", &msg.pool));
    let resource = msg.resource.map(|text| fields.take(id::<ResourceId>("resource", &text)));
    let zone = msg.client_zone.map(|text| fields.take(id::<Zone>("client_zone", &text)));
    let user = fields.take(read::user_or_none(msg.user));
    let cost = fields.take(read::cost_or_one(msg.cost));
    let exclude = fields.hosts("exclude", msg.exclude);
    let prefer_host = fields.host("prefer_host", msg.prefer_host);
    let request =
        request_id.zip(pool).zip(user).zip(cost).map(|(((request_id, pool), user), cost)| PlacementRequest {
            token: Token { gateway, request_id },
            attempt: read::attempt_or_first(msg.attempt),
            pool,
            resource: resource.flatten(),
            user,
            client_zone: zone.flatten(),
            cost,
            exclude,
            prefer_host,
            dry_run: msg.dry_run,
            failover: None,
        });
    fields.done(request)
}

fn failover_cause(number: i32) -> Result<decision::FailoverCause, FieldFault> {
    match v1::FailoverCause::try_from(number) {
        Ok(v1::FailoverCause::Busy) => Ok(decision::FailoverCause::Busy),
        Ok(v1::FailoverCause::Unreachable) => Ok(decision::FailoverCause::Unreachable),
        Ok(v1::FailoverCause::Refused) => Ok(decision::FailoverCause::Refused),
        Ok(v1::FailoverCause::Auth) => Ok(decision::FailoverCause::Auth),
        Ok(v1::FailoverCause::Other) => Ok(decision::FailoverCause::Other),
        Ok(v1::FailoverCause::Unspecified) | Err(_) => {
            Err(FieldFault::new("cause", number, "BUSY, UNREACHABLE, REFUSED, AUTH or OTHER"))
        }
    }
}

fn outcome_request(gateway: GatewayId, msg: &v1::ReportOutcomeRequest) -> Result<(Token, Outcome), Status> {
    let mut fields = Fields { faults: Vec::new() };
    let request_id = fields.take(id::<RequestId>("request_id", &msg.request_id));
    let outcome = fields.take(enums::outcome("outcome", msg.outcome));
    // Nothing follows from it yet, but a number that means nothing is a mistake of the caller's.
    if let Some(cause) = msg.cause.filter(|cause| *cause != v1::FailoverCause::Unspecified as i32) {
        fields.take(failover_cause(cause));
    }
    let (request_id, outcome) = fields.done(request_id.zip(outcome))?;
    Ok((Token { gateway, request_id }, outcome))
}

fn failover_request(gateway: GatewayId, msg: v1::FailoverRequest) -> Result<PlacementRequest, Status> {
    let mut fields = Fields { faults: Vec::new() };
    let from_host = fields.host("from_host", Some(msg.from_host));
    let tried = fields.hosts("tried", msg.tried);
    let failed_request =
        msg.failed_request_id.map(|text| fields.take(id::<RequestId>("failed_request_id", &text)));
    let cause = fields.take(failover_cause(msg.cause));
    let failed = failed_request.flatten();
    if failed.as_ref().is_some_and(|failed| failed.as_str() == msg.request_id) {
        let allowed = "another id than the failed request's";
        fields.faults.push(FieldFault::new("request_id", format!("{:?}", msg.request_id), allowed));
    }
    let place = v1::PlaceRequest {
        request_id: msg.request_id,
        attempt: msg.attempt,
        pool: msg.pool,
        resource: msg.resource,
        user: msg.user,
        client_zone: msg.client_zone,
        cost: msg.cost,
        ..v1::PlaceRequest::default()
    };
    let failover = from_host.zip(cause).map(|(from_host, cause)| decision::Failover {
        from_host,
        failed_request: failed,
        tried,
        cause,
    });
    let failover = fields.done(failover)?;
    Ok(PlacementRequest { failover: Some(failover), ..place_request(gateway, place)? })
}

#[tonic::async_trait]
impl PlacementService for Placements {
    async fn place(&self, request: Request<v1::PlaceRequest>) -> Result<Response<v1::PlaceResponse>, Status> {
        let (gateway, deadline) = (gateway(&request)?, deadline(&request));
        let request = place_request(gateway, request.into_inner())?;
        let placement = placing::place(&self.0, request, deadline).await?;
        Ok(Response::new(v1::PlaceResponse { placement: Some(placement) }))
    }

    async fn failover(
        &self,
        request: Request<v1::FailoverRequest>,
    ) -> Result<Response<v1::FailoverResponse>, Status> {
        let (gateway, deadline) = (gateway(&request)?, deadline(&request));
        let request = failover_request(gateway, request.into_inner())?;
        if let Some(failover) = &request.failover {
            self.0.metrics.failover_asked(cause_name(failover.cause));
            placing::end_failed_places(&self.0, &request, failover);
        }
        let placement = placing::place(&self.0, request, deadline).await?;
        Ok(Response::new(v1::FailoverResponse { placement: Some(placement) }))
    }

    async fn report_outcome(
        &self,
        request: Request<v1::ReportOutcomeRequest>,
    ) -> Result<Response<v1::ReportOutcomeResponse>, Status> {
        let gateway = gateway(&request)?;
        let (token, outcome) = outcome_request(gateway, &request.into_inner())?;
        let known = placing::report_outcome(&self.0, &token, outcome);
        Ok(Response::new(v1::ReportOutcomeResponse { known }))
    }

    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainResponse>, Status> {
        let text = request.into_inner().decision_id;
        let id = id::<DecisionId>("decision_id", &text).map_err(invalid)?;
        let record = match self.0.sequence_of(&id) {
            Some(sequence) => self.0.history.find(sequence).await,
            None => None,
        };
        let record = record.ok_or_else(|| not_kept(&self.0, &id))?;
        Ok(Response::new(v1::ExplainResponse { explanation: Some(explanation(&record)) }))
    }
}

fn cause_name(cause: decision::FailoverCause) -> &'static str {
    match cause {
        decision::FailoverCause::Busy => "busy",
        decision::FailoverCause::Unreachable => "unreachable",
        decision::FailoverCause::Refused => "refused",
        decision::FailoverCause::Auth => "auth",
        decision::FailoverCause::Other => "other",
    }
}

fn not_kept(shared: &Shared, id: &DecisionId) -> Status {
    let message = format!(
        "decision {id} is not kept here: this coordinator ({}) keeps decisions of its present run for {}",
        shared.decision_prefix,
        retention()
    );
    let metadata = HashMap::from([("retention".to_owned(), retention())]);
    error::status(Code::NotFound, reason::RETENTION, message, metadata, None)
}

/// The explanation of a kept decision.
fn explanation(record: &DecisionRecord) -> v1::Explanation {
    let inputs = Inputs {
        pool: &record.pool,
        words: &record.words,
        request: &record.request,
        own_places: &record.own_places,
        unwilling: &record.unwilling,
        now: record.decided_at,
        seed: record.seed,
    };
    let explained = decision::explain(&inputs);
    let (reason, flags, tied) = match &explained.decision {
        // Nobody was chosen in the end, whoever would have been next.
        _ if record.answered.is_err() => (v1::PlacementReason::Unspecified, Vec::new(), 0),
        Decision::Take(choice) => (wire_reason(choice.reason), choice.flags.names().collect(), choice.tied),
        Decision::OwnSession { .. } => (v1::PlacementReason::OwnSession, Vec::new(), 0),
        Decision::OwnPlace { .. } => (v1::PlacementReason::Pending, Vec::new(), 0),
        Decision::Refused(_) => (v1::PlacementReason::Unspecified, Vec::new(), 0),
    };
    v1::Explanation {
        decision_id: record.id.to_string(),
        decided_at: Some(timestamp(record.decided_unix_ms)),
        pool: record.pool.name.to_string(),
        policy_version: record.pool.version,
        weights: Some(write::weights(record.pool.policy.weights)),
        resource: record.request.resource.as_ref().map(ToString::to_string),
        user: record.request.user.clone(),
        cost: record.request.cost,
        chosen_host_id: record.answered.as_ref().ok().map(ToString::to_string),
        reason: reason.into(),
        flags: flags.into_iter().map(str::to_owned).collect(),
        top_users: explained.top_users,
        top_processes: explained.top_processes,
        tied_hosts: tied,
        hosts: explained.hosts.iter().map(|host| explained_host(record, host)).collect(),
        refused_reason: record.answered.as_ref().err().map(|reason| (*reason).to_owned()).unwrap_or_default(),
        consents: record
            .consents
            .iter()
            .map(|consent| v1::ConsentAsked {
                host_name: consent.host_name.clone(),
                answer: consent.answer.to_owned(),
            })
            .collect(),
    }
}

pub(super) fn timestamp(unix_ms: u64) -> prost_types::Timestamp {
    // Both fit: seconds up to 2^54, nanoseconds below 10^9.
    prost_types::Timestamp {
        seconds: i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX),
        nanos: i32::try_from(unix_ms % 1000 * 1_000_000).unwrap_or(0),
    }
}

fn explained_host(record: &DecisionRecord, host: &ExplainedHost) -> v1::ExplainedHost {
    let facts = &record.pool.hosts[host.position].facts;
    let word = record.words[host.position];
    v1::ExplainedHost {
        host_id: facts.host_id.to_string(),
        host_name: facts.name.to_string(),
        state: v1::HostState::from(host.state).into(),
        state_reason: host.state_reason.clone(),
        excluded: host.excluded.clone().unwrap_or_default(),
        rank: host.rank,
        cpu_percent: host.metrics.cpu,
        memory_percent: host.metrics.memory,
        users: word.users(),
        processes: record.pool.hosts[host.position].reading.as_ref().and_then(|reading| reading.processes),
        pending_users: word.pending_users(),
        capacity: host.metrics.capacity,
        load_age_ms: host.load_age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        availability_index: host.availability_index,
        expansion_factor: host.expansion_factor,
        // Of the others no term was used: neither to rank them nor to compare others with them.
        terms: host
            .terms
            .filter(|_| host.rank.is_some() || host.state.is_eligible())
            .map(|terms| load_terms(&terms)),
        flags: host.flags.names().map(str::to_owned).collect(),
    }
}

pub(super) fn load_terms(terms: &usher_placement::load::LoadTerms) -> v1::LoadTerms {
    v1::LoadTerms {
        cpu: terms.cpu,
        memory: terms.memory,
        users: terms.users,
        processes: terms.processes,
        weighted_load: terms.weighted_load(),
        filled_in: terms.filled.names().map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_with_a_cause_that_means_nothing_is_refused_and_named() {
        let outcome = |cause| {
            let request_id = "r1".to_owned();
            let msg = v1::ReportOutcomeRequest { request_id, outcome: v1::Outcome::Failed.into(), cause };
            outcome_request(GatewayId::new("g1").unwrap(), &msg)
        };
        for cause in [None, Some(0), Some(2), Some(5)] {
            assert_eq!(outcome(cause).unwrap().1, Outcome::Failed);
        }
        for cause in [6, -1, i32::MAX] {
            let refused = outcome(Some(cause)).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
            assert!(refused.message().starts_with(&format!("cause = {cause}: ")), "{}", refused.message());
        }
    }
}
