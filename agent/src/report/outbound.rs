//! What goes to a coordinator next?
//!
//! What is urgent first: the good-bye, then answers, then the state, then lists page by page. Each message is made only
//! when the stream has taken the one before, so a slow coordinator gets fewer and newer reports, never a queue of old
//! ones.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, watch};
use usher_proto::v1::attach_request::Message;
use usher_proto::{PlaceAnswer, v1, write};
use usher_runtime::clock::Clock;
use usher_types::{Goodbye, Latency, Load, Replica, Session};

use super::pages::{Entry, Pages, inventory_page, sessions_page};
use crate::host::{Answer, HostHandle};

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

#[derive(Debug, Default)]
struct Lists {
    inventory: Option<Pages<Replica>>,
    sessions: Option<Pages<Session>>,
}

impl Outbound {
    /// Sends until the good-bye is said or the stream is closed. The stream's end follows when this is dropped.
    pub(super) async fn run(mut self) -> OutEnd {
        let mut sequence = 0;
        let mut lists = Lists::default();
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
                        sequence += 1;
                        sessions_first = true;
                        Some(load_message(&load, sequence, self.tick.get(), self.host.streams_held.count()))
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

fn load_message(load: &Load, sequence: u64, tick_echo: Option<u64>, streams_held: u32) -> Message {
    let mut message = write::load(load);
    message.sequence = sequence;
    message.tick_echo = tick_echo;
    message.streams_held = streams_held;
    Message::Load(message)
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
        Answer::Pong { nonce } => Message::Pong(v1::Pong { nonce }),
    }
}
