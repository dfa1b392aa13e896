//! What happens to every gRPC call before a service sees it?
//!
//! In this order: who calls and may they (`identity`), what became of it (`trace`), do we go down (`leave`), until when is
//! an answer of use (`deadline`), and is there room for one more (`shed`). A call that is turned away gets a proper gRPC status. Services
//! find a [`Caller`] and, except for agents' streams, a [`Deadline`] in the request's extensions; none can be reached
//! around this stack.
//!
//! Agents' streams live for days: they have neither deadline nor a share of the bound on concurrent calls.

mod deadline;
mod identity;
mod leave;
mod refusal;
mod shed;
#[cfg(test)]
mod tests;
mod trace;

use std::time::Duration;

use axum::http::{Request, Uri};
use tower::Layer;

pub use deadline::{Deadline, Deadlined};
pub use identity::{Caller, Identified};
pub use leave::{Departure, Leaving};
pub(crate) use refusal::shutting_down;
pub use shed::Shed;
pub use trace::Traced;

use crate::{config::CoordinatorConfig, metrics::Metrics};

/// The one call that is a stream for as long as its agent lives.
const ATTACH: &str = "/usher.v1.AgentService/Attach";

/// The one call that may take longer than others: it moves a whole store.
const RESTORE: &str = "/usher.v1.AdminService/Restore";

/// Wraps a service in the whole stack; for `tonic::transport::Server::layer`.
#[derive(Clone, Debug)]
pub struct CallStack {
    farm: String,
    max_concurrent_calls: usize,
    call_deadline: Duration,
    metrics: Metrics,
    departure: Departure,
}

impl CallStack {
    /// The stack of a coordinator that goes like this.
    #[must_use]
    pub fn until(self, departure: Departure) -> Self {
        Self { departure, ..self }
    }
}

/// The stack with the bounds of `config`.
pub fn stack(config: &CoordinatorConfig, metrics: Metrics) -> CallStack {
    CallStack {
        farm: config.farm.clone(),
        max_concurrent_calls: usize::try_from(config.limits.max_concurrent_calls).unwrap_or(usize::MAX),
        call_deadline: config.limits.call_deadline.get(),
        metrics,
        departure: Departure::default(),
    }
}

impl<S: Clone> Layer<S> for CallStack {
    type Service = Identified<Traced<Leaving<Deadlined<Shed<S>>>>>;

    fn layer(&self, service: S) -> Self::Service {
        let shed = Shed::new(service, self.max_concurrent_calls, self.metrics.clone());
        let deadlined = Deadlined::new(shed, self.call_deadline, self.metrics.clone());
        let leaving = Leaving::new(deadlined, self.departure.clone());
        Identified::new(Traced::new(leaving), self.farm.clone(), self.metrics.clone())
    }
}

fn is_restore<B>(request: &Request<B>) -> bool {
    request.uri().path() == RESTORE
}

fn is_attach<B>(request: &Request<B>) -> bool {
    request.uri().path() == ATTACH
}

/// `usher.v1.PlacementService`, `Place`. Absent if the path is not of that form.
fn service_and_method(uri: &Uri) -> Option<(&str, &str)> {
    uri.path().strip_prefix('/')?.split_once('/')
}
