//! What hosts have done while the shared store was away, and how it is told to it.
//!
//! A host that comes with its certificate is let in, whether or not the store answers: its bond, the marks that it takes over
//! and the drain that its boot has ended are kept here and owed. Where the shared store has learned something else meanwhile,
//! the shared store is right, and the operator is told so.

use tokio::time::Instant;

use super::{
    LinkState, Sharing,
    plan::{plan, set_as_known},
    write::{Ended, readable},
};
use crate::store::{Committed, Owed, StoreError, Write, shared_rows::Change, shared_store::Transaction};

impl Sharing {
    pub(in crate::store) async fn write_or_owe(&self, writes: Vec<Write>) -> Result<Committed, StoreError> {
        if self.state().link == LinkState::Connected {
            match self.write(writes.clone()).await {
                Err(StoreError::Away { .. } | StoreError::Unknown { .. } | StoreError::Refused { .. }) => {}
                written => return written,
            }
        }
        let mut local = writes.clone();
        {
            let mut state = self.state();
            for write in &writes {
                let Some(owed) = owed(write, &state.told) else { continue };
                let number = state.owed.last_key_value().map_or(1, |(last, _)| last + 1);
                state.owed.insert(number, owed.clone());
                local.push(Write::PutOwed(number, owed));
            }
        }
        let stored = self.local.write(local).await;
        // It is in force in any case, and still owed as long as this process runs.
        if let Err(error) = stored {
            tracing::error!(%error, "neither the shared store nor the disk has taken what a host has changed");
        }
        Ok(Committed::default())
    }

    /// Tells the shared store all that it is owed. What is known of its rows must be up to date. Whether anything was told.
    pub(super) async fn settle(&self) -> Result<bool, StoreError> {
        let owed = self.state().owed.clone();
        if owed.is_empty() {
            return Ok(false);
        }
        let _in_turn = self.writing.lock().await;
        for (number, owed) in owed {
            let until = Instant::now() + self.write_within;
            loop {
                let transaction = match self.to_settle(&owed) {
                    Ok(Some(transaction)) => transaction,
                    Ok(None) => break,
                    Err(conflict) => {
                        tracing::error!(
                            %conflict,
                            ?owed,
                            "what a host did while the shared store was away is not so: another coordinator knew better"
                        );
                        break;
                    }
                };
                if let Ended::Done(_) = self.pursue(transaction, until).await? {
                    break;
                }
            }
            self.local.write(vec![Write::DeleteOwed(number)]).await?;
            self.state().owed.remove(&number);
        }
        Ok(true)
    }

    /// What is to be written for something owed. Absent: nothing any more.
    fn to_settle(&self, owed: &Owed) -> Result<Option<Transaction>, StoreError> {
        let (kind, state) = (self.store.kind(), self.state());
        match owed {
            Owed::Bind { certificate, host, replaces } => {
                let (certificate, host, replaces) = (certificate.clone(), host.clone(), replaces.clone());
                plan(kind, &state.rows, [&Write::Bind { certificate, host, replaces }]).map(Some)
            }
            Owed::MoveMarks { from, to } => {
                plan(kind, &state.rows, [&Write::MoveMarks(from.clone(), to.clone())]).map(Some)
            }
            Owed::EndDrain { host, set_unix_ms } => {
                let drains = readable(&state.rows).drains;
                if drains.get(host).is_none_or(|drain| drain.set_unix_ms != *set_unix_ms) {
                    return Ok(None);
                }
                set_as_known(kind, &state.rows, &[Change::Drain(host.clone(), None)]).map(Some)
            }
        }
    }
}

fn owed(write: &Write, known: &crate::store::SharedRows) -> Option<Owed> {
    match write {
        Write::Bind { certificate, host, replaces } => Some(Owed::Bind {
            certificate: certificate.clone(),
            host: host.clone(),
            replaces: replaces.clone(),
        }),
        Write::MoveMarks(from, to) => Some(Owed::MoveMarks { from: from.clone(), to: to.clone() }),
        Write::DeleteDrain(host) => {
            let set_unix_ms = known.drains.get(host)?.set_unix_ms;
            Some(Owed::EndDrain { host: host.clone(), set_unix_ms })
        }
        _ => None,
    }
}
