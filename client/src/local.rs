//! Where does a login go when no coordinator answers?
//!
//! What was watched is made a farm again, and the same code decides on it as in a coordinator, as of the instant at which
//! the farm was last heard of: nothing that was known then is taken for gone because nobody says it again. What is
//! different: no host is asked for its consent, and nothing is reserved.
//!
//! One client is not to send everybody to one host meanwhile. What it gives out counts here as long as a coordinator would
//! count it, even if newer words of the farm have come in between; so does what did not work out: a host that a login
//! failed on comes last for a minute.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use usher_placement::decision::{
    Answer, Call, CallParts, Consent, Denied, Desk, Excluded, Placed, Refusal, Request, Step,
};
use usher_placement::farm::{CellChange, Farm, Snapshot, state_of, state_reason};
use usher_placement::reservation::{Grant, GrantParts, Ledger};
use usher_proto::{v1, write};
use usher_runtime::clock::{Clock, SystemClock};
use usher_runtime::doors::Doors;
use usher_types::{BootTime, EndReason, Outcome};

use crate::error::NoLocal;
use crate::farm::{Known, watched};
use crate::local::given::Given;

mod given;

/// A word that marks these answers.
const LOCAL_DECISION: &str = "local_decision";

/// What is known of the farm, and how old it is.
#[derive(Clone, Debug)]
pub(crate) struct Basis {
    pub(crate) known: Arc<Known>,
    /// When it came, by our clock.
    pub(crate) came_at: BootTime,
    /// How old it was then.
    pub(crate) age_then: Duration,
}

impl Basis {
    pub(crate) fn age(&self, now: BootTime) -> Duration {
        now.since(self.came_at).saturating_add(self.age_then)
    }
}

/// Decides without a coordinator.
#[derive(Debug, Default)]
pub(crate) struct Local {
    basis: Mutex<Option<Basis>>,
    built: Mutex<Option<Built>>,
    given: Mutex<Given>,
    doors: Doors,
}

