//! Pools: their settings in force, those before, and how they change.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    time::Duration,
};

use tonic::{Code, Status};
use usher_placement::farm::{ApplyRefused, PoolApply, PoolRecord, Snapshot};
use usher_proto::{
    ApplyPool,
    error::{self, reason},
    fault::id,
    read, v1, write,
};
use usher_types::{FieldChange, FieldFault, Policy, PoolName, SettingsHash};

use super::{Admin, not_stored, to_its_end};
use crate::{
    farm_command::FarmCommand,
    grpc::{invalid, placement::timestamp, unavailable},
    placing::unknown_pool,
    pool_history::NoVersion,
    store::StoreError,
    stored,
};

/// How often a change is made anew because another coordinator has changed the pool a moment ago, and how soon that is known
/// here.
const TRIES_BEHIND: u32 = 10;
const FOLLOWS_WITHIN: Duration = Duration::from_millis(100);

impl Admin {
    pub(super) async fn all_pools(&self) -> Result<v1::ListPoolsResponse, Status> {
        let pools = self.pools().await?;
        let snapshot = self.shared.snapshot.load();
        let pools = pools.iter().map(|(record, hosts)| in_force(record, *hosts, &snapshot)).collect();
        Ok(v1::ListPoolsResponse { pools })
    }

    pub(super) async fn one_pool(&self, pool: &str) -> Result<v1::GetPoolResponse, Status> {
        let pool = id::<PoolName>("pool", pool).map_err(invalid)?;
        let (record, hosts) = self.pool(&pool).await?;
        let pool = in_force(&record, hosts, &self.shared.snapshot.load());
        Ok(v1::GetPoolResponse { pool: Some(pool) })
    }

    async fn pools(&self) -> Result<Vec<(PoolRecord, usize)>, Status> {
        self.ask(FarmCommand::ListPools).await
    }

    async fn pool(&self, name: &PoolName) -> Result<(PoolRecord, usize), Status> {
        let pools = self.pools().await?;
        pools.into_iter().find(|(record, _)| record.name == *name).ok_or_else(|| unknown_pool(name))
    }

    pub(super) async fn apply_to_pool(
        &self,
        author: String,
        msg: v1::ApplyPoolRequest,
    ) -> Result<v1::ApplyPoolResponse, Status> {
        if let Some(file) = self.shared.config.policy_file() {
            return Err(from_file(file));
        }
        let request = read::apply_pool(msg).map_err(|faults| error::invalid_fields(&faults))?;
        let name = request.pool.clone();
        let (record, changes) = to_its_end(self.clone().apply(request, author)).await?;
        let snapshot = self.shared.snapshot.load();
        let hosts = snapshot.pools.get(&name).map_or(0, |pool| pool.hosts.len());
        Ok(v1::ApplyPoolResponse {
            pool: Some(pool_info(&record, hosts)),
            changed: changes.iter().map(|change| change.field.clone()).collect(),
            changes: changes.iter().map(write::field_change).collect(),
        })
    }

    /// Changes a pool's settings, or only says what would change. The settings, and those that differ.
    async fn apply(
        self,
        request: ApplyPool,
        author: String,
    ) -> Result<(PoolRecord, Vec<FieldChange>), Status> {
        let ApplyPool { pool: name, expected_version: expected, profile, change, dry_run, must_be_new } =
            request;
        let apply = PoolApply { expected, must_be_new, profile, change };
        // Whoever names no version wants it to be changed, whatever it is by now.
        let mut tries_left = if expected.is_none() && !must_be_new { TRIES_BEHIND } else { 0 };
        loop {
            let (name, apply) = (name.clone(), Box::new(apply.clone()));
            let prepare = |answer| FarmCommand::PreparePool { name: name.clone(), apply, dry_run, answer };
            let (mut record, before) = self.ask(prepare).await?.map_err(|why| refused(&name, why))?;
            let before = before.unwrap_or_else(|| PoolRecord::default_of(name.clone()));
            let changes = before.policy.changes_to(&record.policy);
            record.author.clone_from(&author);
            record.applied_unix_ms = Some(self.shared.clock.wall_unix_ms());
            if dry_run {
                return Ok((record, changes));
            }
            match self.commit(record.clone()).await? {
                Ok(()) => {
                    let changed = changes.iter().map(|change| change.field.as_str()).collect::<Vec<_>>();
                    tracing::info!(pool = %name, version = record.version, author, ?changed, "settings of a pool applied");
                    return Ok((record, changes));
                }
                Err(StoreError::Version { .. }) if tries_left > 0 => {
                    tries_left -= 1;
                    tokio::time::sleep(FOLLOWS_WITHIN).await;
                }
                Err(error) => return Err(not_stored(error)),
            }
        }
    }

    /// Stores settings and puts them in force; if they cannot be stored, the old ones stay.
    async fn commit(&self, record: PoolRecord) -> Result<Result<(), StoreError>, Status> {
        let (name, row) = (record.name.clone(), stored::pool_to_store(&record));
        if let Err(error) = self.store.put_pool(name.clone(), row.clone()).await {
            self.shared.farm.send(FarmCommand::AbandonPool(name)).await.map_err(unavailable)?;
            return Ok(Err(error));
        }
        self.history.add(&name, row);
        self.ask(|answer| FarmCommand::CommitPool { record: Box::new(record), answer }).await.map(Ok)
    }

