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
        if let Some(by) = seeding.as_ref().filter(|by| **by != self.coordinator_id) {
            let why = format!("coordinator {by} is filling it, and has not finished");
            return Err(SharedError::Refused(why).into());
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
        let _in_turn = self.writing.lock().await;
        let until = Instant::now() + self.write_within.saturating_mul(4);
        let is_ours = self.text(SEEDING).is_some();
        let rows = if found.is_empty() || is_ours { self.state().told.clone() } else { found.clone() };
        let set = |key: &str, value: Option<Vec<u8>>| {
            let revision = self.state().rows.get(key).map_or(0, |row| row.revision);
            Transaction {
                expected: [(key.to_owned(), revision)].into_iter().collect(),
                changes: [(key.to_owned(), value)].into_iter().collect(),
                ..Transaction::default()
            }
        };
        let missing = readable(&self.state().rows).changes_to(&rows);
        if missing.is_empty() && !is_ours {
            // Nothing is to be put there; if another coordinator is faster, that is seen next.
            let mut marked = set(MARKER, Some(marker()));
            marked.expected.insert(SEEDING.to_owned(), 0);
            return self.pursue(marked, until).await.map(drop).map_err(broken_by);
        }
        let raced = || Broken::from(SharedError::Away("another coordinator is filling it".to_owned()));
        let claim = set(SEEDING, Some(self.coordinator_id.clone().into_bytes()));
        let Ended::Done(_) = self.pursue(claim, until).await.map_err(broken_by)? else { return Err(raced()) };
        tracing::warn!(rows = missing.len(), "filling the empty shared store with what this coordinator has");
        self.put_in_parts(&missing, until).await.map_err(broken_by)?;
        let mut done = set(MARKER, Some(marker()));
        self.release(&mut done);
        let Ended::Done(_) = self.pursue(done, until).await.map_err(broken_by)? else { return Err(raced()) };
        Ok(())
    }

    /// Keeps the others from believing a store that is being restored and was not filled yet. Whatever was begun before is over.
    pub(super) async fn claim_for_restore(&self, until: Instant) -> Result<(), StoreError> {
        let revision = self.state().rows.get(SEEDING).map_or(0, |row| row.revision);
        let claim = format!("{} (restore)", self.coordinator_id).into_bytes();
        let transaction = Transaction {
            expected: [(SEEDING.to_owned(), revision)].into_iter().collect(),
            changes: [(SEEDING.to_owned(), Some(claim))].into_iter().collect(),
            ..Transaction::default()
        };
        match self.pursue(transaction, until).await? {
            Ended::Done(_) => Ok(()),
            Ended::Conflict => Err(self.refused("another coordinator is filling it")),
        }
    }

    /// Gives up the claim with this transaction, if nobody else has taken it over.
    pub(super) fn release(&self, transaction: &mut Transaction) {
        let revision = self.state().rows.get(SEEDING).map_or(0, |row| row.revision);
        transaction.expected.insert(SEEDING.to_owned(), revision);
        transaction.changes.insert(SEEDING.to_owned(), None);
    }
}
