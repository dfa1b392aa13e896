//! How much must this host keep free for coordinators that it cannot hear?
//!
//! A coordinator that has no stream to a host goes on giving places on it: its share of what was free when it heard the
//! host last, the K-th part where the host reports to K coordinators. The host cannot know whether it does, so it keeps
//! that share free: of the rooms that the coordinator *may* have been told last the largest counts, because a Load that
//! was sent need not have arrived. So the places given by consent, those given by share and the users never pass a limit
//! together, with any number of coordinators and whichever of them are lost.
//!
//! A coordinator is heard while its stream is open and ticks come. It is heard again with the first tick of a new stream:
//! by then it has told all the places that it had given meanwhile. Where ticks come again on the same stream, after the
//! agent or the coordinator stood still, what was said in between is still being read, and it takes a moment longer.
//!
//! It refuses to guess that a coordinator is gone for good: only the agent's configuration says so.

use std::{collections::VecDeque, time::Duration};

use serde::{Deserialize, Serialize};
use usher_types::{BootTime, Load};

use super::book::Limits;

/// Ticks come each second: with none for this long a coordinator is not heard.
const UNHEARD: Duration = Duration::from_millis(2500);
/// After a gap on a stream that stayed open, ticks must have come for this long.
const SETTLES: Duration = Duration::from_millis(2500);
/// A coordinator ticks for as long as it may be hearing the host: until the host is OFFLINE to it at the longest. So a Load that
/// was sent so many report intervals, and so much more, before the last tick has arrived, or one after it has.
const MAY_BE_LOST_INTERVALS: u32 = 3;
const MAY_BE_LOST_SLACK: Duration = Duration::from_secs(1);

/// What is kept free for coordinators that are not heard.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct HeldBack {
    /// Users.
    pub users: u32,
    /// Logons in progress.
    pub places: u32,
}

impl HeldBack {
    /// Whether anything is.
    #[must_use]
    pub fn any(self) -> bool {
        self != Self::default()
    }
}

/// A report, and what of it differs from one coordinator to the other.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    load: Load,
    /// What is kept free for others, with the number of the coordinator that is told.
    held_back: Vec<(usize, HeldBack)>,
    ends: u64,
}

impl Report {
    pub(super) fn new(load: Load, held_back: Vec<(usize, HeldBack)>, ends: u64) -> Self {
        Self { load, held_back, ends }
    }

    /// How many places have ended on this host since its agent started; the newest of them are listed. So a stream that was
    /// told of so many needs to hear of the others only.
    #[must_use]
    pub fn ends(&self) -> u64 {
        self.ends
    }

    /// As the host says it on the machine itself.
    #[must_use]
    pub fn load(&self) -> &Load {
        &self.load
    }

    /// What is kept free for other coordinators than this one.
    #[must_use]
    pub fn held_back_from(&self, coordinator: usize) -> HeldBack {
        let told = self.held_back.iter().find(|(number, _)| *number == coordinator);
        told.map(|(_, held_back)| *held_back).unwrap_or_default()
    }

    /// As this coordinator is told it.
    #[must_use]
    pub fn to(&self, coordinator: usize) -> Load {
        let HeldBack { users, places } = self.held_back_from(coordinator);
        Load { held_back_users: users, held_back_places: places, ..self.load.clone() }
    }
}

/// What one coordinator may give at most by what it was told, for the disk. Absent: up to its share of the whole limit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ToldShare {
    coordinator: String,
    users: Option<u32>,
    places: Option<u32>,
}

impl ToldShare {
    /// Whether `before` holds back less than this for the same coordinator.
    fn is_more_than(&self, before: &Self) -> bool {
        let grows = |now: Option<u32>, before: Option<u32>| most(now, before) != before;
        self.coordinator == before.coordinator
            && (grows(self.users, before.users) || grows(self.places, before.places))
    }
}

/// Whether one of `now` is larger than the same in `before`: a crash must not forget it.
pub(super) fn any_more(now: &[ToldShare], before: &[ToldShare]) -> bool {
    now.iter().any(|share| before.iter().any(|before| share.is_more_than(before)))
        || now.len() != before.len()
}

/// The larger of two shares; one without a bound is the largest.
fn most(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    Some(a?.max(b?))
}

/// Shares of one kind that a coordinator was told, the oldest first. Only those that may be the largest in force are kept:
/// each is smaller than the one before it.
#[derive(Clone, Debug)]
struct Told(VecDeque<(BootTime, Option<u32>)>);

impl Told {
    fn at_most(share: Option<u32>) -> Self {
        Self(VecDeque::from([(BootTime::ZERO, share)]))
    }