/// A farm to decide on.
#[derive(Clone, Debug)]
struct Built {
    known: Arc<Known>,
    snapshot: Arc<Snapshot>,
    ledger: Arc<Ledger>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Local {
    /// Newer words of the farm.
    pub(crate) fn learn(&self, basis: Basis) {
        *lock(&self.basis) = Some(basis);
    }

    pub(crate) fn basis(&self) -> Option<Basis> {
        lock(&self.basis).clone()
    }

    /// A login did not work out on a host.
    pub(crate) fn failed_on(&self, host_id: &str, now: BootTime) {
        lock(&self.given).failed_on(host_id, now);
    }

    /// What became of a login that was placed here.
    pub(crate) fn report(&self, request_id: &str, outcome: Outcome, now: BootTime) {
        let reason = match outcome {
            // It counts on, as a session that nobody reports.
            Outcome::Connected => return,
            Outcome::Failed => EndReason::Failed,
            Outcome::Cancelled => EndReason::Cancelled,
            Outcome::Ended => EndReason::Session,
        };
        lock(&self.given).end(request_id, reason, now);
    }

    /// Decides a login, on what is known and not older than `max_age`. Its age comes with the answer. Nobody is waited for
    /// beyond `deadline`.
    ///
    /// # Errors
    /// Why there is no decision.
    pub(crate) async fn decide(
        self: &Arc<Self>,
        request: Request,
        max_age: Duration,
        now: BootTime,
        deadline: Instant,
    ) -> Result<(v1::Placement, Duration), NoLocal> {
        let basis = self.basis().ok_or(NoLocal::NothingKnown)?;
        let age = basis.age(now);
        if age > max_age {
            return Err(NoLocal::TooOld { age, allowed: max_age });
        }
        let local = self.clone();
        let known = basis.known.clone();
        // A farm of ten thousand hosts takes some tens of milliseconds to make.
        let built = tokio::task::spawn_blocking(move || local.built_on(&known, now)).await;
        let built = built.map_err(|_| NoLocal::Ending)?;
        if let Some(resource) =
            request.resource.as_ref().filter(|_| basis.known.has_unlisted(request.pool.as_str()))
            && !built.holds(&request, resource)
        {
            return Err(NoLocal::UnknownResource(resource.to_string()));
        }
        let known_as_of = basis.known.as_of;
        let answer = built.run(request.clone(), &self.doors, deadline).await;
        match answer.result {
            Ok(placed) => {
                if let Some(grant) = placed.grant.clone().filter(|_| !placed.is_repeat) {
                    lock(&self.given).count(grant, now + placed.pool.policy.reservation_ttl, known_as_of);
                }
                Ok((placement(&placed, &built), age))
            }
            Err(denied) => Err(built.denied(&denied, &request)),
        }
    }

    /// The farm to decide on, with what was given out here and still counts.
    fn built_on(&self, known: &Arc<Known>, now: BootTime) -> Built {
        let mut built = lock(&self.built);
        lock(&self.given).expire(now, known.as_of);
        let is_newest = built.as_ref().filter(|built| Arc::ptr_eq(&built.known, known));
        let new = is_newest.cloned().unwrap_or_else(|| {
            let new = Built::of(known);
            let mut from = None;
            loop {
                // Whoever reports takes this lock: it is let go each time.
                let last = lock(&self.given).move_some(from.as_ref(), |grant| new.take_over(grant));
                if last.is_none() {
                    break;
                }
                from = last;
            }
            new
        });
        if lock(&self.given).is_littered() {
            // Nobody asks again for a login that has ended here.
            new.ledger.sweep(BootTime::from_micros(u64::MAX));
        }
        *built = Some(new.clone());
        let failures = lock(&self.given).failures(now);
        for (host_id, is_silent) in failures {
            new.set_silent(&host_id, is_silent);
        }
        new
    }
}

impl Built {
    fn of(known: &Arc<Known>) -> Self {
        let (pools, hosts, wrong) = watched(known);
        if wrong > 0 {
            tracing::warn!(wrong, "hosts or pools of the farm are told of in words that make no sense");
        }
        let ledger = Arc::new(Ledger::new());
        let snapshot = Farm::of_watched(pools, hosts, ledger.clone(), known.as_of).snapshot(known.as_of);
        Self { known: known.clone(), snapshot, ledger }
    }

    /// A place that was given on an older farm counts on this one. Absent: its host is in it no more.
    fn take_over(&self, grant: &Grant) -> Option<Arc<Grant>> {
        let pool = self.snapshot.pools.get(&grant.pool)?;
        let cell = pool.members.cells[pool.members.position(&grant.host_id)?].clone();
        let users = grant.counted_users();
        let word = cell.load();
        cell.apply(CellChange { users: word.users(), pending_users: users.into(), places: 1 });
        let parts = GrantParts { cell, counted_at_first: users, ..(*grant).clone() };
        let moved = Arc::new(Grant::new(parts, false));
        self.ledger.insert(moved.clone());
        Some(moved)
    }

    /// A host that was silent comes last.
    fn set_silent(&self, host_id: &str, silent: bool) {
        if let Ok((pool, at)) = self.snapshot.find_host(host_id) {
            pool.members.cells[at].set_silent(silent);
        }
    }

    fn holds(&self, request: &Request, resource: &usher_types::ResourceId) -> bool {
        let pool = self.snapshot.pools.get(&request.pool);
        pool.is_some_and(|pool| pool.replicas.contains_key(resource))
    }

    /// Runs a call to its end. Nobody can be asked: who would be is taken for willing, since it is that or nobody.
    async fn run(&self, request: Request, doors: &Doors, deadline: Instant) -> Answer {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let mut running = Running::new(self, request);
        loop {
            match running.step(doors) {
                Step::Ask(_) => running.call.consent(Consent::Admitted),
                Step::Confirm(_) => running.call.confirmed(None),
                Step::TryDoors { doors: hosts, within } => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let hosts = hosts.into_iter().map(|door| (door.host_id, door.endpoints)).collect();
                    doors.try_all(hosts, within.min(left), &clock).await;
                }
                Step::Wait(time) => sleep_until((Instant::now() + time).min(deadline)).await,
                Step::Done(answer) => return *answer,
            }
        }
    }

