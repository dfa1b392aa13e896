//! What hosts have done while the shared store was away, and how it is told to it.
//!
//! A host that comes with its certificate is let in, whether or not the store answers: its bond, the marks that it takes over
//! and the drain that its boot has ended are kept here and owed. Where the shared store has learned something else meanwhile,
//! the shared store is right, and the operator is told so.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::Instant;

use super::{
    LinkState, Sharing,
    plan::{Planned, plan},
    write::Ended,
};
use crate::store::{Committed, Owed, StoreError, Write};

/// Waits before something that was refused is told again, doubling: each time the whole store is listed.
const FIRST_WAIT: Duration = Duration::from_secs(2);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What became of what is owed.
pub(super) struct Settled {
    /// Something has been settled, as it was owed or as another coordinator knew better.
    pub(super) told: bool,
    /// Nothing is left that was refused.
    pub(super) is_whole: bool,
}

/// When the shared store is told next what it is owed.
#[derive(Default)]
pub(super) struct Settling {
    refused: Option<(Instant, Duration)>,
}

impl Settling {
    pub(super) fn is_due(&self) -> bool {
        self.refused.is_none_or(|(at, wait)| at.elapsed() >= wait)
    }

    /// It was told, and has taken all or not.
    pub(super) fn has(&mut self, taken_all: bool) {
        let wait = self.refused.map_or(FIRST_WAIT, |(_, wait)| wait.saturating_mul(2).min(LONGEST_WAIT));
        self.refused = (!taken_all).then(|| (Instant::now(), wait));
    }
}

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
                let Some(owed) = owed(write) else { continue };
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

    /// Tells the shared store all that it is owed. What is known of its rows must be up to date. What it does not take is still
    /// owed, and keeps nothing back that is owed besides.
    pub(super) async fn settle(&self) -> Result<Settled, StoreError> {
        let owed_before = self.state().owed.clone();
        let mut settled = Settled { told: false, is_whole: true };
        if owed_before.is_empty() {
            return Ok(settled);
        }
        let _in_turn = self.writing.lock().await;
        let mut over = BTreeSet::<u64>::new();
        for (number, owed) in &owed_before {
            if over.contains(number) {
                continue;
            }
            let mut done = vec![*number];
            match self.settle_one(owed).await {
                Ok(true) => {}
                // Whose bond is not so has nobody's marks to take over.
                Ok(false) => {
                    done.extend(owed_before.iter().filter(|(_, of)| comes_of(of, owed)).map(|(n, _)| n))
                }
                Err(StoreError::Refused { why, .. }) => {
                    tracing::debug!(why, ?owed, "the shared store does not take what it is owed");
                    self.note(why);
                    settled.is_whole = false;
                    continue;
                }
                Err(error) => return Err(error),
            }
            settled.told = true;
            over.extend(done.iter().copied());
            match self.local.write(done.iter().map(|number| Write::DeleteOwed(*number)).collect()).await {
                Ok(()) => self.state().owed.retain(|number, _| !done.contains(number)),
                // It is told again, which changes nothing.
                Err(error) => {
                    tracing::warn!(%error, ?owed, "cannot note that the shared store has what it was owed");
                    settled.is_whole = false;
                }
            }
        }
        if !settled.is_whole {
            let owed = self.state().owed.len();
            let why = self.state().last_error.clone();
            tracing::warn!(owed, why, "the shared store has not all that it is owed; it is told again later");
        }
        Ok(settled)
    }

    /// Whether it is in force. If not, another coordinator knew better.
    async fn settle_one(&self, owed: &Owed) -> Result<bool, StoreError> {
        let until = Instant::now() + self.write_within;
        loop {
            let planned = match self.to_settle(owed) {
                Ok(Some(planned)) => planned,
                Ok(None) => return Ok(true),
                Err(conflict @ (StoreError::Bound { .. } | StoreError::Claimed { .. })) => {
                    tracing::error!(
                        %conflict,
                        ?owed,
                        "what a host did while the shared store was away is not so: another coordinator knew better"
                    );
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            if let Ended::Done(_) = self.pursue(planned.transaction, until).await?
                && !planned.is_part
            {
                return Ok(true);
            }
        }
    }

    /// What is to be written for something owed. Absent: nothing any more.
    fn to_settle(&self, owed: &Owed) -> Result<Option<Planned>, StoreError> {
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
                let ended = Write::DeleteDrainSetAt(host.clone(), *set_unix_ms);
                let planned = plan(kind, &state.rows, [&ended])?;
                Ok(Some(planned).filter(|planned| !planned.transaction.changes.is_empty()))
            }
        }
    }
}

/// Whether marks move only because of a bond.
fn comes_of(owed: &Owed, bond: &Owed) -> bool {
    match (owed, bond) {
        (Owed::MoveMarks { from, to }, Owed::Bind { host, replaces, .. }) => {
            to == host && replaces.as_ref() == Some(from)
        }
        _ => false,
    }
}

fn owed(write: &Write) -> Option<Owed> {
    match write {
        Write::Bind { certificate, host, replaces } => Some(Owed::Bind {
            certificate: certificate.clone(),
            host: host.clone(),
            replaces: replaces.clone(),
        }),
        Write::MoveMarks(from, to) => Some(Owed::MoveMarks { from: from.clone(), to: to.clone() }),
        Write::DeleteDrainSetAt(host, set_unix_ms) => {
            Some(Owed::EndDrain { host: host.clone(), set_unix_ms: *set_unix_ms })
        }
        _ => None,
    }
}
