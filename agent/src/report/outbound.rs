//! What goes to a coordinator next?
//!
//! What is urgent first: the good-bye, then answers, then the state, then lists page by page. Each message is made only
//! when the stream has taken the one before, so a slow coordinator gets fewer and newer reports, never a queue of old
//! ones.
//!
//! Places that ended in the last minute are most of a Load where many come and go, and a stream keeps what it has brought: so
//! one is told as it ends, and all of them when the stream begins and every few seconds, for whoever made nothing of it.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use usher_placement::host::{HeldBack, Report};
use usher_proto::v1::attach_request::Message;
use usher_proto::{PlaceAnswer, v1, write};
use usher_runtime::clock::Clock;
use usher_types::{BootTime, EndedPlace, Goodbye, Latency, Load, Replica, Session};

use super::pages::{Entry, Pages, inventory_page, sessions_page};
use crate::host::{Answer, HostHandle};

/// Bound of the places and outcomes in one Load, bytes: below the 4 MiB that a coordinator takes unless told otherwise, with room for
/// all else. Live places are all told; if they alone come above it, by names of hundreds of bytes, their users are left out.
const LISTS_BYTES: usize = 3_800_000;
/// All ends of the last minute are told again after this time: the usual report interval.
const ALL_ENDS_EVERY: Duration = Duration::from_secs(5);

/// The newest tick of a stream, shared by its two directions. 0 stands for none yet: coordinators count from 1.
#[derive(Debug, Default)]
pub(super) struct NewestTick(AtomicU64);

impl NewestTick {
    pub(super) fn set(&self, tick: u64) {
        self.0.fetch_max(tick, Ordering::Relaxed);
    }

    fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|tick| *tick > 0)
    }
}

/// The way out of one stream.
pub(super) struct Outbound {
    /// The number of the coordinator.
    pub(super) number: usize,
    pub(super) host: HostHandle,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tick: Arc<NewestTick>,
    pub(super) answers: mpsc::Receiver<Answer>,
    pub(super) leaving: watch::Receiver<Option<Goodbye>>,
    pub(super) out: mpsc::Sender<v1::AttachRequest>,
}

/// Why nothing goes out any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutEnd {
    /// We said good-bye.
    SaidGoodbye,
    /// The stream takes nothing more, or the host is gone.
    Closed,
}

/// What a stream has been told of places that ended.
#[derive(Debug, Default)]
struct EndsTold {
    /// How many.
    count: u64,
    /// When they were all told.
    all_at: Option<BootTime>,
}

impl EndsTold {
    /// Which of those that are listed, of so many in all, are to be told now.
    fn of<'a>(&mut self, listed: &'a [EndedPlace], ends: u64, now: BootTime) -> &'a [EndedPlace] {
        let new = usize::try_from(ends.saturating_sub(self.count)).unwrap_or(usize::MAX);
        self.count = ends;
        if self.all_at.is_none_or(|at| now.since(at) >= ALL_ENDS_EVERY) {
            self.all_at = Some(now);
            return listed;
        }
        &listed[listed.len() - new.min(listed.len())..]
    }
}

#[derive(Debug, Default)]
struct Lists {
    inventory: Option<Pages<Replica>>,
    sessions: Option<Pages<Session>>,
}

