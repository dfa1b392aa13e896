//! One login, from coordinator to coordinator until one answers.
//!
//! The time of a call is shared out: each coordinator that is left gets its part of what is left, no more than a consent or
//! two take, and the last one all of it if it is well. Who was silent is not waited for again before the others were asked. After a round
//! in which nobody answered comes another, until the time is over. A no that only one coordinator's view of the farm
//! explains counts when the round is over; if it says that it will pass, another round comes after the time it names.
//!
//! A host that is not in our copy of the farm may be newer than the copy, so it is doubted only of a coordinator that has
//! never named one that is. Then another one is asked too. Coordinators keep the place of the highest attempt: whoever's
//! place is answered must have been asked last, or is asked once more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Status};
use usher_proto::error::{error_info, reason};
use usher_proto::v1::{self, placement_service_client::PlacementServiceClient};
use usher_types::Endpoint;

use crate::answer::{Answer, cause_of, judge, knows};
use crate::error::{Refusal, Silence};
use crate::farm::Known;
use crate::in_order::{Try, too_late};
use crate::peers::{Peer, Peers};
use crate::sound::{self, Asked};

/// Time for one coordinator while others are left: a placement that asks three hosts for consent takes a second.
const ONE: Duration = Duration::from_millis(1500);
/// Between two rounds.
const ROUND_WAIT: Duration = Duration::from_millis(100);
const LONGEST_ROUND_WAIT: Duration = Duration::from_millis(800);
/// No try is begun with less time: its answer would come too late.
pub(crate) const LEAST: Duration = Duration::from_millis(5);

/// An answer that makes sense.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) placement: v1::Placement,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) coordinator: String,
}

/// The tries of one call.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    /// Of calls for the same login before, which may have left a place.
    earlier: u32,
    begun: AtomicU32,
    refused: AtomicU32,
}

impl Tries {
    /// Those of a call for a login that was asked for so often before: what is given now must win over what was left then.
    pub(crate) fn after(earlier: u32) -> Self {
        Self { earlier, ..Self::default() }
    }

    /// Begins another one. Its number.
    fn begin(&self) -> u32 {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.last()
    }

    /// The number of the last one.
    pub(crate) fn last(&self) -> u32 {
        self.earlier.saturating_add(self.begun())
    }

    /// A coordinator gave nothing to one of them.
    fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn begun(&self) -> u32 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether a place may have been given to one of them, or to one before.
    pub(crate) fn may_hold_a_place(&self) -> bool {
        self.earlier > 0 || self.begun() > self.refused.load(Ordering::Relaxed)
    }
}

/// What came of asking.
#[derive(Debug)]
pub(crate) enum Asking {
    Answered(Box<Answered>),
    Refused(Box<Refusal>),
    NoAnswer(Vec<Silence>),
}

/// How a login is asked for.
pub(crate) struct Plan<'a> {
    pub(crate) peers: &'a Peers,
    pub(crate) gateway: Option<&'a MetadataValue<Ascii>>,
    pub(crate) asked: Asked<'a>,
    pub(crate) deadline: Instant,
    /// One round only: nobody has answered for long.
    pub(crate) is_hopeless: bool,
    /// Who is in the pool. Absent: not known well enough to doubt an answer by it.
    pub(crate) known: Option<Arc<Known>>,
    /// The pool was there when the farm was last heard of: who does not know it has lost its store.
    pub(crate) is_pool: bool,
}

impl Plan<'_> {
    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

/// What is asked, but for the attempt.
#[derive(Debug)]
pub(crate) enum Question {
    Place(v1::PlaceRequest),
    Failover(v1::FailoverRequest),
}

