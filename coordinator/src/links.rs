//! The open streams of hosts, and the questions that are on their way through them.
//!
//! Anyone may send to a host: a placement tells it of a place, an operator drains it. Each stream has a bounded queue;
//! a host that does not read is cut off and connects again, and then gets the whole truth anew. Nobody else ever waits for
//! it. It is cut off when its queue is full, and long before that when nothing of it has gone out for a minute: a full queue
//! may hold tens of MiB, and the ticks alone fill it only after hours.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{Stream, StreamExt};
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use usher_proto::{
    DrainKept, SetDrain, SetDrainAnswer,
    v1::{self, attach_response::Message},
    write,
};
use usher_types::{BootTime, Drain, HostId, KeyHasher, RefusalReason, Token};

/// Messages that may wait for one host: more than a full book of places after a reconnect.
pub(crate) const OUTBOX: usize = 16_384;
/// A host of whose queue nothing goes out for so long does not read. Longer than any way is busy with one message.
const READS_WITHIN: Duration = Duration::from_secs(60);

/// Other coordinators that callers are told of.
const MOST_OTHERS: usize = 4;

/// What goes to a host.
type Outgoing = Result<v1::AttachResponse, Status>;

/// Everything that goes to one host, in order.
pub(crate) type HostOutput = Pin<Box<dyn Stream<Item = Outgoing> + Send>>;

/// One open stream.
#[derive(Debug)]
pub(crate) struct HostLink {
    /// Of the stream.
    pub stream_epoch: u64,
    outbox: mpsc::Sender<Option<Outgoing>>,
    opened: Instant,
    /// When something last went out, or the queue was last found empty; milliseconds since it was opened.
    moved_ms: Arc<AtomicU64>,
    /// The stream is to end: it was replaced, or its host does not read.
    pub ended: CancellationToken,
    /// The stream ends without what still waits in the queue.
    cut: CancellationToken,
    pings: AtomicU64,
    pongs: AtomicU64,
    ponged: Notify,
    /// When a place on another host of the pool last became a session, microseconds of the boot-time clock; 0: not seen.
    confirmed_us: AtomicU64,
    keeps_drain: AtomicBool,
    /// Other coordinators that the host has streams to, as it says.
    others: Mutex<Vec<String>>,
}

impl HostLink {
    /// The link, and what goes out through it.
    pub(crate) fn new(stream_epoch: u64, capacity: usize) -> (Arc<Self>, HostOutput) {
        let (outbox, queue) = mpsc::channel::<Option<Outgoing>>(capacity);
        let cut = CancellationToken::new();
        let (opened, moved_ms) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let moved = moved_ms.clone();
        let output = ReceiverStream::new(queue)
            .inspect(move |_| moved.store(millis_since(opened), Ordering::Relaxed))
            .take_while(|next| std::future::ready(next.is_some()))
            .filter_map(std::future::ready)
            .take_until(cut.clone().cancelled_owned());
        let link = Self {
            stream_epoch,
            outbox,
            opened,
            moved_ms,
            ended: CancellationToken::new(),
            cut,
            pings: AtomicU64::new(0),
            pongs: AtomicU64::new(0),
            ponged: Notify::new(),
            confirmed_us: AtomicU64::new(0),
            keeps_drain: AtomicBool::new(false),
            others: Mutex::default(),
        };
        (Arc::new(link), Box::pin(output))
    }

    /// Ends the stream after what waits in its queue. Dropping the link would not do: whoever holds it may drop it late.
    /// A stream that another one replaced, or that was ended otherwise, says so.
    pub(crate) fn finish(&self) {
        let ended =
            self.ended.is_cancelled().then(|| Status::aborted("a newer stream of this host took over"));
        let said = ended.is_none_or(|why| self.outbox.try_send(Some(Err(why))).is_ok());
        if !said || self.outbox.try_send(None).is_err() {
            self.cut.cancel();
        }
    }

    /// Ends the stream with this, once it is finished.
    pub(crate) fn refuse(&self, why: Status) {
        // A host whose queue is full hears nothing any more.
        let _ = self.outbox.try_send(Some(Err(why)));
    }

    /// Queues a message. A host that does not read is cut off.
    pub(crate) fn send(&self, message: Message) -> bool {
        let sent = !self.is_stuck()
            && self.outbox.try_send(Some(Ok(v1::AttachResponse { message: Some(message) }))).is_ok();
        if !sent && !self.outbox.is_closed() {
            tracing::warn!(
                stream_epoch = self.stream_epoch,
                "a host does not read its stream, cutting it off"
            );
            self.cut.cancel();
            self.ended.cancel();
        }
        sent
    }

    /// Whether messages have waited for long and none of them went out. The queue grows by what is sent only, so nobody else
    /// need look.
    fn is_stuck(&self) -> bool {
        let now_ms = millis_since(self.opened);
        if self.outbox.capacity() == self.outbox.max_capacity() {
            self.moved_ms.store(now_ms, Ordering::Relaxed);
            return false;
        }
        Duration::from_millis(now_ms.saturating_sub(self.moved_ms.load(Ordering::Relaxed))) > READS_WITHIN
    }

