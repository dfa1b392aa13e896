//! Which rows of the store could not be read?

use clap::{Args, Subcommand};
use usher_proto::v1;
use usher_proto::v1::admin_service_client::AdminServiceClient;

use crate::commands::Context;
use crate::failure::Failure;
use crate::output::table::{Facts, Grid, cell};
use crate::output::text::{clean, clean_or_dash};
use crate::output::{emit, json::emit_json};

/// Arguments of `quarantine`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl quarantine                       rows that are not in force
  usherctl quarantine show pools/desk       what does it hold?
  usherctl quarantine drop pools/desk       forget it for good

A row that cannot be read is set aside, so that one damaged row does not keep a coordinator from
starting. What it said is not in force: apply it again, or restore a backup")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<QuarantineCommand>,
}

#[derive(Debug, Subcommand)]
enum QuarantineCommand {
    /// Show what a row holds
    #[command(after_help = "Examples:
  usherctl quarantine show pools/desk       as far as it is text")]
    Show(RowArguments),
    /// Forget a row for good
    #[command(after_help = "Examples:
  usherctl quarantine drop pools/desk       it cannot be brought back")]
    Drop(RowArguments),
}

#[derive(Debug, Args)]
struct RowArguments {
    /// Table and key, as listed
    #[arg(value_name = "TABLE/KEY")]
    row: String,
}

impl RowArguments {
    fn parts(&self) -> Result<(&str, &str), Failure> {
        let wrong = || Failure::usage(format!("{}: must be TABLE/KEY, as listed", clean(&self.row)));
        self.row.split_once('/').ok_or_else(wrong)
    }
}

/// Lists the rows, shows one, or forgets it.
pub(crate) async fn run(context: &Context, arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {
        None => {
            let response = list(context).await?;
            if context.json() { emit_json(&response) } else { emit(&table(&response.rows)) }
        }
        Some(QuarantineCommand::Show(row)) => {
            let (table, key) = row.parts()?;
            let rows = list(context).await?.rows;
            let found = rows.into_iter().find(|row| row.table == table && row.key == key);
            let found = found.ok_or_else(|| missing(&row.row))?;
            if context.json() { emit_json(&found) } else { emit(&page(&found)) }
        }
        Some(QuarantineCommand::Drop(row)) => drop_row(context, &row).await,
    }
}

async fn list(context: &Context) -> Result<v1::ListQuarantineResponse, Failure> {
    let call = context.coordinators()?;
    let listed = call.call("listing the quarantine", async |channel, call| {
        AdminServiceClient::new(channel).list_quarantine(call.request(v1::ListQuarantineRequest {})).await
    });
    listed.await
}

async fn drop_row(context: &Context, row: &RowArguments) -> Result<(), Failure> {
    let (table, key) = row.parts()?;
    let request = v1::DropQuarantinedRequest { table: table.to_owned(), key: key.to_owned() };
    let operation = format!("forgetting row {}", clean(&row.row));
    let coordinators = context.coordinators()?;
    let dropped = coordinators.call(&operation, async |channel, call| {
        AdminServiceClient::new(channel).drop_quarantined(call.request(request.clone())).await
    });
    let response = dropped.await?;
    if !response.was_there {
        return Err(missing(&row.row));
    }
    if context.json() { emit_json(&response) } else { emit(&format!("{} is forgotten", clean(&row.row))) }
}

fn missing(row: &str) -> Failure {
    Failure::Broken(anyhow::anyhow!("there is no row {} in quarantine", clean(row)))
}

fn table(rows: &[v1::QuarantinedRow]) -> String {
    if rows.is_empty() {
        return "no row is set aside".to_owned();
    }
    let mut grid = Grid::new(&["ROW", "SINCE", "IN", "WHY"], &[]);
    for row in rows {
        grid.row([
            cell(clean(&format!("{}/{}", row.table, row.key))),
            cell(since(row)),
            cell(place(row)),
            cell(clean_or_dash(&row.why)),
        ]);
    }
    grid.render()
}

fn page(row: &v1::QuarantinedRow) -> String {
    let mut facts = Facts::new();
    facts.fact("row", clean(&format!("{}/{}", row.table, row.key)));
    facts.fact("why", clean_or_dash(&row.why));
    facts.fact("since", since(row));
    facts.fact("in", place(row));
    facts.render() + "\n\n" + &clean(&row.value)
}

fn since(row: &v1::QuarantinedRow) -> String {
    row.since.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string)
}

fn place(row: &v1::QuarantinedRow) -> String {
    if row.is_shared { "the shared store".to_owned() } else { "this coordinator's file".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_listed_with_why_and_shown_without_control_characters() {
        assert_eq!(table(&[]), "no row is set aside");
        let row = v1::QuarantinedRow {
            table: "pools".into(),
            key: "desk/x".into(),
            why: "expected value".into(),
            value: "{\u{1b}[31m".into(),
            is_shared: true,
            ..Default::default()
        };
        let text = table(std::slice::from_ref(&row));
        assert!(text.contains("pools/desk/x") && text.contains("expected value"), "{text}");
        let text = page(&row);
        assert!(text.contains("the shared store") && !text.contains('\u{1b}'), "{text}");
        let arguments = RowArguments { row: "pools/desk/x".into() };
        assert_eq!(arguments.parts().unwrap(), ("pools", "desk/x"));
        assert!(RowArguments { row: "pools".into() }.parts().is_err());
    }
}
