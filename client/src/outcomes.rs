//! What became of logins, for coordinators that may not be there just now.
//!
//! Reports wait in a queue of bounded length, oldest dropped first, and are sent by a task of their own: a gateway that
//! says what became of a login never waits. A report goes first to the coordinator that gave the place. Another one knows
//! of the place a moment later, from its host, so one that does not know it is no end: the next is asked, and all of them
//! some times more, at growing distances. What comes of a login later is said later, and a login that is asked for again
//! waits for what was said of it before.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
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
/// How often a report of a place that nobody knows is sent: 100 ms after the first time, then after twice as long each time,
/// 6 s in all. By then every host has told every coordinator that it can reach of its places.
const UNKNOWN_TRIES: u32 = 7;

/// A report on its way.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) message: v1::ReportOutcomeRequest,
    /// Who gave the place.
    pub(crate) to: Option<String>,
    pub(crate) since: Instant,
    /// How often nobody knew the place, and not before when it is said again.
    unknown: u32,
    due: Instant,
}

impl Report {
    /// What is to be said now, first to the coordinator at `to`, which gave the place.
    pub(crate) fn new(message: v1::ReportOutcomeRequest, to: Option<String>) -> Self {
        let now = Instant::now();
        Self { message, to, since: now, unknown: 0, due: now }
    }

    /// Nobody knew its place. Absent: that was the last time.
    fn unknown(mut self) -> Option<Self> {
        self.due = Instant::now() + FIRST_WAIT * 2_u32.pow(self.unknown);
        self.unknown += 1;
        (self.unknown < UNKNOWN_TRIES).then_some(self)
    }
}

/// Reports that wait.
#[derive(Debug)]
pub(crate) struct Outcomes {
    waiting: Mutex<Waiting>,
    more: Notify,
    left: watch::Sender<usize>,
    dropped: AtomicU64,
}

/// The reports of one client.
#[derive(Debug, Default)]
struct Waiting {
    queue: VecDeque<Report>,
    /// How many there are of each login, with those that are under way.
    of_login: HashMap<String, usize>,
}

impl Waiting {
    fn note(&mut self, report: &Report) {
        *self.of_login.entry(report.message.request_id.clone()).or_default() += 1;
    }

    fn forget(&mut self, request_id: &str) {
        if let Some(count) = self.of_login.get_mut(request_id) {
            *count -= 1;
            if *count == 0 {
                self.of_login.remove(request_id);
            }
        }
    }

    /// Takes out what `goes`. How many that was.
    fn drop_if(&mut self, goes: impl Fn(&Report) -> bool) -> usize {
        let (gone, kept): (VecDeque<_>, VecDeque<_>) = self.queue.drain(..).partition(goes);
        self.queue = kept;
        gone.iter().for_each(|report| self.forget(&report.message.request_id));
        gone.len()
    }
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
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a report.
    pub(crate) fn add(&self, report: Report) {
        let mut waiting = self.waiting();
        waiting.note(&report);
        let oldest = if waiting.queue.len() >= MOST { waiting.queue.pop_front() } else { None };
        if let Some(oldest) = oldest {
            waiting.forget(&oldest.message.request_id);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        } else {
            self.left.send_modify(|left| *left += 1);
        }
        waiting.queue.push_back(report);
        drop(waiting);
        self.more.notify_one();
    }

    /// Reports that were dropped because too many waited, or for too long.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Until nothing that was said of a login can come after what is asked for it now. That it is given up is not said any
    /// more.
    pub(crate) async fn settled(&self, request_id: &str) {
        let mut left = self.left.subscribe();
        while !self.drop_cancelled(request_id) {
            if left.changed().await.is_err() {
                return;
            }
        }
    }

