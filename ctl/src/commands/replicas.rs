//! Which host holds what?

use clap::Args;
use usher_proto::v1;
use usher_proto::v1::directory_service_client::DirectoryServiceClient;

use crate::commands::Context;
use crate::commands::mark::service_word;
use crate::failure::Failure;
use crate::output::table::{Grid, cell, state_cell};
use crate::output::text::{clean, clean_or_dash};
use crate::output::{emit, json::emit_json};

/// Arguments of `replicas`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl replicas                          everything that the hosts hold
  usherctl replicas --resource mail/crm.nsf  who holds this?
  usherctl replicas --host app1              what does this host hold?

SERVICE: whether logins for it are sent there, as `usherctl mark` sets it")]
pub(crate) struct Arguments {
    /// Only replicas in this pool
    #[arg(long)]
    pool: Option<String>,
    /// Only replicas of this resource
    #[arg(long, value_name = "ID")]
    resource: Option<String>,
    /// Only replicas on this host, by name or id
    #[arg(long)]
    host: Option<String>,
}

/// Lists the replicas.
pub(crate) async fn run(context: &Context, arguments: Arguments) -> Result<(), Failure> {
    let Arguments { pool, resource, host } = arguments;
    let request = v1::ListReplicasRequest { pool, resource, host };
    let response = context
        .coordinators()?
        .call("listing the replicas", async |channel, call| {
            DirectoryServiceClient::new(channel).list_replicas(call.request(request.clone())).await
        })
        .await?;
    if context.json() { emit_json(&response) } else { emit(&page(&response)) }
}

fn page(response: &v1::ListReplicasResponse) -> String {
    let mut text = table(&response.replicas);
    if response.truncated {
        text += "\n\nthere are more; --pool, --resource or --host narrows the list";
    }
    text
}

/// The replicas, in the order of the answer.
pub(super) fn table(replicas: &[v1::ReplicaInfo]) -> String {
    if replicas.is_empty() {
        return "no replicas".to_owned();
    }
    let mut grid = Grid::new(&["RESOURCE", "HOST", "POOL", "STATE", "SERVICE", "PATH", "TITLE"], &[]);
    for replica in replicas {
        grid.row([
            cell(clean(&replica.resource_id)),
            cell(clean(&replica.host_name)),
            cell(clean_or_dash(&replica.pool)),
            state_cell(replica.host_state),
            cell(service_word(replica.mark)),
            cell(clean_or_dash(replica.path.as_deref().unwrap_or(""))),
            cell(clean_or_dash(replica.title.as_deref().unwrap_or(""))),
        ]);
    }
    grid.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_list_says_so_and_absent_words_are_dashes() {
        let replica = v1::ReplicaInfo {
            resource_id: "crm".into(),
            host_name: "app1".into(),
            pool: "mail".into(),
            host_state: v1::HostState::Available.into(),
            ..Default::default()
        };
        let marked = v1::ReplicaInfo { mark: Some(v1::ReplicaMark::OutOfService.into()), ..replica.clone() };
        let text = page(&v1::ListReplicasResponse { replicas: vec![replica, marked], truncated: true });
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["crm", "app1", "mail", "AVAILABLE", "IN_SERVICE", "-", "-"]);
        let row: Vec<&str> = text.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(row[4], "OUT_OF_SERVICE");
        assert!(text.contains("there are more"));
        assert_eq!(page(&v1::ListReplicasResponse::default()), "no replicas");
    }
}