    pub(super) async fn pool_versions(
        &self,
        msg: v1::GetPoolHistoryRequest,
    ) -> Result<v1::GetPoolHistoryResponse, Status> {
        let wanted = read::pool_history(msg).map_err(|faults| error::invalid_fields(&faults))?;
        let (_, hosts) = self.pool(&wanted.pool).await?;
        let version = |(record, before): (crate::store::PoolRecord, Option<Policy>)| {
            let changes = before.map(|before| before.changes_to(&record.policy)).unwrap_or_default();
            let record = stored::pool_from_store(wanted.pool.clone(), record);
            v1::PoolVersion {
                pool: Some(pool_info(&record, hosts)),
                changes: changes.iter().map(write::field_change).collect(),
            }
        };
        let versions = self.history.newest(&wanted.pool, wanted.limit).into_iter().map(version);
        Ok(v1::GetPoolHistoryResponse { versions: versions.collect() })
    }

    pub(super) async fn compare_versions(
        &self,
        msg: v1::DiffPoolRequest,
    ) -> Result<v1::DiffPoolResponse, Status> {
        let wanted = read::diff_pool(msg).map_err(|faults| error::invalid_fields(&faults))?;
        let (in_force, _) = self.pool(&wanted.pool).await?;
        let to = wanted.to.unwrap_or(in_force.version);
        let from = wanted.from.unwrap_or_else(|| self.history.before(&wanted.pool, to));
        let find = |field, version| {
            self.history.find(&wanted.pool, version).map_err(|why| no_version(field, version, &why))
        };
        let (older, newer) = (find("from", from)?, find("to", to)?);
        let changes = older.changes_to(&newer);
        Ok(v1::DiffPoolResponse { from, to, changes: changes.iter().map(write::field_change).collect() })
    }
}

/// The settings in force, and what other settings hosts of the pool have.
fn in_force(record: &PoolRecord, hosts: usize, snapshot: &Snapshot) -> v1::PoolInfo {
    let mut foreign = BTreeMap::<SettingsHash, v1::ForeignSettings>::new();
    for host in snapshot.pools.get(&record.name).into_iter().flat_map(|pool| pool.hosts.iter()) {
        let Some(hash) = host.settings_differ else { continue };
        let of_hash = foreign.entry(hash).or_default();
        of_hash.settings_hash = hash.0;
        of_hash.hosts += 1;
        of_hash.version =
            of_hash.version.max(host.reading.as_ref().and_then(|reading| reading.settings_version));
        if of_hash.host_names.len() < FOREIGN_NAMES {
            of_hash.host_names.push(host.facts.name.to_string());
        }
    }
    v1::PoolInfo { foreign: foreign.into_values().collect(), ..pool_info(record, hosts) }
}

/// Hosts that are named for each other settings: enough to find the coordinator that they follow.
const FOREIGN_NAMES: usize = 10;

/// Settings that come from a file are changed there, or the next start would undo what was applied.
fn from_file(file: &Path) -> Status {
    let file = file.display().to_string();
    let message = format!(
        "this coordinator takes the settings of pools from {file}: change that file and make the coordinator read it anew \
         (SIGHUP)"
    );
    let metadata = HashMap::from([("file".to_owned(), file)]);
    error::status(Code::FailedPrecondition, reason::POLICY_FROM_FILE, message, metadata, None)
}

fn pool_info(record: &PoolRecord, hosts: usize) -> v1::PoolInfo {
    v1::PoolInfo {
        pool: record.name.to_string(),
        version: record.version,
        policy: Some(write::policy(&record.policy)),
        author: record.author.clone(),
        applied_at: record.applied_unix_ms.map(timestamp),
        hosts: u32::try_from(hosts).unwrap_or(u32::MAX),
        settings_hash: Some(SettingsHash::of(&record.policy).0),
        foreign: Vec::new(),
    }
}

fn no_version(field: &str, version: u64, why: &NoVersion) -> Status {
    match why {
        NoVersion::NotYet(newest) => invalid(FieldFault::new(field, version, format!("0..={newest}"))),
        NoVersion::Gone(oldest) => {
            let message = format!("version {version} is not kept: the oldest one that is kept is {oldest}");
            let metadata = HashMap::from([("oldest".to_owned(), oldest.to_string())]);
            error::status(Code::NotFound, reason::RETENTION, message, metadata, None)
        }
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
        ApplyRefused::Exists { current } => {
            let allowed =
                format!("the name of a pool that was never applied; this one has version {current}");
            invalid(FieldFault::new("pool", pool, allowed))
        }
        ApplyRefused::InProgress => {
            let retry = Some(Duration::from_secs(1));
            error::status(Code::Aborted, reason::POLICY_VERSION, refused.to_string(), HashMap::new(), retry)
        }
    }
}