impl Question {
    /// The answer of the coordinator behind `channel`.
    async fn put(&self, channel: Channel, this: Try, attempt: u32) -> Result<Option<v1::Placement>, Status> {
        let mut coordinator = PlacementServiceClient::new(channel);
        match self {
            Self::Place(message) => {
                let message = v1::PlaceRequest { attempt, ..message.clone() };
                Ok(coordinator.place(this.request(message)).await?.into_inner().placement)
            }
            Self::Failover(message) => {
                let message = v1::FailoverRequest { attempt, ..message.clone() };
                Ok(coordinator.failover(this.request(message)).await?.into_inner().placement)
            }
        }
    }
}

/// Asks until somebody answers. `tries` is counted on.
pub(crate) async fn ask(plan: &Plan<'_>, question: &Question, tries: &Tries) -> Asking {
    let mut silences: Vec<Silence> = Vec::new();
    let mut doubtful: Option<Box<Refusal>> = None;
    let mut wait = ROUND_WAIT;
    loop {
        let mut unsure: Option<Unsure> = None;
        let mut this_round: Option<Box<Refusal>> = None;
        let round = plan.peers.in_order();
        for (at, peer) in round.iter().enumerate() {
            let left = plan.left();
            if left < LEAST {
                break;
            }
            let others = u32::try_from(round.len() - at).unwrap_or(u32::MAX);
            // The last one may take its time, unless there is reason to believe that it has none: then the others come again.
            let is_patient = others == 1 && !peer.is_down() && unsure.is_none();
            let share = if is_patient { left } else { (left / others).min(ONE).max(LEAST) };
            match ask_one(plan, question, peer, share, tries).await {
                One::Answered(answered) => return Asking::Answered(answered),
                One::Unsure(answered) => {
                    let under = tries.begun();
                    unsure = Some(Unsure { answered, peer: peer.clone(), under });
                }
                One::No(refusal) if unsure.is_none() => return Asking::Refused(refusal),
                // A place was given; it must not be left behind.
                One::No(_) => {}
                One::Doubtful(refusal) => this_round = Some(better(this_round, refusal)),
                One::Silent(cause) => note(&mut silences, peer, cause),
            }
        }
        if let Some(unsure) = unsure {
            return Asking::Answered(settle(plan, question, unsure, tries).await);
        }
        doubtful = this_round.or(doubtful);
        let pause = doubtful.as_ref().map_or(Some(wait), |refusal| passes_after(refusal));
        match pause.filter(|pause| !plan.is_hopeless && plan.left() >= *pause + LEAST) {
            Some(pause) => sleep(pause).await,
            None => return doubtful.map_or(Asking::NoAnswer(silences), Asking::Refused),
        }
        wait = (wait * 2).min(LONGEST_ROUND_WAIT);
    }
}

/// An answer that is doubted.
struct Unsure {
    answered: Box<Answered>,
    peer: Arc<Peer>,
    /// The attempt that it answers.
    under: u32,
}

/// Nobody knows better: it stands. If others were asked since, their attempt is higher, and one that was silent may have
/// given a place under it.
async fn settle(plan: &Plan<'_>, question: &Question, unsure: Unsure, tries: &Tries) -> Box<Answered> {
    if unsure.under == tries.begun() || plan.left() < LEAST {
        return unsure.answered;
    }
    match ask_one(plan, question, &unsure.peer, plan.left(), tries).await {
        One::Answered(answered) | One::Unsure(answered) => answered,
        One::No(_) | One::Doubtful(_) | One::Silent(_) => unsure.answered,
    }
}

/// When a refusal may have passed that does not speak of the farm as it is. Absent: asking again at once does not help.
fn passes_after(refusal: &Refusal) -> Option<Duration> {
    let is_silence = refusal.reason == reason::NO_CONSENT && refusal.code == Code::Unavailable;
    let passes = is_silence || refusal.has_kept_hosts();
    refusal.retry_after.filter(|_| passes).map(|after| after.max(ROUND_WAIT))
}

enum One {
    Answered(Box<Answered>),
    /// A host that nobody has told of, by one that has never named another.
    Unsure(Box<Answered>),
    No(Box<Refusal>),
    Doubtful(Box<Refusal>),
    Silent(String),
}

