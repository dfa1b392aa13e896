//! Who calls, and may they call this?
//!
//! Under TLS the certificate says who; on plain loopback every role is granted, and a gateway may name itself. A
//! certificate of another farm is nobody here. What a service may be called by stands in one table below; a service that
//! nobody entered there is an admin's, so that forgetting an entry locks out instead of letting in.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use axum::http::{Request, Response};
use futures::future::{Either, Ready, ready};
use tonic::Status;
use tower::Service;
use tracing::info;
use usher_proto::error::invalid_fields;
use usher_runtime::{
    identity::{NAME_MAX_BYTES, PeerIdentity, Role},
    net::PeerInfo,
};
use usher_types::FieldFault;

use super::{refusal, service_and_method};
use crate::metrics::Metrics;

/// Who calls. In the extensions of every request that reaches a service. Shared with the connection, as far as it does not
/// depend on the call.
pub type Caller = Arc<PeerIdentity>;

/// Metadata by which a gateway names itself on plain loopback.
const GATEWAY_METADATA: &str = "usher-gateway";

/// Lets only those through who may call what they call.
#[derive(Clone, Debug)]
pub struct Identified<S> {
    service: S,
    farm: String,
    metrics: Metrics,
}

impl<S> Identified<S> {
    pub(super) fn new(service: S, farm: String, metrics: Metrics) -> Self {
        Self { service, farm, metrics }
    }
}

impl<S, B, R> Service<Request<B>> for Identified<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Default,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Either<S::Future, Ready<Result<Response<R>, S::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        match identify(&request, &self.farm) {
            Ok(caller) => {
                request.extensions_mut().insert::<Caller>(caller);
                Either::Left(self.service.call(request))
            }
            Err(status) => {
                self.metrics.call_denied();
                let method = request.uri().path();
                let peer = request.extensions().get::<PeerInfo>().map(|peer| peer.addr);
                info!(method, ?peer, code = ?status.code(), why = status.message(), "refused a call");
                Either::Right(ready(Ok(status.into_http())))
            }
        }
    }
}

fn identify<B>(request: &Request<B>, farm: &str) -> Result<Caller, Status> {
    let peer = request
        .extensions()
        .get::<PeerInfo>()
        .ok_or_else(|| Status::internal("the connection does not say who is on its other end"))?;
    let own_name = request.headers().get(GATEWAY_METADATA);
    let misnamed = || {
        let shown = format!("{own_name:?}");
        let allowed = format!("1..={NAME_MAX_BYTES} characters of A-Z a-z 0-9 . _ -");
        invalid_fields(&[FieldFault::new(GATEWAY_METADATA, shown, allowed)])
    };
    // Its bytes are looked at even under TLS, where the name itself is not: a client that sends garbage should know.
    let own_name_text = own_name.map(|name| name.to_str().map_err(|_| misnamed())).transpose()?;
    let caller = peer.caller(own_name_text).map_err(|_| misnamed())?.ok_or_else(|| {
        refusal::not_authorized("a call from another machine needs a certificate".to_owned())
    })?;
    if let Some(other) = caller.farm.as_deref().filter(|other| *other != farm) {
        let message = format!("certificate of {caller} is of farm {other}, this is farm {farm}");
        return Err(refusal::not_authorized(message));
    }
    let needed = needed_roles(request);
    if needed.is_empty() || needed.iter().any(|role| caller.has_role(*role)) {
        return Ok(caller);
    }
    let needed = needed.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(" or ");
    let path = request.uri().path();
    Err(refusal::not_authorized(format!("{path} needs role {needed}, the certificate is of {caller}")))
}

/// The roles of which one is needed; empty: anyone with a certificate of the farm. An admin may do what an operator may.
fn needed_roles<B>(request: &Request<B>) -> &'static [Role] {
    let Some((service, method)) = service_and_method(request.uri()) else { return &[Role::Admin] };
    match (service, method) {
        ("usher.v1.AgentService", _) => &[Role::Agent],
        ("usher.v1.PlacementService" | "usher.v1.DirectoryService", _) => &[Role::Gateway, Role::Operator],
        ("usher.v1.AdminService", method) if is_operators(method) => &[Role::Operator],
        ("grpc.health.v1.Health", _)
        | ("grpc.reflection.v1.ServerReflection" | "grpc.reflection.v1alpha.ServerReflection", _) => &[],
        _ => &[Role::Admin],
    }
}

/// What an operator may: look at everything, and take hosts and replicas out of service. What a pool's settings are is an
/// admin's to say.
fn is_operators(method: &str) -> bool {
    matches!(
        method,
        "ListPools"
            | "GetPool"
            | "GetPoolHistory"
            | "DiffPool"
            | "DrainHost"
            | "UndrainHost"
            | "SetHostMarks"
            | "MarkReplica"
            | "GetBaselines"
            | "ListCoordinators"
            | "ResetBaselines"
            | "ListQuarantine"
    )
}
