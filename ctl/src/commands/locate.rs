//! Where is this resource, and may logins be sent there?

use clap::Args;
use usher_proto::v1;
use usher_proto::v1::directory_service_client::DirectoryServiceClient;

use crate::commands::Context;
use crate::commands::replicas;
use crate::failure::Failure;
use crate::output::{emit, json::emit_json};

/// Arguments of `locate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl locate mail/crm.nsf              every host that holds it
  usherctl locate mail/crm.nsf --pool mail  those of one pool")]
pub(crate) struct Arguments {
    /// The resource
    resource: String,
    /// Only hosts of this pool
    #[arg(long)]
    pool: Option<String>,
}

/// Lists who holds it.
pub(crate) async fn run(context: &Context, arguments: Arguments) -> Result<(), Failure> {
    let Arguments { resource, pool } = arguments;
    let operation = format!("locating {resource}");
    let request = v1::LocateResourceRequest { resource, pool };
    let response = context
        .coordinators()?
        .call(&operation, async |channel, call| {
            DirectoryServiceClient::new(channel).locate_resource(call.request(request.clone())).await
        })
        .await?;
    if context.json() { emit_json(&response) } else { emit(&replicas::table(&response.replicas)) }
}
