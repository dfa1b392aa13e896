//! What became of each call?
//!
//! One span per call at debug level, with the method and who called, for everything that happens inside it; one line at
//! its end, at info level if it failed. Neither a request's content nor a status message is written: both may hold
//! names of users.

use std::task::{Context, Poll};

use axum::http::{Request, Response};
use futures::future::BoxFuture;
use tokio::time::Instant;
use tonic::{Code, Status};
use tower::Service;
use tracing::{Instrument, debug, debug_span, info};

use super::Caller;

/// Follows each call.
#[derive(Clone, Debug)]
pub struct Traced<S> {
    service: S,
}

impl<S> Traced<S> {
    pub(super) fn new(service: S) -> Self {
        Self { service }
    }
}

impl<S, B, R> Service<Request<B>> for Traced<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    R: 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<R>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let method = request.uri().path().to_owned();
        let caller = request.extensions().get::<Caller>().map(ToString::to_string).unwrap_or_default();
        let span = debug_span!("call", method, caller);
        let begun = Instant::now();
        let outcome = span.in_scope(|| self.service.call(request));
        let answered = async move {
            let outcome = outcome.await;
            if let Ok(response) = &outcome {
                let code = code_of(response);
                let took_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                match code {
                    Code::Ok => debug!(took_us, "call answered"),
                    code => info!(method, caller, ?code, took_us, "call failed"),
                }
            }
            outcome
        };
        Box::pin(answered.instrument(span))
    }
}

/// A call that fails before its first message says so in the headers; everything else has begun to answer.
fn code_of<R>(response: &Response<R>) -> Code {
    Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code())
}
