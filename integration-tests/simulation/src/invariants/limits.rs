//! Did anybody give a place that was not there?
//!
//! Seen twice. A host that lists a new place must have room for it, by its own count. And what gateways hold on a host (a
//! place that was given and not used, given up or over, or a session that came of one) must never pass the host's limit,
//! whatever the host itself believes.
//!
//! A coordinator that has lost a host gives its share of it without asking. Two edges of that are known and told to operators
//! (ADR 0010), and no more than what they explain is let pass, and counted: what others gave there before the host could notice
//! that the coordinator was gone, and what a coordinator gave that was restarted before it could tell the host. A third one is
//! that of users who are sent back to their own session, without a place, and find that it has ended: they count once they are
//! seen.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Violation;

/// What a host said of itself.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostBookSeen {
    /// Distinct users with a session. Absent: unknown.
    pub users: Option<u32>,
    /// Each place with the users that it adds.
    pub places: BTreeMap<String, u32>,
}

/// A place in a gateway's hands.
#[derive(Debug, Clone, PartialEq)]
pub struct Hold {
    /// On which host.
    pub host: usize,
    /// In which boot of it.
    pub boot: u32,
    /// For whom.
    pub user: String,
    /// As how many users it counts until its session is there.
    pub cost: u32,
    /// When it ends by itself.
    pub until: Duration,
    /// Which coordinator gave it.
    pub giver: usize,
    /// Since when that one did not hear the host, if it did not: it gave of its share, and the host knows nothing of it.
    pub unheard_since: Option<Duration>,
}

/// For how long a host may take a coordinator for heard that has lost it: until no tick has come for 2.5 s. That they lost each
/// other is seen here when the newest tick is 1.3 s old, or at once.
const UNNOTICED: (Duration, Duration) = (Duration::from_millis(1500), Duration::from_millis(2600));
/// A host has seen who came to it by then.
const SEEN_WITHIN: Duration = Duration::from_secs(2);

/// A place that a host gave.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Consent {
    host: usize,
    giver: usize,
    at: Duration,
    users: u32,
}

impl Consent {
    fn is_unnoticed(&self, unheard_since: Duration) -> bool {
        let (before, after) = UNNOTICED;
        (unheard_since.saturating_sub(before)..=unheard_since + after).contains(&self.at)
    }
}

/// The check of limits.
#[derive(Debug, Default)]
pub struct Limits {
    seen: BTreeMap<usize, HostBookSeen>,
    holds: BTreeMap<String, Hold>,
    consents: Vec<Consent>,
    /// Tokens given of a share by coordinators that could not tell their hosts since.
    untold: BTreeSet<String>,
    /// Users who came by such a place, or by none, where and when.
    came_untold: Vec<(usize, String, Duration)>,
    checks: u64,
    at_known_edges: u64,
}

impl Limits {
    /// How often something was compared with a limit.
    pub fn checks(&self) -> u64 {
        self.checks
    }

    /// How often a limit was passed by no more than what a known edge explains.
    pub fn at_known_edges(&self) -> u64 {
        self.at_known_edges
    }

    /// A host's own book.
    pub fn look_at_book(
        &mut self,
        host: usize,
        limit: u32,
        now: Duration,
        book: HostBookSeen,
    ) -> Option<Violation> {
        let before = self.seen.insert(host, book.clone()).unwrap_or_default();
        let is_new = book.places.keys().any(|token| !before.places.contains_key(token));
        let pending: u32 = book.places.values().sum();
        let users = book.users?;
        if !is_new {
            return None;
        }
        self.checks += 1;
        (users + pending > limit).then(|| {
            let what = format!("h{}: {users} users and {pending} on their way, limit {limit}", host + 1);
            Violation::new("limit", now, what)
        })
    }

    /// A host whose agent starts with nothing of before.
    pub fn forget_book(&mut self, host: usize) {
        self.seen.remove(&host);
    }

