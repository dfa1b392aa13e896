//! What was this host told of logins in the last minute?
//!
//! It lists all of it in its Loads, so that every coordinator learns which gateway had successes where. The same word
//! of the same login counts once, by whichever coordinator it comes, and however often.

use std::{collections::VecDeque, time::Duration};

use serde::{Deserialize, Serialize};
use usher_types::{BootTime, FailureCause, Outcome, Token, ToldOutcome};

use crate::host::record::micros;

/// How long outcomes are reported: as long as a success speaks against another host.
const REPORTED: Duration = Duration::from_secs(60);
/// Most outcomes kept: as many as the places of a full book.
const MAX_OUTCOMES: usize = 4095;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Told {
    token: Token,
    outcome: Outcome,
    cause: Option<FailureCause>,
    succeeded_elsewhere: bool,
    #[serde(with = "micros")]
    at: BootTime,
}

/// What a word about a login adds to what was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// It is new.
    New,
    /// It was known, but not that the gateway had a success elsewhere.
    Elsewhere,
    /// Nothing.
    Known,
}

/// The outcomes of the last 60 s, oldest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct ToldOutcomes(VecDeque<Told>);

impl ToldOutcomes {
    pub(super) fn note(&mut self, told: &ToldOutcome, now: BootTime) -> News {
        while self.0.front().is_some_and(|oldest| now.since(oldest.at) > REPORTED) {
            self.0.pop_front();
        }
        let same = |known: &&mut Told| known.token == told.token && known.outcome == told.outcome;
        if let Some(known) = self.0.iter_mut().find(same) {
            if !told.succeeded_elsewhere || known.succeeded_elsewhere {
                return News::Known;
            }
            known.succeeded_elsewhere = true;
            return News::Elsewhere;
        }
        self.0.push_back(Told {
            token: told.token.clone(),
            outcome: told.outcome,
            cause: told.cause,
            succeeded_elsewhere: told.succeeded_elsewhere,
            at: now.before(told.age),
        });
        if self.0.len() > MAX_OUTCOMES {
            self.0.pop_front();
        }
        News::New
    }

    pub(super) fn report(&self, now: BootTime) -> Vec<ToldOutcome> {
        let report = |told: &Told| ToldOutcome {
            token: told.token.clone(),
            outcome: told.outcome,
            cause: told.cause,
            age: now.since(told.at),
            succeeded_elsewhere: told.succeeded_elsewhere,
        };
        self.0.iter().filter(|told| now.since(told.at) <= REPORTED).map(report).collect()
    }
}
