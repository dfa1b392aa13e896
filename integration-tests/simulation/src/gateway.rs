//! A gateway: sends logins where they are told to, and does not give up at the first silence.
//!
//! It asks one coordinator, and if no answer comes another with the same request: an answer may have been lost after the
//! place was given. Some of its users never come, some change their mind, some come back later.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use usher_proto::error::error_info;
use usher_proto::v1::placement_service_client::PlacementServiceClient;
use usher_proto::v1::{
    FailoverCause, FailoverRequest, Outcome, PlaceRequest, Placement, ReportOutcomeRequest,
};

use crate::agent::POOL;
use crate::door::log_in;
use crate::invariants::{Hold, Violation};
use crate::network::channel;
use crate::plan::{Sabotage, coordinator, door, gateway, rng};
use crate::world::{Asked, World, now};

/// Attempts at one login before its user is told to try again later.
const ATTEMPTS: u32 = 5;
/// Failovers of one login.
const FAILOVERS: usize = 3;
/// How long after its deadline a call is given up, whatever the library thinks: a tick of the simulation and some more.
const LATENESS: Duration = Duration::from_millis(50);
/// A coordinator that is reached answers within this, whatever hosts do: a second for consents, one for doors, and what a
/// busy network takes.
const ANSWERED_WITHIN: Duration = Duration::from_millis(2300);
/// How long after a fault a gateway may be without a connection: until pings find the old one dead, and a new one is made.
const CONNECTED_AGAIN: Duration = Duration::from_secs(25);

/// One gateway.
#[derive(Debug, Clone)]
struct Gateway {
    world: Arc<World>,
    name: String,
    channels: Vec<Channel>,
}

/// Runs gateway number `index` until all is quiet, and then keeps still.
///
/// # Errors
/// None: it is a node's software.
pub async fn run(world: Arc<World>, index: usize) -> turmoil::Result {
    let name = gateway(index);
    let channels = (0..world.plan.coordinators).map(|index| channel(&coordinator(index))).collect();
    let gateway = Gateway { world: world.clone(), name: name.clone(), channels };
    let mut rng = rng(world.plan.seed, &name);
    // The farm comes up first.
    sleep(Duration::from_secs(4)).await;
    let mut number = 0_u32;
    let mut next = Instant::now();
    loop {
        // Storms are looked for between two logins.
        sleep(Duration::from_millis(50)).await;
        let storm = {
            let mut state = world.state();
            if state.is_quiet {
                break;
            }
            let share = state.storm.min(1 + state.storm / 2);
            state.storm -= share;
            share
        };
        let due = u32::from(Instant::now() >= next);
        if due == 1 {
            // Exponential pauses: logins know nothing of each other.
            let pause = world.plan.pause.as_secs_f64() * -f64::ln(1.0 - rng.random_range(0.0..1.0));
            next = Instant::now() + Duration::from_secs_f64(pause);
        }
        for _ in 0..due + storm {
            number += 1;
            let login = gateway.login(number, rng.random());
            tokio::spawn(login);
        }
    }
    last_places(&gateway, rng).await;
    std::future::pending().await
}

/// What a user of a login does.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Habit {
    Comes,
    NeverComes,
    ChangesTheirMind,
}

/// One call under way.
#[derive(Debug, Clone, Copy)]
struct Call {
    index: usize,
    attempt: u32,
    limit: Duration,
    begun: Instant,
    was_sound: bool,
}

/// What a coordinator is asked, whatever the attempt.
#[derive(Debug, Clone)]
enum Question {
    Place(PlaceRequest),
    Failover(FailoverRequest),
}

impl Gateway {
    /// One login from its first question to whatever becomes of it.
    fn login(&self, number: u32, seed: u64) -> impl Future<Output = ()> + Send + use<> {
        let gateway = self.clone();
        async move {
            let mut rng = rng(seed, "login");
            // One in ten has been here before.
            let user =
                if rng.random_bool(0.1) { number.saturating_sub(rng.random_range(1..30)) } else { number };
            let request = PlaceRequest {
                request_id: format!("r{number}"),
                pool: POOL.to_owned(),
                user: Some(format!("{}u{user}", gateway.name)),
                cost: rng.random_bool(0.1).then(|| rng.random_range(2..=3)),
                ..PlaceRequest::default()
            };
            let placed = gateway.place(&request, &mut rng).await;
            if let Some(placed) = placed {
                gateway.go_there(request, placed, &mut rng).await;
            }
        }
    }