    /// A gateway was given a place on a host where these users sit.
    pub fn granted(
        &mut self,
        token: &str,
        hold: Hold,
        limit: u32,
        sitting: &BTreeSet<String>,
        now: Duration,
    ) -> Option<Violation> {
        let (host, boot) = (hold.host, hold.boot);
        if hold.unheard_since.is_none() {
            self.consents.push(Consent { host, giver: hold.giver, at: now, users: hold.cost });
        }
        self.holds.insert(token.to_owned(), hold);
        self.holds.retain(|_, hold| hold.until > now);
        self.checks += 1;
        // A boot ends every place and every session of before.
        let here = self.holds.values().filter(|hold| hold.host == host && hold.boot == boot);
        // A user counts once, however many places they were given.
        let mut users: BTreeMap<&str, u32> = BTreeMap::new();
        for hold in here.filter(|hold| !sitting.contains(&hold.user)) {
            let cost = users.entry(&hold.user).or_default();
            *cost = (*cost).max(hold.cost);
        }
        let coming: u32 = users.values().sum();
        let there = u32::try_from(sitting.len()).unwrap_or(u32::MAX);
        if there + coming <= limit {
            return None;
        }
        if there + coming <= limit + self.explained(host, boot, now) {
            self.at_known_edges += 1;
            return None;
        }
        Some({
            let what = format!(
                "h{}: users {sitting:?} and with a place in their gateway's hands {users:?}, limit {limit}, after {token}",
                host + 1
            );
            Violation::new("limit", now, what)
        })
    }

    /// Users above a host's limit that the known edges explain.
    fn explained(&self, host: usize, boot: u32, now: Duration) -> u32 {
        let here = || self.holds.iter().filter(|(_, hold)| hold.host == host && hold.boot == boot);
        let of_untold = here().filter(|(token, _)| self.untold.contains(*token)).map(|(_, hold)| hold.cost);
        let untold: u32 = of_untold.sum();
        let seats = self
            .came_untold
            .iter()
            .filter(|(at, _, came)| *at == host && now.saturating_sub(*came) < SEEN_WITHIN);
        let mut shares: BTreeMap<(usize, Duration), u32> = BTreeMap::new();
        for (_, hold) in here().filter(|(token, _)| !self.untold.contains(*token)) {
            if let Some(since) = hold.unheard_since {
                *shares.entry((hold.giver, since)).or_default() += hold.cost;
            }
        }
        let of_share = |((giver, since), users): (&(usize, Duration), &u32)| {
            let others =
                self.consents.iter().filter(|consent| consent.host == host && consent.giver != *giver);
            let unnoticed: u32 =
                others.filter(|consent| consent.is_unnoticed(*since)).map(|consent| consent.users).sum();
            unnoticed.min(*users)
        };
        untold + u32::try_from(seats.count()).unwrap_or(u32::MAX) + shares.iter().map(of_share).sum::<u32>()
    }

    /// A coordinator hears a host: it has told it what it gave meanwhile.
    pub fn heard(&mut self, coordinator: usize, host: usize) {
        for hold in self.holds.values_mut().filter(|hold| (hold.giver, hold.host) == (coordinator, host)) {
            hold.unheard_since = None;
        }
    }

    /// A coordinator starts: what it gave of its share before, and told no host, it tells nobody any more.
    pub fn started(&mut self, coordinator: usize) {
        let is_untold = |hold: &Hold| hold.giver == coordinator && hold.unheard_since.is_some();
        self.untold
            .extend(self.holds.iter().filter(|(_, hold)| is_untold(hold)).map(|(token, _)| token.clone()));
    }

    /// The host was OFFLINE for a coordinator: what that one gave on it before is void for good, though its gateway may not
    /// know. (A user who comes all the same is a login that nobody asked for.) What others gave that hear the host stands.
    pub fn went_offline(&mut self, coordinator: usize, host: usize) {
        self.holds.retain(|_, hold| (hold.giver, hold.host) != (coordinator, host));
    }

    /// A user has come to a host, where they sit or not: the oldest place for them there is used, and counts no more when they
    /// have left.
    pub fn came(&mut self, host: usize, user: &str, sits: bool, now: Duration) {
        let theirs = self.holds.iter().filter(|(_, hold)| hold.host == host && hold.user == user);
        let oldest = theirs.min_by_key(|(_, hold)| hold.until).map(|(token, _)| token.clone());
        let is_told = oldest.is_some_and(|token| {
            self.holds.remove(&token);
            !self.untold.contains(&token)
        });
        if !is_told && !sits {
            self.came_untold.push((host, user.to_owned(), now));
        }
    }

