//! Does the availability index make a host BUSY?
//!
//! It enters at the threshold and leaves a margin above it: between the two, what it was decides, so that an index that
//! swings around the threshold does not move users with each swing. The agent keeps what it was and sends it, so that
//! coordinators that started at different times agree.

/// Whether the index holds a host BUSY.
///
/// * `availability_index`: 0..=100, not rounded. Absent: nothing is known, and nothing holds the host but threshold 100.
/// * `threshold_percent`: BUSY at or below it. 0 turns the rule off, 100 is always BUSY (a hot standby).
/// * `exit_margin_percent`: points above the threshold at which it leaves.
/// * `was_held`: what the latch said before.
///
/// Equality is BUSY: of Domino's three help pages on its threshold, two say "less than or equal".
pub fn holds_busy(
    availability_index: Option<f64>,
    threshold_percent: f64,
    exit_margin_percent: f64,
    was_held: bool,
) -> bool {
    if threshold_percent >= 100.0 {
        return true;
    }
    let Some(index) = availability_index else { return false };
    if threshold_percent <= 0.0 {
        return false;
    }
    index <= threshold_percent || (was_held && index < (threshold_percent + exit_margin_percent).min(100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(threshold: f64, margin: f64, indices: &[f64]) -> Vec<bool> {
        let mut held = false;
        let step = |index: &f64| {
            held = holds_busy(Some(*index), threshold, margin, held);
            held
        };
        indices.iter().map(step).collect()
    }

    #[test]
    fn case_099_busy_at_equality_off_at_0_always_at_100() {
        assert!(holds_busy(Some(30.0), 30.0, 5.0, false));
        assert!(!holds_busy(Some(0.0), 0.0, 5.0, false));
        assert!(holds_busy(Some(100.0), 100.0, 5.0, false));
        assert!(holds_busy(None, 100.0, 5.0, false));
    }

    #[test]
    fn case_099_the_index_is_compared_before_it_is_rounded() {
        assert!(holds_busy(Some(29.6), 30.0, 5.0, false));
        assert!(!holds_busy(Some(30.4), 30.0, 5.0, false));
    }

    #[test]
    fn case_102_an_index_that_swings_moves_the_latch_twice() {
        let held = run(30.0, 5.0, &[31.0, 29.0, 31.0, 29.0, 34.0, 36.0]);
        assert_eq!(held, [false, true, true, true, true, false]);
    }

    #[test]
    fn leaving_needs_at_most_an_index_of_100() {
        assert_eq!(run(97.0, 5.0, &[96.0, 99.9, 100.0]), [true, true, false]);
    }

    #[test]
    fn nothing_known_clears_the_latch() {
        assert!(!holds_busy(None, 30.0, 5.0, true));
    }
}
