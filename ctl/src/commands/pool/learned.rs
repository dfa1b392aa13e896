//! What does one more session cost the hosts of a pool?

use clap::Args;
use usher_proto::v1;
use usher_proto::v1::directory_service_client::DirectoryServiceClient;

use crate::commands::Context;
use crate::failure::Failure;
use crate::output::table::{Grid, cell};
use crate::output::text::{bytes, clean};
use crate::output::{emit, json::emit_json};

/// Arguments of `pool learned`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl pool learned desk                what one more session costs a host of the pool
  usherctl pool learned desk --json         for scripts

The method `predictive`, and `weighted_load` with predict=true, add to what a host reports what the logins on their
way to it will cost. These costs are learned from reports and reservations, within BOUNDS; a value that is not LEARNED
is the prior, or close to it. SAMPLES are the logons, sessions or places behind it of late")]
pub(crate) struct LearnedArguments {
    /// Name of the pool
    pool: String,
}

/// Shows what the pool has learned.
pub(super) async fn learned(context: &Context, arguments: LearnedArguments) -> Result<(), Failure> {
    let operation = format!("reading what pool {} has learned", arguments.pool);
    let request = v1::GetLearnedRequest { pool: arguments.pool };
    let response = context
        .coordinators()?
        .call(&operation, async |channel, call| {
            DirectoryServiceClient::new(channel).get_learned(call.request(request.clone())).await
        })
        .await?;
    if context.json() { emit_json(&response) } else { emit(&table(&response.costs)) }
}

/// The costs, one a row.
pub(crate) fn table(costs: &[v1::LearnedCost]) -> String {
    let mut grid = Grid::new(&["COST", "VALUE", "LEARNED", "SAMPLES", "PRIOR", "BOUNDS"], &[1, 3, 4]);
    for cost in costs {
        let shown = |value: f64| amount(&cost.name, value);
        grid.row([
            cell(clean(&cost.name)),
            cell(shown(cost.value)),
            cell(if cost.learned { "yes" } else { "no" }.to_owned()),
            cell(format!("{:.0}", cost.samples)),
            cell(shown(cost.prior)),
            cell(format!("{} to {}", shown(cost.lowest), shown(cost.highest))),
        ]);
    }
    grid.render()
}

/// A value with its unit, which stands at the end of its name.
fn amount(name: &str, value: f64) -> String {
    match name.rsplit('_').next() {
        // A float beyond any memory saturates.
        Some("bytes") => bytes(value as u64),
        Some("seconds") => format!("{value:.1} s"),
        Some("cores") => format!("{value:.3} cores"),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cost_stands_with_its_unit_its_bounds_and_whether_it_is_learned() {
        let cost = |name: &str, value: f64, learned| v1::LearnedCost {
            name: name.into(),
            value,
            samples: 12.4,
            learned,
            prior: 1.0,
            lowest: 0.5,
            highest: 8.0,
        };
        let text = table(&[cost("logon_cores", 1.4567, true), cost("logon_seconds", 20.0, false)]);
        let rows: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(rows[1], "logon_cores 1.457 cores yes 12 1.000 cores 0.500 cores to 8.000 cores");
        assert_eq!(rows[2], "logon_seconds 20.0 s no 12 1.0 s 0.5 s to 8.0 s");
        assert_eq!(amount("session_memory_bytes", 536_870_912.0), bytes(536_870_912));
        assert_eq!(amount("something new", 2.5), "2.5");
    }
}
