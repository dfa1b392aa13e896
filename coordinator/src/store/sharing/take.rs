//! What becomes of what the watch tells, and of the local copy?
//!
//! A listing may be later than the watch: what the watch tells of the time before it is old, and would put in force again what
//! has ended since. So only what is newer than all that is known counts. Changes that happened together are taken together, since
//! the last of them may say what the first ones mean: that somebody has emptied the store.
//!
//! The local copy is written by whoever makes a change as well, so that it lasts here when that is answered. Both take turns,
//! and neither writes what the other one has overtaken.

use tokio::sync::mpsc;

use super::{Followed, MARKER, Sharing, follow::Broken};
use crate::store::{
    Write,
    shared_rows::Change,
    shared_store::{RowChange, SharedRow},
};

/// Bytes of changes that wait for the rest of what happened with them. For more than that everything is read again.
const WAITING_BYTES: usize = 64 * 1024 * 1024;
/// What a change takes besides its key and its value, roughly.
const CHANGE_BYTES: usize = 64;

/// Changes that are not all of what happened together.
#[derive(Default)]
pub(super) struct Waiting {
    changes: Vec<RowChange>,
    bytes: usize,
}

impl Waiting {
    /// Adds changes. All that wait, if that is everything up to a revision.
    pub(super) fn add(
        &mut self,
        changes: Vec<RowChange>,
        complete_to: Option<u64>,
    ) -> Result<Option<(Vec<RowChange>, u64)>, Broken> {
        let bytes_of =
            |row: &RowChange| CHANGE_BYTES + row.key.len() + row.value.as_ref().map_or(0, Vec::len);
        self.bytes += changes.iter().map(bytes_of).sum::<usize>();
        self.changes.extend(changes);
        match complete_to {
            Some(revision) => Ok(Some((std::mem::take(self).changes, revision))),
            None if self.bytes > WAITING_BYTES => {
                Err(Broken::ListAgain("more has changed at once than is kept".to_owned()))
            }
            None => Ok(None),
        }
    }
}

impl Sharing {
    /// Takes in what the watch tells, which is everything up to `complete_to`.
    pub(super) async fn take(
        &self,
        mut told: Vec<RowChange>,
        complete_to: u64,
        out: &mpsc::Sender<Followed>,
    ) -> Result<(), Broken> {
        let known_to = self.state().revision;
        told.retain(|row| row.revision > known_to);
        if told.iter().any(|row| row.key == MARKER && row.value.is_none()) {
            return Err(Broken::ListAgain("somebody has emptied it".to_owned()));
        }
        let (mut changes, mut unreadable) = (Vec::new(), Vec::new());
        let revision = {
            let mut state = self.state();
            for row in told {
                match Change::from_row(&row.key, row.value.as_deref()) {
                    Ok(Some(change)) => {
                        state.told.follow(change.clone());
                        changes.push(change);
                    }
                    Ok(None) => {}
                    Err(why) => {
                        let value = row.value.clone().unwrap_or_default();
                        let bad = SharedRow { key: row.key.clone(), value, revision: row.revision };
                        unreadable.push(self.unreadable(&bad, why));
                    }
                }
                know(&mut state.rows, row);
            }
            state.revision = state.revision.max(complete_to);
            state.revision
        };
        self.metrics.store_link(true, revision, self.state().owed.len());
        self.set_aside(unreadable).await;
        if changes.is_empty() {
            return Ok(());
        }
        self.tell(out, changes.clone(), revision).await?;
        self.copy_followed(vec![Write::Follow(changes), Write::PutCopied(self.copied())]).await;
        Ok(())
    }

    /// Writes to the local copy what was followed.
    pub(super) async fn copy_followed(&self, writes: Vec<Write>) {
        // One that was refused before is copied as a whole.
        if self.state().copy_is_behind {
            return self.copy_again().await;
        }
        let _in_turn = self.copying.lock().await;
        if let Err(error) = self.local.write(writes).await {
            tracing::warn!(%error, "cannot keep a copy of what the shared store has; it is copied later");
            self.state().copy_is_behind = true;
        }
    }

    /// Writes the whole copy, if a part of it was refused.
    pub(super) async fn copy_again(&self) {
        if !self.state().copy_is_behind {
            return;
        }
        let _in_turn = self.copying.lock().await;
        let rows = Box::new(self.state().told.clone());
        let writes = vec![Write::ReplaceShared(rows), Write::PutCopied(self.copied())];
        if self.local.write(writes).await.is_ok() {
            self.state().copy_is_behind = false;
            tracing::info!("the copy of the shared store is whole again");
        }
    }

    /// Writes to the local copy what the shared store has taken in `revision`.
    pub(super) async fn copy(&self, writes: Vec<Write>, revision: u64) {
        let _in_turn = self.copying.lock().await;
        // It was followed already, and perhaps something later too, which must not be overwritten.
        if self.state().revision >= revision {
            return;
        }
        if let Err(error) = self.local.write(writes).await {
            tracing::warn!(%error, "the shared store has a change that the local copy has not; it is copied later");
            self.state().copy_is_behind = true;
        }
    }
}

/// Notes a row that the watch told, unless a later state of it is known.
fn know(rows: &mut std::collections::BTreeMap<String, SharedRow>, told: RowChange) {
    if rows.get(&told.key).is_some_and(|known| known.revision > told.revision) {
        return;
    }
    match told.value {
        Some(value) => {
            let row = SharedRow { key: told.key.clone(), value, revision: told.revision };
            rows.insert(told.key, row);
        }
        None => drop(rows.remove(&told.key)),
    }
}
