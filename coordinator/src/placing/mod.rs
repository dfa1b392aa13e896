//! From a request to an answer: retries, the decision, the host's consent, the record of it.
//!
//! The decision itself is made in the placement crate. Here it is acted upon: the host is asked or told, the place goes
//! into the ledger, and if the caller goes away before it has its answer, the place is taken back.

mod answer;
mod consent;
mod ends;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tonic::Status;
use usher_placement::{
    decision::{Decision, Excluded, Refusal, RefusalKind, Request, Reserved, reserve_best},
    farm::{PoolView, SessionAt},
    reservation::{Grant, GrantParts, GrantState, Retry},
};
use usher_proto::v1;
use usher_types::{BootTime, EndReason, HostId};

pub(crate) use answer::{unknown_pool, wire_reason};
use consent::{Consented, Taken};
pub(crate) use ends::{end_failed_places, report_outcome};

use crate::{
    history::{Consent, DecisionRecord},
    layers::Deadline,
    shared::Shared,
};

/// Most hosts that are asked within one call.
const MAX_ASKED: usize = 3;
/// Longest time for asking them all.
const ASK_ALL: Duration = Duration::from_secs(1);
/// Longest time to wait for one host.
const ASK_ONE: Duration = Duration::from_millis(250);
/// How often to look whether a host has admitted the place that the user has there already.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What one request has come to.
type Outcome = Result<v1::Placement, Status>;

/// Decides a request and acts on it.
pub(crate) async fn place(shared: &Shared, request: Request, deadline: Option<Deadline>) -> Outcome {
    let started = Instant::now();
    let outcome = if request.dry_run {
        Placing::new(shared, &request, 1, deadline).run().await
    } else {
        place_once(shared, &request, deadline).await
    };
    let known_pool = shared.snapshot.load().pools.contains_key(&request.pool);
    let reason = match &outcome {
        Ok(placement) => answer::reason_name(placement),
        Err(status) => answer::refusal_name(status),
    };
    shared.metrics.place_answered(known_pool.then_some(&request.pool), reason, started.elapsed());
    outcome
}

async fn place_once(shared: &Shared, request: &Request, deadline: Option<Deadline>) -> Outcome {
    let hash = request.content_hash();
    loop {
        let decide = async { (hash, retry_or_place(shared, request, hash, deadline).await) };
        match shared.in_flight.once(&request.token, decide).await {
            (decided, outcome) if decided == hash => return outcome,
            // The id stands for another request now.
            (_, Ok(_)) => return Err(answer::reused(&request.token)),
            // The other request got nothing under this id, perhaps since this one had it before: the ledger knows.
            (_, Err(_)) => {}
        }
    }
}

async fn retry_or_place(
    shared: &Shared,
    request: &Request,
    hash: u64,
    deadline: Option<Deadline>,
) -> Outcome {
    match shared.ledger.retry(&request.token, hash, request.attempt) {
        Retry::Reused => Err(answer::reused(&request.token)),
        Retry::Repeat(grant) | Retry::Arrived(grant) => match answer::repeat(shared, &grant) {
            Some(answer) => {
                // The host must know the attempt under which the place stands now: of two hosts with one token, the
                // higher attempt stays.
                consent::tell(shared, &grant);
                Ok(answer)
            }
            // Its host is gone, or takes nobody: the place is void, decide anew.
            None => {
                ends::end(shared, &grant, EndReason::Cancelled);
                let attempt = request.attempt.max(grant.attempt().saturating_add(1));
                Placing::new(shared, request, attempt, deadline).run().await
            }
        },
        Retry::New { attempt } => Placing::new(shared, request, attempt, deadline).run().await,
    }
}

/// One request on its way to an answer.
struct Placing<'a> {
    shared: &'a Shared,
    request: &'a Request,
    attempt: u32,
    deadline: Option<Deadline>,
    started: Instant,
    seed: u64,
    own_places: Vec<HostId>,
    unwilling: Vec<(HostId, Excluded)>,
    consents: Vec<Consent>,
}

impl<'a> Placing<'a> {
    fn new(shared: &'a Shared, request: &'a Request, attempt: u32, deadline: Option<Deadline>) -> Self {
        let (unwilling, consents) = (Vec::new(), Vec::new());
        let (started, seed) = (Instant::now(), shared.next_seed());
        Self {
            shared,
            request,
            attempt,
            deadline,
            started,
            seed,
            own_places: Vec::new(),
            unwilling,
            consents,
        }
    }

