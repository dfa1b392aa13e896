//! What do hosts hear of places that they were not asked for, and when?
//!
//! Nobody waits for it, so it waits a little itself: what comes within 20 ms goes out together, in order. A place that was
//! given and taken back within that time is not told at all: its host could only have forgotten it again. In a storm of
//! logins that are tried and given up this is most of what there would be to tell.
//!
//! A place's first word is only left out if nothing about it can have gone out before: that is known of those that are
//! younger than the last round. What a login came to, and every end for another reason, is always told.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use tokio::sync::mpsc::{self, Receiver, Sender, error::TrySendError};
use usher_placement::decision::{HostMessage, ToHost};
use usher_proto::{self as proto, v1::attach_response::Message, write};
use usher_types::{EndReason, HostId, PendingLimit, Token, UserLimit};

use crate::shared::Shared;

/// How long a message waits for others. Well below what a login takes to come to its host.
const HOLD: Duration = Duration::from_millis(20);
/// Messages that may wait. Beyond that they go out at once: a host takes them late, twice and out of order.
const QUEUE: usize = 65_536;

/// Takes what hosts are to be told.
#[derive(Debug)]
pub(crate) struct Teller {
    queue: Sender<ToHost>,
}

/// What waits to be told.
pub(crate) type Waiting = Receiver<ToHost>;

impl Teller {
    /// The handle, and the queue for [`tell_hosts`].
    pub(crate) fn new() -> (Self, Waiting) {
        let (queue, waiting) = mpsc::channel(QUEUE);
        (Self { queue }, waiting)
    }
}

/// Tells hosts, in order, soon. One without a stream is told of its places when it connects again.
pub(crate) fn all(shared: &Shared, messages: Vec<ToHost>) {
    for message in messages {
        match shared.teller.queue.try_send(message) {
            Ok(()) => {}
            Err(TrySendError::Full(message) | TrySendError::Closed(message)) => send(shared, message),
        }
    }
}

/// Tells hosts what waits, round by round.
pub(crate) async fn tell_hosts(shared: Arc<Shared>, mut waiting: Waiting) {
    let mut drained_at = None;
    while let Some(first) = waiting.recv().await {
        tokio::time::sleep(HOLD).await;
        let mut round = vec![first];
        // Bounded: those who go on telling meanwhile wait for the next round.
        while round.len() < QUEUE
            && let Ok(next) = waiting.try_recv()
        {
            round.push(next);
        }
        // Whatever was told of a place that is given from now on comes in a later round.
        let drained_now = shared.now();
        let is_news = |token: &Token| {
            let since = shared.ledger.get(token).map(|grant| grant.since);
            since.is_some_and(|since| drained_at.is_none_or(|drained| since > drained))
        };
        for message in without_the_undone(round, is_news) {
            send(&shared, message);
        }
        drained_at = Some(drained_now);
    }
}

/// The messages without those of places that were given and cancelled among them. `is_news`: nothing can have been told
/// of the token's place before.
fn without_the_undone(round: Vec<ToHost>, is_news: impl Fn(&Token) -> bool) -> impl Iterator<Item = ToHost> {
    let mut given: HashMap<(HostId, Token), (usize, u32)> = HashMap::new();
    let mut undone = vec![false; round.len()];
    for (at, ToHost { host_id, message }) in round.iter().enumerate() {
        let key = |token: &Token| (host_id.clone(), token.clone());
        match message {
            HostMessage::Expect(place) => match given.entry(key(&place.token)) {
                // Told twice: it is not worth the thought.
                Entry::Occupied(known) => drop(known.remove()),
                Entry::Vacant(free) => drop(free.insert((at, place.attempt))),
            },
            HostMessage::End { token, attempt, reason: EndReason::Cancelled } => {
                if let Some((expect, made_under)) = given.remove(&key(token))
                    && made_under <= *attempt
                    && is_news(token)
                {
                    (undone[expect], undone[at]) = (true, true);
                }
            }
            HostMessage::End { token, .. } | HostMessage::Outcome { token, .. } => {
                given.remove(&key(token));
            }
        }
    }
    round.into_iter().zip(undone).filter_map(|(message, undone)| (!undone).then_some(message))
}

