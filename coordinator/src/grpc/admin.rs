//! `AdminService`: what operators change. Everything is on disk before it is in force.

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
        let name = record.name.clone();
        let abandon = Abandon { shared: &self.shared, name: Some(name.clone()) };
        let stored = self.store.put_pool(name, stored::pool_to_store(&record)).await;
        if let Err(error) = stored {
            tracing::error!(%error, pool = %record.name, "cannot store the settings of a pool");
            return Err(Status::unavailable(format!(
                "the settings were not stored and are not in force: {error}"
            )));
        }
        abandon.keep();
        self.ask(|answer| FarmCommand::CommitPool { record: Box::new(record), answer }).await
    }
}

/// Frees a pool for the next change, unless this one is put in force.
struct Abandon<'a> {
    shared: &'a Arc<Shared>,
    name: Option<PoolName>,
}

impl Abandon<'_> {
    fn keep(mut self) {
        self.name = None;
    }
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            let farm = self.shared.farm.clone();
            // The queue may be full at this moment, and a drop cannot wait.
            tokio::spawn(async move { farm.send(FarmCommand::AbandonPool(name)).await });
        }
    }
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
        let prepare = |answer| FarmCommand::PreparePool {
            name: name.clone(),
            expected: msg.expected_version,
            change: Box::new(change),
            dry_run: msg.dry_run,
            answer,
        };
        let (mut record, before) = self.ask(prepare).await?.map_err(|why| refused(&name, why))?;
        let before = before.unwrap_or_else(|| PoolRecord::default_of(name.clone()));
        let changed = changed(&before, &record);
        record.author = author;
        record.applied_unix_ms = Some(self.shared.clock.wall_unix_ms());
        if !msg.dry_run {
            self.commit(record.clone()).await?;
            tracing::info!(pool = %name, version = record.version, author = record.author, ?changed, "settings of a pool applied");
        }
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
        let mark = self
            .ask(|answer| FarmCommand::DrainMark { host_id: host_id.clone(), drain, answer })
            .await?
            .ok_or_else(|| not_one_host(&msg.host, &[]))?;
        let record = stored::drain_to_store(&mark, self.shared.clock.wall_unix_ms());
        self.store.put_drain(host_id.clone(), record).await.map_err(not_stored)?;
        self.ask(|answer| FarmCommand::SetDrain {
            host_id: host_id.clone(),
            mark: Some(mark.clone()),
            answer,
        })
        .await?;
        tracing::info!(%host_id, author = mark.drain.author, reason = mark.drain.reason, "host drained");
        Ok(Response::new(v1::DrainHostResponse { host_id: host_id.to_string(), host_name, users }))
    }

    async fn undrain_host(
        &self,
        request: Request<v1::UndrainHostRequest>,
    ) -> Result<Response<v1::UndrainHostResponse>, Status> {
        let author = caller(&request)?.name;
        let msg = request.into_inner();
        let (host_id, host_name, _) = self.find_host(&msg.host)?;
        self.store.delete_drain(host_id.clone()).await.map_err(not_stored)?;
        let was_drained =
            self.ask(|answer| FarmCommand::SetDrain { host_id: host_id.clone(), mark: None, answer }).await?;
        tracing::info!(%host_id, author, was_drained, "host undrained");
        Ok(Response::new(v1::UndrainHostResponse { host_id: host_id.to_string(), host_name, was_drained }))
    }
}

fn not_stored(error: crate::store::StoreError) -> Status {
    tracing::error!(%error, "cannot store a drain");
    Status::unavailable(format!("the change was not stored and is not in force: {error}"))
}
