//! How is something written so that it happens once, whatever becomes of the answers?

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{
    LinkState, Sharing,
    plan::{Rows, is_shared, plan},
};
use crate::store::{
    Committed, SharedRows, StoreError, Write,
    shared_rows::Change,
    shared_store::{SharedError, SharedRow, Transacted, Transaction},
};

/// How often a write is planned anew because other coordinators were faster.
const ATTEMPTS: u32 = 16;
/// Between two attempts to find out what became of a write.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// How a transaction that was pursued to its end has ended.
pub(super) enum Ended {
    Done(u64),
    /// Another one was first; what is known now is up to date.
    Conflict,
}

/// What became of a transaction whose answer was lost.
enum Fate {
    Happened(u64),
    /// It has not, and never will.
    Never,
}

impl Sharing {
    pub(in crate::store) async fn write(&self, writes: Vec<Write>) -> Result<Committed, StoreError> {
        let (shared, own): (Vec<_>, Vec<_>) = writes.into_iter().partition(is_shared);
        if let Some(Write::ReplaceShared(_)) =
            shared.iter().find(|write| matches!(write, Write::ReplaceShared(_)))
        {
            let why = "everything at once is replaced by a call of its own".to_owned();
            return Err(StoreError::Refused { kind: self.store.kind(), why });
        }
        let mut committed = Committed::default();
        if !shared.is_empty() {
            let revision = self.write_shared(&shared).await?;
            committed.revision = Some(revision);
            self.copy(shared, revision).await;
        }
        if !own.is_empty() {
            self.local.write(own).await?;
        }
        Ok(committed)
    }

    async fn write_shared(&self, writes: &[Write]) -> Result<u64, StoreError> {
        let until = Instant::now() + self.write_within;
        let _in_turn = self.writing.lock().await;
        if let Some(obstacle) = self.obstacle() {
            return Err(obstacle);
        }
        let mut writes: Vec<&Write> = writes.iter().collect();
        let mut left = ATTEMPTS;
        while left > 0 {
            left -= 1;
            let planned = plan(self.store.kind(), &self.state().rows, writes.iter().copied())?;
            if let Ended::Done(revision) = self.pursue(planned.transaction, until).await? {
                if !planned.is_part {
                    return Ok(revision);
                }
                // A host that is replaced has more marks than are moved at once. Moving them again moves the rest.
                writes.retain(|write| matches!(write, Write::MoveMarks(..)));
                left = ATTEMPTS;
            }
        }
        let why = "other coordinators change the same rows all the time".to_owned();
        Err(StoreError::Refused { kind: self.store.kind(), why })
    }

    /// Carries out a transaction once, or finds that it did not happen. Only one at a time.
    pub(super) async fn pursue(&self, wanted: Transaction, until: Instant) -> Result<Ended, StoreError> {
        loop {
            let (mut transaction, id) = (wanted.clone(), self.transaction_id());
            self.sign(&mut transaction, &id);
            let why = match self.store.transact(&transaction).await {
                Ok(Transacted::Done(revision)) => return Ok(self.done(&transaction, revision)),
                Ok(Transacted::Conflict(rows)) => {
                    let foreign = wanted.expected.iter().any(|(key, at)| {
                        rows.get(key).is_some_and(|row| row.as_ref().map_or(0, |row| row.revision) != *at)
                    });
                    self.know(rows);
                    // Otherwise only an earlier transaction of this coordinator came through late.
                    if foreign || wanted.unchanged_since.is_some() {
                        return Ok(Ended::Conflict);
                    }
                    if Instant::now() < until {
                        continue;
                    }
                    "it is busy with earlier changes of this coordinator".to_owned()
                }
                Err(SharedError::Refused(why)) => {
                    return Err(StoreError::Refused { kind: self.store.kind(), why });
                }
                // Nothing has left this machine.
                Err(SharedError::Unreached(_)) if Instant::now() < until => {
                    sleep(ASK_AGAIN_AFTER).await;
                    continue;
                }
                Err(SharedError::Unreached(why)) => why,
                Err(SharedError::Away(why)) => match self.fate_of(&transaction, &id, until).await {
                    Some(Fate::Happened(revision)) => return Ok(self.done(&transaction, revision)),
                    Some(Fate::Never) if Instant::now() < until => continue,
                    Some(Fate::Never) => why,
                    None => {
                        self.set_link(LinkState::Away, Some(&why));
                        return Err(StoreError::Unknown { kind: self.store.kind(), why });
                    }
                },
            };
            let since_unix_ms = self.clock.wall_unix_ms();
            return Err(StoreError::Away { kind: self.store.kind(), since_unix_ms, why });
        }
    }

