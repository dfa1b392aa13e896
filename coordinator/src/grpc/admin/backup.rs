//! Backups: made while everything goes on, and brought back as a whole or not at all.

use std::{collections::HashMap, pin::Pin};

use futures::{Stream, stream};
use tokio_stream::StreamExt;
use tonic::{Code, Status, Streaming};
use usher_placement::farm::PoolApply;
use usher_proto::{
    error::{self, reason},
    v1::{self, restore_request::Part},
};
use usher_types::{FieldFault, PoolName};

use super::{Admin, not_stored, to_its_end};
use crate::{
    backup::{self, Backup, By, Header, Kind, Planned, What},
    farm_command::FarmCommand,
    grpc::{invalid, placement::timestamp, unavailable},
    store::{Followed, SharedRows},
};

/// One piece of a backup: far below the 1 MiB that a message may have.
const CHUNK_BYTES: usize = 256 * 1024;
/// More is not taken: a thousand versions of a hundred pools, and the marks of ten thousand hosts, are half of it.
const MAX_BYTES: usize = 256 * 1024 * 1024;
/// Rows in an answer: with what they say, below the 4 MiB that a client takes.
const MAX_LISTED: usize = 10_000;
/// Of what is said of a row, bytes.
const MAX_DETAIL_BYTES: usize = 200;

/// A backup on its way out.
pub(crate) type Pieces = Pin<Box<dyn Stream<Item = Result<v1::BackupResponse, Status>> + Send>>;

impl Admin {
    /// The store as it is at this moment.
    pub(super) async fn back_up(&self, author: &str) -> Result<Pieces, Status> {
        let broken = |error: &dyn std::error::Error| {
            tracing::error!(%error, "cannot make a backup");
            Status::unavailable(format!("the store cannot be read: {error}"))
        };
        let stored = self.store.load().await.map_err(|error| broken(&error))?;
        let aside = self.store.quarantine().await.map_err(|error| broken(&error))?.len();
        let created = timestamp(self.shared.clock.wall_unix_ms()).to_string();
        let (farm, id) = (&self.shared.config.farm, &self.shared.coordinator_id);
        let header = Header::new(farm, id, created, self.store.status().kind, aside);
        let rows = stored.shared();
        // Of a large farm that is some work, and nobody else is to wait for it.
        let written = tokio::task::spawn_blocking(move || backup::write(&header, &rows)).await;
        let written = written.map_err(|_| Status::internal("making the backup broke off"))?;
        let file = written.map_err(|error| broken(&error))?;
        tracing::info!(author, bytes = file.len(), "a backup is made");
        let pieces: Vec<_> =
            file.chunks(CHUNK_BYTES).map(|piece| Ok(v1::BackupResponse { chunk: piece.to_vec() })).collect();
        Ok(Box::pin(stream::iter(pieces)))
    }

    /// Brings back what comes in pieces, or says what that would change.
    pub(super) async fn restore_from(
        &self,
        author: String,
        mut pieces: Streaming<v1::RestoreRequest>,
    ) -> Result<v1::RestoreResponse, Status> {
        let (options, file) = collect(&mut pieces).await?;
        let read = tokio::task::spawn_blocking(move || Backup::read(&file)).await;
        let read = read.map_err(|_| Status::internal("reading the backup broke off"))?;
        let backup = read.map_err(|why| no_backup(&why.to_string()))?;
        self.check_farm(&backup.header, options.farm_was.as_deref())?;
        let (dry_run, header, count) = (options.dry_run, backup.header.clone(), backup.count);
        let planned = to_its_end(self.clone().restore(backup, author, dry_run)).await?;
        let unlisted = planned.len().saturating_sub(MAX_LISTED);
        Ok(v1::RestoreResponse {
            backup: Some(info(header, count)),
            rows: planned.into_iter().take(MAX_LISTED).map(|row| self.row(row)).collect(),
            unlisted: u32::try_from(unlisted).unwrap_or(u32::MAX),
        })
    }

    fn check_farm(&self, header: &Header, farm_was: Option<&str>) -> Result<(), Status> {
        let (was, is) = (header.farm.as_str(), self.shared.config.farm.as_str());
        if farm_was.unwrap_or(is) == was {
            return Ok(());
        }
        let message = match farm_was {
            Some(named) => format!("the backup is of farm {was:?}, not of {named:?}"),
            None => format!("the backup is of farm {was:?}, this is farm {is:?}"),
        };
        let metadata = HashMap::from([("farm".to_owned(), was.to_owned())]);
        Err(error::status(Code::FailedPrecondition, reason::OTHER_FARM, message, metadata, None))
    }

