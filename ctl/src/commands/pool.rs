//! By which settings does a pool decide?

mod apply;
mod change;
mod history;
mod learned;

use clap::{Args, Subcommand};
use usher_proto::v1::admin_service_client::AdminServiceClient;
use usher_proto::{read, v1, write};
use usher_types::{Policy, PolicyChange};

pub(crate) use self::learned::table as learned_table;
use crate::commands::Context;
use crate::failure::Failure;
use crate::output::table::{Facts, Grid, cell};
use crate::output::text::{clean, clean_or_dash};
use crate::output::{emit, json::emit_json};

/// Arguments of `pool`.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  usherctl pool list                        the pools
  usherctl pool show desk                   the settings in force
  usherctl pool create login --profile ssh-login
  usherctl pool apply desk --set max_users=50
  usherctl pool history desk                who changed what
  usherctl pool learned desk                what one more session costs its hosts")]
pub(crate) enum PoolCommand {
    /// List the pools
    #[command(after_help = "Examples:
  usherctl pool list                        version, hosts and author of each
  usherctl pool list --json                 for scripts")]
    List,
    /// Show the settings of a pool
    Show(ShowArguments),
    /// Create a pool
    Create(apply::CreateArguments),
    /// Change the settings of a pool
    Apply(apply::ApplyArguments),
    /// List the versions of a pool's settings
    History(history::HistoryArguments),
    /// Show in what two versions differ
    Diff(history::DiffArguments),
    /// Show what one more session costs its hosts
    Learned(learned::LearnedArguments),
}

/// Arguments of `pool show`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl pool show desk                   for people
  usherctl pool show desk --version 3       as it was
  usherctl pool show desk --toml > desk.toml
                                            to edit, for `usherctl pool apply desk -f desk.toml`")]
pub(crate) struct ShowArguments {
    /// Name of the pool
    pool: String,
    /// This version instead of the one in force; 0 is the defaults
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// As a file for `pool apply -f`
    #[arg(long, conflicts_with = "json")]
    toml: bool,
}

/// Looks at pools or changes one.
pub(crate) async fn run(context: &Context, command: PoolCommand) -> Result<(), Failure> {
    match command {
        PoolCommand::List => list(context).await,
        PoolCommand::Show(arguments) => show(context, arguments).await,
        PoolCommand::Create(arguments) => apply::create(context, arguments).await,
        PoolCommand::Apply(arguments) => apply::apply(context, arguments).await,
        PoolCommand::History(arguments) => history::history(context, arguments).await,
        PoolCommand::Diff(arguments) => history::diff(context, arguments).await,
        PoolCommand::Learned(arguments) => learned::learned(context, arguments).await,
    }
}

async fn list(context: &Context) -> Result<(), Failure> {
    let response = context
        .coordinators()?
        .call("listing the pools", async |channel, call| {
            AdminServiceClient::new(channel).list_pools(call.request(v1::ListPoolsRequest {})).await
        })
        .await?;
    if context.json() { emit_json(&response) } else { emit(&table(&response.pools)) }
}

async fn show(context: &Context, arguments: ShowArguments) -> Result<(), Failure> {
    let response = match arguments.version {
        None => get(context, &arguments.pool).await?,
        Some(0) => defaults(get(context, &arguments.pool).await?),
        Some(version) => {
            let pool = history::at_version(context, &arguments.pool, version).await?;
            v1::GetPoolResponse { pool: Some(pool) }
        }
    };
    if context.json() {
        return emit_json(&response);
    }
    let pool = response.pool.unwrap_or_default();
    let settings = settings(&pool)?;
    let text = toml::to_string(&settings).map_err(anyhow::Error::from)?;
    if arguments.toml { emit(&text) } else { emit(&page(&pool, &text)) }
}

/// The pool before anything was applied to it.
fn defaults(response: v1::GetPoolResponse) -> v1::GetPoolResponse {
    let pool = response.pool.map(|pool| v1::PoolInfo {
        policy: Some(write::policy(&Policy::default())),
        version: 0,
        author: String::new(),
        applied_at: None,
        ..pool
    });
    v1::GetPoolResponse { pool }
}

/// Settings that differ, with their values.
fn changes_table(changes: &[v1::FieldChange]) -> String {
    let mut grid = Grid::new(&["SETTING", "BEFORE", "AFTER"], &[]);
    for change in changes {
        grid.row([
            cell(clean(&change.field)),
            cell(clean_or_dash(&change.before)),
            cell(clean_or_dash(&change.after)),
        ]);
    }
    grid.render()
}

/// The pool as it is now.
async fn get(context: &Context, pool: &str) -> Result<v1::GetPoolResponse, Failure> {
    let operation = format!("reading pool {pool}");
    let request = v1::GetPoolRequest { pool: pool.to_owned() };
    context
        .coordinators()?
        .call(&operation, async |channel, call| {
            AdminServiceClient::new(channel).get_pool(call.request(request.clone())).await
        })
        .await
}

