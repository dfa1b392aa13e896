//! One figure for many: the median, which one disturbed run does not move.

/// The middle of the figures; between two of them, their mean.
///
/// # Panics
/// If there are none.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
}

/// The highest minus the lowest.
///
/// # Panics
/// If there are none.
pub fn spread(figures: &[f64]) -> f64 {
    let (low, high) = figures
        .iter()
        .fold((f64::MAX, f64::MIN), |(low, high), figure| (low.min(*figure), high.max(*figure)));
    assert!(low <= high, "there are no figures");
    high - low
}

/// Median and spread.
///
/// # Panics
/// If there are none.
pub fn summary(figures: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let figures: Vec<f64> = figures.into_iter().collect();
    (median(&figures), spread(&figures))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_disturbed_run_does_not_move_the_median() {
        assert_eq!(summary([1.0, 100.0, 2.0]), (2.0, 99.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
