//! May this host take new sessions?

use clap::Args;
use serde::Serialize;
use usher_proto::v1;
use usher_proto::v1::admin_service_client::AdminServiceClient;
use usher_proto::v1::directory_service_client::DirectoryServiceClient;

use crate::commands::Context;
use crate::failure::Failure;
use crate::output::text::{clean, or_dash};
use crate::output::{emit, json::emit_json, words};

/// Arguments of `drain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl drain app1                       until app1 has booted again
  usherctl drain app1 --persistent --reason \"new disks\"
  usherctl drain app1 --no-reconnect        refuse also those who have a session there
  usherctl drain app1 --dry-run             say what it would do

Sessions that run are left alone")]
pub(crate) struct DrainArguments {
    /// Name or id of the host
    host: String,
    /// Until the host has booted again (the default)
    #[arg(long, conflicts_with = "persistent")]
    until_restart: bool,
    /// Until somebody undrains it
    #[arg(long)]
    persistent: bool,
    /// Why, for other people
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// Refuse reconnects to existing sessions too
    #[arg(long)]
    no_reconnect: bool,
    /// Change nothing, say what would change
    #[arg(long)]
    dry_run: bool,
}

/// Arguments of `undrain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl undrain app1                     it takes new sessions again")]
pub(crate) struct UndrainArguments {
    /// Name or id of the host
    host: String,
}

/// What a drain would do, for scripts.
#[derive(Debug, Serialize)]
struct DryRun<'a> {
    dry_run: bool,
    host_id: &'a str,
    host_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    users: Option<u32>,
}

/// Drains a host.
pub(crate) async fn drain(context: &Context, arguments: DrainArguments) -> Result<(), Failure> {
    if arguments.dry_run {
        return dry_run(context, arguments).await;
    }
    let operation = format!("draining host {}", arguments.host);
    let mode = mode(&arguments);
    let request = v1::DrainHostRequest {
        host: arguments.host,
        mode: mode.into(),
        reason: arguments.reason,
        no_reconnect: arguments.no_reconnect,
    };
    let response = context
        .coordinators()?
        .call(&operation, async |channel, call| {
            AdminServiceClient::new(channel).drain_host(call.request(request.clone())).await
        })
        .await?;
    if context.json() {
        return emit_json(&response);
    }
    emit(&drained(&response, mode))
}

/// The call has no rehearsal, so the host is looked up: it exists, its name is not ambiguous, and so many users are on
/// it.
async fn dry_run(context: &Context, arguments: DrainArguments) -> Result<(), Failure> {
    let operation = format!("looking up host {}", arguments.host);
    let mode = mode(&arguments);
    let request = v1::GetHostRequest { host: arguments.host };
    let response = context
        .coordinators()?
        .call(&operation, async |channel, call| {
            DirectoryServiceClient::new(channel).get_host(call.request(request.clone())).await
        })
        .await?;
    let host = response.host.unwrap_or_default();
    if context.json() {
        let (host_id, host_name) = (&host.host_id, &host.host_name);
        return emit_json(&DryRun { dry_run: true, host_id, host_name, users: host.users });
    }
    let (name, state) = (clean(&host.host_name), words::word::<v1::HostState>(host.state));
    let users = or_dash(host.users);
    emit(&format!("would drain {name} {}: it is {state} now, with {users} users", until(mode)))
}

/// Ends the drain of a host.
pub(crate) async fn undrain(context: &Context, arguments: UndrainArguments) -> Result<(), Failure> {
    let operation = format!("undraining host {}", arguments.host);
    let request = v1::UndrainHostRequest { host: arguments.host };
    let response = context
        .coordinators()?
        .call(&operation, async |channel, call| {
            AdminServiceClient::new(channel).undrain_host(call.request(request.clone())).await
        })
        .await?;
    if context.json() {
        return emit_json(&response);
    }
    let name = clean(&response.host_name);
    emit(&undrained(&name, &response))
}

/// What ended, and what holds the host still: a person's drain may not be the only one.
fn undrained(name: &str, response: &v1::UndrainHostResponse) -> String {
    let said = |drain: &v1::Drain| {
        let by =
            if drain.author.is_empty() { String::new() } else { format!(" by {}", clean(&drain.author)) };
        let why = if drain.reason.is_empty() { String::new() } else { format!(": {}", clean(&drain.reason)) };
        format!("drained{by}{why}")
    };
    let was = response.ended.as_ref().map(|ended| format!(" (was {})", said(ended))).unwrap_or_default();
    match &response.holds {
        Some(holds) if response.was_drained => {
            format!("the drain of {name} has ended{was}, but it still is {}", said(holds))
        }
        Some(holds) => format!("{name} is still {}; usherctl cannot end that", said(holds)),
        None if response.was_drained => format!("{name} takes new sessions again{was}"),
        None => format!("{name} was not drained"),
    }
}

const fn mode(arguments: &DrainArguments) -> v1::DrainMode {
    if arguments.persistent { v1::DrainMode::Persistent } else { v1::DrainMode::UntilRestart }
}

fn drained(response: &v1::DrainHostResponse, mode: v1::DrainMode) -> String {
    let name = clean(&response.host_name);
    let users = match response.users {
        None => "how many users it has is not known".to_owned(),
        Some(0) => "no user is on it".to_owned(),
        Some(1) => "1 user is still on it".to_owned(),
        Some(users) => format!("{users} users are still on it"),
    };
    let waits = match response.kept() {
        v1::DrainKept::Coordinators => {
            "\nits agent has not confirmed it: this coordinator, and those that share its store, hold it drained until then"
        }
        v1::DrainKept::Host | v1::DrainKept::Unspecified => "",
    };
    format!("{name} is drained {}; {users}{waits}", until(mode))
}

const fn until(mode: v1::DrainMode) -> &'static str {
    match mode {
        v1::DrainMode::Persistent => "until it is undrained",
        v1::DrainMode::UntilRestart | v1::DrainMode::Unspecified => "until it has booted again",
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn a_drain_lasts_until_the_restart_unless_it_is_persistent() {
        let response =
            |users| v1::DrainHostResponse { host_name: "app1".into(), users, ..Default::default() };
        assert_eq!(
            drained(&response(Some(7)), v1::DrainMode::UntilRestart),
            "app1 is drained until it has booted again; 7 users are still on it"
        );
        assert_eq!(
            drained(&response(None), v1::DrainMode::Persistent),
            "app1 is drained until it is undrained; how many users it has is not known"
        );
        let waits = v1::DrainHostResponse { kept: v1::DrainKept::Coordinators.into(), ..response(Some(0)) };
        let said = drained(&waits, v1::DrainMode::Persistent);
        assert!(said.contains("no user is on it\nits agent has not confirmed it"), "{said}");
        let both = ["usherctl", "drain", "app1", "--until-restart", "--persistent"];
        assert!(Cli::try_parse_from(both).is_err());
    }

    #[test]
    fn who_had_drained_a_host_is_told_and_what_holds_it_still() {
        let drain =
            |author: &str| v1::Drain { author: author.into(), reason: "disks".into(), ..Default::default() };
        let mut response = v1::UndrainHostResponse::default();
        assert_eq!(undrained("app1", &response), "app1 was not drained");
        (response.was_drained, response.ended) = (true, Some(drain("ann")));
        assert_eq!(undrained("app1", &response), "app1 takes new sessions again (was drained by ann: disks)");
        response.holds = Some(drain("readiness hook"));
        let said = undrained("app1", &response);
        assert!(
            said.ends_with("(was drained by ann: disks), but it still is drained by readiness hook: disks"),
            "{said}"
        );
    }
}
