//! `PlacementService`: where does this login go?

mod explain;
mod request;
mod watch;
mod watch_wire;

use std::{collections::HashMap, sync::Arc};

use tonic::{Code, Request, Response, Status};
use usher_placement::decision::OutcomeReport;
use usher_proto::{
    error::{self, reason},
    fault::id,
    read,
    v1::{self, placement_service_server::PlacementService},
};
use usher_types::{DecisionId, FailureCause};

pub(crate) use self::explain::learned_costs;
pub(super) use self::explain::{load_terms, redirect, timestamp};
use self::request::{failover_request, place_request};
pub(crate) use self::watch_wire::PlacementsOnTheWire;
use super::{caller, deadline, gateway, invalid};

use crate::{history::retention, placing, shared::Shared};

/// The service.
pub(crate) struct Placements(pub Arc<Shared>);

#[tonic::async_trait]
impl PlacementService for Placements {
    type WatchFarmStream = watch::Messages;

    /// On the wire [`PlacementsOnTheWire`] answers this call, with bytes that all its readers share.
    async fn watch_farm(
        &self,
        request: Request<v1::WatchFarmRequest>,
    ) -> Result<Response<Self::WatchFarmStream>, Status> {
        let who = caller(&request)?;
        Ok(Response::new(watch::messages(watch::frames(&self.0, &who.name, request.into_inner())?)))
    }

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
        }
        let placement = placing::place(&self.0, request, deadline).await?;
        Ok(Response::new(v1::FailoverResponse { placement: Some(placement) }))
    }

    async fn report_outcome(
        &self,
        request: Request<v1::ReportOutcomeRequest>,
    ) -> Result<Response<v1::ReportOutcomeResponse>, Status> {
        let gateway = gateway(&request)?;
        let said = read::report_outcome(gateway, request.into_inner());
        let said = said.map_err(|faults| error::invalid_fields(&faults))?;
        let report = OutcomeReport { token: said.token, outcome: said.outcome, cause: said.cause };
        let known = placing::report_outcome(&self.0, &report);
        Ok(Response::new(v1::ReportOutcomeResponse { known }))
    }

    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainResponse>, Status> {
        let text = request.into_inner().decision_id;
        let id = id::<DecisionId>("decision_id", &text).map_err(invalid)?;
        let kept = match self.0.sequence_of(&id) {
            Some(sequence) => self.0.history.find(sequence).await,
            None => None,
        };
        let kept = kept.ok_or_else(|| not_kept(&self.0, &id))?;
        Ok(Response::new(v1::ExplainResponse { explanation: Some(explain::explanation(&kept)) }))
    }
}

fn cause_name(cause: FailureCause) -> &'static str {
    match cause {
        FailureCause::Busy => "busy",
        FailureCause::Unreachable => "unreachable",
        FailureCause::Refused => "refused",
        FailureCause::Auth => "auth",
        FailureCause::Other => "other",
    }
}

fn not_kept(shared: &Shared, id: &DecisionId) -> Status {
    let message = format!(
        "decision {id} is not kept here: this coordinator ({}) keeps decisions of its present run, {}",
        shared.decision_prefix,
        retention()
    );
    let metadata = HashMap::from([("retention".to_owned(), retention())]);
    error::status(Code::NotFound, reason::RETENTION, message, metadata, None)
}
