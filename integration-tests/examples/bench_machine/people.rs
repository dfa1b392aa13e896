//! Who comes, when, and with how much work? Drawn before any method is asked, so that all methods of a seed meet the same
//! people: the model's logins, without those that never arrive.

use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution, Exp, LogNormal};
use rand_pcg::Pcg64Mcg;

use crate::scale::{HOSTS, LOGONS, WITHIN_S};

/// Sessions of a host at the start.
const SESSIONS: usize = 10;

/// One login; seconds and cores of the model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Login {
    pub(crate) at_s: f64,
    pub(crate) connect_s: f64,
    pub(crate) work_core_s: f64,
    pub(crate) session_cores: f64,
}

/// Everybody of one storm.
#[derive(Debug, Clone)]
pub(crate) struct People {
    /// In the order in which they come.
    pub(crate) logins: Vec<Login>,
    /// Cores that the sessions of each host use at the start, and how many they are.
    pub(crate) at_start: Vec<(f64, u32)>,
}

impl People {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        // A lognormal of spread s has the mean exp(mu + s^2 / 2).
        let work = LogNormal::new(24f64.ln() - 0.125, 0.5).unwrap();
        let connect = Exp::new(0.5).unwrap();
        let mut logins: Vec<Login> = (0..LOGONS)
            .map(|_| Login {
                at_s: rng.random_range(0.0..WITHIN_S),
                connect_s: 0.3 + connect.sample(&mut rng),
                work_core_s: work.sample(&mut rng),
                session_cores: session_cores(&mut rng),
            })
            .collect();
        logins.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        let of_host = |rng: &mut Pcg64Mcg| (0..SESSIONS).map(|_| session_cores(rng)).sum();
        let at_start = (0..HOSTS).map(|_| (of_host(&mut rng), SESSIONS as u32)).collect();
        Self { logins, at_start }
    }
}

/// Pareto with alpha 1.5 between 0.05 and 3 cores, mean 0.131.
fn session_cores(rng: &mut impl Rng) -> f64 {
    const ALPHA: f64 = 1.5;
    let tail = (0.05f64 / 3.0).powf(ALPHA);
    0.05 / (1.0 - rng.random::<f64>() * (1.0 - tail)).powf(1.0 / ALPHA)
}