    async fn restore(self, backup: Backup, author: String, dry_run: bool) -> Result<Vec<Planned>, Status> {
        let _one_at_a_time = self.marking.lock().await;
        let by = By {
            author: author.clone(),
            created: backup.header.created.clone(),
            now_unix_ms: self.shared.clock.wall_unix_ms(),
            without_pools: self.shared.config.policy_file().is_some(),
        };
        let mut now = self.store.load().await.map_err(not_stored)?.shared();
        let planned = backup::plan(&now, &backup.rows, &by).1;
        if dry_run {
            return Ok(planned);
        }
        let pools = changed_pools(&planned);
        self.hold(&pools, &now).await?;
        // What was applied while they were not held is not lost.
        now = match self.store.load().await {
            Ok(stored) => stored.shared(),
            Err(error) => {
                self.let_go(&pools).await;
                return Err(not_stored(error));
            }
        };
        let (rows, planned) = backup::plan(&now, &backup.rows, &by);
        let replaced = self.store.replace_shared(&now, rows).await;
        if let Ok((changes, committed)) = &replaced {
            self.history.follow(changes);
            let revision = committed.revision.unwrap_or_default();
            let followed = Followed { changes: changes.clone(), revision };
            self.shared.farm.send(FarmCommand::Follow(followed)).await.map_err(unavailable)?;
        }
        self.let_go(&pools).await;
        replaced.map_err(not_stored)?;
        let rows = planned.len();
        tracing::warn!(author, created = by.created, rows, "a backup was restored");
        Ok(planned)
    }

    /// Keeps the next version of these pools for this restore: nobody else applies one meanwhile.
    async fn hold(&self, pools: &[PoolName], now: &SharedRows) -> Result<(), Status> {
        for (held, name) in pools.iter().enumerate() {
            let expected = Some(now.pools.get(name).map_or(0, |record| record.version));
            let apply = Box::new(PoolApply { expected, ..PoolApply::default() });
            let hold =
                |answer| FarmCommand::PreparePool { name: name.clone(), apply, dry_run: false, answer };
            if let Err(why) = self.ask(hold).await? {
                self.let_go(&pools[..held]).await;
                let message = format!("pool {name} is being changed: {why}");
                let code = Code::Aborted;
                return Err(error::status(code, reason::POLICY_VERSION, message, HashMap::new(), None));
            }
        }
        Ok(())
    }

    async fn let_go(&self, pools: &[PoolName]) {
        for name in pools {
            // Without a farm the process ends.
            let _ = self.shared.farm.send(FarmCommand::AbandonPool(name.clone())).await;
        }
    }

    fn row(&self, planned: Planned) -> v1::RestoredRow {
        let snapshot = self.shared.snapshot.load();
        let known = planned.host.and_then(|id| {
            let (pool, position) = snapshot.find_host(id.as_str()).ok()?;
            Some(pool.hosts[position].facts.name.to_string())
        });
        let kind = match planned.kind {
            Kind::Pool => v1::RestoredKind::Pool,
            Kind::Drain => v1::RestoredKind::Drain,
            Kind::HostMarks => v1::RestoredKind::HostMarks,
            Kind::ReplicaMark => v1::RestoredKind::ReplicaMark,
            Kind::Binding => v1::RestoredKind::Binding,
        };
        let change = match planned.what {
            What::Added => v1::RestoredChange::Added,
            What::Changed => v1::RestoredChange::Changed,
            What::Removed => v1::RestoredChange::Removed,
            What::Kept => v1::RestoredChange::Kept,
        };
        v1::RestoredRow {
            kind: kind.into(),
            change: change.into(),
            name: planned.name,
            host_name: known,
            detail: usher_proto::fault::cut(planned.detail, MAX_DETAIL_BYTES),
        }
    }
}

/// The options and the file.
async fn collect(
    pieces: &mut Streaming<v1::RestoreRequest>,
) -> Result<(v1::RestoreOptions, Vec<u8>), Status> {
    let first = pieces.next().await.transpose()?.and_then(|first| first.part);
    let Some(Part::Options(options)) = first else {
        return Err(invalid(FieldFault::new("part", "another one", "options first")));
    };
    let mut file = Vec::new();
    while let Some(piece) = pieces.next().await.transpose()? {
        let Some(Part::Chunk(chunk)) = piece.part else {
            return Err(invalid(FieldFault::new("part", "another one", "chunk")));
        };
        if file.len() + chunk.len() > MAX_BYTES {
            return Err(no_backup(&format!("it has more than {MAX_BYTES} bytes")));
        }
        file.extend_from_slice(&chunk);
    }
    Ok((options, file))
}

fn no_backup(why: &str) -> Status {
    let message = format!("the backup cannot be restored, nothing was changed: {why}");
    error::status(Code::InvalidArgument, reason::BAD_BACKUP, message, HashMap::new(), None)
}

fn changed_pools(planned: &[Planned]) -> Vec<PoolName> {
    let changed = planned.iter().filter(|row| row.kind == Kind::Pool && row.what != What::Kept);
    changed.filter_map(|row| PoolName::new(&row.name).ok()).collect()
}

fn info(header: Header, rows: u64) -> v1::BackupInfo {
    v1::BackupInfo {
        farm: header.farm,
        coordinator_id: header.coordinator_id,
        created: header.created.parse().ok(),
        version: header.version,
        store: header.store,
        rows,
        set_aside: header.set_aside as u64,
    }
}
