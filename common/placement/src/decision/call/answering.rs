//! The end of a call: its answer, and the record of how it came about.

use std::sync::Arc;

use usher_types::{BootTime, DecisionId};

use super::{Answer, Call, Denied, Placed, Step};
use crate::{
    decision::{
        Choice, DecisionRecord, Flags, PlacementReason, Redirect, Refusal, Request, Reserved,
        record::{RecordedChoice, RecordedRedirect},
    },
    farm::{PoolView, state_of},
    reservation::Grant,
};

/// Whether an answer that names the host of `grant` may be given again: its host has not gone since.
pub(super) fn still_holds(pool: &PoolView, position: usize, grant: &Grant, now: BootTime) -> bool {
    !grant.is_void_on(state_of(&pool.state_input(position, grant.cell.load(), 0, now)))
}

impl Call {
    /// A host was chosen by rank. Without a grant: a dry run.
    pub(super) fn chosen(&self, reserved: Reserved, choice: &Choice, grant: Option<Arc<Grant>>) -> Step {
        let placed = Placed {
            pool: reserved.pool.clone(),
            position: choice.position,
            reason: choice.reason,
            flags: choice.flags,
            grant,
            decision_id: self.decision_id.clone(),
            score: choice.score,
            alternatives: choice.alternatives.clone(),
            redirect: choice.redirect,
            is_repeat: false,
        };
        self.placed(reserved, placed)
    }

    /// The user has a session there.
    pub(super) fn own_session(&self, reserved: Reserved, position: u32, redirect: Option<Redirect>) -> Step {
        self.own(reserved, position, None, PlacementReason::OwnSession, redirect)
    }

    /// The user has a place there. A dry run is told so and no more: the place is another call's, and whoever asked that
    /// call ends it.
    pub(super) fn own_place(
        &self,
        reserved: Reserved,
        position: u32,
        grant: Arc<Grant>,
        redirect: Option<Redirect>,
    ) -> Step {
        let grant = Some(grant).filter(|_| !self.request.dry_run);
        self.own(reserved, position, grant, PlacementReason::Pending, redirect)
    }

    fn own(
        &self,
        reserved: Reserved,
        position: u32,
        grant: Option<Arc<Grant>>,
        reason: PlacementReason,
        redirect: Option<Redirect>,
    ) -> Step {
        let placed = Placed {
            decision_id: self.decision_id.clone(),
            reason,
            redirect,
            is_repeat: false,
            ..unranked(reserved.pool.clone(), position, grant)
        };
        self.placed(reserved, placed)
    }

    /// The answer that was given before. Without a grant, its session has come.
    pub(super) fn repeated(
        pool: Arc<PoolView>,
        position: u32,
        grant: Option<Arc<Grant>>,
        decision_id: Option<DecisionId>,
    ) -> Step {
        let placed = Placed { decision_id, ..unranked(pool, position, grant) };
        Step::Done(Box::new(Answer { result: Ok(placed), record: None }))
    }

    fn placed(&self, reserved: Reserved, placed: Placed) -> Step {
        let facts = &reserved.pool.hosts[placed.position as usize].facts;
        let chosen = RecordedChoice {
            host_id: facts.host_id.clone(),
            host_name: facts.name.clone(),
            reason: placed.reason,
            flags: placed.flags,
        };
        let record = self.record(reserved, Ok(chosen), placed.redirect);
        Step::Done(Box::new(Answer { result: Ok(placed), record: Some(record) }))
    }

    /// Nobody can be chosen.
    pub(super) fn refused(&self, reserved: Reserved, refusal: Refusal) -> Step {
        let record = self.record(reserved, Err(refusal.kind), None);
        Step::Done(Box::new(Answer { result: Err(Denied::Refused(refusal)), record: Some(record) }))
    }

    /// Nothing was decided.
    pub(super) fn denied(why: Denied) -> Step {
        Step::Done(Box::new(Answer { result: Err(why), record: None }))
    }

    fn record(
        &self,
        reserved: Reserved,
        answered: Result<RecordedChoice, crate::decision::RefusalKind>,
        redirect: Option<Redirect>,
    ) -> DecisionRecord {
        let redirect = redirect.map(|redirect| {
            let facts = &reserved.pool.hosts[redirect.position as usize].facts;
            RecordedRedirect {
                host_id: facts.host_id.clone(),
                host_name: facts.name.clone(),
                why: redirect.why,
            }
        });
        DecisionRecord {
            decided_at: self.decided_at,
            // Nobody needs the name: what followed from it is in the trace.
            request: Request { user: None, ..(*self.request).clone() },
            pool: reserved.pool,
            words: reserved.words,
            user: reserved.user,
            unwilling: self.unwilling.clone(),
            doors: self.doors.clone(),
            seed: self.seed,
            consents: self.consents.clone(),
            answered,
            redirect,
        }
    }
}

fn unranked(pool: Arc<PoolView>, position: u32, grant: Option<Arc<Grant>>) -> Placed {
    Placed {
        flags: Flags::NONE.with(Flags::PARTIAL_VIEW, pool.is_partial()),
        pool,
        position,
        reason: if grant.is_some() { PlacementReason::Pending } else { PlacementReason::OwnSession },
        grant,
        decision_id: None,
        score: None,
        alternatives: Vec::new(),
        redirect: None,
        is_repeat: true,
    }
}
