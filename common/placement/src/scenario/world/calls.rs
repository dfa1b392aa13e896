//! Logins: what a gateway asks, and what it is told.
//!
//! A call runs here as it runs in a coordinator; what a server waits for is answered at once by the hosts of the
//! scenario. A host that does not answer costs the time that is waited for it, of the call's own time: the farm's clock
//! stands still meanwhile.

use std::{sync::Arc, time::Duration};

use usher_types::{
    BootTime, FailureCause, FieldFault, GatewayId, HostId, HostName, Method, Outcome, RequestId, Token,
};

use super::{Done, Fault, World};
use crate::{
    decision::{
        Answer, Ask, AskedSession, Call, CallParts, Consent, DecisionRecord, Denied, Desk, Excluded, Flags,
        HostMessage, OutcomeReport, Placed, PlacementReason, Request, Step, report_outcome,
    },
    host::Limits,
    scenario::{
        event::{self, EventKind, Obstacle, Refused},
        syntax::{self, Failover, Place, Repeat, Statement},
    },
};

/// The gateway that asks if the script does not say.
const GATEWAY: &str = "local";
/// Most users that one login may count as.
const MOST_COST: u32 = 100;
/// Decisions kept for answers that are given again: each keeps the whole pool as it was.
const MOST_RECORDS: usize = 1000;
/// A call that waits for longer than any of its rules allow is given up.
const LONGEST_CALL: Duration = Duration::from_secs(60);

pub(super) fn default_gateway() -> GatewayId {
    GatewayId::new(GATEWAY).expect("a word of five letters is a name")
}

/// What a login came to.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub token: Token,
    pub coordinator: usize,
    pub result: Result<event::Placed, Refused>,
    /// How it was decided. Absent: nothing was.
    pub record: Option<Arc<DecisionRecord>>,
}

impl World {
    pub(super) fn place(&mut self, place: &Place, via: Option<usize>) -> Done {
        let exclude = self.hosts_named(&place.exclude)?;
        let prefer_host = place.prefer.as_ref().map(|host| self.host_named(host)).transpose()?;
        let request = self.request(&place.call);
        let request = Request { exclude, prefer_host, dry_run: place.dry_run, ..request };
        self.ask(&place.call, request, via);
        Ok(())
    }

    pub(super) fn failover(&mut self, failover: &Failover, via: Option<usize>) -> Done {
        let from_host = self.host_named(&failover.from)?;
        let tried = self.hosts_named(&failover.tried)?;
        let request = self.request(&failover.call);
        let failover_parts = crate::decision::Failover {
            from_host,
            failed_request: failover.failed.clone(),
            tried,
            cause: failover.cause.unwrap_or(FailureCause::Other),
        };
        let request = Request { failover: Some(failover_parts), ..request };
        self.ask(&failover.call, request, via);
        Ok(())
    }

    /// The host as a gateway names it: by the name that it has in the farm, or, if that is not its alone, by its id.
    fn host_named(&self, text: &str) -> Result<String, Fault> {
        let known = || self.by_name.keys().map(String::as_str);
        let Some(number) = self.host_called(text) else {
            let is_refused = HostName::new(text).is_ok_and(|name| self.is_refused(&name));
            return if is_refused { Ok(text.to_owned()) } else { Err(Fault::unknown("host", text, known())) };
        };
        let identity = &self.machines[number].identity;
        if self.coordinators.iter().any(|c| c.registered.get(&identity.id).is_some_and(|of| *of != number)) {
            // Its id would mean the machine that has it.
            return Ok(text.to_owned());
        }
        let is_announced = identity.name == identity.called || identity.name.matches(text);
        Ok(if is_announced { text.to_owned() } else { identity.id.to_string() })
    }

    fn hosts_named(&self, texts: &[String]) -> Result<Vec<String>, Fault> {
        texts.iter().map(|text| self.host_named(text)).collect()
    }

    fn request(&mut self, call: &syntax::Call) -> Request {
        let request_id = call.request.clone().unwrap_or_else(|| self.own_request());
        let gateway = call.gateway.clone().unwrap_or_else(default_gateway);
        Request {
            token: Token { gateway, request_id },
            attempt: call.attempt.unwrap_or(1).max(1),
            pool: call.pool.clone(),
            resource: call.resource.clone(),
            // An empty name is none.
            user: call.user.clone().filter(|user| !user.is_empty()),
            client_zone: call.zone.clone(),
            cost: call.cost.unwrap_or(1),
            exclude: Vec::new(),
            prefer_host: None,
            dry_run: false,
            failover: None,
        }
    }

