//! Is there room for one more call?
//!
//! Under overload a queue only makes every answer late, so there is none: beyond the bound a call is refused at once with
//! UNAVAILABLE, which sends a gateway to another coordinator, and with the time after which to try again. Agents' streams
//! take no share: a thousand hosts would otherwise hold a thousand places for days.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::http::{Request, Response};
use futures::future::{Either, Ready, ready};
use pin_project_lite::pin_project;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::Service;

use super::{is_attach, refusal};
use crate::metrics::Metrics;

/// Bounds the calls under way.
#[derive(Clone, Debug)]
pub struct Shed<S> {
    service: S,
    room: Arc<Semaphore>,
    metrics: Metrics,
}

impl<S> Shed<S> {
    pub(super) fn new(service: S, max_concurrent_calls: usize, metrics: Metrics) -> Self {
        let room = Arc::new(Semaphore::new(max_concurrent_calls.min(Semaphore::MAX_PERMITS)));
        Self { service, room, metrics }
    }
}

impl<S, B, R> Service<Request<B>> for Shed<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Default,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Either<Held<S::Future>, Ready<Result<Response<R>, S::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let place = if is_attach(&request) {
            None
        } else if let Ok(place) = self.room.clone().try_acquire_owned() {
            Some(place)
        } else {
            self.metrics.call_shed();
            return Either::Right(ready(Ok(refusal::overloaded().into_http())));
        };
        Either::Left(Held { answer: self.service.call(request), place })
    }
}

pin_project! {
    /// A call that holds its place until it is answered or dropped.
    #[derive(Debug)]
    pub struct Held<F> {
        #[pin]
        answer: F,
        place: Option<OwnedSemaphorePermit>,
    }
}

impl<F: Future> Future for Held<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().answer.poll(cx)
    }
}
