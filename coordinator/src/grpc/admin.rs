//! `AdminService`: what operators change. Everything is on disk before it is in force.
//!
//! A change that has begun goes on to its end in a task of its own, even if its caller goes away or runs out of time:
//! half of it would be on disk and not in force until the next start, or hold up all later changes.

use std::{collections::HashMap, sync::Arc};

use tokio::sync::oneshot;
use tonic::{Code, Request, Response, Status};
use usher_placement::farm::{ApplyRefused, PoolRecord};
use usher_proto::{
    error::{self, reason},
    fault::{self, id},
    read,
    v1::{self, admin_service_server::AdminService},
    write,
};
use usher_types::{Drain, HostId, PolicyChange, PoolName};

use super::{caller, directory::not_one_host, invalid, placement::timestamp, unavailable};
use crate::{farm_command::FarmCommand, placing::unknown_pool, shared::Shared, store::StoreHandle, stored};

/// Longest reason of a drain, bytes.
const MAX_REASON_BYTES: usize = 1024;

/// The service.
#[derive(Clone)]
pub(crate) struct Admin {
    pub shared: Arc<Shared>,
    pub store: StoreHandle,
}

impl Admin {
    /// Sends a command to the farm and waits for its answer.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> FarmCommand) -> Result<T, Status> {
        let (answer, answered) = oneshot::channel();
        self.shared.farm.send(command(answer)).await.map_err(unavailable)?;
        answered.await.map_err(unavailable)
    }

    async fn pools(&self) -> Result<Vec<(PoolRecord, usize)>, Status> {
        self.ask(FarmCommand::ListPools).await
    }

    /// Host id and name of the host that is meant.
    fn find_host(&self, text: &str) -> Result<(HostId, String, Option<u32>), Status> {
        let snapshot = self.shared.snapshot.load();
        let (pool, position) = snapshot.find_host(text).map_err(|ids| not_one_host(text, &ids))?;
        let host = &pool.hosts[position];
        let users = pool.members.cells[position].load().users();
        Ok((host.facts.host_id.clone(), host.facts.name.to_string(), users))
    }

    /// Stores settings and puts them in force; if they cannot be stored, the old ones stay.
    async fn commit(&self, record: PoolRecord) -> Result<(), Status> {
        let stored = self.store.put_pool(record.name.clone(), stored::pool_to_store(&record)).await;
        if let Err(error) = stored {
            tracing::error!(%error, pool = %record.name, "cannot store the settings of a pool");
            self.shared.farm.send(FarmCommand::AbandonPool(record.name)).await.map_err(unavailable)?;
            return Err(Status::unavailable(format!(
                "the settings were not stored and are not in force: {error}"
            )));
        }
        self.ask(|answer| FarmCommand::CommitPool { record: Box::new(record), answer }).await
    }

    /// Changes a pool's settings, or only says what would change. The settings, and the names of those that differ.
    async fn apply(
        self,
        name: PoolName,
        expected: Option<u64>,
        change: PolicyChange,
        author: String,
        dry_run: bool,
    ) -> Result<(PoolRecord, Vec<String>), Status> {
        let change = Box::new(change);
        let prepare =
            |answer| FarmCommand::PreparePool { name: name.clone(), expected, change, dry_run, answer };
        let (mut record, before) = self.ask(prepare).await?.map_err(|why| refused(&name, why))?;
        let before = before.unwrap_or_else(|| PoolRecord::default_of(name.clone()));
        let changed = changed(&before, &record);
        record.author = author;
        record.applied_unix_ms = Some(self.shared.clock.wall_unix_ms());
        if !dry_run {
            self.commit(record.clone()).await?;
            tracing::info!(pool = %name, version = record.version, author = record.author, ?changed, "settings of a pool applied");
        }
        Ok((record, changed))
    }

    /// Drains a host. Absent: there is none of this id.
    async fn drain(self, host_id: HostId, drain: Drain) -> Result<Option<()>, Status> {
        let mark =
            self.ask(|answer| FarmCommand::DrainMark { host_id: host_id.clone(), drain, answer }).await?;
        let Some(mark) = mark else { return Ok(None) };
        let record = stored::drain_to_store(&mark, self.shared.clock.wall_unix_ms());
        self.store.put_drain(host_id.clone(), record).await.map_err(not_stored)?;
        let set =
            |answer| FarmCommand::SetDrain { host_id: host_id.clone(), mark: Some(mark.clone()), answer };
        self.ask(set).await?;
        tracing::info!(%host_id, author = mark.drain.author, reason = mark.drain.reason, "host drained");
        Ok(Some(()))
    }

    /// Ends a host's drain. Whether it was drained.
    async fn undrain(self, host_id: HostId, author: String) -> Result<bool, Status> {
        self.store.delete_drain(host_id.clone()).await.map_err(not_stored)?;
        let undrain = |answer| FarmCommand::SetDrain { host_id: host_id.clone(), mark: None, answer };
        let was_drained = self.ask(undrain).await?;
        tracing::info!(%host_id, author, was_drained, "host undrained");
        Ok(was_drained)
    }
}

