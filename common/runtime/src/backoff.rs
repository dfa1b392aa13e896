//! How long does a client wait before it tries its coordinator again?
//!
//! A coordinator that restarts loses every stream in the same instant. Were each agent to come back on a
//! fixed table, a thousand of them would come back in the same second and knock it over again. So each
//! waits a random time drawn evenly from a window, and the window grows with the farm, because only the
//! coordinator knows how many will come. It tells the window at Attach.
//!
//! Rules: the first try after a loss waits U(0, first), where `first` is half the window told, within
//! 1..=15 s: one client a sixtieth of a second. Each later try waits U(0, D), D the window told, within
//! 2..=30 s, and 2 s before it was told. Only a connection that stood for a whole minute makes the next
//! loss a first one again: a peer that accepts and drops at once is not fast to be tried.
//!
//! Exponential growth was refused: its early steps are what bunches a fleet together, and the even
//! window already bounds the rate at the coordinator.

use std::time::Duration;

use rand::{Rng, RngExt};
use usher_types::BootTime;

/// The window before a coordinator has told one, and the smallest one. Shorter ones make a hot loop.
pub const SPREAD_MIN: Duration = Duration::from_secs(2);
/// The largest window. A longer one would keep hosts away for longer than operators expect of a restart.
pub const SPREAD_MAX: Duration = Duration::from_secs(30);
/// How long a connection must stand before a loss counts as new.
pub const STABLE_AFTER: Duration = Duration::from_secs(60);

const FIRST_MIN: Duration = Duration::from_secs(1);
const FIRST_MAX: Duration = Duration::from_secs(15);

/// The waiting of one client for one coordinator. Pure: time and randomness are arguments.
#[derive(Clone, Debug)]
pub struct Reconnect {
    spread: Duration,
    tried_since_stable: bool,
    connected_at: Option<BootTime>,
}

impl Default for Reconnect {
    fn default() -> Self {
        Self::new()
    }
}

impl Reconnect {
    /// A client that has not connected yet and was told nothing.
    pub fn new() -> Self {
        Self { spread: SPREAD_MIN, tried_since_stable: false, connected_at: None }
    }

    /// The coordinator told its window; clamped to 2..=30 s.
    pub fn told(&mut self, spread: Duration) {
        self.spread = spread.clamp(SPREAD_MIN, SPREAD_MAX);
    }

    /// A connection stands since `now`.
    pub fn connected(&mut self, now: BootTime) {
        self.connected_at = Some(now);
    }

    /// The connection was lost, or could not be made: how long to wait before the next try.
    ///
    /// Each call counts as one try.
    pub fn wait<R: Rng + ?Sized>(&mut self, now: BootTime, rng: &mut R) -> Duration {
        if let Some(since) = self.connected_at.take()
            && now.since(since) >= STABLE_AFTER
        {
            self.tried_since_stable = false;
        }
        let window = if self.tried_since_stable { self.spread } else { self.first_window() };
        self.tried_since_stable = true;
        window.mul_f64(rng.random::<f64>())
    }

    /// The window from which the next later try is drawn.
    pub fn spread(&self) -> Duration {
        self.spread
    }

    fn first_window(&self) -> Duration {
        (self.spread / 2).clamp(FIRST_MIN, FIRST_MAX)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    const START: BootTime = BootTime::from_micros(0);

    fn buckets(waits: &[Duration]) -> Vec<usize> {
        let mut counts = vec![0; 31];
        for wait in waits {
            counts[wait.as_secs() as usize] += 1;
        }
        counts
    }

    #[test]
    fn the_first_try_and_later_ones_are_drawn_from_their_own_windows() {
        let mut rng = StdRng::seed_from_u64(1);
        let (mut first, mut later) = (Vec::new(), Vec::new());
        for _ in 0..10_000 {
            let mut client = Reconnect::new();
            client.told(Duration::from_secs(20));
            first.push(client.wait(START, &mut rng));
            later.push(client.wait(START, &mut rng));
        }
        for (waits, window) in [(first, 10.0), (later, 20.0)] {
            let mean = waits.iter().map(Duration::as_secs_f64).sum::<f64>() / waits.len() as f64;
            assert!((mean - window / 2.0).abs() < window * 0.02, "mean {mean} of window {window}");
            assert!(waits.iter().all(|wait| wait.as_secs_f64() < window));
            let fullest = *buckets(&waits).iter().max().unwrap() as f64 / waits.len() as f64;
            assert!(fullest < 1.2 / window, "bucket {fullest} of window {window}");
        }
    }

    #[test]
    fn case_124_a_thousand_clients_do_not_return_in_the_same_second() {
        let mut rng = StdRng::seed_from_u64(124);
        let mut waits = Vec::new();
        for _ in 0..1_000 {
            let mut client = Reconnect::new();
            client.told(Duration::from_millis(1_000 * 1_000 / 30));
            let mut wait = client.wait(START, &mut rng);
            // The coordinator is back after 5 s; whoever came before then tries again.
            while wait < Duration::from_secs(5) {
                wait += client.wait(START, &mut rng);
            }
            waits.push(wait);
        }
        let mut counts = vec![0_usize; 61];
        for wait in &waits {
            counts[(wait.as_secs() as usize).min(60)] += 1;
        }
        assert_eq!(counts[60], 0, "all are back within a minute");
        assert!(*counts.iter().max().unwrap() <= 100, "{counts:?}");
    }

    #[test]
    fn before_it_is_told_a_client_waits_at_most_two_seconds() {
        let mut rng = StdRng::seed_from_u64(2);
        let mut client = Reconnect::new();
        assert!(client.wait(START, &mut rng) < Duration::from_secs(1));
        assert!((0..1_000).all(|_| client.wait(START, &mut rng) < Duration::from_secs(2)));
    }

    #[test]
    fn what_is_told_is_clamped() {
        let mut client = Reconnect::new();
        client.told(Duration::MAX);
        assert_eq!(client.spread(), SPREAD_MAX);
        client.told(Duration::ZERO);
        assert_eq!(client.spread(), SPREAD_MIN);
    }

    #[test]
    fn case_124_only_a_stable_minute_resets() {
        let mut rng = StdRng::seed_from_u64(3);
        let mut longest_after = |held: Duration| {
            let longest = (0..2_000).map(|_| {
                let mut client = Reconnect::new();
                client.told(Duration::from_secs(30));
                client.wait(START, &mut rng);
                client.connected(START);
                client.wait(START + held, &mut rng)
            });
            longest.max().unwrap()
        };
        assert!(longest_after(Duration::from_secs(59)) > Duration::from_secs(25));
        assert!(longest_after(Duration::from_secs(60)) < Duration::from_secs(15));
    }
}
