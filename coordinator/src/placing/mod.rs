//! From a request to an answer.
//!
//! The call itself, with its retries and its second thoughts, is made in the placement crate. Here it meets the world:
//! hosts are asked and told over their streams, doors are tried, time passes; and if the caller goes away before it has
//! its answer, the place is taken back.

mod answer;
mod tell;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Instant};

use tonic::Status;
use usher_placement::decision::{
    self, Answer, Ask, AskedSession, Call, CallParts, Consent, Denied, Desk, Flags, OutcomeReport, Placed,
    Request, Step,
};
use usher_proto::{self as proto, v1};
use usher_types::{BootTime, DecisionId};

pub(crate) use answer::{unknown_pool, wire_reason};
pub(crate) use tell::{Teller, all as tell, tell_hosts};

use crate::{history::NewDecision, layers::Deadline, metrics::ConsentAnswer, shared::Shared};

/// What one request has come to.
type Outcome = Result<v1::Placement, Status>;

/// Decides a request and acts on it.
pub(crate) async fn place(shared: &Shared, request: Request, deadline: Option<Deadline>) -> Outcome {
    let started = Instant::now();
    let request = Arc::new(request);
    let outcome = if request.dry_run {
        Running::new(shared, &request, deadline).run().await
    } else {
        place_once(shared, &request, deadline).await
    };
    let known_pool = shared.snapshot.load().pools.contains_key(&request.pool);
    let pool = known_pool.then_some(&request.pool);
    shared.metrics.place_answered(pool, answer::outcome_name(&outcome), started.elapsed());
    outcome
}

async fn place_once(shared: &Shared, request: &Arc<Request>, deadline: Option<Deadline>) -> Outcome {
    let hash = request.content_hash();
    loop {
        let decide = async { (hash, Running::new(shared, request, deadline).run().await) };
        match shared.in_flight.once(&request.token, decide).await {
            (decided, outcome) if decided == hash => return outcome,
            // The id stands for another request now.
            (_, Ok(_)) => return Err(answer::reused(&request.token)),
            // The other request got nothing under this id, perhaps since this one had it before: the ledger knows.
            (_, Err(_)) => {}
        }
    }
}

/// Takes over what a gateway says became of a login. Whether its place was known.
pub(crate) fn report_outcome(shared: &Shared, report: &OutcomeReport) -> bool {
    let reported = decision::report_outcome(&shared.ledger, report, shared.now());
    tell::all(shared, reported.messages);
    reported.known
}

/// One call under way. If it is dropped before its end, its place is taken back.
struct Running<'a> {
    shared: &'a Shared,
    call: Call,
    request: &'a Request,
    decision: Option<(u64, DecisionId)>,
    is_answered: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Most have come to their end, which leaves nothing to take back.
        if !self.is_answered {
            tell::all(self.shared, self.call.give_up(self.shared.now()));
        }
    }
}

impl<'a> Running<'a> {
    fn new(shared: &'a Shared, request: &'a Arc<Request>, deadline: Option<Deadline>) -> Self {
        let decision = shared.next_decision();
        let call = Call::new(CallParts {
            request: request.clone(),
            seed: shared.next_seed(),
            deadline: deadline.map(|deadline| shared.now() + deadline.left()),
            decision_id: decision.as_ref().map(|(_, id)| id.clone()),
        });
        Self { shared, call, request, decision, is_answered: false }
    }

    async fn run(mut self) -> Outcome {
        loop {
            let now = self.shared.now();
            let step = self.step(now);
            tell::all(self.shared, self.call.take_messages());
            match step {
                Step::Ask(ask) => {
                    let said = self.ask(ask).await;
                    self.call.consent(said);
                }
                Step::Confirm(asked) => {
                    let exists = self.confirm(asked).await;
                    self.call.confirmed(exists);
                }
                Step::TryDoors { doors, within } => {
                    let doors = doors.into_iter().map(|door| (door.host_id, door.endpoints)).collect();
                    self.shared.doors.try_all(doors, within, &self.shared.clock).await;
                }
                Step::Wait(time) => tokio::time::sleep(time).await,
                Step::Done(answer) => {
                    self.is_answered = true;
                    return self.answer(*answer, now);
                }
            }
        }
    }

    fn step(&mut self, now: BootTime) -> Step {
        let shared = self.shared;
        let desk = Desk {
            snapshot: &|| shared.snapshot.load_full(),
            ledger: &shared.ledger,
            doors: &|host_id| shared.doors.found(host_id, now),
            is_frozen: shared.is_frozen(now),
        };
        self.call.step(&desk, now)
    }

    async fn ask(&self, ask: Ask) -> Consent {
        let key = (ask.place.token.clone(), ask.place.attempt);
        let expect = proto::ExpectSession {
            place: ask.place,
            ask: true,
            max_users: ask.max_users,
            max_pending: ask.max_pending,
        };
        let message = proto::write::expect_session(&expect);
        let answer = self.shared.links.ask_consent(&ask.host_id, message, key, ask.within).await;
        let (said, counted) = match answer {
            Some(Ok(())) => (Consent::Admitted, ConsentAnswer::Admitted),
            Some(Err(why)) => (Consent::Refused(why), ConsentAnswer::Refused),
            None => (Consent::Silent, ConsentAnswer::Silent),
        };
        self.shared.metrics.consent_answered(counted);
        said
    }

    async fn confirm(&self, asked: AskedSession) -> Option<bool> {
        let links = &self.shared.links;
        links.ask_session(&asked.host_id, &asked.session_id, &asked.user, asked.within).await
    }

    /// Keeps the decision for whoever wants it explained, and puts the answer into words.
    fn answer(&mut self, answer: Answer, now: BootTime) -> Outcome {
        let outcome = match &answer.result {
            Ok(placed) => {
                self.count(placed);
                Ok(answer::placement(placed, answer.record.as_ref(), now))
            }
            Err(Denied::Refused(refusal)) => {
                Err(answer::refused(refusal, answer.record.as_ref(), self.request))
            }
            Err(Denied::UnknownPool) => Err(answer::unknown_pool(&self.request.pool)),
            Err(Denied::Reused) => Err(answer::reused(&self.request.token)),
            Err(Denied::DeadlinePassed) => {
                Err(Status::deadline_exceeded("the deadline has passed, nothing was granted"))
            }
        };
        if let Some((record, (sequence, id))) = answer.record.zip(self.decision.take()) {
            let decided_unix_ms = self.shared.clock.wall_unix_ms();
            let user = self.request.user.clone();
            let kept = self.shared.history.keep(NewDecision { id, sequence, decided_unix_ms, user, record });
            if !kept {
                self.shared.metrics.something_dropped("decision");
            }
        }
        outcome
    }

    /// Counts what users and operators notice of an answer. A dry run is no login, and nobody notices a repetition.
    fn count(&self, placed: &Placed) {
        if placed.is_repeat || self.request.dry_run {
            return;
        }
        if placed.flags.has(Flags::BLIND) {
            self.shared.metrics.placed_blind();
        }
        if let Some(redirect) = placed.redirect {
            self.shared.metrics.login_redirected(redirect.why.label());
        }
    }
}