    fn note(&mut self, share: Option<u32>, now: BootTime) {
        while self.0.back().is_some_and(|(_, before)| *before != share && most(*before, share) == share) {
            self.0.pop_back();
        }
        // The same again: it was in force before, and arrives no later for that.
        if self.0.back().is_none_or(|(_, before)| *before != share) {
            self.0.push_back((now, share));
        }
    }

    /// What was told at `arrived` or before has arrived: of it only the last is in force.
    fn forget_before(&mut self, arrived: BootTime) {
        while self.0.get(1).is_some_and(|(at, _)| *at <= arrived) {
            self.0.pop_front();
        }
    }

    fn most(&self) -> Option<u32> {
        self.0.front().and_then(|(_, share)| *share)
    }
}

#[derive(Clone, Debug)]
struct Peer {
    number: usize,
    name: String,
    has_stream: bool,
    /// The newest tick of the stream.
    heard: Option<BootTime>,
    /// Ticks came again after a gap: before this it is not heard.
    settles_at: BootTime,
    users: Told,
    places: Told,
}

impl Peer {
    fn new(number: usize, name: String, kept: Option<&ToldShare>) -> Self {
        Self {
            number,
            name,
            has_stream: false,
            heard: None,
            settles_at: BootTime::ZERO,
            users: Told::at_most(kept.and_then(|kept| kept.users)),
            places: Told::at_most(kept.and_then(|kept| kept.places)),
        }
    }

    fn is_heard(&self, now: BootTime) -> bool {
        let ticks = self.heard.is_some_and(|heard| now.since(heard) <= UNHEARD);
        self.has_stream && ticks && now >= self.settles_at
    }
}

/// The coordinators that the host is configured to report to, by their numbers.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    peers: Vec<Peer>,
    report_interval: Duration,
}

impl Reach {
    /// None of them is heard yet. Of those that an earlier run has told nothing in this boot, each may give its share of
    /// the whole limit: what it knows may be of an earlier boot.
    pub(super) fn new(coordinators: &[String], report_interval: Duration, kept: &[ToldShare]) -> Self {
        let kept_of = |name: &String| kept.iter().find(|kept| kept.coordinator == *name);
        let peers = coordinators.iter().enumerate();
        let peers = peers.map(|(number, name)| Peer::new(number, name.clone(), kept_of(name))).collect();
        Self { peers, report_interval }
    }

