//! Is a login promised on two hosts?
//!
//! It may be for a moment: a gateway whose answer was lost asks elsewhere. A second after its last attempt, a coordinator
//! that hears both hosts must have taken one of the places back. While nobody hears both nobody can.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Violation;

/// From the moment in which a coordinator can know of both: 1 s, and what it takes a report to leave, a message to arrive and
/// the next report to leave.
const PATIENCE: Duration = Duration::from_millis(1600);

/// The check of doubled places.
#[derive(Debug, Default)]
pub struct OneHost {
    since: BTreeMap<(String, usize, usize), Duration>,
    last_attempt: BTreeMap<String, Duration>,
    told: std::collections::BTreeSet<String>,
    checks: u64,
}

impl OneHost {
    /// How many pairs of a login and two hosts were watched.
    pub fn checks(&self) -> u64 {
        self.checks
    }

    /// An attempt at a login was begun or has ended.
    pub fn attempted(&mut self, token: &str, now: Duration) {
        self.last_attempt.insert(token.to_owned(), now);
    }

    /// On which hosts each login has a live place now; `heard` says whether a coordinator hears both.
    pub fn look(
        &mut self,
        now: Duration,
        places: &BTreeMap<String, Vec<usize>>,
        heard: impl Fn(usize, usize) -> bool,
    ) -> Vec<Violation> {
        let mut broken = Vec::new();
        let mut doubled = BTreeMap::new();
        for (token, hosts) in places.iter().filter(|(_, hosts)| hosts.len() > 1) {
            for (number, first) in hosts.iter().enumerate() {
                for second in &hosts[number + 1..] {
                    if !heard(*first, *second) {
                        continue;
                    }
                    let key = (token.clone(), *first, *second);
                    let since = self.since.get(&key).copied().unwrap_or_else(|| {
                        self.checks += 1;
                        now
                    });
                    doubled.insert(key, since);
                    let from = since.max(self.last_attempt.get(token).copied().unwrap_or_default());
                    if now.saturating_sub(from) > PATIENCE && self.told.insert(token.clone()) {
                        let what = format!("{token} has places on h{} and h{}", first + 1, second + 1);
                        broken.push(Violation::new("one_host", now, what));
                    }
                }
            }
        }
        self.since = doubled;
        broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn on(hosts: &[usize]) -> BTreeMap<String, Vec<usize>> {
        BTreeMap::from([("g/1".to_owned(), hosts.to_vec())])
    }

    #[test]
    fn two_places_of_one_login_that_stay_are_seen_once() {
        let mut check = OneHost::default();
        check.attempted("g/1", at(0));
        assert!(check.look(at(100), &on(&[0, 1]), |_, _| true).is_empty());
        assert!(check.look(at(1600), &on(&[0, 1]), |_, _| true).is_empty());
        assert_eq!(check.look(at(1800), &on(&[0, 1]), |_, _| true).len(), 1);
        assert!(check.look(at(1900), &on(&[0, 1]), |_, _| true).is_empty());
    }

    #[test]
    fn a_new_attempt_or_a_cut_begins_the_wait_again() {
        let mut check = OneHost::default();
        assert!(check.look(at(0), &on(&[0, 1]), |_, _| true).is_empty());
        check.attempted("g/1", at(1000));
        assert!(check.look(at(2500), &on(&[0, 1]), |_, _| true).is_empty());
        assert!(check.look(at(2600), &on(&[0, 1]), |_, _| false).is_empty());
        assert!(check.look(at(2700), &on(&[0, 1]), |_, _| true).is_empty());
        assert!(check.look(at(4200), &on(&[1]), |_, _| true).is_empty());
        assert!(check.look(at(4400), &on(&[0, 1]), |_, _| true).is_empty(), "another pair of places");
    }
}
