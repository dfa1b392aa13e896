//! What became of a login?

use clap::{Args, ValueEnum};
use usher_proto::v1;
use usher_proto::v1::placement_service_client::PlacementServiceClient;

use crate::commands::Context;
use crate::commands::failover::Cause;
use crate::failure::{Failure, Refusal};
use crate::output::text::clean;
use crate::output::{emit, json::emit_json};

/// Arguments of `outcome`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl outcome 7c6e0f3a connected       it counts until its session is seen
  usherctl outcome 7c6e0f3a failed --cause unreachable
  usherctl outcome 7c6e0f3a cancelled       its place is free again
  usherctl outcome 7c6e0f3a ended           the session that came of it is over

Two failures within 30 s from two gateways, or of one that succeeds elsewhere, put a host last for a while:
the causes unreachable, refused, other, or none say that it was the host; busy and auth do not.

The id belongs to the gateway that asked: give the same --gateway as then")]
pub(crate) struct Arguments {
    /// Id of the place or failover whose login is meant
    request_id: String,
    /// What became of it
    outcome: Outcome,
    /// Why it failed
    #[arg(long)]
    cause: Option<Cause>,
}

/// What may become of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Outcome {
    /// It reached the host
    Connected,
    /// It did not succeed
    Failed,
    /// It was given up
    Cancelled,
    /// Its session is over
    Ended,
}

impl From<Outcome> for v1::Outcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Connected => Self::Connected,
            Outcome::Failed => Self::Failed,
            Outcome::Cancelled => Self::Cancelled,
            Outcome::Ended => Self::Ended,
        }
    }
}

/// Reports the outcome.
pub(crate) async fn run(context: &Context, arguments: Arguments) -> Result<(), Failure> {
    if arguments.cause.is_some() && arguments.outcome != Outcome::Failed {
        return Err(Failure::usage("--cause says why a login failed, so it goes with `failed` only"));
    }
    let request_id = arguments.request_id;
    let operation = format!("reporting the outcome of {request_id}");
    let request = v1::ReportOutcomeRequest {
        request_id: request_id.clone(),
        outcome: v1::Outcome::from(arguments.outcome).into(),
        cause: arguments.cause.map(|cause| v1::FailoverCause::from(cause).into()),
    };
    let response = context
        .coordinators()?
        .call(&operation, async |channel, call| {
            PlacementServiceClient::new(channel).report_outcome(call.request(request.clone())).await
        })
        .await?;
    if !response.known {
        return Err(unknown(operation, &request_id));
    }
    if context.json() { emit_json(&response) } else { emit(&format!("noted for {}", clean(&request_id))) }
}

/// The coordinator answers "not known" without an error, but who reports an outcome wants to hear it as one.
fn unknown(operation: String, request_id: &str) -> Failure {
    Failure::Refused(Box::new(Refusal {
        operation,
        code: tonic::Code::NotFound,
        reason: String::new(),
        message: format!(
            "no live place of request {request_id} is known; it may have ended, or be another gateway's"
        ),
        metadata: Default::default(),
        retry_after: None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_not_known_is_not_found() {
        let failure = unknown("reporting".into(), "r-1");
        assert_eq!(failure.exit_code(), 1);
        assert!(failure.for_people().contains("no live place of request r-1"));
    }
}