    /// Drops what waits to give this login up. Whether nothing else is to be said of it.
    fn drop_cancelled(&self, request_id: &str) -> bool {
        let cancelled = i32::from(v1::Outcome::Cancelled);
        let mut waiting = self.waiting();
        if !waiting.of_login.contains_key(request_id) {
            return true;
        }
        let gone = waiting
            .drop_if(|report| report.message.request_id == request_id && report.message.outcome == cancelled);
        let is_settled = !waiting.of_login.contains_key(request_id);
        drop(waiting);
        if gone > 0 {
            self.left.send_modify(|left| *left -= gone);
        }
        is_settled
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
            let (batch, due) = self.next();
            if batch.is_empty() {
                let until_due = async {
                    match due {
                        Some(due) => sleep_until(due).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = self.more.notified() => {}
                    () = until_due => {}
                }
                continue;
            }
            let sent = join_all(batch.into_iter().map(|report| send(peers, gateway, report))).await;
            let mut nobody = false;
            for (request_id, sent) in sent.into_iter().rev() {
                let back = match sent {
                    Sent::Done => None,
                    Sent::Again(report) => {
                        nobody = true;
                        Some(report)
                    }
                    Sent::Unknown(report) => report.unknown(),
                };
                self.give_back(&request_id, back);
            }
            if nobody {
                sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            } else {
                wait = FIRST_WAIT;
            }
        }
    }

    /// The next reports, of one login only one: what is said of it later must come later. If there is none, when there is
    /// one again.
    fn next(&self) -> (Vec<Report>, Option<Instant>) {
        let now = Instant::now();
        let mut waiting = self.waiting();
        let is_old = |report: &Report| now.duration_since(report.since) >= LASTS;
        let old = if waiting.queue.front().is_some_and(is_old) { waiting.drop_if(is_old) } else { 0 };
        let mut ids = HashSet::new();
        let (mut batch, mut later, mut due) = (Vec::new(), Vec::new(), None::<Instant>);
        while batch.len() < AT_ONCE
            && let Some(report) = waiting.queue.pop_front()
        {
            let is_first = ids.insert(report.message.request_id.clone());
            if is_first && report.due <= now {
                batch.push(report);
            } else {
                if is_first {
                    due = Some(due.map_or(report.due, |due| due.min(report.due)));
                }
                later.push(report);
            }
        }
        later.into_iter().rev().for_each(|report| waiting.queue.push_front(report));
        drop(waiting);
        if old > 0 {
            self.dropped.fetch_add(old as u64, Ordering::Relaxed);
            self.left.send_modify(|left| *left -= old);
        }
        (batch, due)
    }

    /// A report that was under way is done, or waits again.
    fn give_back(&self, request_id: &str, back: Option<Report>) {
        let mut waiting = self.waiting();
        let is_done = back.is_none();
        match back {
            Some(report) => waiting.queue.push_front(report),
            None => waiting.forget(request_id),
        }
        drop(waiting);
        // Who waits for one login looks again.
        self.left.send_modify(|left| *left -= usize::from(is_done));
    }
}

/// Says it to one after the other until one knows the place.
async fn send(peers: &Peers, gateway: Option<&MetadataValue<Ascii>>, report: Report) -> (String, Sent) {
    (report.message.request_id.clone(), say(peers, gateway, report).await)
}

async fn say(peers: &Peers, gateway: Option<&MetadataValue<Ascii>>, report: Report) -> Sent {
    let giver = report.to.as_deref().and_then(|address| peers.named(address));
    let mut order = peers.in_order();
    if let Some(giver) = giver.filter(|giver| !giver.is_down()) {
        order.retain(|peer| peer.address != giver.address);
        order.insert(0, giver);
    }
    let mut has_answered = false;
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
                // Even the one that gave it may have been started anew since.
                has_answered = true;
            }
            // A no is final: the report makes no sense to a coordinator.
            Ok(Err(status)) => match judge(&peer.address, &status, false) {
                Answer::No(_) | Answer::Doubtful(_) => return Sent::Done,
                Answer::Silence(_) => peer.failed(cause_of(&status)),
            },
            Err(_) => peer.failed("no answer to a report".to_owned()),
        }
    }
    if has_answered { Sent::Unknown(report) } else { Sent::Again(report) }
}

#[cfg(test)]
mod tests;