async fn ask_one(plan: &Plan<'_>, question: &Question, peer: &Peer, share: Duration, tries: &Tries) -> One {
    let began = Instant::now();
    let channel = match peer.channel(share).await {
        Ok(channel) => channel,
        // Its own task says what is wrong with it.
        Err(cause) => return One::Silent(cause),
    };
    let left = share.saturating_sub(began.elapsed());
    let attempt = tries.begin();
    let this = Try { earlier: 0, timeout: left, gateway: plan.gateway.cloned() };
    let began = Instant::now();
    match timeout(left, question.put(channel, this, attempt)).await {
        Err(_) => {
            let cause = too_late(left);
            peer.failed(cause.clone());
            One::Silent(cause)
        }
        Ok(Err(status)) => {
            if error_info(&status).is_some() {
                tries.refused();
            }
            match judge(&peer.address, &status, peer.is_partial()) {
                Answer::No(refusal) => {
                    peer.refused(&refusal, began.elapsed());
                    One::No(refusal)
                }
                Answer::Doubtful(refusal) if plan.is_pool && refusal.reason == reason::UNKNOWN_POOL => {
                    let cause = refusal.message;
                    peer.failed(cause.clone());
                    One::Silent(cause)
                }
                Answer::Doubtful(refusal) => {
                    peer.refused(&refusal, began.elapsed());
                    One::Doubtful(refusal)
                }
                Answer::Silence(cause) => {
                    peer.failed(cause_of(&status));
                    One::Silent(cause)
                }
            }
        }
        Ok(Ok(placement)) => judge_placement(plan, peer, placement, began.elapsed()),
    }
}

fn judge_placement(plan: &Plan<'_>, peer: &Peer, placement: Option<v1::Placement>, took: Duration) -> One {
    let nonsense = |why: String| {
        tracing::warn!(coordinator = peer.address, why, "an answer makes no sense");
        peer.failed(why.clone());
        One::Silent(why)
    };
    let Some(placement) = placement else { return nonsense("its answer holds no host".to_owned()) };
    match sound::check(&placement, plan.asked) {
        Err(why) => nonsense(why),
        Ok(endpoints) => {
            let host = placement.host_id.as_str();
            let is_told = plan.known.as_ref().map(|known| known.hosts.contains_key(host));
            if is_told == Some(true) {
                peer.is_ours();
            }
            let is_known = is_told.unwrap_or(true) || peer.was_ours();
            if is_known {
                peer.answered(took);
            }
            peer.hears(placement.hosts_heard, placement.hosts_registered);
            let coordinator = peer.address.clone();
            let answered = Box::new(Answered { placement, endpoints, coordinator });
            if is_known { One::Answered(answered) } else { One::Unsure(answered) }
        }
    }
}

/// The no that is likelier to pass, then the one of who knows more of the farm, then the one that says more.
fn better(before: Option<Box<Refusal>>, now: Box<Refusal>) -> Box<Refusal> {
    let worth =
        |refusal: &Refusal| (passes_after(refusal).is_some(), knows(&refusal.reason), refusal.metadata.len());
    match before {
        Some(before) if worth(&before) >= worth(&now) => before,
        _ => now,
    }
}

fn note(silences: &mut Vec<Silence>, peer: &Peer, cause: String) {
    silences.retain(|silence| silence.coordinator != peer.address);
    silences.push(Silence { coordinator: peer.address.clone(), cause });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_go_on_from_those_of_the_calls_before() {
        let tries = Tries::after(3);
        assert_eq!((tries.begin(), tries.begin()), (4, 5));
        assert_eq!((tries.begun(), tries.last()), (2, 5));
        tries.refused();
        tries.refused();
        assert!(tries.may_hold_a_place(), "that nobody gave a place now does not end one of before");
        let first = Tries::default();
        assert!(!first.may_hold_a_place());
        first.begin();
        assert!(first.may_hold_a_place());
        first.refused();
        assert!(!first.may_hold_a_place());
    }
}
