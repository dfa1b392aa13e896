//! How did a pool come to its settings, and in what do two versions differ?

use std::path::PathBuf;

use clap::Args;
use usher_proto::v1;
use usher_proto::v1::admin_service_client::AdminServiceClient;

use super::apply::{request, send};
use super::change::ChangeArguments;
use super::changes_table;
use crate::commands::Context;
use crate::failure::{Failure, Refusal};
use crate::output::table::{Grid, cell};
use crate::output::text::{ABSENT, clean, clean_or_dash};
use crate::output::{emit, json::emit_json};

/// The most versions that a coordinator answers at once.
const MAX_VERSIONS: u32 = 1000;

/// Arguments of `pool history`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl pool history desk                who changed what, newest first
  usherctl pool history desk --changes      with the values before and after
  usherctl pool history desk --limit 5")]
pub(crate) struct HistoryArguments {
    /// Name of the pool
    pool: String,
    /// At most so many versions, 1 to 1000 [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_VERSIONS)))]
    limit: Option<u32>,
    /// Show each value before and after
    #[arg(long)]
    changes: bool,
}

/// Arguments of `pool diff`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl pool diff desk                   what the last apply changed
  usherctl pool diff desk --from 3          since version 3
  usherctl pool diff desk --from 0 --to 3   what version 3 had changed of the defaults
  usherctl pool diff desk -f desk.toml      what this file would change now")]
pub(crate) struct DiffArguments {
    /// Name of the pool
    pool: String,
    /// The older version; 0 is the defaults [default: the one before --to]
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// The newer version [default: the one in force]
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// TOML file to compare with what is in force
    #[arg(short, long, value_name = "FILE.toml", conflicts_with_all = ["from", "to"])]
    file: Option<PathBuf>,
}

/// Lists the versions.
pub(super) async fn history(context: &Context, arguments: HistoryArguments) -> Result<(), Failure> {
    let response = versions(context, &arguments.pool, arguments.limit).await?;
    if context.json() {
        return emit_json(&response);
    }
    emit(&if arguments.changes { changes(&response.versions) } else { table(&response.versions) })
}

async fn versions(
    context: &Context,
    pool: &str,
    limit: Option<u32>,
) -> Result<v1::GetPoolHistoryResponse, Failure> {
    let operation = format!("reading the history of pool {pool}");
    let request = v1::GetPoolHistoryRequest { pool: pool.to_owned(), limit };
    context
        .coordinators()?
        .call(&operation, async |channel, call| {
            AdminServiceClient::new(channel).get_pool_history(call.request(request.clone())).await
        })
        .await
}

/// A pool as it was at one version.
pub(super) async fn at_version(context: &Context, pool: &str, version: u64) -> Result<v1::PoolInfo, Failure> {
    let response = versions(context, pool, Some(MAX_VERSIONS)).await?;
    let infos: Vec<v1::PoolInfo> = response.versions.into_iter().filter_map(|version| version.pool).collect();
    let kept: Vec<u64> = infos.iter().map(|info| info.version).collect();
    infos.into_iter().find(|info| info.version == version).ok_or_else(|| not_kept(pool, version, &kept))
}

/// The history has it not, which is a no of the coordinator's, although it answered without an error.
fn not_kept(pool: &str, version: u64, kept: &[u64]) -> Failure {
    let kept = match (kept.iter().min(), kept.iter().max()) {
        (Some(oldest), Some(newest)) => format!("versions {oldest} to {newest} are"),
        _ => "no version is".to_owned(),
    };
    Failure::Refused(Box::new(Refusal {
        operation: format!("showing version {version} of pool {pool}"),
        code: tonic::Code::NotFound,
        reason: String::new(),
        message: format!("version {version} is not kept; {kept}"),
        metadata: Default::default(),
        retry_after: None,
    }))
}

/// Compares two versions, or a file with what is in force.
pub(super) async fn diff(context: &Context, arguments: DiffArguments) -> Result<(), Failure> {
    if arguments.file.is_some() {
        return diff_file(context, arguments).await;
    }
    let operation = format!("comparing versions of pool {}", arguments.pool);
    let request =
        v1::DiffPoolRequest { pool: arguments.pool.clone(), from: arguments.from, to: arguments.to };
    let response = context
        .coordinators()?
        .call(&operation, async |channel, call| {
            AdminServiceClient::new(channel).diff_pool(call.request(request.clone())).await
        })
        .await?;
    if context.json() {
        return emit_json(&response);
    }
    let (older, newer) = (format!("version {}", response.from), format!("version {}", response.to));
    emit(&difference(&older, &newer, &response.changes))
}

