//! May this host's copy of a resource be sent to?

use clap::{Args, ValueEnum};
use serde::Serialize;
use usher_proto::v1;
use usher_proto::v1::admin_service_client::AdminServiceClient;
use usher_proto::v1::directory_service_client::DirectoryServiceClient;

use crate::commands::Context;
use crate::failure::Failure;
use crate::output::text::clean;
use crate::output::{emit, json::emit_json, words};

/// Arguments of `mark`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl mark app1 mail/crm.nsf out-of-service
                                            logins for it go to its other replicas
  usherctl mark app1 mail/crm.nsf pending-delete
                                            the same, until it is deleted
  usherctl mark app1 mail/crm.nsf in-service
  usherctl mark app1 mail/crm.nsf out-of-service --dry-run

A mark outlives the lists that the host sends, and 24 h without the replica")]
pub(crate) struct Arguments {
    /// Name or id of the host
    host: String,
    /// The resource
    #[arg(value_name = "RESOURCE")]
    resource: String,
    /// What it shall be
    service: Wanted,
    /// Change nothing, say what would change
    #[arg(long)]
    dry_run: bool,
}

/// What a replica may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Wanted {
    /// Nobody is sent to it
    #[value(alias = "out_of_service")]
    OutOfService,
    /// It will be deleted: nobody is sent to it any more
    #[value(alias = "pending_delete")]
    PendingDelete,
    /// Logins are sent to it
    #[value(alias = "in_service")]
    InService,
}

impl Wanted {
    fn mark(self) -> Option<i32> {
        match self {
            Self::OutOfService => Some(v1::ReplicaMark::OutOfService.into()),
            Self::PendingDelete => Some(v1::ReplicaMark::PendingDelete.into()),
            Self::InService => None,
        }
    }
}

/// What a mark would do, for scripts.
#[derive(Debug, Serialize)]
struct DryRun<'a> {
    dry_run: bool,
    host_name: &'a str,
    resource_id: &'a str,
    listed: bool,
    before: String,
    after: String,
}

/// Marks the replica.
pub(crate) async fn run(context: &Context, arguments: Arguments) -> Result<(), Failure> {
    if arguments.dry_run {
        return dry_run(context, &arguments).await;
    }
    let Arguments { host, resource, service, .. } = arguments;
    let operation = format!("marking {resource} on host {host}");
    let request = v1::MarkReplicaRequest { host, resource: resource.clone(), mark: service.mark() };
    let response = context
        .coordinators()?
        .call(&operation, async |channel, call| {
            AdminServiceClient::new(channel).mark_replica(call.request(request.clone())).await
        })
        .await?;
    if context.json() {
        return emit_json(&response);
    }
    emit(&marked(&response, &resource, service))
}

/// The call has no rehearsal, so the replica is looked up: whether it is there, and what it is now.
async fn dry_run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let operation = format!("looking up {} on host {}", arguments.resource, arguments.host);
    let request = v1::ListReplicasRequest {
        pool: None,
        resource: Some(arguments.resource.clone()),
        host: Some(arguments.host.clone()),
    };
    let response = context
        .coordinators()?
        .call(&operation, async |channel, call| {
            DirectoryServiceClient::new(channel).list_replicas(call.request(request.clone())).await
        })
        .await?;
    let replica = response.replicas.first();
    let (before, after) = (service_word(replica.and_then(|replica| replica.mark)), arguments.service.mark());
    let after = service_word(after);
    let host_name = replica.map_or(arguments.host.as_str(), |replica| replica.host_name.as_str());
    let (resource_id, listed) = (arguments.resource.as_str(), replica.is_some());
    if context.json() {
        return emit_json(&DryRun { dry_run: true, host_name, resource_id, listed, before, after });
    }
    let (host, resource) = (clean(host_name), clean(resource_id));
    emit(&if listed {
        format!("would mark {resource} on {host} {after}: it is {before} now")
    } else {
        format!("would mark {resource} on {host} {after}; {NOT_LISTED}")
    })
}

const NOT_LISTED: &str = "the host does not list it: the mark is kept for 24 h";

fn marked(response: &v1::MarkReplicaResponse, resource: &str, service: Wanted) -> String {
    let (host, resource) = (clean(&response.host_name), clean(resource));
    let (before, after) = (service_word(response.before), service_word(service.mark()));
    let mut text = if before == after {
        format!("{resource} on {host} was {after} already")
    } else {
        format!("{resource} on {host} is {after}, it was {before}")
    };
    if !response.listed && service != Wanted::InService {
        text += "; ";
        text += NOT_LISTED;
    }
    text
}

/// `OUT_OF_SERVICE`, or `IN_SERVICE` for a replica without a mark.
pub(crate) fn service_word(mark: Option<i32>) -> String {
    mark.map_or_else(|| "IN_SERVICE".to_owned(), words::word::<v1::ReplicaMark>)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    fn response(before: Option<v1::ReplicaMark>, listed: bool) -> v1::MarkReplicaResponse {
        let before = before.map(Into::into);
        v1::MarkReplicaResponse { host_name: "app1".into(), before, listed, ..Default::default() }
    }

    #[test]
    fn a_mark_says_what_the_replica_is_and_was() {
        let out = Wanted::OutOfService;
        assert_eq!(
            marked(&response(None, true), "crm", out),
            "crm on app1 is OUT_OF_SERVICE, it was IN_SERVICE"
        );
        let again = response(Some(v1::ReplicaMark::OutOfService), true);
        assert_eq!(marked(&again, "crm", out), "crm on app1 was OUT_OF_SERVICE already");
        assert!(marked(&response(None, false), "crm", out).ends_with("kept for 24 h"));
        let back = response(Some(v1::ReplicaMark::PendingDelete), false);
        assert_eq!(
            marked(&back, "crm", Wanted::InService),
            "crm on app1 is IN_SERVICE, it was PENDING_DELETE"
        );
    }

    #[test]
    fn the_words_of_scenarios_are_taken_too() {
        for word in ["out-of-service", "out_of_service", "pending-delete", "pending_delete", "in_service"] {
            assert!(Cli::try_parse_from(["usherctl", "mark", "app1", "crm", word]).is_ok(), "{word}");
        }
        assert!(Cli::try_parse_from(["usherctl", "mark", "app1", "crm", "broken"]).is_err());
    }
}
