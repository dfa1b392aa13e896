//! Which statement is the n-th of a repetition?
//!
//! The repeated statement is kept as it was written. `{n}` may stand anywhere in it, and it is read anew for each n:
//! a substitution in text is the one rule that needs no list of places where it works.

use super::{
    Inside,
    error::SyntaxError,
    statement::Statement,
    token::{self, Word},
    value,
};

/// Most repetitions of one line: a slip of the finger must not run for hours.
pub(super) const MAX_REPETITIONS: u32 = 1_000_000;

/// A statement that is carried out several times.
#[derive(Clone, PartialEq, Debug)]
pub struct Repeat {
    /// How often, 1..=1_000_000.
    pub count: u32,
    /// What the script calls all of them together, as written. Absent: no name. Each statement has it as its label
    /// too, with its own number where it holds `{n}`.
    pub label: Option<String>,
    source: String,
    line: u32,
    column: u32,
    is_inside_via: bool,
}

impl Repeat {
    /// The n-th statement, from 1: a `place`, `failover` or `outcome`, perhaps inside a `via`.
    ///
    /// # Errors
    /// [`SyntaxError`] if a number of this size makes a word too long. The first and the last were tried when the
    /// scenario was read.
    pub fn statement(&self, n: u32) -> Result<Statement, SyntaxError> {
        self.read(n).map_err(|errors| {
            let Self { line, column, .. } = *self;
            let fault = format!("repetition {n} is no statement");
            errors.into_iter().next().unwrap_or(SyntaxError {
                line,
                column,
                fault,
                allowed: None,
                suggestion: None,
            })
        })
    }

    fn read(&self, n: u32) -> Result<Statement, Vec<SyntaxError>> {
        let source = self.source.replace("{n}", &n.to_string());
        let words = token::words(&source, self.line, self.column).map_err(|error| vec![error])?;
        super::statement(&words, &source, self.line, Inside { via: self.is_inside_via, repeat: true })
    }

    /// Reads `repeat N STATEMENT`; `words` are those behind the verb, cut from `source`.
    pub(super) fn new(
        verb: &Word,
        words: &[Word],
        source: &str,
        line: u32,
        inside: Inside,
    ) -> Result<Self, Vec<SyntaxError>> {
        let needs =
            |what: &str| vec![super::end_of(source, words, verb, line, format!("repeat needs {what}"))];
        let (count, inner) = words.split_first().ok_or_else(|| needs("a number"))?;
        let is_allowed = |count: &u32| (1..=MAX_REPETITIONS).contains(count);
        let count = value::whole_u32(&count.text).ok().filter(is_allowed).ok_or_else(|| {
            let fault = format!("{} is no number of repetitions", count.text.quoted());
            vec![count.text.fault(fault, format!("1..={MAX_REPETITIONS}"))]
        })?;
        let (Some(first), Some(last)) = (inner.first(), inner.last()) else {
            return Err(needs("a statement, such as place"));
        };
        let repeat = Self {
            count,
            label: label(inner),
            source: source.get(first.start..last.end).unwrap_or_default().to_owned(),
            line,
            column: first.text.column(),
            is_inside_via: inside.via,
        };
        let tried = repeat.read(1)?;
        if !can_be_repeated(&tried) {
            let fault = format!("{} cannot be repeated", first.text.quoted());
            return Err(vec![
                first.text.fault(fault, "place, failover, outcome, or one of these via a coordinator"),
            ]);
        }
        repeat.read(count)?;
        Ok(repeat)
    }
}

/// The word behind a final `as`, wherever keys stand.
fn label(words: &[Word]) -> Option<String> {
    let mut bare = words.iter().rev().filter(|word| word.text.key_and_value().is_none());
    let last = bare.next()?;
    bare.next()?.text.is_bare("as").then(|| last.text.to_string())
}

fn can_be_repeated(statement: &Statement) -> bool {
    match statement {
        Statement::Place(_) | Statement::Failover(_) | Statement::Outcome { .. } => true,
        Statement::Via { statement, .. } => can_be_repeated(statement),
        _ => false,
    }
}