/// A rehearsal of an apply says it, and whether the file can be applied at all.
async fn diff_file(context: &Context, arguments: DiffArguments) -> Result<(), Failure> {
    let operation = format!("comparing a file with pool {}", arguments.pool);
    let change = ChangeArguments { file: arguments.file.clone(), ..ChangeArguments::default() };
    let request = v1::ApplyPoolRequest { dry_run: true, ..request(arguments.pool, &change)? };
    let response = send(context, &operation, &request).await?;
    if context.json() {
        return emit_json(&response);
    }
    let file = arguments.file.unwrap_or_default().display().to_string();
    emit(&difference("what is in force", &clean(&file), &response.changes))
}

fn difference(older: &str, newer: &str, changes: &[v1::FieldChange]) -> String {
    if changes.is_empty() {
        return format!("{older} and {newer} do not differ");
    }
    format!("{}\n\nfrom {older} to {newer}", changes_table(changes))
}

fn table(versions: &[v1::PoolVersion]) -> String {
    if versions.is_empty() {
        return "no versions: the pool has the defaults".to_owned();
    }
    let mut grid = Grid::new(&["VERSION", "APPLIED", "AUTHOR", "CHANGED"], &[0]);
    for version in versions {
        let pool = version.pool.clone().unwrap_or_default();
        let fields: Vec<String> = version.changes.iter().map(|change| clean(&change.field)).collect();
        grid.row([
            cell(pool.version.to_string()),
            cell(applied_at(&pool)),
            cell(clean_or_dash(&pool.author)),
            cell(if fields.is_empty() { ABSENT.to_owned() } else { fields.join(",") }),
        ]);
    }
    grid.render()
}

fn changes(versions: &[v1::PoolVersion]) -> String {
    if versions.is_empty() {
        return table(versions);
    }
    let page = |version: &v1::PoolVersion| {
        let pool = version.pool.clone().unwrap_or_default();
        let head =
            format!("version {} by {} at {}", pool.version, clean_or_dash(&pool.author), applied_at(&pool));
        let changes = match version.changes.as_slice() {
            [] => "nothing that is known".to_owned(),
            changes => changes_table(changes),
        };
        format!("{head}\n\n{changes}")
    };
    versions.iter().map(page).collect::<Vec<_>>().join("\n\n")
}

fn applied_at(pool: &v1::PoolInfo) -> String {
    pool.applied_at.as_ref().map_or_else(|| ABSENT.to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    fn version(number: u64, fields: &[(&str, &str, &str)]) -> v1::PoolVersion {
        let change = |(field, before, after): &(&str, &str, &str)| v1::FieldChange {
            field: (*field).to_owned(),
            before: (*before).to_owned(),
            after: (*after).to_owned(),
        };
        let pool = v1::PoolInfo { version: number, author: "ann".into(), ..Default::default() };
        v1::PoolVersion { pool: Some(pool), changes: fields.iter().map(change).collect() }
    }

    #[test]
    fn each_version_names_its_author_and_the_settings_that_it_changed() {
        let versions =
            [version(2, &[("range", "6", "8"), ("max_users", "unlimited", "50")]), version(1, &[])];
        let text = table(&versions);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["2", "-", "ann", "range,max_users"]);
        assert_eq!(rows[2], ["1", "-", "ann", "-"]);
        let text = changes(&versions);
        assert!(text.starts_with("version 2 by ann at -\n\nSETTING"), "{text}");
        assert!(text.lines().any(|line| line.split_whitespace().eq(["max_users", "unlimited", "50"])));
        assert!(text.ends_with("version 1 by ann at -\n\nnothing that is known"), "{text}");
        assert!(table(&[]).contains("defaults") && changes(&[]).contains("defaults"));
    }

    #[test]
    fn a_version_that_is_not_kept_is_not_found_and_those_that_are_kept_are_named() {
        let failure = not_kept("desk", 3, &[9, 8, 7]);
        assert_eq!(failure.exit_code(), 1);
        assert!(failure.for_people().contains("version 3 is not kept; versions 7 to 9 are"));
    }

    #[test]
    fn a_file_is_compared_with_what_is_in_force_and_with_nothing_else() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).is_ok();
        assert!(parse("usherctl pool diff desk --from 1 --to 2"));
        assert!(!parse("usherctl pool diff desk --from 1 -f desk.toml"));
        assert!(!parse("usherctl pool history desk --limit 0"));
        assert!(!parse("usherctl pool history desk --limit 1001"));
        assert_eq!(difference("version 1", "version 2", &[]), "version 1 and version 2 do not differ");
    }
}
