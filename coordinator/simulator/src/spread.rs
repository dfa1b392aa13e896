//! How sure is a mean over seeds?
//!
//! A ratio of two methods is taken for each seed first: both met the same people, so that what a seed makes worse for
//! both falls out. The interval is Student's, for the mean of such ratios; beside it stands the worst seed, because an
//! operator lives through one storm and not through their mean.

use serde::Serialize;

/// The mean over seeds, and how far it can be trusted.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The 95 % confidence interval of the mean.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// The highest seed.
    pub worst: f64,
}

/// Student's t for 95 %, by degrees of freedom from 1.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

impl Spread {
    /// Of one value a seed. Of a single seed the interval has no width, and of none it is 0.
    pub fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count.max(1.0);
        let worst = values.iter().copied().fold(mean, f64::max);
        if values.len() < 2 {
            return Self { mean, low: mean, high: mean, worst };
        }
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let freedom = values.len() - 1;
        let student = STUDENT.get(freedom - 1).copied().unwrap_or(1.96 + 2.4 / freedom as f64);
        let half = student * (variance / count).sqrt();
        Self { mean, low: mean - half, high: mean + half, worst }
    }

    /// Of the ratios of two values a seed.
    pub fn of_ratios(values: &[f64], references: &[f64]) -> Self {
        let ratios: Vec<f64> = values.iter().zip(references).map(|(a, b)| a / b).collect();
        Self::of(&ratios)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_student() {
        // 1..=5: deviation 1.5811, over the root of 5: 0.7071; times 2.776.
        let spread = Spread::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!((spread.mean, spread.worst), (3.0, 5.0));
        assert!((spread.high - 3.0 - 1.963).abs() < 1e-3, "{spread:?}");
        assert!((3.0 - spread.low - 1.963).abs() < 1e-3, "{spread:?}");
    }

    #[test]
    fn what_all_seeds_share_is_certain() {
        let spread = Spread::of_ratios(&[2.0, 4.0, 6.0], &[1.0, 2.0, 3.0]);
        assert_eq!(spread, Spread { mean: 2.0, low: 2.0, high: 2.0, worst: 2.0 });
        assert_eq!(Spread::of(&[7.0]), Spread { mean: 7.0, low: 7.0, high: 7.0, worst: 7.0 });
        assert_eq!(Spread::of(&[]).mean, 0.0);
    }
}