    fn denied(&self, denied: &Denied, request: &Request) -> NoLocal {
        match denied {
            Denied::UnknownPool => NoLocal::UnknownPool(request.pool.to_string()),
            Denied::Reused => NoLocal::Invalid("the request id was used for another login".to_owned()),
            Denied::DeadlinePassed => NoLocal::Ending,
            Denied::Refused(refusal) => {
                NoLocal::Refused { reason: refusal.kind.reason(), hosts: self.host_reasons(refusal, request) }
            }
        }
    }

    fn host_reasons(&self, refusal: &Refusal, request: &Request) -> Vec<(String, String)> {
        let Some(pool) = self.snapshot.pools.get(&request.pool) else { return Vec::new() };
        let words = pool.words();
        let why = |(position, excluded): &(u32, Excluded)| {
            let at = *position as usize;
            let host = pool.hosts.get(at)?;
            let text = match excluded {
                Excluded::State(state) => {
                    let input = pool.state_input(at, *words.get(at)?, request.cost, self.known.as_of);
                    let reason = state_reason(&input, *state);
                    if reason.is_empty() { state.to_string() } else { format!("{state} ({reason})") }
                }
                other => other.as_str().to_owned(),
            };
            Some((host.facts.name.to_string(), text))
        };
        refusal.hosts.iter().filter_map(why).collect()
    }
}

/// A call between its first step and its last. One that is dropped before, because its caller's time is over, gives up what
/// it holds.
#[derive(Debug)]
struct Running<'a> {
    call: Call,
    built: &'a Built,
}

impl<'a> Running<'a> {
    fn new(built: &'a Built, request: Request) -> Self {
        let (request, seed) = (Arc::new(request), rand::random());
        let call = Call::new(CallParts { request, seed, deadline: None, decision_id: None });
        Self { call, built }
    }

    fn step(&mut self, doors: &Doors) -> Step {
        let now = SystemClock.now();
        let desk = Desk {
            snapshot: &|| self.built.snapshot.clone(),
            ledger: &self.built.ledger,
            doors: &|host_id| doors.found(host_id, now),
            is_frozen: false,
        };
        let step = self.call.step(&desk, self.built.known.as_of);
        // There is nobody to tell.
        drop(self.call.take_messages());
        step
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        drop(self.call.give_up(self.built.known.as_of));
    }
}

impl Known {
    /// Whether some host of a pool holds more resources than were told.
    fn has_unlisted(&self, pool: &str) -> bool {
        self.hosts.values().any(|host| {
            host.told.facts.as_ref().is_some_and(|facts| facts.pool == pool)
                && host.told.replicas.as_ref().is_none_or(|replicas| replicas.unlisted)
        })
    }
}

/// The answer, in the words of a coordinator's.
fn placement(placed: &Placed, built: &Built) -> v1::Placement {
    let pool = &placed.pool;
    let facts = &pool.hosts[placed.position as usize].facts;
    let words = pool.words();
    let alternative = |(position, _): &(u32, Option<f64>)| {
        let at = *position as usize;
        let facts = &pool.hosts[at].facts;
        let state = state_of(&pool.state_input(at, words[at], 1, built.known.as_of));
        v1::Alternative {
            host_id: facts.host_id.to_string(),
            host_name: facts.name.to_string(),
            state: v1::HostState::from(state).into(),
            endpoints: facts.endpoints.iter().map(write::endpoint).collect(),
            weighted_load: None,
        }
    };
    v1::Placement {
        host_id: facts.host_id.to_string(),
        host_name: facts.name.to_string(),
        endpoints: facts.endpoints.iter().map(write::endpoint).collect(),
        reason: v1::PlacementReason::LocalDecision.into(),
        flags: placed.flags.names().chain([LOCAL_DECISION]).map(str::to_owned).collect(),
        pool: pool.name.to_string(),
        policy_version: pool.version,
        alternatives: placed.alternatives.iter().map(alternative).collect(),
        hosts_heard: built.known.hosts_heard,
        hosts_registered: built.known.hosts_registered,
        ..v1::Placement::default()
    }
}

#[cfg(test)]
mod tests;
