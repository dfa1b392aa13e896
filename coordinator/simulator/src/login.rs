//! What does one login cost, and how long does its session stay?
//!
//! People differ: most sessions idle, a few compute. So each login draws its own work, CPU, memory, processes and life,
//! once, before any method is asked. Every method of a run meets the same people.

use rand::{Rng, RngExt};
use rand_distr::{Distribution, Exp, LogNormal, Uniform};

/// Cores that a logon uses at most: it is mostly one thread of work after the other.
pub const LOGON_CORES: f64 = 1.5;
/// Mean life of a session, seconds.
const LIFE_S: f64 = 4.0 * 3600.0;
/// From the placement to the session: a client needs so long at least, and so much longer on average.
const CONNECT_MIN_S: f64 = 0.3;
const CONNECT_MORE_S: f64 = 2.0;
/// Share of placements that no session follows.
const NEVER_ARRIVE: f64 = 0.02;

/// One login and the session that it begins.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Login {
    /// When its place is asked for, seconds since the start of the run.
    pub at_s: f64,
    /// What its logon computes, core-seconds, > 0.
    pub work_core_s: f64,
    /// CPU that its session uses from then on, cores.
    pub cpu_cores: f64,
    /// Memory that its session uses, GB.
    pub memory_gb: f64,
    /// Processes of its session.
    pub processes: u32,
    /// How long its session stays, seconds.
    pub life_s: f64,
    /// From the placement to the session, seconds. Absent: it never arrives.
    pub connect_s: Option<f64>,
}

impl Login {
    /// How long its logon takes on an idle host, seconds.
    pub fn alone_s(&self) -> f64 {
        self.work_core_s / LOGON_CORES
    }
}

/// Where logins are drawn from.
#[derive(Debug)]
pub(crate) struct Logins {
    work: LogNormal<f64>,
    memory: LogNormal<f64>,
    processes: Exp<f64>,
    life: Exp<f64>,
    connect: Exp<f64>,
    share: Uniform<f64>,
}

impl Logins {
    /// Sessions that end `turnover` times as fast as usual.
    ///
    /// # Panics
    /// If `turnover` is not above 0; scenes are checked before.
    pub(crate) fn new(turnover: f64) -> Self {
        const OURS: &str = "the model's parameters are finite and above 0";
        // A lognormal of spread s has the mean exp(mu + s^2 / 2).
        let log_normal = |mean: f64, s: f64| LogNormal::new(mean.ln() - s * s / 2.0, s).expect(OURS);
        let exp = |mean: f64| Exp::new(1.0 / mean).expect(OURS);
        Self {
            work: log_normal(24.0, 0.5),
            memory: log_normal(0.69, 0.8),
            processes: exp(6.0),
            life: exp(LIFE_S / turnover),
            connect: exp(CONNECT_MORE_S),
            share: Uniform::new(0.0, 1.0).expect(OURS),
        }
    }

    /// A login at `at_s`.
    pub(crate) fn draw(&self, at_s: f64, rng: &mut impl Rng) -> Login {
        let connect_s = CONNECT_MIN_S + self.connect.sample(rng);
        let arrives = self.share.sample(rng) >= NEVER_ARRIVE;
        Login {
            at_s,
            work_core_s: self.work.sample(rng),
            cpu_cores: bounded_pareto(self.share.sample(rng)),
            memory_gb: self.memory.sample(rng),
            // At most a few hundred: it fits.
            processes: 12 + self.processes.sample(rng).round() as u32,
            life_s: self.life.sample(rng),
            connect_s: arrives.then_some(connect_s),
        }
    }
}

/// The CPU of a session: Pareto with alpha 1.5 between 0.05 and 3 cores, mean 0.131.
fn bounded_pareto(u: f64) -> f64 {
    const ALPHA: f64 = 1.5;
    const LOW: f64 = 0.05;
    const HIGH: f64 = 3.0;
    let tail = (LOW / HIGH).powf(ALPHA);
    LOW / (1.0 - u * (1.0 - tail)).powf(1.0 / ALPHA)
}

/// A generator for one purpose, so that what one of them draws moves no other.
pub(crate) fn generator(seed: u64, purpose: u64, index: usize) -> rand_pcg::Pcg64Mcg {
    use rand::SeedableRng;
    let mut mixed = seed ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for part in [index as u64, purpose] {
        mixed = (mixed ^ part).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^= mixed >> 29;
    }
    rand_pcg::Pcg64Mcg::seed_from_u64(mixed)
}

/// A place in `0..len`, uniformly; 0 if there is none.
pub(crate) fn any_of(len: usize, rng: &mut impl Rng) -> usize {
    if len < 2 { 0 } else { rng.random_range(0..len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_logins_cost_on_average_is_what_the_model_says() {
        let (logins, mut rng) = (Logins::new(1.0), generator(1, 2, 3));
        let drawn: Vec<Login> = (0..200_000).map(|_| logins.draw(0.0, &mut rng)).collect();
        let mean = |value: fn(&Login) -> f64| drawn.iter().map(value).sum::<f64>() / drawn.len() as f64;
        let near =
            |mean: f64, expected: f64| assert!((mean / expected - 1.0).abs() < 0.03, "{mean} {expected}");
        near(mean(|login| login.work_core_s), 24.0);
        near(mean(|login| login.cpu_cores), 0.131);
        near(mean(|login| login.memory_gb), 0.69);
        near(mean(|login| f64::from(login.processes)), 18.0);
        near(mean(|login| login.life_s), 14_400.0);
        near(mean(|login| f64::from(u8::from(login.connect_s.is_none()))), 0.02);
        assert!(drawn.iter().all(|login| (0.05..=3.0).contains(&login.cpu_cores)));
    }
}