    /// The agent reports to these from now on, each under its number. One that was known by its name goes on as it was.
    pub(super) fn configure<'a>(&mut self, coordinators: impl Iterator<Item = (usize, &'a str)>) {
        let mut before = std::mem::take(&mut self.peers);
        let peer = |(number, name): (usize, &str)| {
            let known = before.iter().position(|peer| peer.name == name);
            let known = known.map(|at| Peer { number, ..before.swap_remove(at) });
            known.unwrap_or_else(|| Peer::new(number, name.to_owned(), None))
        };
        self.peers = coordinators.map(peer).collect();
    }

    /// Whether the agent reports to the coordinator of this number.
    pub(super) fn knows(&self, number: usize) -> bool {
        self.peers.iter().any(|peer| peer.number == number)
    }

    fn peer(&mut self, number: usize) -> Option<&mut Peer> {
        self.peers.iter_mut().find(|peer| peer.number == number)
    }

    /// How many there are, >= 1.
    pub(super) fn coordinators(&self) -> u32 {
        u32::try_from(self.peers.len()).unwrap_or(u32::MAX).max(1)
    }

    /// A stream to the coordinator number `from` is open.
    pub(super) fn stream_opened(&mut self, from: usize) {
        if let Some(peer) = self.peer(from) {
            (peer.has_stream, peer.heard, peer.settles_at) = (true, None, BootTime::ZERO);
        }
    }

    /// It is not any more. Whether it was.
    pub(super) fn stream_closed(&mut self, from: usize) -> bool {
        self.peer(from).is_some_and(|peer| std::mem::take(&mut peer.has_stream))
    }

    /// A tick came on the stream of the coordinator number `from`.
    pub(super) fn tick_heard(&mut self, from: usize, now: BootTime) {
        let window =
            self.report_interval.saturating_mul(MAY_BE_LOST_INTERVALS).saturating_add(MAY_BE_LOST_SLACK);
        let Some(peer) = self.peer(from).filter(|peer| peer.has_stream) else { return };
        if peer.heard.is_some_and(|heard| now.since(heard) > UNHEARD) {
            peer.settles_at = now + SETTLES;
        }
        peer.heard = Some(now);
        peer.users.forget_before(now.before(window));
        peer.places.forget_before(now.before(window));
    }

    /// A Load goes to all that have a stream. Without what is kept free, `free` is left of the limits; absent: without a
    /// bound. What is kept free for others, as each is told.
    pub(super) fn told(&mut self, limits: Limits, free: Limits, now: BootTime) -> Vec<(usize, HeldBack)> {
        let coordinators = self.coordinators();
        let numbers = self.peers.iter().map(|peer| peer.number);
        let for_others: Vec<(usize, HeldBack)> =
            numbers.map(|number| (number, self.held_back(Some(number), limits, now))).collect();
        let told = self.peers.iter_mut().zip(&for_others).filter(|(peer, _)| peer.has_stream);
        for (peer, (_, held_back)) in told {
            let share = |free: u32, held_back: u32| free.saturating_sub(held_back) / coordinators;
            peer.users.note(free.max_users.map(|free| share(free, held_back.users)), now);
            peer.places.note(free.max_pending.map(|free| share(free, held_back.places)), now);
        }
        for_others
    }

    /// What is kept free for those that are not heard; for all but the one that asks, or is told: what it has given it
    /// knows itself, and has told before it asks.
    pub(super) fn held_back(&self, but: Option<usize>, limits: Limits, now: BootTime) -> HeldBack {
        let Limits { max_users, max_pending } = limits;
        let coordinators = self.coordinators();
        // Nothing is kept free of what has no limit.
        let share = |told: &Told, limit: Option<u32>| {
            limit.map_or(0, |limit| told.most().unwrap_or(limit / coordinators))
        };
        let unheard = self.peers.iter().filter(|peer| Some(peer.number) != but && !peer.is_heard(now));
        unheard.fold(HeldBack::default(), |held, peer| HeldBack {
            users: held.users.saturating_add(share(&peer.users, max_users)),
            places: held.places.saturating_add(share(&peer.places, max_pending)),
        })
    }

    /// Those that are not heard.
    pub(super) fn unheard(&self, now: BootTime) -> impl Iterator<Item = &str> {
        self.peers.iter().filter(move |peer| !peer.is_heard(now)).map(|peer| peer.name.as_str())
    }

    /// When one of them is next heard, or not heard, by the clock alone.
    pub(super) fn next_change(&self, now: BootTime) -> Option<BootTime> {
        let change = |peer: &Peer| {
            let lost = peer.heard.filter(|_| peer.has_stream)? + UNHEARD + Duration::from_micros(1);
            [peer.settles_at, lost].into_iter().filter(|at| *at > now).min()
        };
        self.peers.iter().filter_map(change).min()
    }

    /// What must be kept over a restart.
    pub(super) fn record(&self) -> Vec<ToldShare> {
        let share = |peer: &Peer| ToldShare {
            coordinator: peer.name.clone(),
            users: peer.users.most(),
            places: peer.places.most(),
        };
        self.peers.iter().map(share).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(5);
    /// After this long a Load has arrived.
    const WINDOW: Duration = Duration::from_secs(16);

    fn at(millis: u64) -> BootTime {
        BootTime::from_millis(1_000_000 + millis)
    }

    fn limits(max_users: Option<u32>, max_pending: Option<u32>) -> Limits {
        Limits { max_users, max_pending }
    }

    fn tell(reach: &mut Reach, room: u32, now: BootTime) {
        let _ = reach.told(limits(Some(100), Some(100)), limits(Some(room), Some(room)), now);
    }

    fn two() -> Reach {
        Reach::new(&["c1".to_owned(), "c2".to_owned()], INTERVAL, &[])
    }

    /// Both have been heard for a while, and told that there is room for so many.
    fn both_told(room: u32) -> Reach {
        let mut reach = two();
        let earlier = at(0).before(WINDOW);
        (0..2).for_each(|from| reach.stream_opened(from));
        tell(&mut reach, room, earlier);
        (0..2).for_each(|from| reach.tick_heard(from, at(0)));
        tell(&mut reach, room, at(0));
        reach
    }

    fn users(reach: &Reach, now: BootTime) -> u32 {
        reach.held_back(None, limits(Some(100), None), now).users
    }

    /// What is kept for the second one.
    fn for_c2(reach: &Reach, now: BootTime) -> u32 {
        reach.held_back(Some(0), limits(Some(100), None), now).users
    }

    /// The same, if its stream breaks now.
    fn held_if_lost(reach: &Reach, now: BootTime) -> u32 {
        let mut reach = reach.clone();
        reach.stream_closed(1);
        for_c2(&reach, now)
    }

    // rule: held-back
    // rule: held-back-until
    #[test]
    fn before_anybody_is_heard_each_may_have_its_share_of_the_whole_limit() {
        let mut reach = two();
        assert_eq!(users(&reach, at(0)), 100);
        reach.stream_opened(0);
        assert_eq!(users(&reach, at(0)), 100, "the places that it gave are not told yet");
        reach.tick_heard(0, at(0));
        assert_eq!(users(&reach, at(0)), 50);
        assert_eq!(
            reach.held_back(Some(1), limits(Some(100), None), at(0)).users,
            0,
            "who asks has told its places"
        );
        assert_eq!(reach.held_back(None, Limits::default(), at(0)), HeldBack::default(), "there is no limit");
    }

    // rule: held-back
    #[test]
    fn one_that_is_lost_keeps_the_largest_share_that_it_may_have_been_told_last() {
        let mut reach = both_told(9);
        tell(&mut reach, 4, at(500));
        reach.tick_heard(1, at(1000));
        reach.stream_closed(1);
        assert_eq!(for_c2(&reach, at(2000)), 4, "the second Load may not have come");
        let mut reach = both_told(9);
        tell(&mut reach, 4, at(500));
        tell(&mut reach, 4, at(5500));
        reach.tick_heard(1, at(13_500));
        assert_eq!(held_if_lost(&reach, at(13_500)), 4, "it ticks for 13 s without hearing anything");
        reach.tick_heard(1, at(16_500));
        assert_eq!(held_if_lost(&reach, at(16_500)), 2, "a Load of 16 s before the last tick has come");
    }

    // rule: held-back-until
    #[test]
    fn ticks_that_stay_away_are_as_a_stream_that_ends() {
        let mut reach = both_told(8);
        reach.tick_heard(0, at(2000));
        assert_eq!(users(&reach, at(2500)), 0);
        assert_eq!(reach.next_change(at(2500)), Some(at(2500) + Duration::from_micros(1)));
        assert_eq!(users(&reach, at(2501)), 4);
        assert_eq!(reach.unheard(at(2501)).collect::<Vec<_>>(), ["c2"]);
        // They come again: what was said in the meantime is still being read.
        reach.tick_heard(1, at(4000));
        assert_eq!(for_c2(&reach, at(6499)), 4);
        assert_eq!(for_c2(&reach, at(6500)), 0);
        reach.tick_heard(0, at(4000));
        assert_eq!(reach.next_change(at(4000)), Some(at(6500)));
        reach.stream_closed(0);
        assert_eq!(reach.unheard(at(6500)).collect::<Vec<_>>(), ["c1"]);
    }

    // rule: held-back-until
    #[test]
    fn one_that_is_taken_out_while_others_stay_leaves_their_numbers_and_what_they_were_told() {
        let mut reach = both_told(8);
        reach.configure([(1, "c2"), (7, "c3")].into_iter());
        assert_eq!(reach.unheard(at(100)).collect::<Vec<_>>(), ["c3"]);
        assert_eq!(reach.held_back(Some(7), limits(Some(100), None), at(100)).users, 0, "c2 is heard still");
        reach.stream_opened(7);
        reach.tick_heard(7, at(200));
        assert_eq!(reach.unheard(at(200)).count(), 0);
        let told = reach.told(limits(Some(100), None), limits(Some(30), None), at(200));
        assert_eq!(told.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 7]);
    }

    // rule: held-back
    #[test]
    fn one_that_is_lost_again_before_it_was_told_anything_has_what_it_had() {
        let mut reach = both_told(8);
        reach.stream_closed(1);
        reach.tick_heard(0, at(60_000));
        tell(&mut reach, 2, at(60_000));
        reach.stream_opened(1);
        reach.tick_heard(1, at(60_000));
        tell(&mut reach, 2, at(60_100));
        assert_eq!(for_c2(&reach, at(60_100)), 0);
        reach.stream_closed(1);
        assert_eq!(for_c2(&reach, at(60_200)), 4);
    }

    // rule: held-back-kept
    #[test]
    fn a_restart_keeps_what_was_told_and_a_coordinator_that_is_taken_out_frees_its_share() {
        let reach = both_told(8);
        let kept = reach.record();
        let restarted = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            Reach::new(&names, INTERVAL, &kept)
        };
        assert_eq!(users(&restarted(&["c1", "c2"]), at(0)), 8);
        assert_eq!(users(&restarted(&["c1"]), at(0)), 4);
        assert_eq!(users(&restarted(&["c1", "new"]), at(0)), 4 + 50);
        let mut raised = both_told(8);
        tell(&mut raised, 20, at(10));
        assert!(any_more(&raised.record(), &kept) && !any_more(&kept, &raised.record()));
    }
}