    async fn run(mut self) -> Outcome {
        loop {
            if self.deadline.is_some_and(Deadline::has_passed) {
                return Err(Status::deadline_exceeded("the deadline has passed, nothing was granted"));
            }
            let now = self.shared.now();
            if self.shared.is_frozen(now) {
                return Err(answer::stale());
            }
            self.own_places = self.find_own_places();
            let load = || self.shared.snapshot.load_full();
            let reserved =
                reserve_best(load, self.request, &self.own_places, &self.unwilling, now, self.seed);
            let Some(reserved) = reserved else { return Err(answer::unknown_pool(&self.request.pool)) };
            if let Some(outcome) = self.act(reserved, now).await {
                return outcome;
            }
        }
    }

    /// Acts on a decision. Absent: the host was asked and did not agree; decide again without it.
    async fn act(&mut self, reserved: Reserved, now: BootTime) -> Option<Outcome> {
        match reserved.decision.clone() {
            Decision::Take(choice) => {
                if self.request.dry_run {
                    let id = self.keep(&reserved, now, Ok(choice.position));
                    return Some(Ok(answer::taken(&reserved, &choice, None, now, id)));
                }
                self.take(reserved, &choice, now).await
            }
            Decision::OwnSession { position, session, must_confirm } => {
                let must_ask = must_confirm && !self.request.dry_run;
                if must_ask && !self.still_exists(&reserved.pool, position, &session).await {
                    self.unwilling.push((session.host_id, Excluded::RefusedConsent));
                    return None;
                }
                let id = self.keep(&reserved, now, Ok(position));
                Some(Ok(answer::own(&reserved.pool, position, None, now, id)))
            }
            Decision::OwnPlace { position } => {
                // It may have ended just now: then it is decided without it.
                let grant = self.own_grant(&reserved.pool, position)?;
                if grant.state() == GrantState::Asked {
                    // Another login of the user waits for this host, which may still refuse.
                    tokio::time::sleep(LOOK_AGAIN).await;
                    return None;
                }
                let id = self.keep(&reserved, now, Ok(position));
                Some(Ok(answer::own(&reserved.pool, position, Some(&grant), now, id)))
            }
            Decision::Refused(refusal) => Some(Err(self.refuse(&reserved, &refusal, now))),
        }
    }

    async fn take(
        &mut self,
        reserved: Reserved,
        choice: &usher_placement::decision::Choice,
        now: BootTime,
    ) -> Option<Outcome> {
        let host = reserved.pool.hosts[choice.position as usize].clone();
        let decision = self.shared.next_decision();
        let asked = host.connected && host.max_users(&reserved.pool.policy).finite().is_some();
        let grant = Arc::new(Grant::new(
            GrantParts {
                token: self.request.token.clone(),
                made_under: self.attempt,
                content_hash: self.request.content_hash(),
                pool: self.request.pool.clone(),
                host_id: host.facts.host_id.clone(),
                cell: reserved.pool.members.cells[choice.position as usize].clone(),
                endpoints: host.facts.endpoints.clone(),
                user: self.request.user.clone(),
                user_key: self.request.user.as_deref().and_then(|u| reserved.pool.policy.user_match.key(u)),
                cost: self.request.cost,
                counted_at_first: choice.adds_users,
                since: now,
                ends_at: now + reserved.pool.policy.reservation_ttl,
                decision_id: decision.as_ref().map(|(_, id)| id.clone()),
            },
            asked,
        ));
        if let Err(known) = self.shared.ledger.claim(grant.clone()) {
            // Another call with this token was quicker, here or through another coordinator: its place is the answer.
            grant.end(EndReason::Superseded, now);
            if known.content_hash != grant.content_hash {
                return Some(Err(answer::reused(&grant.token)));
            }
            if let Some(answer) = answer::repeat(self.shared, &known) {
                return Some(Ok(answer));
            }
            // Its host is gone already, or takes nobody.
            ends::end(self.shared, &known, EndReason::Cancelled);
            self.attempt = self.attempt.max(known.attempt().saturating_add(1));
            return None;
        }
        // Taken back if the caller goes away while the host is asked.
        let taken = Taken::new(self.shared, grant.clone());
        if asked {
            match self.consent(&grant, &host, &reserved.pool).await {
                Consented::Yes => {}
                Consented::No(why) => {
                    drop(taken);
                    self.attempt = self.attempt.saturating_add(1);
                    self.unwilling.push((host.facts.host_id.clone(), why));
                    if self.unwilling.len() >= MAX_ASKED || self.started.elapsed() >= ASK_ALL {
                        return Some(Err(self.no_consent(&reserved, now)));
                    }
                    return None;
                }
            }
        } else {
            consent::tell(self.shared, &grant);
        }
        if self.deadline.is_some_and(Deadline::has_passed) {
            return Some(Err(Status::deadline_exceeded("the deadline has passed, the place was taken back")));
        }
        let id = self.keep_as(decision, &reserved, now, Ok(choice.position));
        let answer = answer::taken(&reserved, choice, Some(&grant), now, id);
        taken.keep();
        Some(Ok(answer))
    }