    /// Whether the host answers a ping within `limit`.
    pub(crate) async fn answers(&self, limit: Duration) -> bool {
        let nonce = self.pings.fetch_add(1, Ordering::AcqRel) + 1;
        if !self.send(Message::Ping(v1::Ping { nonce })) {
            return false;
        }
        let answered = async {
            while self.pongs.load(Ordering::Acquire) < nonce {
                self.ponged.notified().await;
            }
        };
        tokio::select! {
            answered = tokio::time::timeout(limit, answered) => answered.is_ok(),
            () = self.ended.cancelled() => false,
        }
    }

    /// The host said that it keeps its drain itself.
    pub(crate) fn set_keeps_drain(&self, keeps_drain: bool) {
        self.keeps_drain.store(keeps_drain, Ordering::Relaxed);
    }

    /// Whether the host keeps its drain itself, and answers when it is asked to.
    pub(crate) fn keeps_drain(&self) -> bool {
        self.keeps_drain.load(Ordering::Relaxed)
    }

    /// The host has streams to these coordinators as well.
    pub(crate) fn set_others(&self, others: Vec<String>) {
        *self.others.lock().unwrap_or_else(PoisonError::into_inner) = others;
    }

    /// Whether nothing can go out any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.outbox.is_closed() || self.ended.is_cancelled()
    }

    /// A place on another host of the pool became a session then.
    pub(crate) fn confirmed_elsewhere(&self, at: BootTime) {
        self.confirmed_us.fetch_max(at.as_micros(), Ordering::Relaxed);
    }

    /// When that was last. Absent: it was not seen.
    pub(crate) fn last_confirmed_elsewhere(&self) -> Option<BootTime> {
        let at = BootTime::from_micros(self.confirmed_us.load(Ordering::Relaxed));
        (at > BootTime::ZERO).then_some(at)
    }

    /// The host answered a ping.
    pub(crate) fn pong(&self, nonce: u64) {
        self.pongs.fetch_max(nonce, Ordering::AcqRel);
        self.ponged.notify_waiters();
        self.ponged.notify_one();
    }
}

