//! `AdminService`: what operators change. Everything is on disk before it is in force.
//!
//! A change that has begun goes on to its end in a task of its own, even if its caller goes away or runs out of time:
//! half of it would be on disk and not in force until the next start, or hold up all later changes.

mod baselines;
mod hosts;
mod pools;
mod replicas;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio::sync::oneshot;
use tonic::{Request, Response, Status};
use usher_placement::farm::PoolView;
use usher_proto::v1::{self, admin_service_server::AdminService};
use usher_types::HostId;

use super::{caller, directory::not_one_host, unavailable};
use crate::{
    farm_command::FarmCommand,
    pool_history::PoolHistory,
    shared::Shared,
    store::{StoreError, StoreHandle},
};

/// The service.
#[derive(Clone)]
pub(crate) struct Admin {
    shared: Arc<Shared>,
    store: StoreHandle,
    history: Arc<PoolHistory>,
    /// One change of marks after the other: each begins from what the one before has made.
    marking: Arc<tokio::sync::Mutex<()>>,
}

/// A host that a request names.
struct NamedHost {
    pool: Arc<PoolView>,
    position: usize,
    host_id: HostId,
    name: String,
}

impl Admin {
    /// Admins change what is in `store` and in force; `history` is what was applied before.
    pub(crate) fn new(shared: Arc<Shared>, store: StoreHandle, history: Arc<PoolHistory>) -> Self {
        Self { shared, store, history, marking: Arc::default() }
    }

    /// Sends a command to the farm and waits for its answer.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> FarmCommand) -> Result<T, Status> {
        let (answer, answered) = oneshot::channel();
        self.shared.farm.send(command(answer)).await.map_err(unavailable)?;
        answered.await.map_err(unavailable)
    }

    /// The host that is meant.
    fn find_host(&self, text: &str) -> Result<NamedHost, Status> {
        let snapshot = self.shared.snapshot.load();
        let (pool, position) = snapshot.find_host(text).map_err(|ids| not_one_host(text, &ids))?;
        let facts = &pool.hosts[position].facts;
        let (host_id, name) = (facts.host_id.clone(), facts.name.to_string());
        Ok(NamedHost { pool: pool.clone(), position, host_id, name })
    }
}

/// Does all of `change`, though its caller may go away meanwhile.
async fn to_its_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    tokio::spawn(change).await.map_err(|_| Status::internal("the change failed half way"))?
}

fn not_stored(error: StoreError) -> Status {
    tracing::error!(%error, "cannot store what an admin has changed");
    Status::unavailable(format!("the change was not stored and is not in force: {error}"))
}

#[tonic::async_trait]
impl AdminService for Admin {
    async fn list_pools(
        &self,
        _: Request<v1::ListPoolsRequest>,
    ) -> Result<Response<v1::ListPoolsResponse>, Status> {
        self.all_pools().await.map(Response::new)
    }

    async fn get_pool(
        &self,
        request: Request<v1::GetPoolRequest>,
    ) -> Result<Response<v1::GetPoolResponse>, Status> {
        self.one_pool(&request.into_inner().pool).await.map(Response::new)
    }

    async fn apply_pool(
        &self,
        request: Request<v1::ApplyPoolRequest>,
    ) -> Result<Response<v1::ApplyPoolResponse>, Status> {
        let author = caller(&request)?.name.clone();
        self.apply_to_pool(author, request.into_inner()).await.map(Response::new)
    }

    async fn get_pool_history(
        &self,
        request: Request<v1::GetPoolHistoryRequest>,
    ) -> Result<Response<v1::GetPoolHistoryResponse>, Status> {
        self.pool_versions(request.into_inner()).await.map(Response::new)
    }

    async fn diff_pool(
        &self,
        request: Request<v1::DiffPoolRequest>,
    ) -> Result<Response<v1::DiffPoolResponse>, Status> {
        self.compare_versions(request.into_inner()).await.map(Response::new)
    }

    async fn drain_host(
        &self,
        request: Request<v1::DrainHostRequest>,
    ) -> Result<Response<v1::DrainHostResponse>, Status> {
        let author = caller(&request)?.name.clone();
        self.drain_named(author, request.into_inner()).await.map(Response::new)
    }

    async fn undrain_host(
        &self,
        request: Request<v1::UndrainHostRequest>,
    ) -> Result<Response<v1::UndrainHostResponse>, Status> {
        let author = caller(&request)?.name.clone();
        self.undrain_named(author, request.into_inner()).await.map(Response::new)
    }

    async fn set_host_marks(
        &self,
        request: Request<v1::SetHostMarksRequest>,
    ) -> Result<Response<v1::SetHostMarksResponse>, Status> {
        let author = caller(&request)?.name.clone();
        self.mark_named(author, request.into_inner()).await.map(Response::new)
    }

    async fn mark_replica(
        &self,
        request: Request<v1::MarkReplicaRequest>,
    ) -> Result<Response<v1::MarkReplicaResponse>, Status> {
        let author = caller(&request)?.name.clone();
        self.mark_replica_of_named(author, request.into_inner()).await.map(Response::new)
    }

    async fn get_baselines(
        &self,
        request: Request<v1::GetBaselinesRequest>,
    ) -> Result<Response<v1::GetBaselinesResponse>, Status> {
        self.baselines_of_named(request.into_inner()).map(Response::new)
    }

    async fn reset_baselines(
        &self,
        request: Request<v1::ResetBaselinesRequest>,
    ) -> Result<Response<v1::ResetBaselinesResponse>, Status> {
        let author = caller(&request)?.name.clone();
        self.reset_baselines_of_named(&author, request.into_inner()).map(Response::new)
    }
}