    fn find_own_places(&self) -> Vec<HostId> {
        let snapshot = self.shared.snapshot.load();
        let Some(pool) = snapshot.pools.get(&self.request.pool) else { return Vec::new() };
        let Some(user) = self.request.user.as_deref().and_then(|user| pool.policy.user_match.key(user))
        else {
            return Vec::new();
        };
        self.shared.ledger.of_user(&pool.name, &user).iter().map(|grant| grant.host_id.clone()).collect()
    }

    fn own_grant(&self, pool: &PoolView, position: u32) -> Option<Arc<Grant>> {
        let user = self.request.user.as_deref().and_then(|user| pool.policy.user_match.key(user))?;
        let host_id = &pool.hosts[position as usize].facts.host_id;
        self.shared.ledger.of_user(&pool.name, &user).into_iter().find(|grant| grant.host_id == *host_id)
    }

    /// Whether the user's session is still on a host that takes no new ones. If the host is silent, what it listed
    /// last decides.
    async fn still_exists(&self, pool: &PoolView, position: u32, session: &SessionAt) -> bool {
        let host = &pool.hosts[position as usize];
        let listed = host.sessions.iter().find(|listed| listed.id == *session.session_id);
        let Some(user) = listed.map(|listed| listed.user.as_str()) else { return true };
        let asked = self
            .shared
            .links
            .ask_session(&session.host_id, &session.session_id, user, self.left(ASK_ONE))
            .await;
        asked.unwrap_or(true)
    }

    fn left(&self, limit: Duration) -> Duration {
        let all = ASK_ALL.saturating_sub(self.started.elapsed());
        let call = self.deadline.map_or(limit, Deadline::left);
        limit.min(all).min(call)
    }

    fn refuse(&self, reserved: &Reserved, refusal: &Refusal, now: BootTime) -> Status {
        let status = answer::refused(&reserved.pool, refusal, self.request, &reserved.words, now);
        self.keep(reserved, now, Err(answer::refusal_name(&status)));
        status
    }

    fn no_consent(&self, reserved: &Reserved, now: BootTime) -> Status {
        let any_refused = self.unwilling.iter().any(|(_, why)| *why == Excluded::RefusedConsent);
        let kind = if any_refused { RefusalKind::NoConsentRefused } else { RefusalKind::NoConsentSilent };
        let hosts = self.unwilling.iter().filter_map(|(host_id, why)| {
            let position = reserved.pool.members.position(host_id)?;
            Some((u32::try_from(position).ok()?, *why))
        });
        self.refuse(reserved, &Refusal { kind, hosts: hosts.collect() }, now)
    }

    fn keep(&self, reserved: &Reserved, now: BootTime, answered: Result<u32, &'static str>) -> String {
        self.keep_as(self.shared.next_decision(), reserved, now, answered)
    }

    /// Keeps the decision for whoever wants it explained. Its id.
    fn keep_as(
        &self,
        decision: Option<(u64, usher_types::DecisionId)>,
        reserved: &Reserved,
        now: BootTime,
        answered: Result<u32, &'static str>,
    ) -> String {
        let Some((sequence, id)) = decision else { return String::new() };
        let text = id.to_string();
        let host_id = |position: u32| reserved.pool.hosts[position as usize].facts.host_id.clone();
        let record = DecisionRecord {
            id,
            sequence,
            decided_at: now,
            decided_unix_ms: self.shared.clock.wall_unix_ms(),
            pool: reserved.pool.clone(),
            words: reserved.words.clone(),
            request: self.request.clone(),
            own_places: self.own_places.clone(),
            unwilling: self.unwilling.clone(),
            seed: self.seed,
            consents: self.consents.clone(),
            answered: answered.map(host_id),
        };
        if !self.shared.history.keep(record) {
            self.shared.metrics.something_dropped("decision");
        }
        text
    }
}
