//! The two formulas: from operations to the expansion factor, from there to the index.

/// How much slower than without load one operation is, and how often it was called.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct OperationFactor {
    /// Mean over baseline, >= 1.
    pub expansion_factor: f64,
    /// Calls, > 0.
    pub calls: f64,
}

/// The expansion factor of a host: the mean of its operations' factors, each weighted by its number of calls.
///
/// Weighting by frequency matters: 90 calls at XF 4 and 10 at XF 64 are XF 10, where the plain mean says 34 and takes
/// a healthy host out of service. Factors below 1 count as 1: being faster than the baseline is not extra room.
/// Absent if there is no call at all. Source: Domino's help on the server availability index.
pub fn host_expansion_factor(operations: impl IntoIterator<Item = OperationFactor>) -> Option<f64> {
    let (mut weighted, mut calls) = (0.0, 0.0);
    for operation in operations {
        weighted += operation.calls * operation.expansion_factor.max(1.0);
        calls += operation.calls;
    }
    (calls > 0.0).then(|| (weighted / calls).max(1.0))
}

/// The availability index at an expansion factor: `100 (1 - log2(XF) / range)`, held within 0..=100.
///
/// Any factor below 1, and any that is no number, counts as 1; an infinite one gives 0. `range` is the exponent at
/// which the index reaches 0 (default 6: at XF 64). The result is not rounded: comparisons with a threshold are made
/// on it, only displays round. Source: Domino's help on the server availability index.
pub fn availability_index(expansion_factor: f64, range: f64) -> f64 {
    let expansion_factor = if expansion_factor >= 1.0 { expansion_factor } else { 1.0 };
    (100.0 * (1.0 - expansion_factor.log2() / range)).clamp(0.0, 100.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(xf: f64, range: f64) -> f64 {
        availability_index(xf, range).round()
    }

    // rule: index-formula
    #[test]
    fn case_053_the_published_table_exactly() {
        let table = [
            (1.0, 100.0),
            (2.0, 83.333),
            (4.0, 66.667),
            (8.0, 50.0),
            (16.0, 33.333),
            (32.0, 16.667),
            (64.0, 0.0),
        ];
        for (xf, ai) in table {
            assert!((availability_index(xf, 6.0) - ai).abs() < 0.01, "XF {xf}");
        }
        let rounded: Vec<f64> = table.iter().map(|(xf, _)| shown(*xf, 6.0)).collect();
        assert_eq!(rounded, [100.0, 83.0, 67.0, 50.0, 33.0, 17.0, 0.0]);
    }

    // rule: index-formula
    // rule: index-range
    #[test]
    fn the_table_outside_its_bounds_and_at_another_range() {
        let at_6: Vec<f64> = [0.5, 3.0, 65.0, 1e300].map(|xf| shown(xf, 6.0)).to_vec();
        assert_eq!(at_6, [100.0, 74.0, 0.0, 0.0]);
        assert_eq!((shown(100.0, 8.0), shown(256.0, 8.0)), (17.0, 0.0));
        assert_eq!((shown(f64::NAN, 6.0), shown(f64::INFINITY, 6.0), shown(-3.0, 6.0)), (100.0, 0.0, 100.0));
    }

    // rule: xf-host
    #[test]
    fn case_055_the_mean_over_operations_uses_their_frequency() {
        let open = OperationFactor { expansion_factor: 12.0 / 3.0, calls: 90.0 };
        let search = OperationFactor { expansion_factor: 640.0 / 10.0, calls: 10.0 };
        let xf = host_expansion_factor([open, search]).unwrap();
        assert!((xf - 10.0).abs() < 1e-9);
        assert!((availability_index(xf, 6.0) - 44.63).abs() < 0.01);
    }

    // rule: xf-host
    #[test]
    fn ten_calls_at_two_and_ninety_at_four() {
        let slow = OperationFactor { expansion_factor: 2.0, calls: 10.0 };
        let fast = OperationFactor { expansion_factor: 4.0, calls: 90.0 };
        let xf = host_expansion_factor([slow, fast]).unwrap();
        assert!((xf - 3.8).abs() < 1e-9);
        assert_eq!(shown(xf, 6.0), 68.0);
    }

    #[test]
    fn no_call_gives_no_factor() {
        assert_eq!(host_expansion_factor([]), None);
    }

    proptest! {
        #[test]
        fn the_index_is_a_finite_percentage_whatever_comes(xf in any::<f64>(), range in 1.0..=30.0f64) {
            let index = availability_index(xf, range);
            prop_assert!((0.0..=100.0).contains(&index));
        }

        #[test]
        fn a_slower_host_never_has_the_higher_index(a in 1.0..1e6f64, b in 1.0..1e6f64, range in 1.0..=30.0f64) {
            let (fast, slow) = if a < b { (a, b) } else { (b, a) };
            prop_assert!(availability_index(fast, range) >= availability_index(slow, range));
        }
    }
}