/// Does all of `change`, though its caller may go away meanwhile.
async fn to_its_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    tokio::spawn(change).await.map_err(|_| Status::internal("the change failed half way"))?
}

fn pool_info(record: &PoolRecord, hosts: usize) -> v1::PoolInfo {
    v1::PoolInfo {
        pool: record.name.to_string(),
        version: record.version,
        policy: Some(write::policy(&record.policy)),
        author: record.author.clone(),
        applied_at: record.applied_unix_ms.map(timestamp),
        hosts: u32::try_from(hosts).unwrap_or(u32::MAX),
    }
}

fn refused(pool: &PoolName, refused: ApplyRefused) -> Status {
    let metadata = |current: u64| {
        HashMap::from([("pool".to_owned(), pool.to_string()), ("version".to_owned(), current.to_string())])
    };
    match refused {
        ApplyRefused::Fields(faults) => error::invalid_fields(&faults),
        ApplyRefused::Version { current, .. } => {
            let code = Code::FailedPrecondition;
            error::status(code, reason::POLICY_VERSION, refused.to_string(), metadata(current), None)
        }
        ApplyRefused::InProgress => {
            let retry = Some(std::time::Duration::from_secs(1));
            error::status(Code::Aborted, reason::POLICY_VERSION, refused.to_string(), HashMap::new(), retry)
        }
    }
}

/// Names of the settings that differ, as they are written in a file.
fn changed(before: &PoolRecord, after: &PoolRecord) -> Vec<String> {
    let fields =
        |record: &PoolRecord| serde_json::to_value(PolicyChange::of(&record.policy)).unwrap_or_default();
    let (before, after) = (fields(before), fields(after));
    let Some(after) = after.as_object() else { return Vec::new() };
    after
        .iter()
        .filter(|(name, value)| before.get(name) != Some(value))
        .map(|(name, _)| name.clone())
        .collect()
}

#[tonic::async_trait]
impl AdminService for Admin {
    async fn list_pools(
        &self,
        _: Request<v1::ListPoolsRequest>,
    ) -> Result<Response<v1::ListPoolsResponse>, Status> {
        let pools = self.pools().await?;
        let pools = pools.iter().map(|(record, hosts)| pool_info(record, *hosts)).collect();
        Ok(Response::new(v1::ListPoolsResponse { pools }))
    }

    async fn get_pool(
        &self,
        request: Request<v1::GetPoolRequest>,
    ) -> Result<Response<v1::GetPoolResponse>, Status> {
        let pool = id::<PoolName>("pool", &request.into_inner().pool).map_err(invalid)?;
        let pools = self.pools().await?;
        let (record, hosts) =
            pools.iter().find(|(record, _)| record.name == pool).ok_or_else(|| unknown_pool(&pool))?;
        Ok(Response::new(v1::GetPoolResponse { pool: Some(pool_info(record, *hosts)) }))
    }

    async fn apply_pool(
        &self,
        request: Request<v1::ApplyPoolRequest>,
    ) -> Result<Response<v1::ApplyPoolResponse>, Status> {
        let author = caller(&request)?.name;
        let msg = request.into_inner();
        let name = id::<PoolName>("pool", &msg.pool).map_err(invalid)?;
        let change = read::policy_change(msg.policy.unwrap_or_default())
            .map_err(|faults| error::invalid_fields(&faults))?;
        let apply = self.clone().apply(name.clone(), msg.expected_version, change, author, msg.dry_run);
        let (record, changed) = to_its_end(apply).await?;
        let snapshot = self.shared.snapshot.load();
        let hosts = snapshot.pools.get(&name).map_or(0, |pool| pool.hosts.len());
        Ok(Response::new(v1::ApplyPoolResponse { pool: Some(pool_info(&record, hosts)), changed }))
    }

