//! Creates a pool or changes its settings, and shows what changed.

use clap::{ArgGroup, Args};
use usher_proto::v1::admin_service_client::AdminServiceClient;
use usher_proto::{v1, write};
use usher_types::Profile;

use super::change::{ChangeArguments, SETTINGS_HELP};
use super::{changes_table, version};
use crate::commands::Context;
use crate::failure::Failure;
use crate::output::text::{clean, list};
use crate::output::{emit, json::emit_json};

/// Arguments of `pool apply`.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("change").required(true).multiple(true).args(["profile", "file", "set"]),
    after_help = format!("Examples:
  usherctl pool apply desk --set max_users=50 --set threshold=20
  usherctl pool apply desk --set weights=30/30/25/15 --set mem_critical=off
  usherctl pool apply desk --profile ssh-login
  usherctl pool apply desk -f desk.toml --expect-version 3
  usherctl pool apply desk -f desk.toml --dry-run

{SETTINGS_HELP}")
)]
pub(crate) struct ApplyArguments {
    /// Name of the pool; made if it is not there
    pool: String,
    #[command(flatten)]
    change: ChangeArguments,
    /// Refuse if the pool is not at this version
    #[arg(long, value_name = "N")]
    expect_version: Option<u64>,
    /// Check only
    #[arg(long)]
    dry_run: bool,
}

/// Arguments of `pool create`.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:
  usherctl pool create desk                 with the defaults
  usherctl pool create login --profile ssh-login --set max_users=80
  usherctl pool create desk -f desk.toml --dry-run

Refused if the pool was applied before; `usherctl pool apply` changes it then

{SETTINGS_HELP}"))]
pub(crate) struct CreateArguments {
    /// Name of the new pool
    pool: String,
    #[command(flatten)]
    change: ChangeArguments,
    /// Check only
    #[arg(long)]
    dry_run: bool,
}

/// Applies the change.
pub(super) async fn apply(context: &Context, arguments: ApplyArguments) -> Result<(), Failure> {
    let operation = format!("applying settings to pool {}", arguments.pool);
    let request = v1::ApplyPoolRequest {
        expected_version: arguments.expect_version,
        dry_run: arguments.dry_run,
        ..request(arguments.pool, &arguments.change)?
    };
    let response = send(context, &operation, &request).await?;
    if context.json() { emit_json(&response) } else { emit(&page(&response, &request)) }
}

/// Makes a pool.
pub(super) async fn create(context: &Context, arguments: CreateArguments) -> Result<(), Failure> {
    let operation = format!("creating pool {}", arguments.pool);
    let request = v1::ApplyPoolRequest {
        dry_run: arguments.dry_run,
        must_be_new: true,
        ..request(arguments.pool, &arguments.change)?
    };
    let response = send(context, &operation, &request).await?;
    if context.json() { emit_json(&response) } else { emit(&page(&response, &request)) }
}

/// The request for whatever is in force.
pub(super) fn request(pool: String, change: &ChangeArguments) -> Result<v1::ApplyPoolRequest, Failure> {
    let settings = change.read()?;
    Ok(v1::ApplyPoolRequest {
        pool,
        policy: Some(write::policy_change(&settings)),
        profile: change.profile.map(|kind| Profile::from(kind).as_str().to_owned()),
        ..Default::default()
    })
}

/// Makes the call.
pub(super) async fn send(
    context: &Context,
    operation: &str,
    request: &v1::ApplyPoolRequest,
) -> Result<v1::ApplyPoolResponse, Failure> {
    context
        .coordinators()?
        .call(operation, async |channel, call| {
            AdminServiceClient::new(channel).apply_pool(call.request(request.clone())).await
        })
        .await
}

/// What changed, and the version that it made.
fn page(response: &v1::ApplyPoolResponse, request: &v1::ApplyPoolRequest) -> String {
    let pool = response.pool.clone().unwrap_or_default();
    let (name, is_new) = (clean(&pool.pool), request.must_be_new);
    if response.changed.is_empty() && !is_new {
        return format!("nothing changes in pool {name}: version {}", version(&pool));
    }
    let done = match (request.dry_run, is_new) {
        (true, true) => format!("pool {name} can be created; nothing was applied"),
        (true, false) => format!("pool {name} would change; nothing was applied"),
        (false, true) => format!("pool {name} is created: version {}", version(&pool)),
        (false, false) => format!("pool {name} is at version {}", version(&pool)),
    };
    if response.changed.is_empty() {
        return done;
    }
    // A coordinator of 0.1 names the settings without their values.
    let changes = if response.changes.is_empty() {
        format!("changed: {}", list(&response.changed))
    } else {
        changes_table(&response.changes)
    };
    changes + "\n\n" + &done
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    fn response(changes: &[(&str, &str, &str)]) -> v1::ApplyPoolResponse {
        let change = |(field, before, after): &(&str, &str, &str)| v1::FieldChange {
            field: (*field).to_owned(),
            before: (*before).to_owned(),
            after: (*after).to_owned(),
        };
        v1::ApplyPoolResponse {
            pool: Some(v1::PoolInfo { pool: "desk".into(), version: 1, ..Default::default() }),
            changed: changes.iter().map(|(field, ..)| (*field).to_owned()).collect(),
            changes: changes.iter().map(change).collect(),
        }
    }

    #[test]
    fn only_what_changes_is_shown_with_the_values_before_and_after() {
        let changes = [("max_users", "unlimited", "50"), ("shared_accounts", "", "kiosk")];
        let dry_run = v1::ApplyPoolRequest { dry_run: true, ..Default::default() };
        let text = page(&response(&changes), &dry_run);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["SETTING", "BEFORE", "AFTER"]);
        assert_eq!(rows[1], ["max_users", "unlimited", "50"]);
        assert_eq!(rows[2], ["shared_accounts", "-", "kiosk"]);
        assert!(text.ends_with("nothing was applied"), "{text}");
        assert!(page(&response(&[]), &dry_run).starts_with("nothing changes"));
    }

    #[test]
    fn a_coordinator_that_names_no_values_is_shown_with_the_names() {
        let old = v1::ApplyPoolResponse { changes: Vec::new(), ..response(&[("range", "", "")]) };
        assert!(page(&old, &v1::ApplyPoolRequest::default()).starts_with("changed: range"));
    }

    #[test]
    fn a_new_pool_may_have_the_defaults_but_an_apply_changes_something() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).is_ok();
        assert!(parse("usherctl pool create desk"));
        assert!(!parse("usherctl pool apply desk"));
        assert!(parse("usherctl pool apply desk --profile web"));
        assert!(!parse("usherctl pool apply desk --profile weird"));
        let new = v1::ApplyPoolRequest { must_be_new: true, ..Default::default() };
        assert!(page(&response(&[]), &new).starts_with("pool desk is created: version 1"));
    }
}