fn send(shared: &Shared, ToHost { host_id, message }: ToHost) {
    shared.links.send(&host_id, to_wire(message));
}

fn to_wire(message: HostMessage) -> Message {
    match message {
        HostMessage::Expect(place) => {
            let (max_users, max_pending) = (UserLimit::Unlimited, PendingLimit::Unlimited);
            let expect = proto::ExpectSession { place, ask: false, max_users, max_pending };
            Message::ExpectSession(write::expect_session(&expect))
        }
        HostMessage::End { token, attempt, reason } => {
            Message::EndPlace(write::end_place(&proto::EndPlace { token, attempt, reason }))
        }
        HostMessage::Outcome { token, outcome, cause, succeeded_elsewhere } => {
            let notice = proto::OutcomeNotice { token, outcome, cause, succeeded_elsewhere };
            Message::OutcomeNotice(write::outcome_notice(&notice))
        }
    }
}

#[cfg(test)]
mod tests {
    use usher_types::{Endpoint, Outcome, PendingPlace};

    use super::*;
    use crate::placing::testing;

    fn to_host(message: HostMessage) -> ToHost {
        ToHost { host_id: HostId::new("a").unwrap(), message }
    }

    fn token(id: &str) -> Token {
        testing::request(id).token
    }

    fn expect(id: &str, attempt: u32) -> ToHost {
        to_host(HostMessage::Expect(PendingPlace {
            token: token(id),
            attempt,
            content_hash: 1,
            pool: testing::request(id).pool,
            endpoint: Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 },
            user: None,
            cost: 1,
            counted_users: 1,
            left: Duration::from_secs(120),
            connected: false,
            admitted: false,
        }))
    }

    fn end(id: &str, attempt: u32, reason: EndReason) -> ToHost {
        to_host(HostMessage::End { token: token(id), attempt, reason })
    }

    fn failed(id: &str) -> ToHost {
        let (token, outcome) = (token(id), Outcome::Failed);
        to_host(HostMessage::Outcome { token, outcome, cause: None, succeeded_elsewhere: false })
    }

    fn told(round: Vec<ToHost>) -> Vec<ToHost> {
        without_the_undone(round, |_| true).collect()
    }

    #[test]
    fn a_place_that_was_given_and_cancelled_at_once_is_never_told() {
        let round = vec![expect("1", 1), expect("2", 1), end("1", 1, EndReason::Cancelled), expect("3", 1)];
        assert_eq!(told(round), [expect("2", 1), expect("3", 1)]);
    }

    #[test]
    fn a_host_that_may_have_heard_of_the_place_hears_of_its_end() {
        let cancelled = || end("1", 1, EndReason::Cancelled);
        assert_eq!(told(vec![cancelled()]), [cancelled()]);
        let known = vec![expect("1", 1), cancelled()];
        assert_eq!(without_the_undone(known, |_| false).count(), 2);
        let of_an_earlier_attempt = vec![expect("1", 2), cancelled()];
        assert_eq!(told(of_an_earlier_attempt).len(), 2);
    }

    #[test]
    fn what_became_of_a_login_is_always_told_and_in_order() {
        let round = vec![expect("1", 1), failed("1"), end("1", 1, EndReason::Failed)];
        assert_eq!(told(round.clone()), round);
        let cancelled = vec![expect("1", 1), failed("1"), end("1", 1, EndReason::Cancelled)];
        assert_eq!(told(cancelled.clone()), cancelled);
        let superseded = vec![expect("1", 1), end("1", 1, EndReason::Superseded)];
        assert_eq!(told(superseded.clone()), superseded);
    }

    #[test]
    fn two_hosts_under_one_token_do_not_speak_for_each_other() {
        let elsewhere = ToHost { host_id: HostId::new("b").unwrap(), ..end("1", 1, EndReason::Cancelled) };
        let round = vec![expect("1", 1), elsewhere];
        assert_eq!(told(round.clone()), round);
    }
}