impl Outbound {
    /// Sends until the good-bye is said or the stream is closed. The stream's end follows when this is dropped.
    pub(super) async fn run(mut self) -> OutEnd {
        let mut sequence = 0;
        // Those of before the stream are none of its.
        let mut made = self.host.reports.load(Ordering::Relaxed);
        let (mut lists, mut ends_told) = (Lists::default(), EndsTold::default());
        // Everything goes out once, whether it is new or not.
        self.host.load.mark_changed();
        self.host.latency.mark_changed();
        self.host.inventory.mark_changed();
        self.host.sessions.mark_changed();
        // A Load that ends a place follows the sessions that ended it, so that nobody finds the user in neither. One
        // list of sessions, then a Load in turn: lists that change all the time must not hold the Loads back.
        let mut sessions_first = true;
        loop {
            // A place in the stream first, the message then: so it is made of what is known at that moment.
            let Ok(permit) = self.out.reserve().await else { return OutEnd::Closed };
            if lists.sessions.is_none() && self.host.sessions.has_changed().unwrap_or(false) {
                lists.sessions = self.host.sessions.borrow_and_update().clone().map(Pages::of);
            }
            let message = tokio::select! {
                biased;
                reason = leave(&mut self.leaving) => {
                    permit.send(wrap(Message::Goodbye(write::goodbye(reason))));
                    return OutEnd::SaidGoodbye;
                }
                answer = self.answers.recv() => match answer {
                    Some(answer) => Some(answer_message(answer)),
                    None => return OutEnd::Closed,
                },
                () = ready(()), if sessions_first && lists.sessions.is_some() => {
                    let page = lists.next_sessions(&*self.clock);
                    sessions_first = lists.sessions.is_some();
                    page
                }
                newest = newest(&mut self.host.load) => match newest {
                    Ok(load) => {
                        let before = std::mem::replace(&mut made, self.host.reports.load(Ordering::Relaxed));
                        let replaced = made.saturating_sub(before).saturating_sub(1);
                        self.host.streams_held.superseded(self.number, replaced);
                        sequence += 1;
                        sessions_first = true;
                        let ended = ends_told.of(&load.load().ended, load.ends(), self.clock.now());
                        Some(self.load_message(&load, ended, sequence))
                    }
                    Err(_) => return OutEnd::Closed,
                },
                newest = newest(&mut self.host.latency) => match newest {
                    Ok(latency) => {
                        sequence += 1;
                        Some(latency_message(&latency, sequence))
                    }
                    Err(_) => return OutEnd::Closed,
                },
                Ok(list) = newest(&mut self.host.inventory) => {
                    lists.inventory = Some(Pages::of(list));
                    None
                }
                () = ready(()), if lists.sessions.is_some() => lists.next_sessions(&*self.clock),
                () = ready(()), if lists.inventory.is_some() => lists.next_inventory(),
                // Taken up at the next turn.
                changed = changed(&mut self.host.sessions), if lists.sessions.is_none() => match changed {
                    Ok(()) => None,
                    Err(_) => return OutEnd::Closed,
                },
            };
            if let Some(message) = message {
                permit.send(wrap(message));
            }
        }
    }
}

impl Outbound {
    fn load_message(&self, report: &Report, ended: &[EndedPlace], sequence: u64) -> Message {
        let mut message = load_message(report.load(), ended, sequence, self.tick.get());
        message.streams_held = self.host.streams_held.count();
        message.other_coordinators = self.host.streams_held.targets_beside(self.number);
        let HeldBack { users, places } = report.held_back_from(self.number);
        (message.held_back_users, message.held_back_places) = (users, places);
        Message::Load(message)
    }
}

impl Lists {
    fn next_sessions(&mut self, clock: &dyn Clock) -> Option<Message> {
        let page = sessions_page(self.sessions.as_mut()?, clock.now());
        forget_if(page.last, &mut self.sessions);
        Some(Message::SessionsPage(write::sessions_page(&page)))
    }

    fn next_inventory(&mut self) -> Option<Message> {
        let page = inventory_page(self.inventory.as_mut()?);
        forget_if(page.last, &mut self.inventory);
        Some(Message::InventoryPage(write::inventory_page(&page)))
    }
}

fn forget_if<T: Entry>(last: bool, pages: &mut Option<Pages<T>>) {
    if last {
        *pages = None;
    }
}

async fn leave(leaving: &mut watch::Receiver<Option<Goodbye>>) -> Goodbye {
    let said = leaving.wait_for(Option::is_some).await.map(|reason| *reason);
    match said {
        Ok(Some(reason)) => reason,
        // Whoever could have told us to leave is gone, and so is the process.
        Ok(None) | Err(_) => Goodbye::AgentStop,
    }
}

/// The newest state, once it differs from the one that was sent. Cancel-safe.
async fn newest<T>(state: &mut watch::Receiver<Option<Arc<T>>>) -> Result<Arc<T>, watch::error::RecvError> {
    loop {
        state.changed().await?;
        let newest = state.borrow_and_update().clone();
        if let Some(newest) = newest {
            return Ok(newest);
        }
    }
}

/// Waits until a state differs from the one that was taken, and leaves it so.
async fn changed<T>(state: &mut watch::Receiver<T>) -> Result<(), watch::error::RecvError> {
    state.changed().await?;
    state.mark_changed();
    Ok(())
}

