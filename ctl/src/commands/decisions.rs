//! What was decided lately, and who was refused?

use std::time::Duration;

use clap::Args;
use usher_proto::v1;
use usher_proto::v1::directory_service_client::DirectoryServiceClient;
use usher_runtime::config::{DurationError, HumanDuration};

use crate::commands::Context;
use crate::commands::explain::time;
use crate::failure::Failure;
use crate::output::table::{Grid, cell};
use crate::output::text::{ABSENT, clean, clean_or_dash, list};
use crate::output::{emit, json::emit_json, words};

/// Arguments of `decisions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl decisions                        the newest, newest first
  usherctl decisions --user alice --since 1h
  usherctl decisions --host app1            where app1 was chosen, or passed over for another
  usherctl decisions --pool desk --refused --limit 20
  usherctl decisions --since 10m --json     for scripts

USER is a keyed hash: login names are not kept. `usherctl explain DECISION` shows the reasons")]
pub(crate) struct Arguments {
    /// Only logins of this user
    #[arg(long)]
    user: Option<String>,
    /// Only those that chose this host or passed it over, by name or id
    #[arg(long)]
    host: Option<String>,
    /// Only decisions in this pool
    #[arg(long)]
    pool: Option<String>,
    /// Only those that are not older, like 10m
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    since: Option<Duration>,
    /// Only those that refused
    #[arg(long)]
    refused: bool,
    /// At most so many, 1 to 1000 [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: Option<u32>,
}

fn parse_since(text: &str) -> Result<Duration, String> {
    let duration: HumanDuration = text.parse().map_err(|error: DurationError| error.to_string())?;
    Ok(duration.get())
}

/// Lists the decisions.
pub(crate) async fn run(context: &Context, arguments: Arguments) -> Result<(), Failure> {
    let coordinators = context.coordinators()?;
    let since_ms = arguments.since.map(|since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    let request = v1::ListDecisionsRequest {
        user: coordinators.user_as_sent(arguments.user)?,
        host: arguments.host,
        pool: arguments.pool,
        since_ms,
        refused_only: arguments.refused,
        limit: arguments.limit,
    };
    let response = coordinators
        .call("listing the decisions", async |channel, call| {
            DirectoryServiceClient::new(channel).list_decisions(call.request(request.clone())).await
        })
        .await?;
    if context.json() { emit_json(&response) } else { emit(&page(&response)) }
}

fn page(response: &v1::ListDecisionsResponse) -> String {
    let mut parts = Vec::new();
    if response.decisions.is_empty() {
        parts.push("no decisions".to_owned());
    } else {
        parts.push(table(&response.decisions));
    }
    if response.truncated {
        parts.push("there are more; --limit, --since, --user, --host or --pool chooses others".to_owned());
    }
    if !response.retention.is_empty() {
        parts.push(format!("kept: {}", clean(&response.retention)));
    }
    parts.join("\n\n")
}

fn table(decisions: &[v1::DecisionInfo]) -> String {
    let header =
        ["DECIDED", "POOL", "GATEWAY", "REQUEST", "USER", "HOST", "REASON", "FLAGS", "NOT TO", "DECISION"];
    let mut grid = Grid::new(&header, &[]);
    for decision in decisions {
        grid.row([
            cell(
                decision
                    .decided_at
                    .as_ref()
                    .map_or_else(|| ABSENT.to_owned(), |at| time(at.seconds, at.nanos)),
            ),
            cell(clean_or_dash(&decision.pool)),
            cell(clean_or_dash(&decision.gateway)),
            cell(clean_or_dash(&decision.request_id)),
            cell(decision.user.as_deref().map_or_else(|| ABSENT.to_owned(), short_hash)),
            cell(clean_or_dash(decision.host_name.as_deref().unwrap_or(""))),
            cell(reason(decision)),
            cell(list(&flags(decision))),
            cell(decision.redirect.as_ref().map_or_else(|| ABSENT.to_owned(), passed_over)),
            cell(clean(&decision.decision_id)),
        ]);
    }
    grid.render()
}

/// Enough of a hash to tell users apart by eye; JSON has all of it.
fn short_hash(hash: &str) -> String {
    const SHOWN: usize = 12;
    clean(&hash.chars().take(SHOWN).collect::<String>())
}

fn reason(decision: &v1::DecisionInfo) -> String {
    if decision.refused_reason.is_empty() {
        words::word::<v1::PlacementReason>(decision.reason)
    } else {
        clean(&decision.refused_reason)
    }
}

fn flags(decision: &v1::DecisionInfo) -> Vec<String> {
    let mut flags = decision.flags.clone();
    flags.extend(decision.dry_run.then(|| "dry_run".to_owned()));
    flags.extend(decision.reduced.then(|| "reduced".to_owned()));
    flags
}

/// The host that a login was not sent to, and why: `app1 (refused)`.
pub(super) fn passed_over(redirect: &v1::Redirect) -> String {
    format!("{} ({})", clean(&redirect.host_name), clean(&redirect.reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_and_a_refusal_are_told_apart_by_host_and_reason() {
        let chosen = v1::DecisionInfo {
            decision_id: "d-1".into(),
            decided_at: Some(Default::default()),
            pool: "desk".into(),
            gateway: "g1".into(),
            request_id: "r1".into(),
            user: Some("0123456789abcdef".into()),
            host_name: Some("app2".into()),
            reason: v1::PlacementReason::LowestLoad.into(),
            flags: vec!["all_busy".into()],
            redirect: Some(v1::Redirect { host_name: "app1".into(), reason: "refused".into() }),
            dry_run: true,
            ..Default::default()
        };
        let refused = v1::DecisionInfo {
            decision_id: "d-2".into(),
            refused_reason: "MAX_USERS".into(),
            reduced: true,
            ..Default::default()
        };
        let text = page(&v1::ListDecisionsResponse {
            decisions: vec![chosen, refused],
            truncated: true,
            retention: "24 h".into(),
        });
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            rows[1],
            [
                "1970-01-01T00:00:00.000Z",
                "desk",
                "g1",
                "r1",
                "0123456789ab",
                "app2",
                "LOWEST_LOAD",
                "all_busy,dry_run",
                "app1",
                "(refused)",
                "d-1"
            ]
        );
        assert_eq!(rows[2], ["-", "-", "-", "-", "-", "-", "MAX_USERS", "reduced", "-", "d-2"]);
        assert!(text.contains("there are more") && text.ends_with("kept: 24 h"), "{text}");
    }

    #[test]
    fn a_time_back_needs_its_unit() {
        assert_eq!(parse_since("10m"), Ok(Duration::from_secs(600)));
        assert!(parse_since("10").is_err());
    }
}
