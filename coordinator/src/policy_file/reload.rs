//! How does a file that was changed come into force while the coordinator runs?
//!
//! As settings that an admin applies do: each pool's next version is kept for it, all of them are stored together, then each
//! is in force. Nothing else is touched: no stream, no place, and what holds a host BUSY or drained holds on.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};
use tokio_util::sync::CancellationToken;
use usher_placement::farm::PoolApply;
use usher_types::PolicyChange;

use super::{Change, NotTaken, PolicyFile};
use crate::{
    farm_command::FarmCommand,
    pool_history::PoolHistory,
    shared::Shared,
    store::{StoreHandle, Write},
    stored,
};

/// Reads the file at `path` anew at each SIGHUP, until `stop`.
pub(crate) async fn reload_on_hang_up(
    path: PathBuf,
    shared: Arc<Shared>,
    store: StoreHandle,
    history: Arc<PoolHistory>,
    stop: CancellationToken,
) {
    let mut hang_ups = match signal(SignalKind::hangup()) {
        Ok(hang_ups) => hang_ups,
        Err(error) => {
            tracing::error!(%error, "the settings of pools are not read anew on SIGHUP");
            return;
        }
    };
    let reload = Reload { path, shared, store, history };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(()) = hang_ups.recv() => reload.run().await,
        }
    }
}

/// A coordinator whose settings lie in its store has nothing to read anew, and does not end when it is asked to.
pub(crate) async fn pass_over_hang_ups(stop: CancellationToken) {
    // Without it the signal ends the process, as it does by default.
    let Ok(mut hang_ups) = signal(SignalKind::hangup()) else { return };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(()) = hang_ups.recv() => {
                tracing::info!("SIGHUP: nothing is read anew, the settings of pools come from the store");
            }
        }
    }
}

struct Reload {
    path: PathBuf,
    shared: Arc<Shared>,
    store: StoreHandle,
    history: Arc<PoolHistory>,
}

impl Reload {
    async fn run(&self) {
        let taken = self.take().await;
        self.shared.metrics.policy_file_read(taken.is_ok());
        let file = self.path.display();
        match taken {
            Ok(0) => tracing::info!(%file, "the file was read: nothing in it has changed"),
            Ok(pools) => tracing::info!(%file, pools, "the file was read, and what it changes is in force"),
            Err(why) => {
                why.log();
                tracing::error!(%file, "the file was not taken over: the settings of pools are as before");
            }
        }
    }

    /// How many pools have changed.
    async fn take(&self) -> Result<usize, NotTaken> {
        let path = self.path.clone();
        // A file on a share that hangs must not hold up anything else.
        let read = tokio::task::spawn_blocking(move || PolicyFile::load(&path)).await;
        let file = read.map_err(|error| self.not_stored(error))??;
        let pools = self.ask(FarmCommand::ListPools).await?;
        // A pool that has never been applied is in force with its defaults: the file need not name it.
        let in_force = pools.into_iter().map(|(record, _)| (record.name, (record.version, record.policy)));
        let in_force: BTreeMap<_, _> = in_force.filter(|(_, (version, _))| *version > 0).collect();
        let changes = file.changes(&self.path, &in_force, self.shared.clock.wall_unix_ms())?;
        if changes.is_empty() {
            return Ok(0);
        }
        for (done, change) in changes.iter().enumerate() {
            if let Err(why) = self.prepare(change).await {
                self.abandon(&changes[..done]).await;
                return Err(why);
            }
        }
        let writes = changes.iter().map(|change| Write::PutPool(change.name.clone(), change.record.clone()));
        if let Err(error) = self.store.write(writes.collect()).await {
            self.abandon(&changes).await;
            return Err(self.not_stored(error));
        }
        let count = changes.len();
        for Change { name, record } in changes {
            tracing::info!(pool = %name, version = record.version, "settings of a pool read");
            self.history.add(&name, record.clone());
            let record = Box::new(stored::pool_from_store(name, record));
            self.ask(|answer| FarmCommand::CommitPool { record, answer }).await?;
        }
        Ok(count)
    }

    /// Keeps the next version of the pool for this change.
    async fn prepare(&self, change: &Change) -> Result<(), NotTaken> {
        let apply = Box::new(PoolApply::of(PolicyChange::of(&change.record.policy)));
        let name = change.name.clone();
        let prepare = |answer| FarmCommand::PreparePool { name, apply, dry_run: false, answer };
        self.ask(prepare).await?.map(|_| ()).map_err(|refused| self.not_stored(refused))
    }

    async fn abandon(&self, changes: &[Change]) {
        for change in changes {
            // Without a farm the process ends.
            let _ = self.shared.farm.send(FarmCommand::AbandonPool(change.name.clone())).await;
        }
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> FarmCommand) -> Result<T, NotTaken> {
        let (answer, answered) = oneshot::channel();
        self.shared.farm.send(command(answer)).await.map_err(|_| self.not_stored("the coordinator stops"))?;
        answered.await.map_err(|_| self.not_stored("the coordinator stops"))
    }

    fn not_stored(&self, why: impl ToString) -> NotTaken {
        NotTaken::NotStored { file: self.path.display().to_string(), why: why.to_string() }
    }
}
