//! Until when is an answer of use to whoever called?
//!
//! As long as its client says (`grpc-timeout`), at most as long as the settings say. A call whose time has passed is not
//! begun: it would grant a place that nobody takes. A call that runs out of time is dropped where it waits, so handlers
//! must leave nothing half done at an await. Agents' streams are exempt.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::http::{HeaderMap, Request, Response};
use futures::future::{Either, Ready, ready};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Timeout, timeout_at};
use tonic::Status;
use tower::Service;

use super::{is_attach, is_restore};
use crate::metrics::Metrics;

/// A restore sends a file, and writes all that people ever decided, perhaps to a store on other machines. Longer, and a store
/// that is stuck keeps its admin waiting for nothing.
const RESTORE_WITHIN: Duration = Duration::from_secs(60);

/// When the answer of a call is no longer of use. In the extensions of every request but an agent's stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// The deadline `left` from now.
    pub fn after(left: Duration) -> Self {
        let now = Instant::now();
        Self(now.checked_add(left).unwrap_or(now))
    }

    /// The instant.
    pub fn instant(self) -> Instant {
        self.0
    }

    /// Time until then; zero if it has passed.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether it has passed: nothing may be granted any more.
    pub fn has_passed(self) -> bool {
        self.left().is_zero()
    }
}

/// Ends calls at their deadline.
#[derive(Clone, Debug)]
pub struct Deadlined<S> {
    service: S,
    longest: Duration,
    metrics: Metrics,
}

impl<S> Deadlined<S> {
    pub(super) fn new(service: S, longest: Duration, metrics: Metrics) -> Self {
        Self { service, longest, metrics }
    }
}

impl<S, B, R> Service<Request<B>> for Deadlined<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Default,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Either<S::Future, Either<Ready<Result<Response<R>, S::Error>>, InTime<S::Future>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if is_attach(&request) {
            return Either::Left(self.service.call(request));
        }
        let asked = asked(request.headers()).unwrap_or(Duration::MAX);
        let longest = if is_restore(&request) { self.longest.max(RESTORE_WITHIN) } else { self.longest };
        let deadline = Deadline::after(asked.min(longest));
        if asked.is_zero() {
            self.metrics.deadline_exceeded();
            return Either::Right(Either::Left(ready(Ok(too_late().into_http()))));
        }
        request.extensions_mut().insert(deadline);
        // The timer is made here, not when the future is first polled: the server keeps a cruder one of its own for the
        // client's timeout, and answers CANCELLED if that fires first.
        let answer = timeout_at(deadline.instant(), self.service.call(request));
        Either::Right(Either::Right(InTime { answer, metrics: self.metrics.clone() }))
    }
}

pin_project! {
    /// A call that is dropped at its deadline.
    #[derive(Debug)]
    pub struct InTime<F> {
        #[pin]
        answer: Timeout<F>,
        metrics: Metrics,
    }
}

impl<F, R, E> Future for InTime<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Default,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let call = self.project();
        call.answer.poll(cx).map(|answer| {
            answer.unwrap_or_else(|_elapsed| {
                call.metrics.deadline_exceeded();
                Ok(too_late().into_http())
            })
        })
    }
}

fn too_late() -> Status {
    Status::deadline_exceeded("the call's deadline has passed")
}

/// The client's timeout: at most 8 digits and a unit. Absent if it sent none, or none that can be read.
fn asked(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<Duration> {
        asked(&HeaderMap::from_iter([("grpc-timeout".parse().unwrap(), text.parse().unwrap())]))
    }

    #[test]
    fn a_client_says_its_timeout_in_any_unit() {
        assert_eq!(parsed("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parsed("3S"), Some(Duration::from_secs(3)));
        assert_eq!(parsed("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        assert_eq!(parsed("0n"), Some(Duration::ZERO));
    }

    #[test]
    fn a_timeout_that_cannot_be_read_counts_as_none() {
        for text in ["", "m", "5", "-5m", "+5m", "1.5S", "999999999m", "5x"] {
            assert_eq!(parsed(text), None, "{text:?}");
        }
    }
}