    /// Makes a transaction one that happens after all earlier ones of this coordinator, or never.
    fn sign(&self, transaction: &mut Transaction, id: &[u8]) {
        let key = self.writer_key();
        let revision = self.state().rows.get(&key).map_or(0, |row| row.revision);
        transaction.expected.insert(key.clone(), revision);
        transaction.changes.insert(key, Some(id.to_vec()));
    }

    /// What became of `lost`, as soon as it can be told. Absent: it cannot.
    async fn fate_of(&self, lost: &Transaction, id: &[u8], until: Instant) -> Option<Fate> {
        let key = self.writer_key();
        let fence_id = self.transaction_id();
        let expected = lost.expected.get(&key).map(|at| (key.clone(), *at)).into_iter().collect();
        let changes = [(key.clone(), Some(fence_id.clone()))].into_iter().collect();
        let fence = Transaction { expected, changes, ..Transaction::default() };
        while Instant::now() < until {
            match self.store.transact(&fence).await {
                Ok(Transacted::Done(revision)) => {
                    self.done(&fence, revision);
                    return Some(Fate::Never);
                }
                Ok(Transacted::Conflict(rows)) => {
                    let writer = rows.get(&key).cloned().flatten();
                    self.know(rows);
                    return match writer {
                        Some(row) if row.value == id => Some(Fate::Happened(row.revision)),
                        Some(row) if row.value == fence_id => Some(Fate::Never),
                        // Another process writes under this coordinator's id.
                        _ => None,
                    };
                }
                Err(SharedError::Refused(_)) => return None,
                Err(SharedError::Away(_) | SharedError::Unreached(_)) => sleep(ASK_AGAIN_AFTER).await,
            }
        }
        None
    }

    /// Notes what a transaction has made of the rows.
    fn done(&self, transaction: &Transaction, revision: u64) -> Ended {
        let mut state = self.state();
        for (key, value) in &transaction.changes {
            if state.rows.get(key).is_some_and(|row| row.revision > revision) {
                continue;
            }
            match value {
                Some(value) => {
                    let row = SharedRow { key: key.clone(), value: value.clone(), revision };
                    state.rows.insert(key.clone(), row);
                }
                None => drop(state.rows.remove(key)),
            }
        }
        Ended::Done(revision)
    }

    /// Notes rows as they are.
    fn know(&self, rows: impl IntoIterator<Item = (String, Option<SharedRow>)>) {
        let mut state = self.state();
        for (key, row) in rows {
            match row {
                Some(row) => drop(state.rows.insert(key, row)),
                None => drop(state.rows.remove(&key)),
            }
        }
    }

    pub(super) fn refused(&self, why: &str) -> StoreError {
        StoreError::Refused { kind: self.store.kind(), why: why.to_owned() }
    }
}

/// The rows that can be read.
pub(super) fn readable(rows: &Rows) -> SharedRows {
    let mut readable = SharedRows::default();
    for (key, row) in rows {
        if let Ok(Some(change)) = Change::from_row(key, Some(&row.value)) {
            readable.follow(change);
        }
    }
    readable
}