    async fn drain_host(
        &self,
        request: Request<v1::DrainHostRequest>,
    ) -> Result<Response<v1::DrainHostResponse>, Status> {
        let author = caller(&request)?.name;
        let msg = request.into_inner();
        let mode = read::drain_mode_or_default(msg.mode).map_err(invalid)?;
        let (host_id, host_name, users) = self.find_host(&msg.host)?;
        let drain = Drain {
            mode,
            reason: fault::cut(msg.reason, MAX_REASON_BYTES),
            author,
            no_reconnect: msg.no_reconnect,
        };
        let drained = to_its_end(self.clone().drain(host_id.clone(), drain)).await?;
        drained.ok_or_else(|| not_one_host(&msg.host, &[]))?;
        Ok(Response::new(v1::DrainHostResponse { host_id: host_id.to_string(), host_name, users }))
    }

    async fn undrain_host(
        &self,
        request: Request<v1::UndrainHostRequest>,
    ) -> Result<Response<v1::UndrainHostResponse>, Status> {
        let author = caller(&request)?.name;
        let msg = request.into_inner();
        let (host_id, host_name, _) = self.find_host(&msg.host)?;
        let was_drained = to_its_end(self.clone().undrain(host_id.clone(), author)).await?;
        Ok(Response::new(v1::UndrainHostResponse { host_id: host_id.to_string(), host_name, was_drained }))
    }
}

fn not_stored(error: crate::store::StoreError) -> Status {
    tracing::error!(%error, "cannot store a drain");
    Status::unavailable(format!("the change was not stored and is not in force: {error}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::poll;
    use tokio_util::sync::CancellationToken;
    use usher_proto::v1::Policy;
    use usher_runtime::identity::PeerIdentity;

    use super::*;
    use crate::{farm_task, placing::testing};

    fn apply(dry_run: bool) -> Request<v1::ApplyPoolRequest> {
        let policy = Some(Policy { range: Some(7.0), ..Policy::default() });
        let msg = v1::ApplyPoolRequest { pool: "desk".to_owned(), expected_version: None, policy, dry_run };
        let mut request = Request::new(msg);
        request.extensions_mut().insert(PeerIdentity::loopback(Some("ann")).unwrap());
        request
    }

    #[tokio::test]
    async fn a_change_whose_caller_goes_away_is_in_force_once_it_is_stored() {
        let (mut farm, ledger) = testing::farm(&PolicyChange::default(), &[]);
        let (shared, commands) = testing::shared(&mut farm, ledger);
        let (store, release) = testing::stuck_store().await;
        let stop = CancellationToken::new();
        let farm_task =
            tokio::spawn(farm_task::run(farm, shared.clone(), store.clone(), commands, stop.clone()));
        let admin = Admin { shared, store };
        let version = || async {
            let request = v1::GetPoolRequest { pool: "desk".to_owned() };
            admin.get_pool(Request::new(request)).await.unwrap().into_inner().pool.unwrap().version
        };
        let mut call = Box::pin(admin.apply_pool(apply(false)));
        assert!(poll!(&mut call).is_pending());
        let story = async {
            while admin.apply_pool(apply(true)).await.map_err(|refused| refused.code()).err()
                != Some(Code::Aborted)
            {
                tokio::task::yield_now().await;
            }
            drop(call);
            assert_eq!(version().await, 1, "not stored, not in force");
            drop(release);
            while version().await != 2 {
                tokio::task::yield_now().await;
            }
            let next = admin.apply_pool(apply(false)).await.unwrap().into_inner();
            assert_eq!(next.pool.unwrap().version, 3, "and the pool can be changed again");
        };
        tokio::time::timeout(Duration::from_secs(20), story).await.unwrap();
        stop.cancel();
        farm_task.await.unwrap();
    }
}