    fn own_request(&mut self) -> RequestId {
        loop {
            self.next_request += 1;
            let id =
                RequestId::new(format!("r{}", self.next_request)).expect("a letter and a number are an id");
            // The script may have used it for one of its own.
            if !self.places.contains_key(&id) {
                return id;
            }
        }
    }

    /// Asks a coordinator, and remembers and tells what it answers.
    fn ask(&mut self, call: &syntax::Call, request: Request, via: Option<usize>) {
        let coordinator = via.unwrap_or(0);
        let name = call.label.clone().unwrap_or_else(|| request.token.request_id.to_string());
        let token = request.token.clone();
        let seed = self.draw();
        let method =
            self.store.pools.get(&request.pool).map(|record| record.policy.method).unwrap_or_default();
        let (result, record) = if self.coordinators[coordinator].is_frozen() {
            let detail = format!("{} is frozen and does not answer", self.coordinators[coordinator].name);
            (Err(refused(&name, "DEADLINE_EXCEEDED", "frozen", Some(detail))), None)
        } else if let Some(faults) = faults_of(&request) {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            (Err(refused(&name, "INVALID_ARGUMENT", "invalid_field", Some(faults.join("; ")))), None)
        } else {
            let answer = self.run_call(coordinator, request, call.deadline, seed);
            let record = answer.record.map(Arc::new);
            let result = match answer.result {
                Ok(placed) => Ok(self.placed(&name, &placed, method)),
                Err(denied) => Err(self.denied(&name, &denied, record.as_deref())),
            };
            (result, record)
        };
        let record = match record {
            Some(record) => {
                self.keep_record(token.clone(), record.clone());
                Some(record)
            }
            None => self.records.get(&token).cloned().filter(|_| result.is_ok()),
        };
        self.emit(match result.clone() {
            Ok(placed) => EventKind::Placed(placed),
            Err(refused) => EventKind::Refused(refused),
        });
        self.answers.insert(name, Answered { token, coordinator, result, record });
        self.settle();
    }

    fn keep_record(&mut self, token: Token, record: Arc<DecisionRecord>) {
        if self.records.insert(token.clone(), record).is_none() {
            self.recorded.push_back(token);
        }
        if self.recorded.len() > MOST_RECORDS
            && let Some(oldest) = self.recorded.pop_front()
        {
            self.records.remove(&oldest);
        }
    }

    /// Runs a call to its end.
    fn run_call(
        &mut self,
        coordinator: usize,
        request: Request,
        deadline: Option<Duration>,
        seed: u64,
    ) -> Answer {
        let began = self.now;
        let deadline = deadline.map(|deadline| began + deadline);
        let parts = CallParts { request: Arc::new(request), seed, deadline, decision_id: None };
        let mut call = Call::new(parts);
        let mut spent = Duration::ZERO;
        while spent < LONGEST_CALL {
            let step = self.step(coordinator, &mut call, began + spent);
            let messages = call.take_messages();
            self.outbox.extend(messages.into_iter().map(|message| (coordinator, message)));
            self.deliver();
            match step {
                Step::Ask(ask) => {
                    let said = self.consent(coordinator, &ask);
                    spent += if said == Consent::Silent { ask.within } else { Duration::ZERO };
                    call.consent(said);
                }
                Step::Confirm(asked) => {
                    let exists = self.confirm(coordinator, &asked);
                    spent += if exists.is_none() { asked.within } else { Duration::ZERO };
                    call.confirmed(exists);
                }
                // What a try finds is known beforehand.
                Step::TryDoors { .. } => {}
                Step::Wait(time) => spent += time.max(Duration::from_millis(1)),
                Step::Done(answer) => return *answer,
            }
        }
        let messages = call.give_up(began + spent);
        self.outbox.extend(messages.into_iter().map(|message| (coordinator, message)));
        Answer { result: Err(Denied::DeadlinePassed), record: None }
    }

