//! What do hosts hear of places that they were not asked for, and when?
//!
//! Nobody waits for it, so it waits a little itself, 10 to 20 ms, and then goes out together with others, in order. A place
//! that was given and taken back within 10 ms is not told at all: its host could only have forgotten it again. In a storm
//! of logins that are tried and given up this is most of what there would be to tell.
//!
//! A place's first word is only left out if nothing about it can have gone out before: that is known of those that are
//! younger than whatever was told. What a login came to, and every end for another reason, is always told.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use tokio::sync::mpsc::{self, Receiver, Sender, error::TrySendError};
use usher_placement::decision::{HostMessage, ToHost};
use usher_proto::{self as proto, v1::attach_response::Message, write};
use usher_types::{BootTime, EndReason, HostId, KeyHasher, PendingLimit, Token, UserLimit};

use crate::shared::Shared;

/// Between two rounds: a message waits for one to two of them. Well below what a login takes to come to its host.
const ROUND: Duration = Duration::from_millis(10);
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

/// Tells hosts what waits, round by round: each message with the round after the one that found it.
pub(crate) async fn tell_hosts(shared: Arc<Shared>, mut queue: Waiting) {
    let mut rounds = Rounds::default();
    loop {
        let mut fresh = Vec::new();
        if rounds.held.is_empty() {
            match queue.recv().await {
                Some(first) => fresh.push(first),
                None => return,
            }
        }
        tokio::time::sleep(ROUND).await;
        // Bounded: those who go on telling meanwhile wait for the next round.
        while fresh.len() < QUEUE
            && let Ok(next) = queue.try_recv()
        {
            fresh.push(next);
        }
        // Whatever is told of a place that is given from now on is found by a later round.
        let now = shared.now();
        let given_at = |token: &Token| shared.ledger.get(token).map(|grant| grant.since);
        for message in rounds.next(fresh, now, given_at) {
            send(&shared, message);
        }
    }
}

/// What was found, and when.
#[derive(Debug, Default)]
struct Rounds {
    /// Found by the last round, to be told by the next.
    held: Vec<ToHost>,
    /// When the last round looked, and the one before: what that one found has been told.
    looked_at: [Option<BootTime>; 2],
}

impl Rounds {
    /// What is to be told now. `given_at`: when the place of a token was given.
    fn next(
        &mut self,
        fresh: Vec<ToHost>,
        now: BootTime,
        given_at: impl Fn(&Token) -> Option<BootTime>,
    ) -> Vec<ToHost> {
        let told_up_to = self.looked_at[1];
        let is_news =
            |token: &Token| given_at(token).is_some_and(|since| told_up_to.is_none_or(|told| since > told));
        let held = self.held.len();
        let mut all = std::mem::take(&mut self.held);
        all.extend(fresh);
        let mut left = without_the_undone(all, held, is_news);
        self.held = left
            .split_off(left.iter().take_while(|(is_held, _)| *is_held).count())
            .into_iter()
            .map(|(_, message)| message)
            .collect();
        self.looked_at = [Some(now), self.looked_at[0]];
        left.into_iter().map(|(_, message)| message).collect()
    }
}

/// The messages without those of places that were given and cancelled among them, each with whether it is of the first
/// `held`. `is_news`: nothing can have been told of the token's place before.
fn without_the_undone(
    messages: Vec<ToHost>,
    held: usize,
    is_news: impl Fn(&Token) -> bool,
) -> Vec<(bool, ToHost)> {
    let mut given: HashMap<(&HostId, &Token), (usize, u32), KeyHasher> = HashMap::default();
    let mut undone = vec![false; messages.len()];
    for (at, ToHost { host_id, message }) in messages.iter().enumerate() {
        match message {
            HostMessage::Expect(place) => match given.entry((host_id, &place.token)) {
                // Told twice: it is not worth the thought.
                Entry::Occupied(known) => drop(known.remove()),
                Entry::Vacant(free) => drop(free.insert((at, place.attempt))),
            },
            HostMessage::End { token, attempt, reason: EndReason::Cancelled } => {
                if let Some((expect, made_under)) = given.remove(&(host_id, token))
                    && made_under <= *attempt
                    && is_news(token)
                {
                    (undone[expect], undone[at]) = (true, true);
                }
            }
            HostMessage::End { token, .. } | HostMessage::Outcome { token, .. } => {
                given.remove(&(host_id, token));
            }
        }
    }
    let numbered = messages.into_iter().zip(undone).enumerate();
    numbered.filter_map(|(at, (message, undone))| (!undone).then_some((at < held, message))).collect()
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

    fn at(ms: u64) -> BootTime {
        BootTime::from_micros(ms * 1000)
    }

    /// What two rounds tell of this, all of it found by the first, the places given just before it.
    fn told(found: Vec<ToHost>) -> Vec<ToHost> {
        let mut rounds = Rounds::default();
        assert_eq!(rounds.next(found, at(10), |_| Some(at(5))), [], "everything waits for a round");
        rounds.next(Vec::new(), at(20), |_| Some(at(5)))
    }

    #[test]
    fn a_place_that_was_given_and_cancelled_at_once_is_never_told() {
        let found = vec![expect("1", 1), expect("2", 1), end("1", 1, EndReason::Cancelled), expect("3", 1)];
        assert_eq!(told(found), [expect("2", 1), expect("3", 1)]);
    }

    #[test]
    fn a_round_between_a_place_and_its_end_does_not_matter() {
        let mut rounds = Rounds::default();
        let given_at = |_: &Token| Some(at(9));
        assert_eq!(rounds.next(vec![expect("1", 1), expect("2", 1)], at(10), given_at), []);
        let ended = vec![end("1", 1, EndReason::Cancelled)];
        assert_eq!(rounds.next(ended, at(20), given_at), [expect("2", 1)]);
        assert_eq!(rounds.next(Vec::new(), at(30), given_at), []);
    }

    #[test]
    fn a_host_that_may_have_heard_of_the_place_hears_of_its_end() {
        let cancelled = || end("1", 1, EndReason::Cancelled);
        assert_eq!(told(vec![cancelled()]), [cancelled()]);
        assert_eq!(told(vec![expect("1", 2), cancelled()]).len(), 2, "an earlier attempt is meant");
        let mut rounds = Rounds::default();
        for round in 1..=4 {
            rounds.next(Vec::new(), at(10 * round), |_| None);
        }
        // Retried: its first word went out long ago.
        let again = vec![expect("1", 1), cancelled()];
        rounds.next(again.clone(), at(50), |_| Some(at(5)));
        assert_eq!(rounds.next(Vec::new(), at(60), |_| Some(at(5))), again);
    }

    #[test]
    fn what_became_of_a_login_is_always_told_and_in_order() {
        let failed_and_ended = vec![expect("1", 1), failed("1"), end("1", 1, EndReason::Failed)];
        assert_eq!(told(failed_and_ended.clone()), failed_and_ended);
        let cancelled = vec![expect("1", 1), failed("1"), end("1", 1, EndReason::Cancelled)];
        assert_eq!(told(cancelled.clone()), cancelled);
        let superseded = vec![expect("1", 1), end("1", 1, EndReason::Superseded)];
        assert_eq!(told(superseded.clone()), superseded);
    }

    #[test]
    fn two_hosts_under_one_token_do_not_speak_for_each_other() {
        let elsewhere = ToHost { host_id: HostId::new("b").unwrap(), ..end("1", 1, EndReason::Cancelled) };
        let found = vec![expect("1", 1), elsewhere];
        assert_eq!(told(found.clone()), found);
    }
}