    async fn go_there(&self, request: PlaceRequest, placed: Placement, rng: &mut StdRng) {
        let habit = match rng.random_range(0..100) {
            0..85 => Habit::Comes,
            85..93 => Habit::NeverComes,
            _ => Habit::ChangesTheirMind,
        };
        sleep(Duration::from_secs_f64(rng.random_range(0.1..3.0))).await;
        match habit {
            Habit::NeverComes => return self.count("users_who_never_came"),
            Habit::ChangesTheirMind => {
                self.released(&request.request_id);
                self.count("cancelled");
                return self.report(&request.request_id, Outcome::Cancelled, None, rng).await;
            }
            Habit::Comes => {}
        }
        let (mut request, mut placed, mut tried) = (request, placed, Vec::new());
        for failover in 0..=FAILOVERS {
            let Some(index) = self.world.host_named(&placed.host_id) else { return };
            let user = request.user.clone().unwrap_or_default();
            if log_in(door(index), &user).await {
                self.released(&request.request_id);
                if rng.random_bool(0.7) {
                    self.report(&request.request_id, Outcome::Connected, None, rng).await;
                }
                return;
            }
            self.released(&request.request_id);
            if failover == FAILOVERS {
                return;
            }
            tried.push(placed.host_id.clone());
            let next = PlaceRequest { request_id: format!("{}f", request.request_id), ..request.clone() };
            let Some(elsewhere) = self.fail_over(&request, &next, &tried, rng).await else { return };
            (request, placed) = (next, elsewhere);
        }
    }

    /// A place for this login, from whichever coordinator answers.
    async fn place(&self, request: &PlaceRequest, rng: &mut StdRng) -> Option<Placement> {
        self.count("logins_asked_for");
        self.attempts(request, Question::Place(request.clone()), rng).await
    }

    async fn fail_over(
        &self,
        failed: &PlaceRequest,
        next: &PlaceRequest,
        tried: &[String],
        rng: &mut StdRng,
    ) -> Option<Placement> {
        self.count("failovers");
        let failover = FailoverRequest {
            request_id: next.request_id.clone(),
            attempt: 0,
            pool: next.pool.clone(),
            from_host: tried.last().cloned().unwrap_or_default(),
            failed_request_id: Some(failed.request_id.clone()),
            tried: tried.to_vec(),
            user: next.user.clone(),
            cost: next.cost,
            cause: FailoverCause::Unreachable.into(),
            ..FailoverRequest::default()
        };
        self.attempts(next, Question::Failover(failover), rng).await
    }

    /// Asks one coordinator after the other until one says yes or no.
    async fn attempts(
        &self,
        content: &PlaceRequest,
        question: Question,
        rng: &mut StdRng,
    ) -> Option<Placement> {
        let token = self.token(&content.request_id);
        let mut order: Vec<usize> = (0..self.channels.len()).collect();
        order.shuffle(rng);
        for attempt in 1..=ATTEMPTS {
            let index = order[attempt as usize % order.len()];
            let limit = Duration::from_millis(rng.random_range(300..3000));
            let asked_at = now();
            self.world.state().one_host.attempted(&token, asked_at);
            let call = Call { index, attempt, limit, begun: Instant::now(), was_sound: self.is_sound(index) };
            // The wait for a connection is no part of what the library's own timer sees.
            let asking = self.ask(index, &question, attempt, limit);
            let answer = match timeout(limit + LATENESS, asking).await {
                Ok(answer) => answer,
                Err(_elapsed) => Err(Status::deadline_exceeded("the gateway waits no longer")),
            };
            self.ended(&token, &call, &answer);
            match answer {
                Ok(Some(placed)) => {
                    self.granted((index, asked_at), &token, content, &placed);
                    return Some(placed);
                }
                Ok(None) => return None,
                Err(status) if is_worth_another_try(&status) => {
                    sleep(Duration::from_millis(rng.random_range(10..400))).await;
                }
                Err(_) => return None,
            }
        }
        None
    }

    async fn ask(
        &self,
        index: usize,
        question: &Question,
        attempt: u32,
        limit: Duration,
    ) -> Result<Option<Placement>, Status> {
        let mut client = PlacementServiceClient::new(self.channels[index].clone());
        match question {
            Question::Place(place) => {
                let request = self.request(PlaceRequest { attempt, ..place.clone() }, limit);
                client.place(request).await.map(|answer| answer.into_inner().placement)
            }
            Question::Failover(failover) => {
                let request = self.request(FailoverRequest { attempt, ..failover.clone() }, limit);
                client.failover(request).await.map(|answer| answer.into_inner().placement)
            }
        }
    }

    /// Whether the coordinator runs, for long enough to be connected to, and nothing is between it and this gateway.
    fn is_sound(&self, index: usize) -> bool {
        let state = self.world.state();
        let seen = &state.coordinators[index];
        let undisturbed = now().saturating_sub(seen.disturbed.max(state.link_mended(&self.name, index)));
        seen.shutdown.as_ref().is_some_and(|shutdown| !shutdown.has_begun())
            && undisturbed > CONNECTED_AGAIN
            && state.is_sound(&self.name, &coordinator(index))
    }