    fn step(&mut self, coordinator: usize, call: &mut Call, now: BootTime) -> Step {
        let asked = &mut self.coordinators[coordinator];
        let snapshot = asked.snapshot(self.now);
        let is_frozen = asked.knows_old_things(self.now);
        let (doors, machines) = (&self.doors, &asked.registered);
        let door = |host_id: &HostId| machines.get(host_id).and_then(|number| doors.get(number)).copied();
        let desk = Desk {
            snapshot: &|| snapshot.clone(),
            ledger: &asked.ledger.clone(),
            doors: &|host_id| Some(door(host_id).unwrap_or(false)),
            is_frozen,
        };
        call.step(&desk, now)
    }

    /// A host is asked for a place.
    fn consent(&mut self, coordinator: usize, ask: &Ask) -> Consent {
        self.places.insert(ask.place.token.request_id.clone(), ask.place.clone());
        let number = self.connected(&ask.host_id, coordinator);
        let Some(number) = number.filter(|number| self.machines[*number].answers(coordinator)) else {
            return Consent::Silent;
        };
        let limits = Limits { max_users: ask.max_users.finite(), max_pending: ask.max_pending.finite() };
        let decided = self.machines[number].core.expect(coordinator, &ask.place, true, limits, self.now);
        self.stirred.insert(number);
        self.answered(coordinator, &ask.host_id);
        match decided {
            Ok(()) => Consent::Admitted,
            Err(reason) => Consent::Refused(reason),
        }
    }

    /// Whether a session still exists. Absent: the host is silent, or cannot tell.
    fn confirm(&mut self, coordinator: usize, asked: &AskedSession) -> Option<bool> {
        let number = self.connected(&asked.host_id, coordinator)?;
        if !self.machines[number].answers(coordinator) {
            return None;
        }
        self.answered(coordinator, &asked.host_id);
        self.machines[number].core.has_session(&asked.session_id, &asked.user)
    }

    /// A host that answers is not silent any more.
    fn answered(&mut self, coordinator: usize, host_id: &HostId) {
        let snapshot = self.coordinators[coordinator].snapshot(self.now);
        if let Ok((pool, position)) = snapshot.find_host(host_id.as_str()) {
            pool.members.cells[position].set_silent(false);
        }
    }

    fn placed(&self, name: &str, placed: &Placed, method: Method) -> event::Placed {
        let host_at = |position: u32| self.name_of(&placed.pool.hosts[position as usize].facts.host_id);
        // Hosts that nobody hears are ranked by their places.
        let by_load = method == Method::WeightedLoad && !placed.flags.has(Flags::BLIND);
        event::Placed {
            name: name.to_owned(),
            host: host_at(placed.position),
            reason: reason(placed.reason),
            weighted_load: placed.score.filter(|_| by_load),
            score: placed.score.filter(|_| !by_load),
            flags: placed.flags.names().collect(),
            reservation: placed.grant.as_ref().map(|grant| grant.token.request_id.to_string()),
            repeated: placed.is_repeat,
            redirected_from: placed.redirect.map(|redirect| host_at(redirect.position)),
            redirected_for: placed.redirect.map(|redirect| redirect.why.label()),
        }
    }

    fn denied(&self, name: &str, denied: &Denied, record: Option<&DecisionRecord>) -> Refused {
        let refusal = match denied {
            Denied::UnknownPool => return refused(name, "NOT_FOUND", "unknown_pool", None),
            Denied::Reused => return refused(name, "INVALID_ARGUMENT", "request_id_reused", None),
            Denied::DeadlinePassed => return refused(name, "DEADLINE_EXCEEDED", "deadline_passed", None),
            Denied::Refused(refusal) => refusal,
        };
        let obstacle = |(position, why): &(u32, Excluded)| {
            let host_id = &record?.pool.hosts[*position as usize].facts.host_id;
            let why = match why {
                Excluded::State(state) => state.as_str(),
                other => other.as_str(),
            };
            Some(Obstacle { host: self.name_of(host_id), why: why.to_owned() })
        };
        Refused {
            hosts: refusal.hosts.iter().filter_map(obstacle).collect(),
            retry_after_s: refusal.retry_after.map(|after| after.as_secs_f64()),
            ..refused(name, refusal.kind.code_name(), &refusal.kind.reason().to_lowercase(), None)
        }
    }

