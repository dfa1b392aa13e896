//! Where does this login go?

use clap::Args;
use serde::Serialize;
use usher_proto::v1;
use usher_proto::v1::placement_service_client::PlacementServiceClient;
use uuid::Uuid;

use crate::commands::Context;
use crate::failure::Failure;
use crate::output::table::{Facts, Grid, cell, state_cell};
use crate::output::text::{clean, decimal, list, milliseconds};
use crate::output::{emit, json::emit_json, words};

/// Arguments of `place`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl place desk --user alice          a place for alice, counted at once
  usherctl place desk --dry-run             only look
  usherctl place mail --resource mail/crm.nsf --zone north
  usherctl place desk --exclude app1,app2 --prefer app3

The place counts as a user until the session is seen, `usherctl outcome` ends it, or its time is over.
FLAGS say what a person should know: all_busy, over_pending (as many logons under way as there may be), blind (the
agents are lost, the host's door accepts), ramping (it has just booted), incomplete, provisional, sparse, idle, stalled
(what its numbers stand on), partial_view, affinity_unknown (the user's name came under another key)")]
pub(crate) struct Arguments {
    /// The pool that serves the login
    pool: String,
    #[command(flatten)]
    login: LoginArguments,
    /// Hosts that are no candidates, by name or id
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    exclude: Vec<String>,
    /// Home server: chosen if no other host is in a better state
    #[arg(long, value_name = "HOST")]
    prefer: Option<String>,
    /// Decide, but reserve nothing and ask no host
    #[arg(long)]
    dry_run: bool,
}

/// What a gateway says of a login.
#[derive(Debug, Clone, Args)]
pub(crate) struct LoginArguments {
    /// Login name: brings the user back to their session
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// Only hosts that hold a replica of this resource
    #[arg(long, value_name = "ID")]
    pub(crate) resource: Option<String>,
    /// Where the client is: hosts of its zone are preferred among equals
    #[arg(long)]
    pub(crate) zone: Option<String>,
    /// How many users the login counts as, 1 to 100 [default: 1]
    #[arg(long, value_name = "USERS", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) cost: Option<u32>,
    /// The gateway's id of the login; the same id gets the same place [default: a random one]
    #[arg(long, value_name = "ID")]
    pub(crate) request_id: Option<String>,
    /// Which try with this id it is
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempt: u32,
}

impl LoginArguments {
    /// The id that was given, else a random one.
    pub(crate) fn request_id(&self) -> String {
        self.request_id.clone().unwrap_or_else(|| Uuid::new_v4().to_string())
    }
}

/// The answer for scripts: with the id, which may have been made here.
#[derive(Debug, Serialize)]
pub(crate) struct PlacedDocument<'a> {
    pub(crate) request_id: &'a str,
    pub(crate) placement: Option<&'a v1::Placement>,
}

/// Asks for a place.
pub(crate) async fn run(context: &Context, arguments: Arguments) -> Result<(), Failure> {
    let request_id = arguments.login.request_id();
    let operation = format!("placing in pool {}", arguments.pool);
    let login = arguments.login;
    let coordinators = context.coordinators()?;
    let request = v1::PlaceRequest {
        request_id: request_id.clone(),
        attempt: login.attempt,
        pool: arguments.pool,
        resource: login.resource,
        user: coordinators.user_as_sent(login.user)?,
        client_zone: login.zone,
        cost: login.cost,
        exclude: arguments.exclude,
        prefer_host: arguments.prefer,
        dry_run: arguments.dry_run,
    };
    let response = coordinators
        .call(&operation, async |channel, call| {
            let attempt = request.attempt.saturating_add(call.earlier);
            let request = v1::PlaceRequest { attempt, ..request.clone() };
            PlacementServiceClient::new(channel).place(call.request(request)).await
        })
        .await?;
    print(context, &request_id, response.placement.as_ref())
}

/// Prints where a login goes.
pub(crate) fn print(
    context: &Context,
    request_id: &str,
    placement: Option<&v1::Placement>,
) -> Result<(), Failure> {
    if context.json() {
        return emit_json(&PlacedDocument { request_id, placement });
    }
    emit(&page(request_id, placement))
}

/// The answer for people.
pub(crate) fn page(request_id: &str, placement: Option<&v1::Placement>) -> String {
    let Some(placement) = placement else {
        return "the coordinator's answer holds no host".to_owned();
    };
    let mut facts = Facts::new();
    facts.fact("host", clean(&placement.host_name));
    facts.fact("endpoints", words::endpoints(&placement.endpoints));
    facts.fact("reason", words::word::<v1::PlacementReason>(placement.reason));
    facts.fact_if("load", placement.weighted_load.map(|load| decimal(Some(load), 2)));
    facts.fact_if("flags", (!placement.flags.is_empty()).then(|| list(&placement.flags)));
    facts.fact("request", clean(request_id));
    let reserved = match &placement.reservation {
        Some(_) => format!("for {}", milliseconds(placement.reservation_left_ms)),
        None => "no".to_owned(),
    };
    facts.fact("reserved", reserved);
    facts.fact("decision", clean(&placement.decision_id));
    facts.fact("policy", format!("version {} of {}", placement.policy_version, clean(&placement.pool)));
    facts.fact("hosts", format!("{} of {} heard", placement.hosts_heard, placement.hosts_registered));
    let mut text = facts.render();
    if !placement.alternatives.is_empty() {
        text += "\n\nnext best:\n";
        text += &alternatives(&placement.alternatives);
    }
    text
}

fn alternatives(hosts: &[v1::Alternative]) -> String {
    let mut grid = Grid::new(&["HOST", "STATE", "W", "ENDPOINTS"], &[2]);
    for host in hosts {
        grid.row([
            cell(clean(&host.host_name)),
            state_cell(host.state),
            cell(decimal(host.weighted_load, 2)),
            cell(words::endpoints(&host.endpoints)),
        ]);
    }
    grid.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_names_host_request_and_decision() {
        let placement = v1::Placement {
            host_name: "app1".into(),
            endpoints: vec![v1::Endpoint { kind: "ssh".into(), address: "10.0.0.1".into(), port: 22 }],
            reservation: Some(v1::Token::default()),
            reservation_left_ms: Some(120_000),
            reason: v1::PlacementReason::LowestLoad.into(),
            weighted_load: Some(56.6549),
            decision_id: "d-1".into(),
            ..Default::default()
        };
        let text = page("r-1", Some(&placement));
        for part in ["app1", "ssh 10.0.0.1:22", "LOWEST_LOAD", "56.65", "r-1", "for 2m00s", "d-1"] {
            assert!(text.contains(part), "{part} not in {text}");
        }
        let dry = v1::Placement { reservation: None, weighted_load: None, ..placement };
        assert!(page("r-1", Some(&dry)).lines().any(|line| line.split_whitespace().eq(["reserved", "no"])));
    }
}
