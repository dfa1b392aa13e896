//! One login, from coordinator to coordinator until one answers.
//!
//! The time of a call is shared out: each coordinator that is left gets its part of what is left, no more than a consent or
//! two take, and the last one all of it if it is well. Who was silent is not waited for again before the others were asked. After a round
//! in which nobody answered comes another, until the time is over. A no that only one coordinator's view of the farm
//! explains counts when the round is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tonic::Status;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use usher_proto::error::reason;
use usher_proto::v1::{self, placement_service_client::PlacementServiceClient};
use usher_types::Endpoint;

use crate::answer::{Answer, cause_of, judge};
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
const LEAST: Duration = Duration::from_millis(5);

/// An answer that makes sense.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) placement: v1::Placement,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) coordinator: String,
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
    /// Who is in the farm. Absent: not known well enough to doubt an answer by it.
    pub(crate) known: Option<Arc<Known>>,
    /// The pool was there when the farm was last heard of: who does not know it has lost its store.
    pub(crate) is_pool: bool,
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

/// Asks until somebody answers. `attempts` counts the tries, and is raised before each.
pub(crate) async fn ask(plan: &Plan<'_>, question: &Question, attempts: &mut u32) -> Asking {
    let mut silences: Vec<Silence> = Vec::new();
    let mut doubtful: Option<Box<Refusal>> = None;
    let mut unsure: Option<Box<Answered>> = None;
    let mut wait = ROUND_WAIT;
    loop {
        let round = plan.peers.in_order();
        for (at, peer) in round.iter().enumerate() {
            let left = plan.deadline.saturating_duration_since(Instant::now());
            if left < LEAST {
                break;
            }
            let others = u32::try_from(round.len() - at).unwrap_or(u32::MAX);
            // The last one may take its time, unless there is reason to believe that it has none: then the others come again.
            let is_patient = others == 1 && !peer.is_down();
            let share = if is_patient { left } else { (left / others).min(ONE).max(LEAST) };
            match ask_one(plan, question, peer, share, attempts).await {
                One::Answered(answered) => return Asking::Answered(answered),
                One::Unsure(answered) => unsure = unsure.or(Some(answered)),
                One::No(refusal) => return Asking::Refused(refusal),
                One::Doubtful(refusal) => doubtful = Some(better(doubtful, refusal)),
                One::Silent(cause) => note(&mut silences, peer, cause),
            }
        }
        if let Some(answered) = unsure {
            return Asking::Answered(answered);
        }
        if let Some(refusal) = doubtful {
            return Asking::Refused(refusal);
        }
        let left = plan.deadline.saturating_duration_since(Instant::now());
        if plan.is_hopeless || left < wait + LEAST {
            return Asking::NoAnswer(silences);
        }
        sleep(wait).await;
        wait = (wait * 2).min(LONGEST_ROUND_WAIT);
    }
}

enum One {
    Answered(Box<Answered>),
    /// A host that nobody else has told of.
    Unsure(Box<Answered>),
    No(Box<Refusal>),
    Doubtful(Box<Refusal>),
    Silent(String),
}

async fn ask_one(
    plan: &Plan<'_>,
    question: &Question,
    peer: &Peer,
    share: Duration,
    attempts: &mut u32,
) -> One {
    let began = Instant::now();
    let channel = match peer.channel(share).await {
        Ok(channel) => channel,
        // Its own task says what is wrong with it.
        Err(cause) => return One::Silent(cause),
    };
    let left = share.saturating_sub(began.elapsed());
    *attempts += 1;
    let this = Try { earlier: 0, timeout: left, gateway: plan.gateway.cloned() };
    let began = Instant::now();
    match timeout(left, question.put(channel, this, *attempts)).await {
        Err(_) => {
            let cause = too_late(left);
            peer.failed(cause.clone());
            One::Silent(cause)
        }
        Ok(Err(status)) => match judge(&peer.address, &status, peer.is_partial()) {
            Answer::No(refusal) => {
                peer.answered(began.elapsed());
                One::No(refusal)
            }
            Answer::Doubtful(refusal) if plan.is_pool && refusal.reason == reason::UNKNOWN_POOL => {
                let cause = refusal.message;
                peer.failed(cause.clone());
                One::Silent(cause)
            }
            Answer::Doubtful(refusal) => {
                peer.answered(began.elapsed());
                One::Doubtful(refusal)
            }
            Answer::Silence(cause) => {
                peer.failed(cause_of(&status));
                One::Silent(cause)
            }
        },
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
            let is_known =
                plan.known.as_ref().is_none_or(|known| known.hosts.contains_key(placement.host_id.as_str()));
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

/// The no that says more: one of hosts that were asked, before one of hosts that nobody hears.
fn better(before: Option<Box<Refusal>>, now: Box<Refusal>) -> Box<Refusal> {
    match before {
        Some(before) if before.metadata.len() >= now.metadata.len() => before,
        _ => now,
    }
}

fn note(silences: &mut Vec<Silence>, peer: &Peer, cause: String) {
    silences.retain(|silence| silence.coordinator != peer.address);
    silences.push(Silence { coordinator: peer.address.clone(), cause });
}
