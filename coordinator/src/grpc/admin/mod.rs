//! `AdminService`: what operators change. Everything is on disk before it is in force.
//!
//! A change that has begun goes on to its end in a task of its own, even if its caller goes away or runs out of time:
//! half of it would be on disk and not in force until the next start, or hold up all later changes.

mod backup;
mod baselines;
mod coordinators;
mod hosts;
mod pools;
mod quarantine;
mod replicas;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use tokio::sync::oneshot;
use tonic::{Code, Request, Response, Status, Streaming};
use usher_placement::farm::PoolView;
use usher_proto::{
    error::{self, reason},
    v1::{self, admin_service_server::AdminService},
};
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
    draining: Arc<DrainLocks>,
}

/// One change of a host's drain after the other. A host that is silent for a while keeps nobody from draining another one,
/// or few: hosts share a handful of locks.
#[derive(Default)]
struct DrainLocks([tokio::sync::Mutex<()>; 32]);

impl DrainLocks {
    fn of(&self, host_id: &HostId) -> &tokio::sync::Mutex<()> {
        let sum =
            host_id.as_str().bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31) + usize::from(byte));
        &self.0[sum % self.0.len()]
    }
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
        Self { shared, store, history, marking: Arc::default(), draining: Arc::default() }
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

/// What an admin hears of a change that the store did not take.
fn not_stored(why: StoreError) -> Status {
    let (code, reason, metadata) = match &why {
        StoreError::Version { pool, current } => {
            let version = ("version".to_owned(), current.to_string());
            let metadata = HashMap::from([("pool".to_owned(), pool.to_string()), version]);
            (Code::FailedPrecondition, reason::POLICY_VERSION, metadata)
        }
        StoreError::Away { kind, since_unix_ms, .. } => {
            let metadata = HashMap::from([
                ("store".to_owned(), (*kind).to_owned()),
                ("since_unix_ms".to_owned(), since_unix_ms.to_string()),
            ]);
            (Code::Unavailable, reason::STORE_UNAVAILABLE, metadata)
        }
        StoreError::Unknown { kind, .. } => {
            let unknown = ("outcome".to_owned(), "unknown".to_owned());
            let metadata = HashMap::from([("store".to_owned(), (*kind).to_owned()), unknown]);
            (Code::Unavailable, reason::STORE_UNAVAILABLE, metadata)
        }
        _ => (Code::Unavailable, reason::STORE_UNAVAILABLE, HashMap::new()),
    };
    if matches!(why, StoreError::Version { .. }) {
        return error::status(code, reason, why.to_string(), metadata, None);
    }
    tracing::error!(error = %why, "cannot store what an admin has changed");
    let message = match why {
        StoreError::Unknown { .. } => why.to_string(),
        _ => format!("the change was not stored and is not in force: {}", with_causes(&why)),
    };
    error::status(code, reason, message, metadata, None)
}

/// An error and what it came from, in one line.
fn with_causes(error: &StoreError) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[tonic::async_trait]
impl AdminService for Admin {
    type BackupStream = backup::Pieces;

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

    async fn list_coordinators(
        &self,
        _: Request<v1::ListCoordinatorsRequest>,
    ) -> Result<Response<v1::ListCoordinatorsResponse>, Status> {
        self.coordinators().await.map(Response::new)
    }

    async fn backup(
        &self,
        request: Request<v1::BackupRequest>,
    ) -> Result<Response<Self::BackupStream>, Status> {
        let author = caller(&request)?.name.clone();
        self.back_up(&author).await.map(Response::new)
    }

    async fn restore(
        &self,
        request: Request<Streaming<v1::RestoreRequest>>,
    ) -> Result<Response<v1::RestoreResponse>, Status> {
        let author = caller(&request)?.name.clone();
        self.restore_from(author, request.into_inner()).await.map(Response::new)
    }

    async fn list_quarantine(
        &self,
        _: Request<v1::ListQuarantineRequest>,
    ) -> Result<Response<v1::ListQuarantineResponse>, Status> {
        self.quarantined().await.map(Response::new)
    }

    async fn drop_quarantined(
        &self,
        request: Request<v1::DropQuarantinedRequest>,
    ) -> Result<Response<v1::DropQuarantinedResponse>, Status> {
        let author = caller(&request)?.name.clone();
        self.drop_named(&author, request.into_inner()).await.map(Response::new)
    }
}
