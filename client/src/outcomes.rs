//! What became of logins, for coordinators that may not be there just now.
//!
//! Reports wait in a queue of bounded length, oldest dropped first, and are sent by a task of their own: a gateway that
//! says what became of a login never waits. A report goes first to the coordinator that gave the place. Another one knows
//! of the place a moment later, from its host; if it does not know it yet, it is told once more.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::metadata::{Ascii, MetadataValue};
use usher_proto::v1::{self, placement_service_client::PlacementServiceClient};

use crate::answer::{Answer, cause_of, judge};
use crate::in_order::Try;
use crate::peers::Peers;

/// Reports that wait at most: a minute and a half of 100 logins a second.
const MOST: usize = 10_000;
/// A report older than that is of no use: places end by themselves long before.
const LASTS: Duration = Duration::from_secs(10 * 60);
/// Reports under way at once.
const AT_ONCE: usize = 32;
/// Time for one.
const ANSWER: Duration = Duration::from_secs(2);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How often a report of a place that nobody knows is sent.
const UNKNOWN_TRIES: u32 = 3;

/// A report on its way.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) message: v1::ReportOutcomeRequest,
    /// Who gave the place.
    pub(crate) to: Option<String>,
    pub(crate) since: Instant,
    pub(crate) unknown: u32,
}

/// Reports that wait.
#[derive(Debug)]
pub(crate) struct Outcomes {
    waiting: Mutex<VecDeque<Report>>,
    more: Notify,
    left: watch::Sender<usize>,
    dropped: AtomicU64,
}

impl Default for Outcomes {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            more: Notify::new(),
            left: watch::channel(0).0,
            dropped: AtomicU64::new(0),
        }
    }
}

/// What became of a report.
enum Sent {
    Done,
    /// Nobody answers.
    Again(Report),
    /// The place is not known.
    Unknown(Report),
}

impl Outcomes {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Report>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a report.
    pub(crate) fn add(&self, report: Report) {
        let mut waiting = self.waiting();
        if waiting.len() >= MOST {
            waiting.pop_front();
            self.dropped.fetch_add(1, Ordering::Relaxed);
        } else {
            self.left.send_modify(|left| *left += 1);
        }
        waiting.push_back(report);
        drop(waiting);
        self.more.notify_one();
    }

    /// Reports that were dropped because too many waited, or for too long.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Until none waits and none is under way.
    pub(crate) async fn all_sent(&self) {
        let mut left = self.left.subscribe();
        // The sender lives as long as this.
        let _ = left.wait_for(|left| *left == 0).await;
    }

    /// Sends them until `end`.
    pub(crate) async fn send_all(
        self: Arc<Self>,
        peers: Arc<Peers>,
        gateway: Option<MetadataValue<Ascii>>,
        end: CancellationToken,
    ) {
        tokio::select! {
            () = end.cancelled() => {}
            () = self.keep_sending(&peers, gateway.as_ref()) => {}
        }
    }

    async fn keep_sending(&self, peers: &Peers, gateway: Option<&MetadataValue<Ascii>>) {
        let mut wait = FIRST_WAIT;
        loop {
            let batch = self.next();
            if batch.is_empty() {
                self.more.notified().await;
                continue;
            }
            let taken = batch.len();
            let sent = join_all(batch.into_iter().map(|report| send(peers, gateway, report))).await;
            let mut back: Vec<Report> = Vec::new();
            let mut nobody = false;
            for sent in sent {
                match sent {
                    Sent::Done => {}
                    Sent::Again(report) => {
                        nobody = true;
                        back.push(report);
                    }
                    Sent::Unknown(report) if report.unknown < UNKNOWN_TRIES => back.push(report),
                    Sent::Unknown(_) => {}
                }
            }
            let must_wait = !back.is_empty();
            self.give_back(taken, back);
            if must_wait {
                sleep(wait).await;
                wait = if nobody { (wait * 2).min(LONGEST_WAIT) } else { FIRST_WAIT };
            } else {
                wait = FIRST_WAIT;
            }
        }
    }

    /// The next reports, of one login only one: what is said of it later must come later.
    fn next(&self) -> Vec<Report> {
        let mut waiting = self.waiting();
        let before = waiting.len();
        waiting.retain(|report| report.since.elapsed() < LASTS);
        let old = before - waiting.len();
        self.dropped.fetch_add(old as u64, Ordering::Relaxed);
        let mut ids = HashSet::new();
        let mut batch = Vec::new();
        while batch.len() < AT_ONCE
            && waiting.front().is_some_and(|report| ids.insert(report.message.request_id.clone()))
        {
            batch.extend(waiting.pop_front());
        }
        drop(waiting);
        self.left.send_modify(|left| *left -= old);
        batch
    }

    fn give_back(&self, taken: usize, back: Vec<Report>) {
        let mut waiting = self.waiting();
        let returned = back.len();
        back.into_iter().rev().for_each(|report| waiting.push_front(report));
        drop(waiting);
        self.left.send_modify(|left| *left -= taken - returned);
    }
}

async fn send(peers: &Peers, gateway: Option<&MetadataValue<Ascii>>, mut report: Report) -> Sent {
    let giver = report.to.as_deref().and_then(|address| peers.named(address));
    let mut order = peers.in_order();
    if let Some(giver) = giver.filter(|giver| !giver.is_down()) {
        order.retain(|peer| peer.address != giver.address);
        order.insert(0, giver);
    }
    for peer in order {
        let Ok(channel) = peer.channel(ANSWER).await else { continue };
        let this = Try { earlier: 0, timeout: ANSWER, gateway: gateway.cloned() };
        let request = this.request(report.message.clone());
        let began = Instant::now();
        match timeout(ANSWER, PlacementServiceClient::new(channel).report_outcome(request)).await {
            Ok(Ok(answer)) => {
                peer.answered(began.elapsed());
                if answer.into_inner().known {
                    return Sent::Done;
                }
                // Who gave the place knows best.
                let is_final = report.to.as_ref() == Some(&peer.address);
                report.unknown += if is_final { UNKNOWN_TRIES } else { 1 };
                return Sent::Unknown(report);
            }
            // A no is final: the report makes no sense to a coordinator.
            Ok(Err(status)) => match judge(&peer.address, &status, false) {
                Answer::No(_) | Answer::Doubtful(_) => return Sent::Done,
                Answer::Silence(_) => peer.failed(cause_of(&status)),
            },
            Err(_) => peer.failed("no answer to a report".to_owned()),
        }
    }
    Sent::Again(report)
}

#[cfg(test)]
mod tests;
