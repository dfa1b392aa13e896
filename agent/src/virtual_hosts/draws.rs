//! Which random quantities does a modelled host draw?
//!
//! CPU of sessions is heavy-tailed: most do next to nothing, a few take several cores, and it is those few that make a
//! host slow. A bounded Pareto has that shape and a largest value.

use rand::{Rng, RngExt};
use rand_distr::{Distribution, Exp, LogNormal, Poisson, StandardNormal};

/// Uniform in [0, 1).
pub(super) fn unit(rng: &mut impl Rng) -> f64 {
    rng.random()
}

/// Standard normal.
pub(super) fn normal(rng: &mut impl Rng) -> f64 {
    StandardNormal.sample(rng)
}

/// Exponential with this mean (> 0).
pub(super) fn exponential(rng: &mut impl Rng, mean: f64) -> f64 {
    Exp::new(1.0 / mean).map_or(mean, |law| law.sample(rng))
}

/// Lognormal with this mean (> 0) and sigma.
pub(super) fn lognormal(rng: &mut impl Rng, mean: f64, sigma: f64) -> f64 {
    LogNormal::new(mean.ln() - sigma * sigma / 2.0, sigma).map_or(mean, |law| law.sample(rng))
}

/// Poisson with this mean (> 0).
pub(super) fn poisson(rng: &mut impl Rng, mean: f64) -> f64 {
    Poisson::new(mean).map_or(mean, |law| law.sample(rng))
}

/// Pareto with exponent `alpha`, cut to `least..=most` (0 < least < most).
pub(super) fn bounded_pareto(rng: &mut impl Rng, alpha: f64, least: f64, most: f64) -> f64 {
    let tail = (least / most).powf(alpha);
    let draw = least * (1.0 - unit(rng) * (1.0 - tail)).powf(-1.0 / alpha);
    draw.clamp(least, most)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    fn mean(draw: impl Fn(&mut Pcg64Mcg) -> f64) -> f64 {
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        (0..200_000).map(|_| draw(&mut rng)).sum::<f64>() / 200_000.0
    }

    #[test]
    fn the_means_are_those_of_the_model() {
        assert!((mean(|rng| bounded_pareto(rng, 1.5, 0.05, 3.0)) - 0.131).abs() < 0.003);
        assert!((mean(|rng| lognormal(rng, 0.69, 0.8)) - 0.69).abs() < 0.01);
        assert!((mean(|rng| lognormal(rng, 24.0, 0.5)) - 24.0).abs() < 0.2);
        assert!((mean(|rng| exponential(rng, 6.0)) - 6.0).abs() < 0.1);
        assert!((mean(|rng| poisson(rng, 10.0)) - 10.0).abs() < 0.1);
    }

    #[test]
    fn a_bounded_draw_stays_within_its_bounds() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        assert!((0..10_000).all(|_| (0.05..=3.0).contains(&bounded_pareto(&mut rng, 1.5, 0.05, 3.0))));
    }
}
