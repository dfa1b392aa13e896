//! Replicas: taken out of service and given back.

use tonic::Status;
use usher_proto::{error, read, v1};
use usher_types::{HostId, ReplicaMark, ResourceId};

use super::{Admin, not_stored, to_its_end};
use crate::{
    farm_command::FarmCommand,
    store::{ReplicaMarkRecord, Write},
};

impl Admin {
    pub(super) async fn mark_replica_of_named(
        &self,
        author: String,
        msg: v1::MarkReplicaRequest,
    ) -> Result<v1::MarkReplicaResponse, Status> {
        let request = read::mark_replica(msg).map_err(|faults| error::invalid_fields(&faults))?;
        let host = self.find_host(&request.host)?;
        let holders = host.pool.replicas.get(&request.resource);
        let listed = holders.is_some_and(|at| at.iter().any(|at| *at as usize == host.position));
        let change = self.clone().set_replica_mark(
            host.host_id.clone(),
            request.resource,
            request.mark,
            author,
            listed,
        );
        let before = to_its_end(change).await?;
        Ok(v1::MarkReplicaResponse {
            host_id: host.host_id.to_string(),
            host_name: host.name,
            before: before.map(|mark| v1::ReplicaMark::from(mark).into()),
            listed,
        })
    }

    /// Marks a host's copy of a resource, or takes its mark back. What it was before.
    async fn set_replica_mark(
        self,
        host_id: HostId,
        resource: ResourceId,
        mark: Option<ReplicaMark>,
        author: String,
        listed: bool,
    ) -> Result<Option<ReplicaMark>, Status> {
        let _one_at_a_time = self.marking.lock().await;
        let set_unix_ms = self.shared.clock.wall_unix_ms();
        let write = match mark {
            Some(mark) => {
                let gone_unix_ms = (!listed).then_some(set_unix_ms);
                let record = ReplicaMarkRecord { mark, author: author.clone(), set_unix_ms, gone_unix_ms };
                Write::PutReplicaMark(host_id.clone(), resource.clone(), record)
            }
            None => Write::DeleteReplicaMark(host_id.clone(), resource.clone()),
        };
        let revision = self.store.write(vec![write]).await.map_err(not_stored)?.revision;
        let set = |answer| FarmCommand::MarkReplica {
            host_id: host_id.clone(),
            resource_id: resource.clone(),
            mark,
            revision,
            answer,
        };
        let before = self.ask(set).await?;
        self.shared.metrics.marked("replica");
        let (now, before_text) = (mark.map(ReplicaMark::as_str), before.map(ReplicaMark::as_str));
        tracing::info!(%host_id, %resource, author, mark = now, before = before_text, "replica marked");
        Ok(before)
    }
}
