//! Which coordinators are there, and how is their store?

use clap::Args;
use usher_proto::v1;
use usher_proto::v1::admin_service_client::AdminServiceClient;

use crate::commands::Context;
use crate::failure::Failure;
use crate::output::table::{Facts, Grid, cell};
use crate::output::text::{clean, clean_or_dash};
use crate::output::{emit, json::emit_json};

/// Arguments of `coordinators`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl coordinators               those that the shared store knows, and how it is
  usherctl coordinators --json        for scripts

Coordinators hear of each other through a shared store only: one with a store of its own lists itself.
STORE away: nothing can be changed until it answers again, and the coordinator serves from its copy")]
pub(crate) struct Arguments {}

/// Lists the coordinators.
pub(crate) async fn run(context: &Context, _: Arguments) -> Result<(), Failure> {
    let response = context
        .coordinators()?
        .call("listing the coordinators", async |channel, call| {
            let request = call.request(v1::ListCoordinatorsRequest {});
            AdminServiceClient::new(channel).list_coordinators(request).await
        })
        .await?;
    if context.json() { emit_json(&response) } else { emit(&page(&response)) }
}

fn page(response: &v1::ListCoordinatorsResponse) -> String {
    let mut grid = Grid::new(&["COORDINATOR", "ADDRESS", "VERSION", "STARTED", "ASKED"], &[]);
    for known in &response.coordinators {
        grid.row([
            cell(clean(&known.coordinator_id)),
            cell(clean_or_dash(&known.address)),
            cell(clean(&known.version)),
            cell(known.started.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string)),
            cell(if known.is_asked { "this one" } else { "" }),
        ]);
    }
    let store = response.store.clone().unwrap_or_default();
    format!("{}\n\n{}", grid.render(), store_facts(&store))
}

fn store_facts(store: &v1::StoreInfo) -> String {
    let mut facts = Facts::new();
    facts.fact("store", clean(&store.kind));
    if store.link.is_some() {
        let since = store.since.as_ref().map(|since| format!(" since {since}"));
        facts.fact("state", format!("{}{}", link_word(store.link()), since.unwrap_or_default()));
        facts.fact("revision", store.revision.map_or_else(|| "none yet".to_owned(), |at| at.to_string()));
    }
    if let Some(error) = &store.last_error {
        facts.fact("last error", clean(error));
    }
    if store.owed > 0 {
        facts.fact("owed", format!("{} changes that hosts made while it was away", store.owed));
    }
    if store.quarantined > 0 {
        facts.fact("quarantine", format!("{} rows; usherctl quarantine lists them", store.quarantined));
    }
    facts.render()
}

const fn link_word(link: v1::StoreLink) -> &'static str {
    match link {
        v1::StoreLink::Connected => "connected",
        v1::StoreLink::Away => "away",
        v1::StoreLink::Unusable => "unusable",
        v1::StoreLink::Unspecified => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_answers_is_marked_and_a_store_that_is_away_is_told() {
        let coordinator = |id: &str, is_asked| v1::CoordinatorInfo {
            coordinator_id: id.into(),
            address: "c1:7443".into(),
            version: "0.2.0".into(),
            is_asked,
            ..Default::default()
        };
        let store = v1::StoreInfo {
            kind: "etcd".into(),
            link: Some(v1::StoreLink::Away.into()),
            revision: Some(7),
            last_error: Some("no \u{1b}answer".into()),
            quarantined: 2,
            ..Default::default()
        };
        let coordinators = vec![coordinator("a", false), coordinator("b", true)];
        let text = page(&v1::ListCoordinatorsResponse { coordinators, store: Some(store) });
        assert!(text.lines().nth(2).unwrap().contains("this one"), "{text}");
        assert!(!text.lines().nth(1).unwrap().contains("this one"), "{text}");
        assert!(text.contains("away") && text.contains("2 rows") && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn a_store_of_its_own_has_no_state() {
        let store = v1::StoreInfo { kind: "redb".into(), ..Default::default() };
        let text = store_facts(&store);
        assert!(text.contains("redb") && !text.contains("state"), "{text}");
    }
}
