//! What became of each call?
//!
//! One span per call at debug level, with the method and who called, for everything that happens inside it; one line at
//! its end, at info level if it failed. Neither a request's content nor a status message is written: both may hold
//! names of users. Nothing is put into words for a line that nobody wants: this stands in the way of every login.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::http::{Request, Response, Uri};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tonic::{Code, Status};
use tower::Service;
use tracing::{Span, debug, debug_span, field::display, info};

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
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Followed<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let uri = request.uri().clone();
        let caller = request.extensions().get::<Caller>().cloned();
        let span = debug_span!("call", method = uri.path(), caller = caller.as_ref().map(display));
        let begun = Instant::now();
        let outcome = span.in_scope(|| self.service.call(request));
        Followed { outcome, span, begun, uri, caller }
    }
}

pin_project! {
    /// A call that is followed to its end.
    #[derive(Debug)]
    pub struct Followed<F> {
        #[pin]
        outcome: F,
        span: Span,
        begun: Instant,
        uri: Uri,
        caller: Option<Caller>,
    }
}

impl<F, R, E> Future for Followed<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let call = self.project();
        let _inside = call.span.enter();
        let outcome = ready!(call.outcome.poll(cx));
        if let Ok(response) = &outcome {
            let took_us = || u64::try_from(call.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            match code_of(response) {
                Code::Ok => debug!(took_us = took_us(), "call answered"),
                code => {
                    let (method, caller) = (call.uri.path(), call.caller.as_ref().map(display));
                    info!(method, caller, ?code, took_us = took_us(), "call failed");
                }
            }
        }
        Poll::Ready(outcome)
    }
}

/// A call that fails before its first message says so in the headers; everything else has begun to answer.
fn code_of<R>(response: &Response<R>) -> Code {
    Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code())
}