    fn ended(&self, token: &str, call: &Call, answer: &Result<Option<Placement>, Status>) {
        let Call { index, attempt, limit, .. } = *call;
        let took = call.begun.elapsed();
        let is_sound = call.was_sound && self.is_sound(index);
        let mut state = self.world.state();
        state.one_host.attempted(token, now());
        state.count("calls");
        let c = coordinator(index);
        let timed_out = matches!(answer, Err(status) if is_timeout(status));
        if is_sound && limit >= ANSWERED_WITHIN {
            state.deadlines += 1;
            state.longest_call = state.longest_call.max(took);
            if timed_out || self.world.plan.sabotage == Sabotage::LateCalls {
                let what = format!("{token} was not answered by {c} within {} ms", limit.as_millis());
                state.broke([Violation::new("deadline", now(), what)]);
            }
        }
        let said = match answer {
            Ok(Some(placed)) => format!("{} {}", placed.host_name, reservation(placed)),
            Ok(None) => "nothing".to_owned(),
            Err(status) => refusal(status),
        };
        match answer {
            Ok(Some(_)) => state.count("placed"),
            Ok(None) => {}
            Err(_) => state.count(format!("refused_{said}")),
        }
        state.event(format!("{token} attempt {attempt} at {c}: {said}"));
    }

    fn granted(
        &self,
        (giver, asked_at): (usize, Duration),
        token: &str,
        content: &PlaceRequest,
        placed: &Placement,
    ) {
        let Some(host) = self.world.host_named(&placed.host_id) else { return };
        let mut state = self.world.state();
        let (now, limit) = (now(), self.world.plan.limits[host]);
        let (Some(left), Some(reservation)) = (placed.reservation_left_ms, &placed.reservation) else {
            return;
        };
        if reservation.request_id != content.request_id {
            // Its user's place of before, which counts already.
            return;
        }
        state.count("reservations");
        let machine = &state.machines[host];
        let (boot, sitting) = (machine.boot, machine.users(now));
        let hold = Hold {
            host,
            boot,
            user: content.user.clone().unwrap_or_default(),
            cost: content.cost.unwrap_or(1),
            // What is left was counted when the coordinator answered; the way of the answer takes its time.
            until: asked_at + Duration::from_millis(left),
            giver,
            unheard_since: state.unheard_since(giver, host, now),
        };
        let broken = state.limits.granted(token, hold, limit, &sitting, now);
        state.broke(broken);
    }

    fn released(&self, request_id: &str) {
        self.world.state().limits.released(&self.token(request_id));
    }

    /// Tells some coordinator what became of a login; once more if it does not listen.
    async fn report(
        &self,
        request_id: &str,
        outcome: Outcome,
        cause: Option<FailoverCause>,
        rng: &mut StdRng,
    ) {
        for _ in 0..2 {
            let index = rng.random_range(0..self.channels.len());
            let message = ReportOutcomeRequest {
                request_id: request_id.to_owned(),
                outcome: outcome.into(),
                cause: cause.map(Into::into),
            };
            let request = self.request(message, Duration::from_secs(2));
            let mut client = PlacementServiceClient::new(self.channels[index].clone());
            if client.report_outcome(request).await.is_ok() {
                return;
            }
        }
    }

    fn request<T>(&self, message: T, limit: Duration) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(limit);
        // Letters and digits.
        let name = self.name.parse().expect("a gateway's name is a header's value");
        request.metadata_mut().insert("usher-gateway", name);
        request
    }

    fn token(&self, request_id: &str) -> String {
        format!("{}/{request_id}", self.name)
    }

    fn count(&self, what: &str) {
        self.world.state().count(what);
    }
}

/// Some places are taken when all is healed, of users who never come: every coordinator must say the same of them.
async fn last_places(gateway: &Gateway, mut rng: StdRng) {
    sleep(Duration::from_secs(35)).await;
    for number in 0..3 {
        let request = PlaceRequest {
            request_id: format!("last{number}"),
            pool: POOL.to_owned(),
            user: Some(format!("{}last{number}", gateway.name)),
            ..PlaceRequest::default()
        };
        let Some(placed) = gateway.place(&request, &mut rng).await else { continue };
        let Some(index) = gateway.world.host_named(&placed.host_id) else { continue };
        let token = gateway.token(&request.request_id);
        let asked = Asked { gateway: gateway.name.clone(), request, host: index, at: now() };
        gateway.world.state().asked.insert(token, asked);
    }
}

fn reservation(placed: &Placement) -> String {
    match placed.reservation_left_ms {
        Some(left) => format!("for {left} ms {:?}", placed.flags),
        None => "without a place".to_owned(),
    }
}

/// The reason of a refusal, or the code of a failure.
fn refusal(status: &Status) -> String {
    error_info(status).map_or_else(|| format!("{:?}", status.code()).to_uppercase(), |info| info.reason)
}

/// The caller's time was over: by its own clock, or by the coordinator's.
fn is_timeout(status: &Status) -> bool {
    matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled)
}

/// Nobody decided: another coordinator may.
fn is_worth_another_try(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded | Code::Unknown | Code::Internal
    )
}
