//! What if the shared store is empty?
//!
//! It may be new, or somebody has emptied it, or another one stands at its address. A store that was filled says so in a row of
//! its own; one that does not say so takes nothing from a coordinator that has something. It is filled from a coordinator's own
//! file only if the operator wants that, and by one coordinator, which says first that it does.

use tokio::time::Instant;

use super::{
    FORMAT, MARKER, SEEDING, Sharing,
    follow::{Broken, broken_by},
    write::{Ended, readable},
};
use crate::store::{
    SharedRows, StoreError,
    shared_store::{SharedError, Transaction},
};

/// Follows the coordinator's id in the claim of a restore.
const RESTORING: &str = " (restore)";

/// Says that this coordinator fills the store: the revision of its row.
#[derive(Copy, Clone)]
pub(super) struct Claim(u64);

impl Claim {
    /// Lets a transaction happen only if nobody has taken the claim over.
    pub(super) fn demand(self, transaction: &mut Transaction) {
        transaction.expected.insert(SEEDING.to_owned(), self.0);
    }
}

/// As it is written into a store that is filled.
pub(super) fn marker() -> Vec<u8> {
    FORMAT.to_string().into_bytes()
}

impl Sharing {
    /// Whether the store is one that was filled, by a version that this one understands.
    pub(super) fn is_marked(&self) -> Result<bool, Broken> {
        let Some(marked) = self.text(MARKER) else { return Ok(false) };
        if marked.parse::<u32>().is_ok_and(|format| format <= FORMAT) {
            return Ok(true);
        }
        let why = format!("it has format {marked:?}, this version reads format {FORMAT}");
        Err(SharedError::Refused(why).into())
    }

    fn text(&self, key: &str) -> Option<String> {
        self.state().rows.get(key).map(|row| String::from_utf8_lossy(&row.value).into_owned())
    }

    /// A store that nobody has filled is filled only if that is wanted, or if there is nothing to lose.
    pub(super) fn may_fill(&self, found: &SharedRows) -> Result<(), Broken> {
        let seeding = self.text(SEEDING);
        let by = seeding.as_deref().map(|by| by.strip_suffix(RESTORING).map_or((by, false), |by| (by, true)));
        match by {
            Some((by, _)) if by != self.coordinator_id => {
                let why = format!(
                    "coordinator {by} is filling it, and has not finished; if it never will, restore a backup with \
                     `usherctl restore`"
                );
                return Err(SharedError::Refused(why).into());
            }
            Some((_, true)) if !self.seed => {
                let why = "a restore of this coordinator has not finished: restore again with `usherctl restore`, or set \
                           store.seed = true for one start to fill it with what this coordinator has";
                return Err(SharedError::Refused(why.to_owned()).into());
            }
            _ => {}
        }
        let would_lose = {
            let told = &self.state().told;
            !told.is_empty() && told != found
        };
        if would_lose && seeding.is_none() && !self.seed {
            let why = "it is empty, and this coordinator's own file is not: restore a backup with `usherctl restore`, or set \
                       store.seed = true for one start to fill it with what this coordinator has";
            return Err(SharedError::Refused(why.to_owned()).into());
        }
        Ok(())
    }

    /// Fills an empty store: who does says so first, and marks it at the end.
    pub(super) async fn fill(&self, found: &SharedRows) -> Result<(), Broken> {
        let claimed_at = || self.state().rows.get(SEEDING).map(|row| row.revision);
        let before = claimed_at();
        let _in_turn = self.writing.lock().await;
        let is_filled = self.text(MARKER).is_some();
        if is_filled || claimed_at() != before {
            // A restore of this coordinator was first: what was found is to be looked at again.
            return Ok(());
        }
        let until = Instant::now() + self.write_within.saturating_mul(4);
        let is_ours = self.text(SEEDING).is_some();
        let rows = if found.is_empty() || is_ours { self.state().told.clone() } else { found.clone() };
        let missing = readable(&self.state().rows).changes_to(&rows);
        if missing.is_empty() && !is_ours {
            // Nothing is to be put there; if another coordinator is faster, that is seen next.
            let mut marked = Transaction::default();
            marked.expected.insert(MARKER.to_owned(), 0);
            marked.expected.insert(SEEDING.to_owned(), 0);
            marked.changes.insert(MARKER.to_owned(), Some(marker()));
            return self.pursue(marked, until).await.map(drop).map_err(broken_by);
        }
        let Some(claim) = self.claim(self.coordinator_id.clone(), until).await.map_err(broken_by)? else {
            return Err(SharedError::Away("another coordinator is filling it".to_owned()).into());
        };
        tracing::warn!(rows = missing.len(), "filling the empty shared store with what this coordinator has");
        self.put_in_parts(&missing, Some(claim), until).await.map_err(broken_by)?;
        self.mark_filled(claim, until).await.map(drop).map_err(broken_by)
    }

    /// Keeps the others from believing a store that is being restored and was not filled yet. Whatever was begun before is over.
    /// Besides the claim: whether nothing was begun before.
    pub(super) async fn claim_for_restore(&self, until: Instant) -> Result<(Claim, bool), StoreError> {
        let was_free = self.text(SEEDING).is_none();
        let claim = self.claim(format!("{}{RESTORING}", self.coordinator_id), until).await?;
        let claim = claim.ok_or_else(|| self.refused("another coordinator is filling it"))?;
        Ok((claim, was_free))
    }

    /// Says who fills the store. Absent: another coordinator was faster.
    async fn claim(&self, by: String, until: Instant) -> Result<Option<Claim>, StoreError> {
        let mut transaction = Transaction::default();
        let revision = self.state().rows.get(SEEDING).map_or(0, |row| row.revision);
        transaction.expected.insert(SEEDING.to_owned(), revision);
        transaction.expected.insert(MARKER.to_owned(), 0);
        transaction.changes.insert(SEEDING.to_owned(), Some(by.into_bytes()));
        match self.pursue(transaction, until).await? {
            Ended::Done(revision) => Ok(Some(Claim(revision))),
            Ended::Conflict => Ok(None),
        }
    }

    /// Marks the store as whole, and gives up the claim, if nobody else has taken it over. In which revision.
    pub(super) async fn mark_filled(&self, claim: Claim, until: Instant) -> Result<u64, StoreError> {
        self.give_up(claim, Some(marker()), until).await
    }

    /// Gives up the claim of a store that has not been filled.
    pub(super) async fn release(&self, claim: Claim, until: Instant) -> Result<(), StoreError> {
        self.give_up(claim, None, until).await.map(drop)
    }

    async fn give_up(
        &self,
        claim: Claim,
        marked: Option<Vec<u8>>,
        until: Instant,
    ) -> Result<u64, StoreError> {
        let mut transaction = Transaction::default();
        claim.demand(&mut transaction);
        transaction.changes.insert(SEEDING.to_owned(), None);
        transaction.changes.extend(marked.map(|marker| (MARKER.to_owned(), Some(marker))));
        match self.pursue(transaction, until).await? {
            Ended::Done(revision) => Ok(revision),
            Ended::Conflict => Err(self.refused("another coordinator is filling it")),
        }
    }
}
