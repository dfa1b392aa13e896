//! What became of logins, for coordinators that may not be there just now.
//!
//! Reports wait in a queue of bounded length, oldest dropped first, and are sent by a task of their own: a gateway that
//! says what became of a login never waits. Several are under way at once and none waits for another one's answer: a
//! coordinator that hangs holds up those that were sent to it, and nobody else's places. A report goes first to the
//! coordinator that gave the place. Another one knows of the place a moment later, from its host, so one that does not know
//! it is no end: the next is asked, and all of them some times more, at growing distances. What comes of a login later is
//! said later, and a login that is asked for again waits for what was said of it before.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
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
/// Reports under way at once: more than come of 1000 logins a second while answers take 50 ms.
const AT_ONCE: usize = 64;
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
    /// How often nobody knew the place, and after how often that is taken for an answer.
    unknown: u32,
    unknown_tries: u32,
    /// The highest attempt that may have left what is taken back.
    attempts: u32,
}

impl Report {
    /// What is to be said now, first to the coordinator at `to`, which gave the place.
    pub(crate) fn new(message: v1::ReportOutcomeRequest, to: Option<String>) -> Self {
        let (since, unknown_tries) = (Instant::now(), UNKNOWN_TRIES);
        Self { message, to, since, unknown: 0, unknown_tries, attempts: 0 }
    }

    /// It takes back what so many attempts may have left.
    pub(crate) fn after(self, attempts: u32) -> Self {
        Self { attempts, ..self }
    }

    /// Each coordinator is asked once: none may know the place, and that is well.
    pub(crate) fn said_once(self) -> Self {
        Self { unknown_tries: 1, ..self }
    }

    fn login(&self) -> &str {
        &self.message.request_id
    }

    fn is_old(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= LASTS
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
    /// Oldest first.
    queue: VecDeque<Report>,
    /// Those whose place nobody knew, by when they are said again, and a number that tells equal times apart.
    resting: BTreeMap<(Instant, u64), Report>,
    rests: u64,
    /// Logins of which a report is under way, or rests: what is said of them later comes later.
    busy: HashSet<String>,
    /// How many there are of each login, with those that are under way.
    of_login: HashMap<String, usize>,
}

impl Waiting {
    fn note(&mut self, report: &Report) {
        *self.of_login.entry(report.login().to_owned()).or_default() += 1;
    }

    fn forget(&mut self, request_id: &str) {
        if let Some(count) = self.of_login.get_mut(request_id) {
            *count -= 1;
            if *count == 0 {
                self.of_login.remove(request_id);
            }
        }
    }

    /// Those that rest no longer come before all others.
    fn wake(&mut self, now: Instant) {
        while let Some(first) = self.resting.first_entry().filter(|first| first.key().0 <= now) {
            let report = first.remove();
            self.busy.remove(report.login());
            self.queue.push_front(report);
        }
    }

    fn pop_oldest(&mut self) -> Option<Report> {
        self.queue.pop_front().or_else(|| {
            let (_, resting) = self.resting.pop_first()?;
            self.busy.remove(resting.login());
            Some(resting)
        })
    }

