//! `DirectoryService`: what is in the farm, and what was decided in it?

mod decisions;
mod host_info;
mod replicas;
mod sessions;

use std::{collections::HashMap, sync::Arc};

pub(crate) use host_info::count_hosts;
use host_info::{each_host, host_info};
use tonic::{Code, Request, Response, Status};
use usher_availability::operation_expansion;
use usher_placement::farm::{PoolView, Snapshot};
use usher_proto::{
    error::{self, reason},
    fault::id,
    v1::{self, directory_service_server::DirectoryService},
    write,
};
use usher_types::{HostId, PoolName};

use super::{invalid, placement::learned_costs};
use crate::{placing::unknown_pool, shared::Shared};

/// The service.
pub(crate) struct Directory(pub Arc<Shared>);

/// The error for a name that is not exactly one host's.
pub(super) fn not_one_host(text: &str, ids: &[HostId]) -> Status {
    let shown = usher_proto::fault::cut(text.escape_debug().to_string(), 128);
    if ids.is_empty() {
        let metadata = HashMap::from([("host".to_owned(), shown.clone())]);
        let message = format!("there is no host {shown}");
        return error::status(Code::NotFound, reason::UNKNOWN_HOST, message, metadata, None);
    }
    let ids: Vec<&str> = ids.iter().map(HostId::as_str).collect();
    let message = format!("host name {shown} is ambiguous, name one of the ids {}", ids.join(", "));
    let metadata = HashMap::from([("ids".to_owned(), ids.join(","))]);
    error::status(Code::FailedPrecondition, reason::AMBIGUOUS_HOST, message, metadata, None)
}

/// The id of the host that is meant, if one is.
fn only_host(snapshot: &Snapshot, text: Option<&str>) -> Result<Option<HostId>, Status> {
    let find = |text: &str| {
        let (pool, at) = snapshot.find_host(text).map_err(|ids| not_one_host(text, &ids))?;
        Ok(pool.hosts[at].facts.host_id.clone())
    };
    text.map(find).transpose()
}

/// The pools that are meant: the one that is named, else all.
fn wanted_pools<'a>(
    snapshot: &'a Snapshot,
    only: Option<&PoolName>,
) -> Result<impl Iterator<Item = &'a Arc<PoolView>> + use<'a>, Status> {
    if let Some(pool) = only.filter(|pool| !snapshot.pools.contains_key(*pool)) {
        return Err(unknown_pool(pool));
    }
    let only = only.cloned();
    Ok(snapshot.pools.values().filter(move |pool| only.as_ref().is_none_or(|only| pool.name == *only)))
}

fn pool_filter(text: Option<&str>) -> Result<Option<PoolName>, Status> {
    text.map(|text| id::<PoolName>("pool", text)).transpose().map_err(invalid)
}

#[tonic::async_trait]
impl DirectoryService for Directory {
    async fn list_hosts(
        &self,
        request: Request<v1::ListHostsRequest>,
    ) -> Result<Response<v1::ListHostsResponse>, Status> {
        let only = pool_filter(request.into_inner().pool.as_deref())?;
        let (snapshot, now) = self.0.look();
        let pools = wanted_pools(&snapshot, only.as_ref())?;
        let mut hosts: Vec<v1::HostInfo> = pools.flat_map(|pool| each_host(pool, now, host_info)).collect();
        hosts.sort_by(|a, b| (&a.pool, &a.host_name, &a.host_id).cmp(&(&b.pool, &b.host_name, &b.host_id)));
        let (heard, registered) =
            snapshot.pools.values().next().map_or((0, 0), |pool| (pool.hosts_heard, pool.hosts_registered));
        Ok(Response::new(v1::ListHostsResponse { hosts, hosts_heard: heard, hosts_registered: registered }))
    }

    async fn get_host(
        &self,
        request: Request<v1::GetHostRequest>,
    ) -> Result<Response<v1::GetHostResponse>, Status> {
        let text = request.into_inner().host;
        let (snapshot, now) = self.0.look();
        let (pool, position) = snapshot.find_host(&text).map_err(|ids| not_one_host(&text, &ids))?;
        let host = &pool.hosts[position];
        let info = each_host(pool, now, |assessment, at| (at == position).then(|| host_info(assessment, at)));
        let operations = host.latency.iter().flat_map(|latency| &latency.latency.operations);
        let places = self.0.ledger.on_host(&host.facts.host_id);
        Ok(Response::new(v1::GetHostResponse {
            host: info.into_iter().flatten().next(),
            operations: operations
                .map(|operation| v1::OperationInfo {
                    window: Some(write::operation_window(operation)),
                    expansion_factor: operation_expansion(operation).map(|factor| factor.expansion_factor),
                })
                .collect(),
            pending: places
                .iter()
                .filter_map(|grant| grant.to_place(now))
                .map(|place| write::pending_place(&place))
                .collect(),
            sessions: host.sessions.iter().map(write::session).collect(),
        }))
    }

    async fn list_replicas(
        &self,
        request: Request<v1::ListReplicasRequest>,
    ) -> Result<Response<v1::ListReplicasResponse>, Status> {
        replicas::list(&self.0, request.into_inner()).map(Response::new)
    }

    async fn locate_resource(
        &self,
        request: Request<v1::LocateResourceRequest>,
    ) -> Result<Response<v1::LocateResourceResponse>, Status> {
        replicas::locate(&self.0, request.into_inner()).map(Response::new)
    }

    async fn list_decisions(
        &self,
        request: Request<v1::ListDecisionsRequest>,
    ) -> Result<Response<v1::ListDecisionsResponse>, Status> {
        decisions::list(&self.0, request.into_inner()).await.map(Response::new)
    }

    async fn get_learned(
        &self,
        request: Request<v1::GetLearnedRequest>,
    ) -> Result<Response<v1::GetLearnedResponse>, Status> {
        let name = id::<PoolName>("pool", &request.into_inner().pool).map_err(invalid)?;
        let snapshot = self.0.snapshot.load_full();
        let pool = snapshot.pools.get(&name).ok_or_else(|| unknown_pool(&name))?;
        let costs = learned_costs(&pool.costs);
        Ok(Response::new(v1::GetLearnedResponse { pool: name.to_string(), costs }))
    }

    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        sessions::list(&self.0, request.into_inner()).await.map(Response::new)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use usher_types::PolicyChange;

    use super::*;
    use crate::placing::testing::{farm, shared_in_time};

    async fn listed(directory: &Directory) -> Vec<v1::HostState> {
        let hosts = directory.list_hosts(Request::new(v1::ListHostsRequest::default())).await.unwrap();
        hosts.into_inner().hosts.iter().map(v1::HostInfo::state).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn no_host_is_called_lost_by_a_coordinator_that_stood_still_and_has_not_ticked_since() {
        let (mut farm, ledger) = farm(&PolicyChange::default(), &[("h1", 1), ("h2", 1)]);
        let (shared, _commands) = shared_in_time(&mut farm, ledger);
        let directory = Directory(shared.clone());
        assert_eq!(listed(&directory).await, [v1::HostState::Available; 2]);

        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(listed(&directory).await, [v1::HostState::Unknown; 2]);

        shared.last_tick_us.store(shared.now().as_micros(), std::sync::atomic::Ordering::Release);
        assert_eq!(listed(&directory).await, [v1::HostState::Offline; 2], "it ran all the while");
    }
}
