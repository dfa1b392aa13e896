//! For how long does a word about calls in flight hold?
//!
//! A gauge is told now and then; between two words the oldest call grows older by itself. A program that crashed never
//! takes its last word back, and a call that no longer exists would hold its host down for ever: a word that is not
//! repeated within five minutes is void. Programs tell theirs at least once a minute.

use std::collections::BTreeMap;
use std::time::Duration;

use usher_types::BootTime;

/// Five times the longest pause that programs are told to keep.
const VOID_AFTER: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy)]
struct Told {
    count: u32,
    oldest: Option<Duration>,
    at: BootTime,
}

/// What was told of calls in flight, by operation.
#[derive(Debug, Default)]
pub struct CallsInFlight {
    told: BTreeMap<String, Told>,
}

/// What holds now of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlightNow {
    /// The operation.
    pub name: String,
    /// Calls begun and not finished; 0 ends it.
    pub count: u32,
    /// Since when the oldest of them runs. Absent: not told.
    pub oldest: Option<Duration>,
}

impl CallsInFlight {
    /// Takes a word about `name`.
    pub fn tell(&mut self, name: &str, count: u32, oldest: Option<Duration>, now: BootTime) {
        if count == 0 {
            self.told.remove(name);
        } else {
            self.told.insert(name.to_owned(), Told { count, oldest, at: now });
        }
    }

    /// What holds at `now`. A word that has become void is told once more, as 0, and forgotten.
    pub fn at(&mut self, now: BootTime) -> Vec<InFlightNow> {
        let holding = self.told.iter().map(|(name, told)| {
            let passed = now.since(told.at);
            let is_void = passed > VOID_AFTER;
            InFlightNow {
                name: name.clone(),
                count: if is_void { 0 } else { told.count },
                oldest: told.oldest.filter(|_| !is_void).map(|age| age.saturating_add(passed)),
            }
        });
        let holding: Vec<InFlightNow> = holding.collect();
        self.told.retain(|_, told| now.since(told.at) <= VOID_AFTER);
        holding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime::from_millis(1000 * seconds)
    }

    #[test]
    fn the_oldest_call_grows_older_until_it_is_told_anew_or_the_word_is_void() {
        let mut calls = CallsInFlight::default();
        let now = |count, oldest: Option<u64>| {
            vec![InFlightNow { name: "q".into(), count, oldest: oldest.map(Duration::from_secs) }]
        };
        calls.tell("q", 2, Some(Duration::from_secs(1)), at(10));
        assert_eq!(calls.at(at(15)), now(2, Some(6)));
        calls.tell("q", 3, None, at(20));
        assert_eq!(calls.at(at(30)), now(3, None));
        assert_eq!(calls.at(at(320)), now(3, None));
        assert_eq!(calls.at(at(321)), now(0, None));
        assert_eq!(calls.at(at(322)), []);
    }

    #[test]
    fn a_count_of_zero_ends_it() {
        let mut calls = CallsInFlight::default();
        calls.tell("q", 2, None, at(0));
        calls.tell("q", 0, None, at(1));
        assert_eq!(calls.at(at(1)), []);
    }
}