    /// A gateway says what became of a login.
    pub(super) fn outcome(&mut self, statement: &Statement, via: Option<usize>) -> Done {
        let Statement::Outcome { label, outcome, cause, gateway } = statement else { return Ok(()) };
        let answered = self.answered_as(label)?;
        let (token, asked) = (answered.token.clone(), answered.coordinator);
        let coordinator = via.unwrap_or(asked);
        let known = !self.coordinators[coordinator].is_frozen()
            && self.tell_outcome(coordinator, token, *outcome, *cause, gateway.as_ref());
        if !known {
            self.emit(EventKind::OutcomeUnknown { name: label.clone(), outcome: *outcome });
        }
        Ok(())
    }

    /// Whether the login was known. Another gateway than the one that asked speaks of the same login in its own name:
    /// its word ends the place, and it is its word that its success or its failure is counted by.
    fn tell_outcome(
        &mut self,
        coordinator: usize,
        token: Token,
        outcome: Outcome,
        cause: Option<FailureCause>,
        by: Option<&GatewayId>,
    ) -> bool {
        let (now, ledger) = (self.now, self.coordinators[coordinator].ledger.clone());
        let report = OutcomeReport { token: token.clone(), outcome, cause };
        let mut reported = report_outcome(&ledger, &report, now);
        if let (Some(by), Some(grant)) = (by.filter(|by| **by != token.gateway), ledger.get(&token)) {
            for message in &mut reported.messages {
                if let HostMessage::Outcome { token, succeeded_elsewhere, .. } = &mut message.message {
                    token.gateway = by.clone();
                    let elsewhere = ledger.successes().elsewhere(&grant.pool, by, &grant.host_id, now);
                    *succeeded_elsewhere = outcome == Outcome::Failed && elsewhere;
                }
            }
            if matches!(outcome, Outcome::Connected | Outcome::Ended) && reported.known {
                ledger.successes().note(&grant.pool, by, &grant.host_id, now);
            }
        }
        self.outbox.extend(reported.messages.into_iter().map(|message| (coordinator, message)));
        reported.known
    }

    /// Many logins of one line.
    pub(super) fn repeat(&mut self, repeat: &Repeat, via: Option<usize>) -> Done {
        let mut all = Vec::new();
        for n in 1..=repeat.count {
            let statement = repeat.statement(n).map_err(|error| Fault::new("repeat", error.fault))?;
            self.statement(&statement, via)?;
            if let Some(label) = label_of(&statement)
                && let Some(answered) = self.answers.get(label)
            {
                all.push(Answered { record: None, ..answered.clone() });
            }
            self.settle();
        }
        if let Some(label) = &repeat.label {
            self.tallies.insert(label.clone(), all);
        }
        Ok(())
    }

    /// What a label stands for.
    pub(super) fn answered_as(&self, label: &str) -> Result<&Answered, Fault> {
        let known = || self.answers.keys().map(String::as_str);
        self.answers.get(label).ok_or_else(|| Fault::unknown("placement", label, known()))
    }
}

fn refused(name: &str, code: &'static str, reason: &str, detail: Option<String>) -> Refused {
    Refused {
        name: name.to_owned(),
        code,
        reason: reason.to_owned(),
        hosts: Vec::new(),
        detail,
        retry_after_s: None,
    }
}

fn reason(reason: PlacementReason) -> String {
    reason.as_str().to_lowercase()
}

/// The label of a login, wherever it stands.
fn label_of(statement: &Statement) -> Option<&str> {
    match statement {
        Statement::Place(place) => place.call.label.as_deref(),
        Statement::Failover(failover) => failover.call.label.as_deref(),
        Statement::Via { statement, .. } => label_of(statement),
        _ => None,
    }
}

/// What a coordinator refuses in a request, as it comes over the wire.
fn faults_of(request: &Request) -> Option<Vec<FieldFault>> {
    let mut faults = Vec::new();
    if !(1..=MOST_COST).contains(&request.cost) {
        faults.push(FieldFault::new("cost", request.cost, format!("1..={MOST_COST}")));
    }
    if request.user.as_deref().is_some_and(|user| user.len() > 256 || user.chars().any(char::is_control)) {
        // The name itself is not shown.
        faults.push(FieldFault::new("user", "...", "at most 256 bytes, no control characters"));
    }
    let failed = request.failover.as_ref().and_then(|failover| failover.failed_request.as_ref());
    if failed == Some(&request.token.request_id) {
        let allowed = "another id than the failed request's";
        faults.push(FieldFault::new(
            "request_id",
            format!("{:?}", request.token.request_id.as_str()),
            allowed,
        ));
    }
    (!faults.is_empty()).then_some(faults)
}
