//! Changes a pool's settings, and shows what changed.
//!
//! A file and `--set` name the same keys and go the same way as every configuration file of usher: a key that does not
//! exist is refused with a suggestion, before anybody is asked. Whether the values fit together is the coordinator's
//! to say, since only it knows what is in force.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{ArgGroup, Args};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};
use usher_proto::v1::admin_service_client::AdminServiceClient;
use usher_proto::{v1, write};
use usher_runtime::config::{Faults, Loader, Origin, Validate};
use usher_types::PolicyChange;

use super::{settings, version};
use crate::commands::Context;
use crate::failure::Failure;
use crate::output::table::{Grid, cell};
use crate::output::text::{ABSENT, clean};
use crate::output::{emit, json::emit_json};

/// Arguments of `pool apply`.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("change").required(true).multiple(true).args(["file", "set"]),
    after_help = "Examples:
  usherctl pool apply desk --set max_users=50 --set threshold_percent=20
  usherctl pool apply desk --set weights.users_percent=100
  usherctl pool apply desk -f desk.toml --expect-version 3
  usherctl pool apply desk -f desk.toml --dry-run

Keys:
  method, users_full_scale, range, threshold_percent, exit_margin_percent, max_users,
  baseline, min_possible_us, max_possible_us, predict, affinity, allow_unknown,
  reservation_ttl_ms, user_match, shared_accounts,
  weights.cpu_percent, .memory_percent, .users_percent, .processes_percent
What is not named keeps its value; when one weight is named, those not named become 0"
)]
pub(crate) struct Arguments {
    /// Name of the pool; made if it is not there
    pool: String,
    /// TOML file with the settings to change
    #[arg(short, long, value_name = "FILE.toml")]
    file: Option<PathBuf>,
    /// One setting to change; wins over the file
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_setting)]
    set: Vec<Setting>,
    /// Refuse if the pool is not at this version
    #[arg(long, value_name = "N")]
    expect_version: Option<u64>,
    /// Check only
    #[arg(long)]
    dry_run: bool,
}

/// A setting as typed in.
#[derive(Debug, Clone, PartialEq)]
struct Setting {
    key: String,
    value: Value,
}

/// A value that is no TOML is a word, so that `--set method=weighted_load` needs no quotes.
fn parse_setting(text: &str) -> Result<Setting, String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, like max_users=50")?;
    let (key, value) = (key.trim(), value.trim());
    if key.is_empty() || key.split('.').any(str::is_empty) {
        return Err("the key is empty".to_owned());
    }
    let value = value.parse().unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok(Setting { key: key.to_owned(), value })
}

/// The settings to change, as the reader of configurations wants them.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Typed(PolicyChange);

impl Validate for Typed {
    /// Ranges depend on what is in force, which only the coordinator knows.
    fn validate(&self, _faults: &mut Faults) {}
}

fn read_change(file: Option<PathBuf>, settings: &[Setting]) -> Result<PolicyChange, Failure> {
    // Without a file the path is empty: a file that nobody named and that is not there.
    let loader = Loader::new(PathBuf::new()).file(file, Origin::Flag("--file".to_owned()));
    let loader = settings.iter().fold(loader, |loader, setting| {
        let origin = Origin::Flag(format!("--set {}", setting.key));
        loader.override_with(&setting.key, setting.value.clone(), origin)
    });
    loader.load::<Typed>().map(|loaded| loaded.value.0).map_err(|errors| Failure::usage(errors.to_string()))
}

/// Applies the change.
pub(super) async fn run(context: &Context, arguments: Arguments) -> Result<(), Failure> {
    let change = read_change(arguments.file, &arguments.set)?;
    let before = before(context, &arguments.pool).await?;
    let operation = format!("applying settings to pool {}", arguments.pool);
    let request = v1::ApplyPoolRequest {
        pool: arguments.pool,
        expected_version: arguments.expect_version,
        policy: Some(write::policy_change(&change)),
        dry_run: arguments.dry_run,
    };
    let response = context
        .coordinators()?
        .call(&operation, async |channel, call| {
            AdminServiceClient::new(channel).apply_pool(call.request(request.clone())).await
        })
        .await?;
    if context.json() {
        return emit_json(&response);
    }
    let pool = response.pool.unwrap_or_default();
    emit(&page(&pool, before.as_ref(), &settings(&pool)?, &response.changed, arguments.dry_run))
}

