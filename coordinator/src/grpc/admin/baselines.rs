//! Baselines: what a host learned of how fast its operations are without load. They are the host's: here they are shown
//! as it told them last, and it is told to learn anew.

use tonic::Status;
use usher_proto::{
    error, read,
    v1::{self, attach_response::Message},
    write,
};
use usher_types::FieldFault;

use super::Admin;
use crate::grpc::invalid;

impl Admin {
    pub(super) fn baselines_of_named(
        &self,
        msg: v1::GetBaselinesRequest,
    ) -> Result<v1::GetBaselinesResponse, Status> {
        let text = read::get_baselines(msg).map_err(|faults| error::invalid_fields(&faults))?;
        let host = self.find_host(&text)?;
        let latency = host.pool.hosts[host.position].latency.as_ref();
        let operations = latency.iter().flat_map(|latency| &latency.latency.operations);
        Ok(v1::GetBaselinesResponse {
            host_id: host.host_id.to_string(),
            host_name: host.name,
            baseline: v1::Baseline::from(host.pool.policy.baseline).into(),
            operations: operations.map(write::operation_window).collect(),
        })
    }

    pub(super) fn reset_baselines_of_named(
        &self,
        author: &str,
        msg: v1::ResetBaselinesRequest,
    ) -> Result<v1::ResetBaselinesResponse, Status> {
        let (text, reset) =
            read::reset_baselines_request(msg).map_err(|faults| error::invalid_fields(&faults))?;
        let host = self.find_host(&text)?;
        if host.pool.hosts[host.position].facts.is_reporter {
            let allowed = "a host with an agent: a reporter cannot be told anything";
            return Err(invalid(FieldFault::new("host", host.name, allowed)));
        }
        let message = Message::ResetBaselines(write::reset_baselines(&reset));
        if !self.shared.links.send(&host.host_id, message) {
            let text = format!("host {} is not connected to this coordinator: nothing was reset", host.name);
            return Err(Status::unavailable(text));
        }
        let operation = reset.operation.as_ref().map(ToString::to_string);
        tracing::info!(host_id = %host.host_id, author, operation, "baselines are to be learned anew");
        self.shared.metrics.marked("baselines");
        Ok(v1::ResetBaselinesResponse { host_id: host.host_id.to_string(), host_name: host.name })
    }
}