    /// The gateway gave it up, or its user has come or failed to.
    pub fn released(&mut self, token: &str) {
        self.holds.remove(token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(users: u32, places: &[&str]) -> HostBookSeen {
        HostBookSeen { users: Some(users), places: places.iter().map(|token| ((*token).into(), 1)).collect() }
    }

    fn hold(until: u64) -> Hold {
        let until_then = Duration::from_secs(until);
        Hold {
            host: 0,
            boot: 1,
            user: format!("u{until}"),
            cost: 1,
            until: until_then,
            giver: 0,
            unheard_since: None,
        }
    }

    #[test]
    fn a_host_that_admits_beyond_its_limit_is_seen() {
        let mut limits = Limits::default();
        let now = Duration::from_secs(1);
        assert_eq!(limits.look_at_book(0, 3, now, book(2, &["a"])), None);
        assert!(limits.look_at_book(0, 3, now, book(2, &["a", "b"])).is_some());
    }

    #[test]
    fn a_host_that_was_full_before_and_admits_nobody_is_not() {
        let mut limits = Limits::default();
        let now = Duration::from_secs(1);
        assert_eq!(limits.look_at_book(0, 3, now, book(2, &["a"])), None);
        assert_eq!(limits.look_at_book(0, 3, now, book(9, &["a"])), None, "logins that nobody asked for");
    }

    #[test]
    fn gateways_may_not_hold_more_than_a_host_has() {
        let mut limits = Limits::default();
        let sitting = BTreeSet::from(["x".to_owned()]);
        let now = Duration::from_secs(1);
        assert_eq!(limits.granted("a", hold(20), 2, &sitting, now), None);
        assert!(limits.granted("b", hold(21), 2, &sitting, now).is_some());
        limits.released("a");
        assert_eq!(limits.granted("b", hold(21), 2, &sitting, now), None);
    }

    #[test]
    fn places_on_a_host_that_was_offline_are_void() {
        let mut limits = Limits::default();
        let now = Duration::from_secs(1);
        assert_eq!(limits.granted("a", hold(20), 1, &BTreeSet::new(), now), None);
        limits.went_offline(0, 0);
        assert_eq!(limits.granted("b", hold(21), 1, &BTreeSet::new(), now), None);
    }

    #[test]
    fn places_of_a_coordinator_that_hears_the_host_stand_although_another_lost_it() {
        let mut limits = Limits::default();
        let now = Duration::from_secs(1);
        assert_eq!(limits.granted("a", hold(20), 1, &BTreeSet::new(), now), None);
        limits.went_offline(1, 0);
        let other = Hold { giver: 1, ..hold(21) };
        assert!(limits.granted("b", other, 1, &BTreeSet::new(), now).is_some());
    }

    fn share(until: u64, giver: usize, unheard_since: u64) -> Hold {
        let unheard_since = Some(Duration::from_secs(unheard_since));
        Hold { giver, unheard_since, ..hold(until) }
    }

    #[test]
    fn what_a_host_gave_before_it_could_notice_explains_as_many_of_a_share_and_no_more() {
        let (mut limits, nobody, now) = (Limits::default(), BTreeSet::new(), Duration::from_secs(30));
        assert_eq!(limits.granted("a", hold(50), 2, &nobody, Duration::from_secs(22)), None);
        assert_eq!(limits.granted("b", hold(51), 2, &nobody, Duration::from_secs(25)), None);
        assert_eq!(limits.granted("c", share(52, 1, 20), 2, &nobody, now), None);
        assert_eq!(limits.at_known_edges(), 1);
        assert!(limits.granted("d", share(53, 1, 20), 2, &nobody, now).is_some(), "the second came too late");
    }

    #[test]
    fn a_share_explains_nothing_when_the_host_was_told_of_it_or_nothing_was_given_meanwhile() {
        let (mut limits, nobody, now) = (Limits::default(), BTreeSet::new(), Duration::from_secs(30));
        assert_eq!(limits.granted("a", hold(50), 1, &nobody, Duration::from_secs(10)), None);
        assert!(limits.granted("b", share(51, 1, 20), 1, &nobody, now).is_some());
        limits.released("b");
        assert_eq!(limits.granted("c", share(52, 1, 9), 1, &nobody, now), None);
        limits.heard(1, 0);
        assert!(limits.granted("d", hold(53), 1, &nobody, now).is_some());
    }

    #[test]
    fn a_share_whose_giver_was_restarted_is_nobodys_to_tell_until_its_user_is_seen() {
        let (mut limits, nobody) = (Limits::default(), BTreeSet::new());
        let at = Duration::from_secs;
        assert_eq!(limits.granted("a", share(50, 1, 20), 1, &nobody, at(30)), None);
        limits.started(0);
        assert!(limits.granted("b", hold(51), 1, &nobody, at(30)).is_some(), "another one was");
        limits.released("b");
        limits.started(1);
        assert_eq!(limits.granted("c", hold(51), 1, &nobody, at(30)), None);
        limits.came(0, "u50", false, at(31));
        let there = BTreeSet::from(["u50".to_owned()]);
        assert_eq!(limits.granted("d", hold(51), 1, &there, at(32)), None);
        assert!(limits.granted("e", hold(51), 1, &there, at(34)).is_some());
    }

    #[test]
    fn who_comes_without_a_place_explains_a_seat_until_they_are_seen() {
        let at = Duration::from_secs;
        let (mut limits, nobody) = (Limits::default(), BTreeSet::new());
        let full = |limits: &mut Limits, token: &str, sitting: &BTreeSet<String>, now: u64| {
            limits.granted(token, hold(now + 20), 1, sitting, at(now)).is_some()
        };
        assert!(!full(&mut limits, "a", &nobody, 10));
        limits.released("a");
        let back = BTreeSet::from(["back".to_owned()]);
        limits.came(0, "back", false, at(11));
        assert!(!full(&mut limits, "b", &back, 11), "the host has not seen them yet");
        limits.released("b");
        assert!(full(&mut limits, "c", &back, 14), "it has by now");
        limits.released("c");
        limits.came(0, "back", true, at(15));
        assert!(full(&mut limits, "d", &back, 15), "who sits there takes no seat");
    }

    #[test]
    fn a_user_with_two_places_on_a_host_counts_once() {
        let mut limits = Limits::default();
        let now = Duration::from_secs(1);
        assert_eq!(limits.granted("a", hold(20), 1, &BTreeSet::new(), now), None);
        assert_eq!(limits.granted("b", hold(20), 1, &BTreeSet::new(), now), None);
        assert!(limits.granted("c", hold(21), 1, &BTreeSet::new(), now).is_some());
    }

    #[test]
    fn a_place_whose_user_has_come_and_left_counts_no_more() {
        let (mut limits, nobody, now) = (Limits::default(), BTreeSet::new(), Duration::from_secs(1));
        assert_eq!(limits.granted("a", hold(20), 1, &nobody, now), None);
        limits.came(1, "u20", false, now);
        assert!(limits.granted("b", hold(21), 1, &nobody, now).is_some(), "they went elsewhere");
        limits.released("b");
        limits.came(0, "u20", false, now);
        assert_eq!(limits.granted("c", hold(22), 1, &nobody, now), None);
    }

    #[test]
    fn a_place_whose_time_is_over_or_whose_user_sits_there_counts_no_more() {
        let mut limits = Limits::default();
        let sitting = BTreeSet::new();
        assert_eq!(limits.granted("a", hold(20), 1, &sitting, Duration::from_secs(1)), None);
        assert_eq!(limits.granted("b", hold(41), 1, &sitting, Duration::from_secs(21)), None);
        let came = BTreeSet::from(["u41".to_owned()]);
        assert_eq!(limits.granted("c", hold(42), 2, &came, Duration::from_secs(22)), None);
        assert!(limits.granted("d", hold(43), 2, &came, Duration::from_secs(22)).is_some());
    }
}