/// The settings that are in force, to show what they were. Absent if the pool is new.
async fn before(context: &Context, pool: &str) -> Result<Option<PolicyChange>, Failure> {
    match super::get(context, pool).await {
        Ok(response) => response.pool.as_ref().map(settings).transpose(),
        Err(Failure::Refused(refusal)) if refusal.code == tonic::Code::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn page(
    pool: &v1::PoolInfo,
    before: Option<&PolicyChange>,
    after: &PolicyChange,
    changed: &[String],
    dry_run: bool,
) -> String {
    let name = clean(&pool.pool);
    if changed.is_empty() {
        return format!("nothing changes in pool {name}: version {}", version(pool));
    }
    let (before, after) = (before.map(leaves).unwrap_or_default(), leaves(after));
    let mut grid = Grid::new(&["SETTING", "BEFORE", "AFTER"], &[]);
    for (name, value) in after.iter().filter(|(name, _)| changed.iter().any(|field| is_part(name, field))) {
        let old = before.get(name).map_or(ABSENT, String::as_str);
        if old != value {
            grid.row([cell(clean(name)), cell(old), cell(value)]);
        }
    }
    let done = if dry_run {
        format!("pool {name} would change; nothing was applied")
    } else {
        format!("pool {name} is at version {}", version(pool))
    };
    grid.render() + "\n\n" + &done
}

/// Whether a setting is the one that the coordinator names, or inside of it: `weights.cpu_percent` in `weights`.
fn is_part(name: &str, field: &str) -> bool {
    name.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Every setting with its value, by its dotted name.
fn leaves(settings: &PolicyChange) -> BTreeMap<String, String> {
    fn collect(prefix: &str, table: &Table, found: &mut BTreeMap<String, String>) {
        for (key, value) in table {
            let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
            match value {
                Value::Table(inner) => collect(&name, inner, found),
                Value::String(text) => drop(found.insert(name, clean(text))),
                other => drop(found.insert(name, clean(&other.to_string()))),
            }
        }
    }
    let mut found = BTreeMap::new();
    // Settings were read from TOML or made from a policy; both can be written as TOML.
    if let Ok(table) = Table::try_from(settings) {
        collect("", &table, &mut found);
    }
    found
}

#[cfg(test)]
mod tests {
    use usher_types::{Method, Policy, UserLimit, Weights};

    use super::*;

    fn change(settings: &[&str]) -> Result<PolicyChange, String> {
        let settings: Result<Vec<Setting>, String> =
            settings.iter().map(|text| parse_setting(text)).collect();
        read_change(None, &settings?).map_err(|failure| {
            assert_eq!(failure.exit_code(), 2);
            failure.for_people()
        })
    }

    #[test]
    fn settings_are_typed_without_quotes() {
        let change = change(&[
            "method=weighted_load",
            "max_users=50",
            "range = 8.0",
            "weights.users_percent=100.0",
            "shared_accounts=[\"kiosk\"]",
        ])
        .unwrap();
        assert_eq!(change.method, Some(Method::WeightedLoad));
        assert_eq!(change.max_users, Some(UserLimit::Users(50)));
        assert_eq!(change.range, Some(8.0));
        assert_eq!(change.weights.unwrap().users_percent, Some(100.0));
        assert_eq!(change.shared_accounts.unwrap(), ["kiosk"]);
    }

    #[test]
    fn whole_numbers_may_be_typed_where_fractions_are_allowed() {
        let change = change(&["range=8", "weights.users_percent=100"]).unwrap();
        assert_eq!((change.range, change.weights.unwrap().users_percent), (Some(8.0), Some(100.0)));
    }

    #[test]
    fn a_key_that_does_not_exist_is_refused_with_a_suggestion() {
        let text = change(&["max_user=50"]).unwrap_err();
        assert!(text.contains("max_users") && text.contains("--set max_user"), "{text}");
        let text = change(&["weights.cpu=50"]).unwrap_err();
        assert!(text.contains("cpu_percent"), "{text}");
        assert!(change(&["max_users"]).is_err());
        assert!(change(&["=5"]).is_err());
        assert!(change(&["max_users=many"]).unwrap_err().contains("unlimited"));
    }

    #[test]
    fn a_file_and_set_go_together_and_set_wins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("desk.toml");
        std::fs::write(&path, "range = 7.0\nmax_users = \"unlimited\"\n[weights]\nusers_percent = 100.0\n")
            .unwrap();
        let settings = [parse_setting("max_users=5").unwrap()];
        let change = read_change(Some(path.clone()), &settings).unwrap();
        assert_eq!((change.range, change.max_users), (Some(7.0), Some(UserLimit::Users(5))));
        std::fs::write(&path, "rang = 7.0").unwrap();
        let text = read_change(Some(path), &[]).unwrap_err().for_people();
        assert!(text.contains("desk.toml:1") && text.contains("range"), "{text}");
        assert!(read_change(Some("/nonexistent/desk.toml".into()), &[]).is_err());
    }

    #[test]
    fn only_what_changes_is_shown_with_the_values_before_and_after() {
        let before = PolicyChange::of(&Policy::default());
        let after = PolicyChange::of(&Policy { max_users: UserLimit::Users(50), ..Policy::default() });
        let pool = v1::PoolInfo { pool: "desk".into(), version: 1, ..Default::default() };
        let text = page(&pool, Some(&before), &after, &["max_users".into()], true);
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["max_users", "unlimited", "50"]);
        assert_eq!(text.lines().filter(|line| line.starts_with("max_users")).count(), 1);
        assert!(text.contains("nothing was applied"), "{text}");
        let weights = Weights { cpu_percent: 30.0, users_percent: 40.0, ..Weights::default() };
        let after = PolicyChange::of(&Policy { weights, ..Policy::default() });
        let text = page(&pool, Some(&before), &after, &["weights".into()], false);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["weights.cpu_percent", "15.0", "30.0"]);
        assert_eq!(rows[2], ["weights.users_percent", "55.0", "40.0"]);
        assert!(rows[3].is_empty(), "{text}");
        assert!(page(&pool, Some(&before), &before, &[], false).starts_with("nothing changes"));
    }
}
