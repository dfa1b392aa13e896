//! How is everything replaced, as of a backup?
//!
//! A store in use is believed at any moment, so it changes as a whole, which bounds what can be restored into it; only earlier
//! versions of pools, which nothing is decided by, come before in parts. A store that nobody has filled is believed by nobody
//! before it is marked, so all comes in parts there, under a claim that each part demands, and the mark comes last.

use tokio::time::Instant;

use super::{
    LinkState, MARKER, Sharing,
    filling::{Claim, marker},
    plan::set_as_known,
    write::{Ended, readable},
};
use crate::store::{Committed, SharedRows, StoreError, Write, shared_rows::Change};

/// Changes of one transaction that has nothing else to be: far below what stores take.
const CHUNK: usize = 60;
/// Bytes of one such transaction.
const CHUNK_BYTES: usize = 512 * 1024;

const CHANGED_MEANWHILE: &str = "another coordinator changed something meanwhile: try again";

impl Sharing {
    /// Replaces everything by `wanted`; see [`StoreHandle::replace_shared`](crate::store::StoreHandle::replace_shared).
    pub(in crate::store) async fn replace(
        &self,
        based_on: &SharedRows,
        wanted: SharedRows,
    ) -> Result<(Vec<Change>, Committed), StoreError> {
        let (based_on, wanted) = (without_own_view(based_on.clone()), without_own_view(wanted));
        let until = Instant::now() + self.write_within.saturating_mul(4);
        let _in_turn = self.writing.lock().await;
        if self.state().link == LinkState::Away {
            return self.obstacle().map_or_else(|| Err(self.refused("it is away")), Err);
        }
        let changes = readable(&self.state().rows).changes_to(&wanted);
        let is_filled = self.state().rows.contains_key(MARKER);
        let revision = if is_filled {
            self.replace_filled(&based_on, &wanted, &changes, until).await?
        } else {
            self.restore_unfilled(&wanted, until).await?
        };
        self.copy(vec![Write::ReplaceShared(Box::new(wanted))], revision).await;
        Ok((changes, Committed { revision: Some(revision) }))
    }

    async fn replace_filled(
        &self,
        based_on: &SharedRows,
        wanted: &SharedRows,
        changes: &[Change],
        until: Instant,
    ) -> Result<u64, StoreError> {
        let is_version = |change: &Change| matches!(change, Change::Version(..));
        let versions: Vec<_> = changes.iter().filter(|change| is_version(change)).cloned().collect();
        self.put_in_parts(&versions, None, until).await?;
        let (found, listed_at) = self.list_rows().await?;
        if based_on.changes_to(&found).iter().any(|change| !is_version(change)) {
            return Err(self.refused(CHANGED_MEANWHILE));
        }
        let rest: Vec<_> = found.changes_to(wanted).into_iter().filter(|of| !is_version(of)).collect();
        let mut last = set_as_known(self.store.kind(), &self.state().rows, &rest)?;
        // One comparison instead of one for each row.
        last.expected.clear();
        last.unchanged_since = Some(listed_at);
        last.changes.insert(MARKER.to_owned(), Some(marker()));
        match self.pursue(last, until).await? {
            Ended::Done(revision) => Ok(revision),
            Ended::Conflict => Err(self.refused(CHANGED_MEANWHILE)),
        }
    }

    /// Fills a store that nobody believes yet. What it does not take is taken back, so that it is as free as it was.
    async fn restore_unfilled(&self, wanted: &SharedRows, until: Instant) -> Result<u64, StoreError> {
        let (claim, was_free) = self.claim_for_restore(until).await?;
        let (before, _) = self.list_rows().await?;
        let restored = async {
            self.put_in_parts(&before.changes_to(wanted), Some(claim), until).await?;
            self.mark_filled(claim, until).await
        };
        let error = match restored.await {
            Err(error @ StoreError::Refused { .. }) if was_free => error,
            restored => return restored,
        };
        // With a part of a backup in it and without the claim, a coordinator that has nothing would believe it.
        let undone = async {
            let undo = self.list_rows().await?.0.changes_to(&before);
            self.put_in_parts(&undo, Some(claim), until).await?;
            self.release(claim, until).await
        };
        if let Err(undone) = undone.await {
            tracing::warn!(%undone, "a restore was refused, and what it has begun stays in the shared store: restore again");
        }
        Err(error)
    }

    /// Reads all rows: those that can be read, and in which revision.
    async fn list_rows(&self) -> Result<(SharedRows, u64), StoreError> {
        let listing = self.store.list().await.map_err(|error| self.refused(&error.to_string()))?;
        let rows = listing.rows.into_iter().map(|row| (row.key.clone(), row)).collect();
        let found = readable(&rows);
        self.state().rows = rows;
        Ok((found, listing.revision))
    }

    /// Makes changes that belong together only loosely; with a claim, only as long as that stands.
    pub(super) async fn put_in_parts(
        &self,
        changes: &[Change],
        claim: Option<Claim>,
        until: Instant,
    ) -> Result<(), StoreError> {
        let mut rest = changes;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take(CHUNK).take_while(|change| {
                bytes += change.value().and_then(Result::ok).map_or(0, |value| value.len());
                bytes <= CHUNK_BYTES
            });
            let (part, later) = rest.split_at(fits.count().max(1));
            let mut transaction = set_as_known(self.store.kind(), &self.state().rows, part)?;
            if let Some(claim) = claim {
                claim.demand(&mut transaction);
            }
            let Ended::Done(_) = self.pursue(transaction, until).await? else {
                return Err(self.refused(CHANGED_MEANWHILE));
            };
            rest = later;
        }
        Ok(())
    }
}

/// Without what each coordinator sees for itself: since when hosts do not list what is marked.
fn without_own_view(mut rows: SharedRows) -> SharedRows {
    rows.replica_marks.values_mut().for_each(|mark| mark.gone_unix_ms = None);
    rows
}