/// The settings in the form in which they are typed.
fn settings(pool: &v1::PoolInfo) -> Result<PolicyChange, Failure> {
    let policy = pool.policy.clone().unwrap_or_default();
    read::policy_change(policy).map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        Failure::Broken(anyhow::anyhow!("the coordinator's settings cannot be read: {}", faults.join("; ")))
    })
}

fn table(pools: &[v1::PoolInfo]) -> String {
    if pools.is_empty() {
        return "no pools".to_owned();
    }
    let mut grid = Grid::new(&["POOL", "VERSION", "HOSTS", "AUTHOR", "APPLIED"], &[1, 2]);
    for pool in pools {
        grid.row([
            cell(clean(&pool.pool)),
            cell(pool.version.to_string()),
            cell(pool.hosts.to_string()),
            cell(clean_or_dash(&pool.author)),
            cell(pool.applied_at.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string)),
        ]);
    }
    let foreign = pools.iter().filter(|pool| !pool.foreign.is_empty());
    let foreign = foreign.map(|pool| {
        let hosts: u32 = pool.foreign.iter().map(|foreign| foreign.hosts).sum();
        format!("\n{}: {hosts} hosts have other settings than this coordinator's", clean(&pool.pool))
    });
    let foreign: String = foreign.collect();
    let gap = if foreign.is_empty() { "" } else { "\n" };
    grid.render() + gap + &foreign
}

fn page(pool: &v1::PoolInfo, settings: &str) -> String {
    let mut facts = Facts::new();
    facts.fact("pool", clean(&pool.pool));
    facts.fact("hosts", pool.hosts.to_string());
    facts.fact("version", version(pool));
    facts.fact_if("hash", pool.settings_hash.map(|hash| format!("{hash:016x}")));
    let foreign: String = pool.foreign.iter().map(foreign).collect();
    facts.render() + "\n" + &foreign + "\n" + settings.trim_end()
}

/// Settings that hosts have from another coordinator.
fn foreign(foreign: &v1::ForeignSettings) -> String {
    let names: Vec<String> = foreign.host_names.iter().map(|name| clean(name)).collect();
    let more = if (foreign.hosts as usize) > names.len() { ", ..." } else { "" };
    let version = foreign.version.map(|version| format!(" version {version}")).unwrap_or_default();
    format!(
        "NOT in force on {} hosts: another coordinator gave them{version} ({:016x}): {}{more}\n",
        foreign.hosts,
        foreign.settings_hash,
        names.join(", "),
    )
}

/// The version, and who made it.
fn version(pool: &v1::PoolInfo) -> String {
    match &pool.applied_at {
        None => format!("{}: the defaults", pool.version),
        Some(at) => format!("{} by {} at {at}", pool.version, clean_or_dash(&pool.author)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_as_toml_is_read_back_the_same() {
        let policy = Policy { range: 8.0, shared_accounts: vec!["kiosk".into()], ..Policy::default() };
        let pool = v1::PoolInfo { policy: Some(write::policy(&policy)), ..Default::default() };
        let text = toml::to_string(&settings(&pool).unwrap()).unwrap();
        let back: PolicyChange = toml::from_str(&text).unwrap();
        assert_eq!(back.apply_to(&Policy::default()).unwrap(), policy, "{text}");
        assert!(text.contains("max_users = \"unlimited\"") && text.contains("[weights]"), "{text}");
    }

    #[test]
    fn hosts_with_other_settings_are_named() {
        let foreign = v1::ForeignSettings {
            settings_hash: 0xab,
            version: Some(4),
            hosts: 12,
            host_names: vec!["app1".into(), "app2".into()],
        };
        let pool = v1::PoolInfo { pool: "desk".into(), foreign: vec![foreign], ..Default::default() };
        let expected = "NOT in force on 12 hosts: another coordinator gave them version 4 (00000000000000ab): app1, app2, ...";
        assert!(page(&pool, "range = 6.0").contains(expected));
        let listed = table(&[pool]);
        assert!(
            listed.ends_with("\n\ndesk: 12 hosts have other settings than this coordinator's"),
            "{listed}"
        );
    }

    #[test]
    fn a_pool_that_was_never_applied_has_the_defaults() {
        let pool = v1::PoolInfo { pool: "desk".into(), hosts: 3, ..Default::default() };
        assert!(page(&pool, "range = 6.0").contains("0: the defaults"));
        let row: Vec<String> =
            table(&[pool]).lines().nth(1).unwrap().split_whitespace().map(str::to_owned).collect();
        assert_eq!(row, ["desk", "0", "3", "-", "-"]);
    }
}