fn millis_since(opened: Instant) -> u64 {
    u64::try_from(opened.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A question to a host, and its answer when it comes.
#[derive(Debug)]
struct Question<T> {
    answer: OnceLock<T>,
    answered: Notify,
}

impl<T> Default for Question<T> {
    fn default() -> Self {
        Self { answer: OnceLock::new(), answered: Notify::new() }
    }
}

impl<T: Clone> Question<T> {
    fn settle(&self, answer: T) {
        // A second answer to one question changes nothing.
        let _ = self.answer.set(answer);
        self.answered.notify_one();
    }

    async fn wait(&self, limit: Duration) -> Option<T> {
        let answered = async {
            while self.answer.get().is_none() {
                self.answered.notified().await;
            }
        };
        // Whether in time or not, what counts is whether there is an answer now.
        let _ = tokio::time::timeout(limit, answered).await;
        self.answer.get().cloned()
    }
}

/// A host's answer to a place that it was asked for.
pub(crate) type ConsentAnswer = Result<(), RefusalReason>;

/// What a host has kept of a drain, or why it could not.
pub(crate) type DrainAnswer = Result<DrainKept, String>;

/// All open streams and open questions.
#[derive(Debug, Default)]
pub(crate) struct Links {
    links: papaya::HashMap<HostId, Arc<HostLink>, KeyHasher>,
    consents: papaya::HashMap<(HostId, Token, u32), Arc<Question<ConsentAnswer>>, KeyHasher>,
    checks: papaya::HashMap<(HostId, u64), Arc<Question<Option<bool>>>, KeyHasher>,
    drains: papaya::HashMap<(HostId, u64), Arc<Question<DrainAnswer>>, KeyHasher>,
    /// Other coordinators, as they were known when this one began to go down.
    noted_others: OnceLock<Vec<String>>,
    /// Number of the last check, or of the last drain.
    next_check: AtomicU64,
}

impl Links {
    /// Registers a host's stream; the one that it replaces is ended.
    pub(crate) fn open(&self, host_id: HostId, link: Arc<HostLink>) {
        if let Some(old) = self.links.pin().insert(host_id, link) {
            old.ended.cancel();
        }
    }

    /// Forgets a stream, unless another one has replaced it.
    pub(crate) fn close(&self, host_id: &HostId, link: &Arc<HostLink>) {
        let _ = self.links.pin().remove_if(host_id, |_, current| Arc::ptr_eq(current, link));
    }

    /// Ends a stream that the farm does not follow: its host comes again, instead of reporting to nobody.
    pub(crate) fn end(&self, host_id: &HostId, stream_epoch: u64) {
        if let Some(link) = self.get(host_id).filter(|link| link.stream_epoch == stream_epoch) {
            link.ended.cancel();
        }
    }

    pub(crate) fn get(&self, host_id: &HostId) -> Option<Arc<HostLink>> {
        self.links.pin().get(host_id).cloned()
    }

    /// Sends to a host. False: it has no stream, or does not read it.
    pub(crate) fn send(&self, host_id: &HostId, message: Message) -> bool {
        self.get(host_id).is_some_and(|link| link.send(message))
    }

    /// Every open stream.
    pub(crate) fn all(&self) -> Vec<(HostId, Arc<HostLink>)> {
        self.links.pin().iter().map(|(host_id, link)| (host_id.clone(), link.clone())).collect()
    }

    /// The other coordinators, noted the first time that this is called: when this one goes down, before the first stream
    /// that tells of them ends.
    pub(crate) fn note_others(&self) -> &[String] {
        self.noted_others.get_or_init(|| self.other_coordinators())
    }

    /// Other coordinators that at least half of the hosts which know of any have streams to, those that most have first.
    fn other_coordinators(&self) -> Vec<String> {
        let mut counts = BTreeMap::<String, usize>::new();
        let mut telling = 0;
        for (_, link) in self.all() {
            let others = link.others.lock().unwrap_or_else(PoisonError::into_inner);
            telling += usize::from(!others.is_empty());
            // Named twice by one host is named once.
            for other in others.iter().collect::<BTreeSet<_>>() {
                *counts.entry(other.clone()).or_default() += 1;
            }
        }
        let mut known: Vec<_> = counts.into_iter().filter(|(_, hosts)| hosts * 2 >= telling).collect();
        known.sort_by_key(|(_, hosts)| std::cmp::Reverse(*hosts));
        known.truncate(MOST_OTHERS);
        known.into_iter().map(|(other, _)| other).collect()
    }

    /// Streams that are open.
    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    /// Asks a host for a place and waits for its answer. Absent: silence.
    pub(crate) async fn ask_consent(
        &self,
        host_id: &HostId,
        message: v1::ExpectSession,
        (token, attempt): (Token, u32),
        limit: Duration,
    ) -> Option<ConsentAnswer> {
        // Under the host's name: one that was asked before must not answer for the next.
        let key = (host_id.clone(), token, attempt);
        let question = Arc::new(Question::default());
        self.consents.pin().insert(key.clone(), question.clone());
        let _forget = Forget(|| drop(self.consents.pin().remove(&key).cloned()));
        if !self.send(host_id, Message::ExpectSession(message)) {
            return None;
        }
        question.wait(limit).await
    }

    /// A host has answered. Whether anybody waited for it.
    pub(crate) fn consent(
        &self,
        host_id: &HostId,
        token: &Token,
        attempt: u32,
        answer: ConsentAnswer,
    ) -> bool {
        let question = self.consents.pin().get(&(host_id.clone(), token.clone(), attempt)).cloned();
        question.is_some_and(|question| {
            question.settle(answer);
            true
        })
    }

    /// Asks a host whether a session still exists. Absent: silence, or it cannot tell.
    pub(crate) async fn ask_session(
        &self,
        host_id: &HostId,
        session_id: &str,
        user: &str,
        limit: Duration,
    ) -> Option<bool> {
        let check_id = self.next_check.fetch_add(1, Ordering::AcqRel) + 1;
        let question = Arc::new(Question::default());
        let key = (host_id.clone(), check_id);
        self.checks.pin().insert(key.clone(), question.clone());
        let _forget = Forget(|| drop(self.checks.pin().remove(&key).cloned()));
        let check = v1::SessionCheck { check_id, session_id: session_id.to_owned(), user: user.to_owned() };
        if !self.send(host_id, Message::SessionCheck(check)) {
            return None;
        }
        question.wait(limit).await.flatten()
    }

    /// Asks a host, through this stream of it, to keep a drain, or to end it. Absent: silence.
    pub(crate) async fn ask_drain(
        &self,
        host_id: &HostId,
        link: &HostLink,
        drain: Option<Drain>,
        limit: Duration,
    ) -> Option<DrainAnswer> {
        let nonce = self.next_check.fetch_add(1, Ordering::AcqRel) + 1;
        let question = Arc::new(Question::default());
        let key = (host_id.clone(), nonce);
        self.drains.pin().insert(key.clone(), question.clone());
        let _forget = Forget(|| drop(self.drains.pin().remove(&key).cloned()));
        if !link.send(Message::SetDrain(write::set_drain(&SetDrain { nonce, drain }))) {
            return None;
        }
        tokio::select! {
            answer = question.wait(limit) => answer,
            () = link.ended.cancelled() => None,
        }
    }

    /// A host has answered. One that nobody waits for any more says it in its next Load.
    pub(crate) fn drain_answered(&self, host_id: &HostId, answer: SetDrainAnswer) {
        if let Some(question) = self.drains.pin().get(&(host_id.clone(), answer.nonce)) {
            question.settle(answer.outcome);
        }
    }

    /// A host has answered.
    pub(crate) fn session_checked(&self, host_id: &HostId, check_id: u64, exists: Option<bool>) {
        if let Some(question) = self.checks.pin().get(&(host_id.clone(), check_id)) {
            question.settle(exists);
        }
    }
}

/// Runs its closure when it goes out of scope, however that comes about.
struct Forget<F: FnMut()>(F);

impl<F: FnMut()> Drop for Forget<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests;