fn wrap(message: Message) -> v1::AttachRequest {
    v1::AttachRequest { message: Some(message) }
}

fn load_message(load: &Load, ended: &[EndedPlace], sequence: u64, tick_echo: Option<u64>) -> v1::Load {
    let mut message = write::load_with(load, ended);
    message.sequence = sequence;
    message.tick_echo = tick_echo;
    let pending: usize = load.pending.iter().map(Entry::wire_bytes).sum();
    if pending > LISTS_BYTES {
        // Each counts all the same; only its user does not come back to it.
        message.pending.iter_mut().for_each(|place| place.user = None);
    }
    let mut room = LISTS_BYTES.saturating_sub(pending);
    message.outcomes.drain(..without_room(&load.outcomes, &mut room));
    message.ended.drain(..without_room(ended, &mut room));
    message
}

/// How many entries, the oldest first, must stay out of the Load; the others use up `room`. Whoever misses an end counts
/// that place until the host no longer lists it, or its time is over: too many for a while, never too few. Whoever
/// misses an outcome heard of it from its gateway, or knows one success less.
fn without_room<T: Entry>(entries: &[T], room: &mut usize) -> usize {
    let fitting = entries.iter().rev().take_while(|entry| match room.checked_sub(entry.wire_bytes()) {
        Some(left) => {
            *room = left;
            true
        }
        None => false,
    });
    entries.len() - fitting.count()
}

fn latency_message(latency: &Latency, sequence: u64) -> Message {
    let mut message = write::latency(latency);
    message.sequence = sequence;
    Message::Latency(message)
}

