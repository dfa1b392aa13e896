mod faults;
mod hostile;
mod statements;

use super::{Line, Statement, parse};

/// Every form of every verb.
pub(super) const EXAMPLES: &str = include_str!("tests/examples.txt");

fn lines(text: &str) -> Vec<Line> {
    parse(text).unwrap_or_else(|errors| panic!("{text}: {}", errors[0]))
}

fn one(text: &str) -> Statement {
    let mut lines = lines(text);
    assert_eq!(lines.len(), 1, "{text}");
    lines.remove(0).statement
}

fn faults(text: &str) -> Vec<String> {
    parse(text).expect_err(text).iter().map(ToString::to_string).collect()
}
