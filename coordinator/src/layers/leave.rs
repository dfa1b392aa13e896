//! Whom should a caller ask while this coordinator goes down?
//!
//! Calls that were taken are answered; new ones are refused at once, with the time after which it may be back and with the
//! addresses of other coordinators. Those are the ones that hosts say they have streams to: half of them must say so, since
//! one agent alone could send every gateway astray. Agents' streams are told through themselves.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use axum::http::{Request, Response};
use futures::future::{Either, Ready, ready};
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::{is_attach, refusal};

/// Says who else there is.
type Others = dyn Fn() -> Vec<String> + Send + Sync;

/// When this coordinator goes, and who else there is then.
#[derive(Clone, Default)]
pub struct Departure {
    begun: CancellationToken,
    others: Option<Arc<Others>>,
    /// As they were when it began: the streams that tell them end with it.
    known: Arc<OnceLock<Vec<String>>>,
}

impl fmt::Debug for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Departure").field("begun", &self.begun).finish_non_exhaustive()
    }
}

impl Departure {
    /// It goes when `begun` is cancelled; `others` is asked once, then.
    pub fn new(begun: CancellationToken, others: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Self {
        Self { begun, others: Some(Arc::new(others)), known: Arc::default() }
    }

    /// Takes note of the others while there are streams that tell of them.
    pub fn note(&self) -> &[String] {
        self.known.get_or_init(|| self.others.as_ref().map(|others| others()).unwrap_or_default())
    }
}

/// Refuses new calls once the coordinator goes.
#[derive(Clone, Debug)]
pub struct Leaving<S> {
    service: S,
    departure: Departure,
}

impl<S> Leaving<S> {
    pub(super) fn new(service: S, departure: Departure) -> Self {
        Self { service, departure }
    }
}

impl<S, B, R> Service<Request<B>> for Leaving<S>
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

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if self.departure.begun.is_cancelled() && !is_attach(&request) {
            return Either::Right(ready(Ok(refusal::shutting_down(self.departure.note()).into_http())));
        }
        Either::Left(self.service.call(request))
    }
}
