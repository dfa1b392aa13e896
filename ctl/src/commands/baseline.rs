//! How fast are operations on a host without load, as it has learned?

use clap::{Args, Subcommand};
use usher_proto::v1;
use usher_proto::v1::admin_service_client::AdminServiceClient;

use crate::commands::Context;
use crate::failure::Failure;
use crate::output::table::{Facts, Grid, cell};
use crate::output::text::{clean, decimal, microseconds, milliseconds};
use crate::output::{emit, json::emit_json, words};

/// Arguments of `baseline`.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  usherctl baseline show app1               what app1 has learned
  usherctl baseline reset app1              it learns everything anew
  usherctl baseline reset app1 --operation open_db")]
pub(crate) enum BaselineCommand {
    /// Show what a host has learned
    #[command(after_help = "Examples:
  usherctl baseline show app1               by name or id
  usherctl baseline show app1 --json        for scripts

The baseline is what the mean of an operation is compared with: twice as slow is an expansion of 2.
PROVISIONAL: no quiet hour has confirmed it yet")]
    Show {
        /// Name or id of the host
        host: String,
    },
    /// Make a host forget what it has learned
    Reset(ResetArguments),
}

/// Arguments of `baseline reset`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl baseline reset app1              after new disks, say
  usherctl baseline reset app1 --operation open_db
  usherctl baseline reset app1 --dry-run    say what it would forget

Until it has learned anew, the host's availability index is unknown or provisional")]
pub(crate) struct ResetArguments {
    /// Name or id of the host
    host: String,
    /// Only of this operation
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    /// Change nothing, say what would be forgotten
    #[arg(long)]
    dry_run: bool,
}

/// Shows or resets baselines.
pub(crate) async fn run(context: &Context, command: BaselineCommand) -> Result<(), Failure> {
    match command {
        BaselineCommand::Show { host } => {
            let response = get(context, host).await?;
            if context.json() { emit_json(&response) } else { emit(&page(&response)) }
        }
        BaselineCommand::Reset(arguments) if arguments.dry_run => dry_run(context, arguments).await,
        BaselineCommand::Reset(arguments) => reset(context, arguments).await,
    }
}

async fn get(context: &Context, host: String) -> Result<v1::GetBaselinesResponse, Failure> {
    let operation = format!("reading the baselines of host {host}");
    let request = v1::GetBaselinesRequest { host };
    context
        .coordinators()?
        .call(&operation, async |channel, call| {
            AdminServiceClient::new(channel).get_baselines(call.request(request.clone())).await
        })
        .await
}

async fn reset(context: &Context, arguments: ResetArguments) -> Result<(), Failure> {
    let operation = format!("resetting the baselines of host {}", arguments.host);
    let request = v1::ResetBaselinesRequest { host: arguments.host, operation: arguments.operation.clone() };
    let response = context
        .coordinators()?
        .call(&operation, async |channel, call| {
            AdminServiceClient::new(channel).reset_baselines(call.request(request.clone())).await
        })
        .await?;
    if context.json() {
        return emit_json(&response);
    }
    let what = arguments.operation.as_deref().map_or_else(|| "every operation".to_owned(), clean);
    emit(&format!("{} learns anew how fast {what} is without load", clean(&response.host_name)))
}

/// The call has no rehearsal, so what would be forgotten is shown.
async fn dry_run(context: &Context, arguments: ResetArguments) -> Result<(), Failure> {
    let mut response = get(context, arguments.host).await?;
    if let Some(only) = &arguments.operation {
        response.operations.retain(|operation| operation.name == *only);
    }
    if context.json() {
        return emit_json(&response);
    }
    emit(&format!("would forget:\n\n{}", table(&response.operations)))
}

fn page(response: &v1::GetBaselinesResponse) -> String {
    let mut facts = Facts::new();
    facts.fact("host", clean(&response.host_name));
    facts.fact("estimator", words::word::<v1::Baseline>(response.baseline));
    facts.render() + "\n\n" + &table(&response.operations)
}

fn table(operations: &[v1::OperationWindow]) -> String {
    if operations.is_empty() {
        return "no operations: none was sampled, or the host has not reported yet".to_owned();
    }
    let header = ["OPERATION", "BASELINE", "AGE", "SAMPLES", "PROVISIONAL", "MEAN NOW", "CALLS NOW"];
    let mut grid = Grid::new(&header, &[1, 2, 3, 5, 6]);
    for operation in operations {
        let mean_us = (operation.ok > 0.0).then(|| operation.sum_us / operation.ok);
        let provisional = match (operation.baseline_us, operation.baseline_provisional) {
            (None, _) => "-",
            (Some(_), true) => "yes",
            (Some(_), false) => "no",
        };
        grid.row([
            cell(clean(&operation.name)),
            cell(microseconds(operation.baseline_us)),
            cell(milliseconds(operation.baseline_age_ms)),
            cell(operation.baseline_samples.to_string()),
            cell(provisional),
            cell(microseconds(mean_us)),
            cell(decimal(Some(operation.ok), 0)),
        ]);
    }
    grid.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_baseline_stands_beside_the_mean_that_is_compared_with_it() {
        let learned = v1::OperationWindow {
            name: "open_db".into(),
            ok: 90.0,
            sum_us: 90.0 * 12_000.0,
            baseline_us: Some(3_000.0),
            baseline_age_ms: Some(90_000),
            baseline_samples: 400,
            baseline_provisional: true,
            ..Default::default()
        };
        let new = v1::OperationWindow { name: "login".into(), ..Default::default() };
        let text = page(&v1::GetBaselinesResponse {
            host_name: "app1".into(),
            baseline: v1::Baseline::Robust.into(),
            operations: vec![learned, new],
            ..Default::default()
        });
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["estimator", "ROBUST"]);
        assert_eq!(rows[4], ["open_db", "3.0ms", "1m30s", "400", "yes", "12.0ms", "90"]);
        assert_eq!(rows[5], ["login", "-", "-", "0", "-", "-", "0"]);
        assert!(table(&[]).contains("none was sampled"));
    }
}
