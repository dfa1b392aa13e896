//! The host that was given does not work out: where instead?

use clap::{Args, ValueEnum};
use usher_proto::v1;
use usher_proto::v1::placement_service_client::PlacementServiceClient;

use crate::commands::Context;
use crate::commands::place::{LoginArguments, print};
use crate::failure::Failure;

/// Arguments of `failover`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl failover desk --from app1 --cause unreachable --user alice
  usherctl failover desk --from app1 --cause busy --tried app2,app3
  usherctl failover desk --from app1 --cause refused --failed-request 7c6e0f3a")]
pub(crate) struct Arguments {
    /// The pool that serves the login
    pool: String,
    /// The host that does not work out, by name or id
    #[arg(long, value_name = "HOST")]
    from: String,
    /// Why it does not
    #[arg(long)]
    cause: Cause,
    /// Id of the request whose place failed; that place is cancelled [default: the user's places there]
    #[arg(long, value_name = "ID")]
    failed_request: Option<String>,
    /// Hosts that were tried before; never answered again
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    tried: Vec<String>,
    #[command(flatten)]
    login: LoginArguments,
}

/// Why a login did not work out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cause {
    /// The host says that it is busy
    Busy,
    /// No connection could be made
    Unreachable,
    /// The host refused the session
    Refused,
    /// The user could not be authenticated
    Auth,
    /// Anything else
    Other,
}

impl From<Cause> for v1::FailoverCause {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Busy => Self::Busy,
            Cause::Unreachable => Self::Unreachable,
            Cause::Refused => Self::Refused,
            Cause::Auth => Self::Auth,
            Cause::Other => Self::Other,
        }
    }
}

/// Asks for another place.
pub(crate) async fn run(context: &Context, arguments: Arguments) -> Result<(), Failure> {
    let request_id = arguments.login.request_id();
    let operation = format!("failing over from {} in pool {}", arguments.from, arguments.pool);
    let login = arguments.login;
    let coordinators = context.coordinators()?;
    let request = v1::FailoverRequest {
        request_id: request_id.clone(),
        attempt: login.attempt,
        pool: arguments.pool,
        from_host: arguments.from,
        failed_request_id: arguments.failed_request,
        tried: arguments.tried,
        resource: login.resource,
        user: coordinators.user_as_sent(login.user)?,
        client_zone: login.zone,
        cost: login.cost,
        cause: v1::FailoverCause::from(arguments.cause).into(),
    };
    let response = coordinators
        .call(&operation, async |channel, call| {
            let attempt = request.attempt.saturating_add(call.earlier);
            let request = v1::FailoverRequest { attempt, ..request.clone() };
            PlacementServiceClient::new(channel).failover(call.request(request)).await
        })
        .await?;
    print(context, &request_id, response.placement.as_ref())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::cli::Cli;

    #[test]
    fn the_causes_are_the_five_words_of_the_interface() {
        let parse = |cause: &str| {
            Cli::try_parse_from(["usherctl", "failover", "desk", "--from", "app1", "--cause", cause]).is_ok()
        };
        for cause in ["busy", "unreachable", "refused", "auth", "other"] {
            assert!(parse(cause), "{cause}");
        }
        assert!(!parse("bored"));
        assert!(Cli::try_parse_from(["usherctl", "failover", "desk", "--from", "app1"]).is_err());
    }

    #[test]
    fn a_cost_outside_its_range_is_wrong_use() {
        for cost in ["0", "101", "-1", "many"] {
            assert!(Cli::try_parse_from(["usherctl", "place", "desk", "--cost", cost]).is_err(), "{cost}");
        }
    }
}
