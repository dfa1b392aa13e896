//! Is there room for one more call?
//!
//! Under overload a queue only makes every answer late, so there is none: beyond the bound a call is refused at once with
//! UNAVAILABLE, which sends a gateway to another coordinator, and with the time after which to try again. Agents' streams
//! take no share: a thousand hosts would otherwise hold a thousand places for days.

use std::{
    convert::Infallible,
    task::{Context, Poll},
};

use axum::http::{Request, Response};
use futures::future::{BoxFuture, Either};
use tower::{
    BoxError, Service, ServiceExt,
    limit::ConcurrencyLimit,
    load_shed::{LoadShed, error::Overloaded},
};
use tracing::error;

use super::{is_attach, refusal};
use crate::metrics::Metrics;

/// Bounds the calls under way.
#[derive(Clone, Debug)]
pub struct Shed<S> {
    unbounded: S,
    bounded: LoadShed<ConcurrencyLimit<S>>,
    metrics: Metrics,
}

impl<S: Clone> Shed<S> {
    pub(super) fn new(service: S, max_concurrent_calls: usize, metrics: Metrics) -> Self {
        let bounded = LoadShed::new(ConcurrencyLimit::new(service.clone(), max_concurrent_calls));
        Self { unbounded: service, bounded, metrics }
    }
}

impl<S, B, R> Service<Request<B>> for Shed<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Send + 'static,
    R: Default + Send + 'static,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future =
        Either<tower::util::Oneshot<S, Request<B>>, BoxFuture<'static, Result<Response<R>, Infallible>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Whether there is room depends on the call, which is not known yet.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if is_attach(&request) {
            return Either::Left(self.unbounded.clone().oneshot(request));
        }
        let answer = self.bounded.clone().oneshot(request);
        let metrics = self.metrics.clone();
        Either::Right(Box::pin(
            async move { Ok(answer.await.unwrap_or_else(|error| refused(&error, &metrics))) },
        ))
    }
}

fn refused<R: Default>(error: &BoxError, metrics: &Metrics) -> Response<R> {
    if error.is::<Overloaded>() {
        metrics.call_shed();
        return refusal::overloaded().into_http();
    }
    // The bound itself fails only if its semaphore is closed, which nobody does.
    error!(%error, "failed to bound the calls under way");
    tonic::Status::internal("failed to bound the calls under way").into_http()
}
