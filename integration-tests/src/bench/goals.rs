//! Bounds that a figure is held against.

use serde::{Serialize, Serializer};

/// Which side of the bound is good.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// The figure may not be higher.
    AtMost(f64),
    /// The figure may not be lower.
    AtLeast(f64),
}

impl Bound {
    fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtMost(bound) => figure <= bound,
            Self::AtLeast(bound) => figure >= bound,
        }
    }

    fn words(self) -> String {
        match self {
            Self::AtMost(bound) => format!("at most {bound}"),
            Self::AtLeast(bound) => format!("at least {bound}"),
        }
    }
}

impl Serialize for Bound {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::AtMost(bound) | Self::AtLeast(bound) => serializer.serialize_f64(*bound),
        }
    }
}

/// One bound, and whether it holds.
#[derive(Debug, Clone, Serialize)]
pub struct Goal {
    /// Never changes.
    pub id: &'static str,
    /// For people.
    pub what: &'static str,
    /// Shown as its number.
    pub bound: Bound,
    /// The median.
    pub figure: f64,
    /// Of all three numbers.
    pub unit: &'static str,
    /// Highest minus lowest of what the median was taken of.
    pub spread: f64,
    /// Whether the bound holds, in a run that may be believed.
    pub met: bool,
}

impl Goal {
    /// A ratio and its bound. In a run that may not be believed nothing is met.
    pub fn ratio(
        id: &'static str,
        what: &'static str,
        bound: Bound,
        summary: (f64, f64),
        is_believed: bool,
    ) -> Self {
        Self::amount(id, what, bound, "x", summary, is_believed)
    }

    /// As [`Goal::ratio`], of something that has a unit.
    pub fn amount(
        id: &'static str,
        what: &'static str,
        bound: Bound,
        unit: &'static str,
        (figure, spread): (f64, f64),
        is_believed: bool,
    ) -> Self {
        Self { id, what, bound, figure, unit, spread, met: is_believed && bound.holds(figure) }
    }
}

/// Prints each goal on a line.
pub fn print_goals(goals: &[Goal]) {
    for Goal { id, what, bound, figure, unit, spread, met } in goals {
        let verdict = if *met { "met" } else { "NOT MET" };
        let bound = bound.words();
        println!("{id:<22} {figure:6.2} {unit} (spread {spread:.2}), {bound}: {verdict}  {what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_not_believed_meets_nothing() {
        let goal = |bound, believed| Goal::ratio("id", "what", bound, (1.1, 0.1), believed).met;
        assert!(goal(Bound::AtMost(1.15), true) && goal(Bound::AtLeast(0.9), true));
        assert!(!goal(Bound::AtMost(1.0), true) && !goal(Bound::AtLeast(1.2), true));
        assert!(!goal(Bound::AtMost(1.15), false));
    }

    #[test]
    fn a_goal_is_written_as_every_bench_writes_it() {
        let goal = Goal::ratio("id", "what", Bound::AtLeast(0.9), (1.1, 0.1), true);
        let text = serde_json::to_string(&goal).unwrap();
        let expected =
            r#"{"id":"id","what":"what","bound":0.9,"figure":1.1,"unit":"x","spread":0.1,"met":true}"#;
        assert_eq!(text, expected);
    }
}
