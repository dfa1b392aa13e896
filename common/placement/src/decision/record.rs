//! What must be kept of a decision so that it can be explained later?
//!
//! Its inputs, nothing else: the explanation is computed when somebody asks, by the functions that decided. Login names
//! are no input; a record holds where the user's sessions and places were, and not who the user is. A record keeps the
//! pool alive as it was, so what is kept for long is [reduced](DecisionRecord::reduce) to a few hosts with their numbers.

use std::sync::Arc;

use usher_types::{BootTime, HostId, HostName, PoolName, Weights};

use super::{
    ConsentAsked, Decision, Excluded, Explanation, Flags, Inputs, PlacementReason, ReadWords, RedirectReason,
    RefusalKind, Request, UserTrace, explain,
};
use crate::{farm::PoolView, load::LearnedCosts};

/// The host that an answer named.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordedChoice {
    /// The host.
    pub host_id: HostId,
    /// Its name.
    pub host_name: HostName,
    /// Why.
    pub reason: PlacementReason,
    /// What qualified the answer.
    pub flags: Flags,
}

/// The host that an answer passed over.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordedRedirect {
    /// The host.
    pub host_id: HostId,
    /// Its name.
    pub host_name: HostName,
    /// Why.
    pub why: RedirectReason,
}

/// One decision and everything that it depended on.
#[derive(Clone, Debug)]
pub struct DecisionRecord {
    /// When it was decided.
    pub decided_at: BootTime,
    /// The pool as it was.
    pub pool: Arc<PoolView>,
    /// Its cells as they were ranked.
    pub words: ReadWords,
    /// What was asked, without the login name.
    pub request: Request,
    /// What the user had in the pool.
    pub user: UserTrace,
    /// Hosts that did not agree within the call.
    pub unwilling: Vec<(HostId, Excluded)>,
    /// What the doors of lost hosts did.
    pub doors: Vec<(HostId, bool)>,
    /// Settled ties.
    pub seed: u64,
    /// Hosts that were asked for a place, in order.
    pub consents: Vec<ConsentAsked>,
    /// What the gateway was told.
    pub answered: Result<RecordedChoice, RefusalKind>,
    /// The host that was passed over.
    pub redirect: Option<RecordedRedirect>,
}

impl DecisionRecord {
    /// What the decision was made from.
    pub fn inputs(&self) -> Inputs<'_> {
        Inputs {
            pool: &self.pool,
            words: self.words.as_words(),
            request: &self.request,
            user: &self.user,
            unwilling: &self.unwilling,
            doors: &self.doors,
            now: self.decided_at,
            seed: self.seed,
        }
    }

    /// The decision with every number of every host.
    pub fn explain(&self) -> ExplainedRecord {
        self.explained(explain(&self.inputs()))
    }

    /// The same with the chosen host, the best 16 and the counts only; it keeps nothing else alive.
    pub fn reduce(&self) -> ExplainedRecord {
        let mut explanation = explain(&self.inputs()).reduce();
        if let Decision::Refused(refusal) = &mut explanation.decision {
            // As many as the pool has hosts; the counts tell how many.
            refusal.at_limit = Vec::new();
        }
        self.explained(explanation)
    }

    fn explained(&self, explanation: Explanation) -> ExplainedRecord {
        let name = |position: usize| {
            let facts = &self.pool.hosts[position].facts;
            (facts.host_id.clone(), facts.name.clone())
        };
        ExplainedRecord {
            pool: self.pool.name.clone(),
            policy_version: self.pool.version,
            weights: self.pool.policy.weights,
            costs: Some(self.pool.costs).filter(|_| self.pool.policy.predicts()),
            hosts: explanation.hosts.iter().map(|host| name(host.position)).collect(),
            explanation,
        }
    }
}

/// A decision, explained, with the names of its hosts.
#[derive(Clone, PartialEq, Debug)]
pub struct ExplainedRecord {
    /// The pool.
    pub pool: PoolName,
    /// The version of its settings.
    pub policy_version: u64,
    /// Its weights.
    pub weights: Weights,
    /// What one more session cost, as the pool had learned it. Absent: the decision did not predict.
    pub costs: Option<LearnedCosts>,
    /// The hosts of the explanation, in its order.
    pub hosts: Vec<(HostId, HostName)>,
    /// The explanation.
    pub explanation: Explanation,
}