fn answer_message(answer: Answer) -> Message {
    match answer {
        Answer::Place { token, attempt, refused } => {
            let answer = refused.map_or(Ok(()), Err);
            Message::PlaceAnswer(write::place_answer(&PlaceAnswer { token, attempt, answer }))
        }
        Answer::Session { check_id, exists } => {
            Message::SessionCheckAnswer(v1::SessionCheckAnswer { check_id, exists })
        }
        Answer::Drain(answer) => Message::SetDrainAnswer(write::set_drain_answer(&answer)),
        Answer::Pong { nonce } => Message::Pong(v1::Pong { nonce }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prost::Message as _;
    use usher_types::{
        CollectorState, EndReason, EndedPlace, Endpoint, GatewayId, MountFullness, OperationName,
        OperationWindow, Outcome, Penalty, PenaltyCause, PendingPlace, Percent, PoolName, Readiness,
        RequestId, Token, ToldOutcome,
    };

    use super::*;

    /// A host as full as its book can be, whose names are all of this length.
    fn full_load(bytes: usize) -> Load {
        let text = "x".repeat(bytes);
        let pool = PoolName::new(&text).unwrap();
        let endpoint = Endpoint { kind: "ssh".into(), address: text.clone(), port: u16::MAX };
        let token = |number: u32| Token {
            gateway: GatewayId::new(&text).unwrap(),
            request_id: RequestId::new(format!("{number:0bytes$}")).unwrap(),
        };
        let pending = |number| PendingPlace {
            token: token(number),
            attempt: u32::MAX,
            content_hash: u64::MAX,
            pool: pool.clone(),
            endpoint: endpoint.clone(),
            user: Some(text.clone()),
            cost: 100,
            counted_users: 100,
            left: Duration::from_secs(3_600),
            connected: true,
            admitted: true,
        };
        let ended = |number| EndedPlace {
            token: token(number),
            attempt: u32::MAX,
            reason: EndReason::Superseded,
            ended_ago: Duration::from_secs(60),
            content_hash: u64::MAX,
            pool: pool.clone(),
            endpoint: endpoint.clone(),
        };
        let outcome = |number| ToldOutcome {
            token: token(number),
            outcome: Outcome::Connected,
            cause: None,
            age: Duration::from_secs(60),
            succeeded_elsewhere: true,
        };
        let (pending, ended) = ((0..4095).map(pending).collect(), (0..4095).map(ended).collect());
        let outcomes = (0..1000).map(outcome).collect();
        Load { pending, ended, outcomes, ..Load::default() }
    }

    #[test]
    fn a_window_of_as_many_operations_as_can_be_set_stays_below_what_a_coordinator_takes() {
        let operation = |number: u32| OperationWindow {
            name: OperationName::new(format!("{number:0128}")).unwrap(),
            ok: f64::MAX,
            failed: f64::MAX,
            too_long: f64::MAX,
            sum_us: f64::MAX,
            min_us: Some(f64::MAX),
            in_flight: u32::MAX,
            oldest_in_flight: Some(Duration::from_secs(u64::MAX / 1000)),
            baseline_us: Some(f64::MAX),
            baseline_age: Some(Duration::from_secs(u64::MAX / 1000)),
            baseline_samples: u64::MAX,
            baseline_is_provisional: true,
        };
        let latency = Latency { operations: (0..10_000).map(operation).collect(), ..Latency::default() };
        let Message::Latency(message) = latency_message(&latency, u64::MAX) else { panic!("another one") };
        assert!(message.encoded_len() < 4 << 20, "{}", message.encoded_len());
    }

    #[test]
    fn an_end_is_told_once_when_it_comes_and_with_all_others_every_few_seconds() {
        let listed = full_load(4).ended;
        let (mut told, mut ends, mut at) = (EndsTold::default(), 0, BootTime::from_millis(1000));
        let mut next = |more: usize, passed: Duration| {
            ends += more;
            at = at + passed;
            told.of(&listed[..ends], ends as u64, at).len()
        };
        assert_eq!(next(3, Duration::ZERO), 3, "the stream is new");
        assert_eq!(next(2, Duration::from_millis(100)), 2);
        assert_eq!(next(0, Duration::from_millis(100)), 0);
        assert_eq!(next(1, Duration::from_secs(5)), 6, "all of them again");
        assert_eq!(next(1, Duration::from_secs(1)), 1);
    }

    fn sent(load: &Load) -> v1::Load {
        let message = load_message(load, &load.ended, u64::MAX, Some(u64::MAX));
        let most = Some(u32::MAX);
        v1::Load {
            streams_held: u32::MAX,
            coordinators: most,
            held_back_users: u32::MAX,
            held_back_places: u32::MAX,
            ..message
        }
    }

    #[test]
    fn a_load_stays_below_what_a_coordinator_takes_and_leaves_out_the_oldest_ends() {
        let long = sent(&full_load(128));
        assert!(long.encoded_len() < 4 << 20, "{}", long.encoded_len());
        assert_eq!(long.pending.len(), 4095, "every live place");
        assert_eq!(long.outcomes.len(), 1000);
        assert!((500..4095).contains(&long.ended.len()), "{}", long.ended.len());
        let id = |place: &v1::EndedPlace| place.token.as_ref().unwrap().request_id.parse::<u32>().unwrap();
        assert_eq!(id(long.ended.last().unwrap()), 4094, "the newest");

        // Everything as long as coordinators take it, all at once.
        let mut longest = full_load(128);
        for place in &mut longest.pending {
            (place.endpoint.kind, place.endpoint.address) = ("x".repeat(256), "x".repeat(253));
            place.user = Some("x".repeat(256));
        }
        let text = |bytes| "x".repeat(bytes);
        let collector = CollectorState {
            name: text(256),
            source: text(256),
            error: Some(text(1024)),
            warning: Some(text(1024)),
        };
        longest.collectors = vec![collector; 64];
        longest.mounts = vec![MountFullness { path: text(1024), used: Percent::new(99.5).unwrap() }; 64];
        let gateway = Some(GatewayId::new(text(128)).unwrap());
        let (cause, left, times) = (PenaltyCause::Failed, Duration::from_secs(900), u32::MAX);
        longest.penalties = vec![Penalty { gateway, cause, left, times }; 256];
        longest.readiness = Readiness::NotReady(text(1024));
        let longest = v1::Load { other_coordinators: vec![text(270); 15], ..sent(&longest) };
        assert!(longest.encoded_len() < 4 << 20, "{}", longest.encoded_len());
        assert_eq!(longest.pending.len(), 4095, "every live place");
        assert!(longest.pending.iter().all(|place| place.user.is_none() && place.counted_users == 100));

        let usual = sent(&full_load(36));
        assert_eq!((usual.pending.len(), usual.ended.len()), (4095, 4095));
    }
}
