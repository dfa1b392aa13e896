//! How does what is shared come into this coordinator, at its start and later?

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use usher_runtime::clock::Clock;

use crate::{
    farm_command::FarmCommand,
    metrics::Metrics,
    pool_history::PoolHistory,
    shared::Shared,
    store::{Followed, Follower, LinkState, SharedStore, SharingOptions, StoreHandle, Stored},
};

/// A start waits so long for the shared store; then the coordinator serves from its copy. Longer, and a farm whose stores are
/// down as well would have no coordinator for as long.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(3);
/// Longest time for a write. Less than a call's deadline by default, so that its caller hears how it ended.
const WRITE_WITHIN: Duration = Duration::from_secs(4);
/// Changes that may wait for the farm.
const QUEUE: usize = 64;

/// A store that coordinators share, and whether it is filled from here if it is empty.
#[derive(Clone, Debug)]
pub struct SharedPart {
    /// The store.
    pub store: Arc<dyn SharedStore>,
    /// Whether it is filled with what this coordinator has, if it is empty.
    pub seed: bool,
}

/// Shares through `part`, if there is one. The store that is shared, who follows it, and what is stored: up to date, or as the
/// copy says.
///
/// # Errors
/// If the coordinator's own file cannot be read.
pub(crate) async fn begin(
    part: Option<SharedPart>,
    store: StoreHandle,
    clock: Arc<dyn Clock>,
    instance_id: &str,
) -> anyhow::Result<(StoreHandle, Option<Follower>, Stored)> {
    let stored = store.load().await.context("cannot read the store")?;
    let Some(SharedPart { store: shared, seed }) = part else { return Ok((store, None, stored)) };
    let options = SharingOptions {
        store: shared,
        clock,
        instance_id: instance_id.to_owned(),
        seed,
        write_within: WRITE_WITHIN,
    };
    let (store, follower) = store.share(options, &stored);
    if let Err(error) = follower.catch_up(CATCH_UP_WITHIN).await {
        let (copied, revision) =
            (stored.copied.map(|of| of.copied_unix_ms), stored.copied.map(|of| of.revision));
        tracing::error!(%error, copied_unix_ms = copied, revision, "starting with the copy of the shared store");
    }
    let stored = store.load().await.context("cannot read the store")?;
    follower.begin_from(&stored);
    Ok((store, Some(follower), stored))
}

/// What does not work of the store, for people: logins are placed all the same. Empty: nothing.
pub(crate) fn trouble(store: &StoreHandle, metrics: &Metrics) -> String {
    let mut faults = Vec::new();
    let status = store.status();
    if let Some(shared) = status.shared.filter(|shared| shared.link != LinkState::Connected) {
        let why = shared.last_error.unwrap_or_default();
        let (kind, state) = (status.kind, shared.link.as_str());
        faults.push(format!("the shared store ({kind}) is {state}, nothing can be changed: {why}"));
    }
    if metrics.is_store_failing() {
        faults.push("the disk takes nothing: what is changed is not stored here".to_owned());
    }
    faults.join("\n")
}

/// Follows the shared store until `shutdown`.
pub(crate) async fn run(
    follower: Follower,
    shared: Arc<Shared>,
    history: Arc<PoolHistory>,
    shutdown: CancellationToken,
) {
    let (out, mut followed) = mpsc::channel::<Followed>(QUEUE);
    let put_in_force = async {
        while let Some(followed) = followed.recv().await {
            history.follow(&followed.changes);
            if shared.farm.send(FarmCommand::Follow(followed)).await.is_err() {
                break;
            }
        }
    };
    tokio::join!(follower.run(out, shutdown), put_in_force);
}