    /// Takes out what `goes` of what is not under way.
    fn drop_if(&mut self, goes: impl Fn(&Report) -> bool) -> VecDeque<Report> {
        let (mut gone, kept): (VecDeque<_>, VecDeque<_>) = self.queue.drain(..).partition(&goes);
        self.queue = kept;
        for report in self.resting.extract_if(.., |_, report| goes(report)).map(|(_, report)| report) {
            self.busy.remove(report.login());
            gone.push_back(report);
        }
        gone.iter().for_each(|report| self.forget(report.login()));
        gone
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
        let is_full = waiting.queue.len() + waiting.resting.len() >= MOST;
        let oldest = if is_full { waiting.pop_oldest() } else { None };
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
    /// more: the attempts after which it was to be said are answered.
    pub(crate) async fn settled(&self, request_id: &str) -> u32 {
        let mut left = self.left.subscribe();
        let mut attempts = 0;
        while !self.drop_cancelled(request_id, &mut attempts) {
            if left.changed().await.is_err() {
                break;
            }
        }
        attempts
    }

    /// Drops what waits to give this login up, after so many `attempts`. Whether nothing else is to be said of it.
    fn drop_cancelled(&self, request_id: &str, attempts: &mut u32) -> bool {
        let cancelled = i32::from(v1::Outcome::Cancelled);
        let mut waiting = self.waiting();
        if !waiting.of_login.contains_key(request_id) {
            return true;
        }
        let gone = waiting
            .drop_if(|report| report.message.request_id == request_id && report.message.outcome == cancelled);
        *attempts = gone.iter().map(|report| report.attempts).fold(*attempts, u32::max);
        let is_settled = !waiting.of_login.contains_key(request_id);
        drop(waiting);
        if !gone.is_empty() {
            self.left.send_modify(|left| *left -= gone.len());
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
        let mut under_way = FuturesUnordered::new();
        let mut silence = Silence::default();
        loop {
            let is_silent = silence.lasts();
            let mut wakes = silence.until;
            while !is_silent && under_way.len() < AT_ONCE {
                match self.next() {
                    Next::Report(report) => under_way.push(send(peers, gateway, report)),
                    Next::At(due) => {
                        wakes = due;
                        break;
                    }
                }
            }
            let wake = async {
                match wakes {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some((login, sent)) = under_way.next() => {
                    silence.heard(matches!(sent, Sent::Again(_)));
                    self.give_back(&login, sent);
                }
                () = self.more.notified() => {}
                () = peers.recovery() => silence = Silence::default(),
                () = wake => {}
            }
        }
    }

    /// The next report, of a login of which none is under way. If there is none, when there is one again.
    fn next(&self) -> Next {
        let now = Instant::now();
        let mut waiting = self.waiting();
        let is_old = waiting.queue.front().is_some_and(|report| report.is_old(now));
        let old = if is_old { waiting.drop_if(|report| report.is_old(now)).len() } else { 0 };
        waiting.wake(now);
        let free = waiting.queue.iter().position(|report| !waiting.busy.contains(report.login()));
        let next = match free.and_then(|at| waiting.queue.remove(at)) {
            Some(report) => {
                waiting.busy.insert(report.login().to_owned());
                Next::Report(report)
            }
            None => Next::At(waiting.resting.first_key_value().map(|((due, _), _)| *due)),
        };
        drop(waiting);
        if old > 0 {
            self.dropped.fetch_add(old as u64, Ordering::Relaxed);
            self.left.send_modify(|left| *left -= old);
        }
        next
    }

    /// A report that was under way is done, or waits again.
    fn give_back(&self, login: &str, sent: Sent) {
        let mut waiting = self.waiting();
        waiting.busy.remove(login);
        let is_done = match sent {
            Sent::Again(report) => {
                waiting.queue.push_front(report);
                false
            }
            Sent::Unknown(report) if report.unknown + 1 < report.unknown_tries => {
                let due = Instant::now() + FIRST_WAIT * 2_u32.pow(report.unknown);
                waiting.rests += 1;
                let key = (due, waiting.rests);
                waiting.busy.insert(login.to_owned());
                waiting.resting.insert(key, Report { unknown: report.unknown + 1, ..report });
                false
            }
            Sent::Unknown(_) | Sent::Done => {
                waiting.forget(login);
                true
            }
        };
        drop(waiting);
        // Who waits for one login looks again.
        self.left.send_modify(|left| *left -= usize::from(is_done));
    }
}

/// What there is to be sent.
#[derive(Debug)]
enum Next {
    Report(Report),
    /// Nothing before then; absent: before one is added, or comes back.
    At(Option<Instant>),
}

/// Nobody answers: each time it is waited longer before somebody is asked again, but for one that is found well.
#[derive(Debug, Default)]
struct Silence {
    until: Option<Instant>,
    wait: Option<Duration>,
}

impl Silence {
    fn lasts(&mut self) -> bool {
        let lasts = self.until.is_some_and(|until| until > Instant::now());
        if !lasts {
            self.until = None;
        }
        lasts
    }

    /// A report came back, and nobody had answered, or somebody had.
    fn heard(&mut self, is_silence: bool) {
        if !is_silence {
            *self = Self::default();
        } else if !self.lasts() {
            // Of those that were under way together the first one counts.
            let wait = self.wait.unwrap_or(FIRST_WAIT);
            self.until = Some(Instant::now() + wait);
            self.wait = Some((wait * 2).min(LONGEST_WAIT));
        }
    }
}

/// Says it to one after the other until one knows the place.
async fn send(peers: &Peers, gateway: Option<&MetadataValue<Ascii>>, report: Report) -> (String, Sent) {
    (report.login().to_owned(), say(peers, gateway, report).await)
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
