//! What does a scenario's text say?
//!
//! One verb a line, and nothing that is not understood is passed over: a misspelled key that silently had no effect
//! would make a scenario prove something else than its author reads. So every fault of the file is reported at once,
//! each with its line, its column, what may stand there and, for a near miss, what was probably meant. `A / B` on one
//! line is two lines.
//!
//! Only the text is judged here. Whether a name stands for anything, and whether a number is in its range, is for the
//! farm to say when the line is run. Whatever the bytes are, reading them ends, with a bounded amount of work.

mod args;
mod error;
mod expect;
mod repeat;
mod statement;
mod token;
mod value;
mod verbs_calls;
mod verbs_farm;

#[cfg(test)]
mod tests;

pub use error::SyntaxError;
pub use expect::{Check, ERROR_CODES, Expect, Expected, FLAGS, Figure, REASONS};
pub use repeat::Repeat;
pub use statement::{
    Call, Calls, Failover, Finished, Mount, NewHost, Place, Report, Sample, SessionChange, SessionEntry,
    Statement,
};

use args::Args;
pub(super) use error::nearest;
use token::{Word, words};

/// Faults reported of one file; who has fifty wants to see the first ones.
const MAX_ERRORS: usize = 50;

/// Longest text, 4 MiB: tens of thousands of lines.
pub const MAX_BYTES: usize = 4 << 20;

/// A line that says something.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// From 1.
    pub number: u32,
    /// Where its first word stands, from 1, in characters.
    pub column: u32,
    /// As it was written, without blanks around it and without its comment.
    pub text: String,
    /// What it says.
    pub statement: Statement,
}

/// Reads a whole scenario.
///
/// # Errors
/// Every fault, at most fifty, in the order of the text.
pub fn parse(text: &str) -> Result<Vec<Line>, Vec<SyntaxError>> {
    if text.len() > MAX_BYTES {
        let fault = format!("the scenario has {} bytes", text.len());
        let allowed = Some(format!("at most {MAX_BYTES}"));
        return Err(vec![SyntaxError { line: 1, column: 1, fault, allowed, suggestion: None }]);
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = Vec::new();
    let mut errors = Vec::new();
    for (number, source) in (1..).zip(text.split('\n')) {
        let source = source.strip_suffix('\r').unwrap_or(source);
        read_line(number, source, &mut lines, &mut errors);
        if errors.len() >= MAX_ERRORS {
            break;
        }
    }
    if errors.is_empty() { Ok(lines) } else { Err(errors) }
}

/// Reads a scenario as it lies in a file.
///
/// # Errors
/// As [`parse`]; where the bytes are no UTF-8, that alone.
pub fn parse_bytes(bytes: &[u8]) -> Result<Vec<Line>, Vec<SyntaxError>> {
    let error = match std::str::from_utf8(bytes) {
        Ok(text) => return parse(text),
        Err(error) => error,
    };
    let valid = bytes.get(..error.valid_up_to()).and_then(|valid| std::str::from_utf8(valid).ok());
    let valid = valid.unwrap_or_default();
    let last_line = valid.rsplit('\n').next().unwrap_or_default();
    let position = |count: usize| u32::try_from(count + 1).unwrap_or(u32::MAX);
    Err(vec![SyntaxError {
        line: position(valid.matches('\n').count()),
        column: position(last_line.chars().count()),
        fault: "the text is no UTF-8 from here on".to_owned(),
        allowed: None,
        suggestion: None,
    }])
}

fn read_line(number: u32, source: &str, lines: &mut Vec<Line>, errors: &mut Vec<SyntaxError>) {
    let words = match words(source, number, 1) {
        Ok(words) => words,
        Err(error) => return errors.push(error),
    };
    if words.is_empty() {
        return;
    }
    let mut start = 0;
    for part in words.split(|word| word.text.is_bare("/")) {
        let slash = words.get(start + part.len()).or(words.last());
        start += part.len() + 1;
        let read = match (part, slash) {
            ([], Some(slash)) => Err(vec![slash.text.plain_fault("a statement is missing beside this /")]),
            _ => statement(part, source, number, Inside::default()),
        };
        match read {
            Ok(statement) => {
                let bytes = part.first().zip(part.last()).map(|(first, last)| first.start..last.end);
                let text = bytes.and_then(|bytes| source.get(bytes)).unwrap_or_default().to_owned();
                let column = part.first().map_or(1, |word| word.text.column());
                lines.push(Line { number, column, text, statement });
            }
            Err(mut found) => {
                found.sort_by_key(|error| error.column);
                found.truncate(MAX_ERRORS - errors.len());
                errors.append(&mut found);
            }
        }
        if errors.len() >= MAX_ERRORS {
            return;
        }
    }
}

/// What a statement stands in: neither can stand in itself, so that reading ends soon whatever is written.
#[derive(Copy, Clone, Default)]
struct Inside {
    via: bool,
    repeat: bool,
}

type Reader = fn(&mut Args) -> Option<Statement>;

const VERBS: [(&str, Reader); 39] = [
    ("seed", verbs_farm::seed),
    ("pool", verbs_farm::pool),
    ("host", verbs_farm::host),
    ("report", verbs_farm::report),
    ("sessions", verbs_farm::sessions),
    ("session", verbs_farm::session),
    ("latency", verbs_farm::latency),
    ("baseline", verbs_farm::baseline),
    ("replica", verbs_farm::replica),
    ("unreplica", verbs_farm::unreplica),
    ("mark", verbs_farm::mark),
    ("drain", verbs_farm::drain),
    ("undrain", verbs_farm::undrain),
    ("ready", verbs_farm::ready),
    ("advance", verbs_farm::advance),
    ("every", verbs_farm::every),
    ("disconnect", verbs_farm::disconnect),
    ("reconnect", verbs_farm::reconnect),
    ("silence", verbs_farm::silence),
    ("reboot", verbs_farm::reboot),
    ("warming", verbs_farm::warming),
    ("warmup", verbs_farm::warmup),
    ("door", verbs_farm::door),
    ("busy", verbs_farm::busy),
    ("goodbye", verbs_farm::goodbye),
    ("reporter", verbs_farm::reporter),
    ("place", verbs_calls::place),
    ("failover", verbs_calls::failover),
    ("outcome", verbs_calls::outcome),
    ("tally", verbs_calls::tally),
    ("show", verbs_calls::show),
    ("explain", verbs_calls::explain),
    ("expect", expect::expect),
    ("coordinator", verbs_calls::coordinator),
    ("cut", verbs_calls::cut),
    ("join", verbs_calls::join),
    ("freeze", verbs_calls::freeze),
    ("restart", verbs_calls::restart),
    ("clock", verbs_calls::clock),
];

/// Reads one statement; `words` were cut from `source`.
fn statement(words: &[Word], source: &str, line: u32, inside: Inside) -> Result<Statement, Vec<SyntaxError>> {
    let Some((verb, rest)) = words.split_first() else {
        let fault = "a statement is missing".to_owned();
        return Err(vec![SyntaxError { line, column: 1, fault, allowed: None, suggestion: None }]);
    };
    if verb.text.is_bare("via") && !inside.via {
        return via(verb, rest, source, line, inside);
    }
    if verb.text.is_bare("repeat") && !inside.repeat {
        return Repeat::new(verb, rest, source, line, inside).map(Statement::Repeat);
    }
    let Some((name, read)) = VERBS.iter().find(|(name, _)| verb.text.is_bare(name)) else {
        let names = || VERBS.iter().map(|(name, _)| *name).chain(["via", "repeat"]);
        let written = verb.text.to_string();
        let error = match written.as_str() {
            "via" | "repeat" => verb.text.plain_fault(format!("{written} cannot stand in another {written}")),
            _ => {
                let fault = format!("unknown verb {}", verb.text.quoted());
                let suggestion = nearest(&written, names());
                SyntaxError { suggestion, ..verb.text.fault(fault, names().collect::<Vec<_>>().join(", ")) }
            }
        };
        return Err(vec![error]);
    };
    let end = end_of(source, rest, verb, line, String::new());
    let mut args = Args::new(name, line, end.column, rest);
    match read(&mut args) {
        Some(statement) => Ok(statement),
        None => Err(args.into_errors()),
    }
}

/// A fault where the next word would stand.
fn end_of(source: &str, rest: &[Word], verb: &Word, line: u32, fault: String) -> SyntaxError {
    let last = rest.last().unwrap_or(verb);
    let behind = source.get(verb.start..last.end).unwrap_or_default().chars().count();
    let behind = u32::try_from(behind).unwrap_or(u32::MAX);
    // Quotes have columns too: counted from the verb, which never has any.
    let column = verb.text.column().saturating_add(behind);
    SyntaxError { line, column, fault, allowed: None, suggestion: None }
}

/// `via NAME STATEMENT`
fn via(
    verb: &Word,
    rest: &[Word],
    source: &str,
    line: u32,
    inside: Inside,
) -> Result<Statement, Vec<SyntaxError>> {
    let needs = |what: &str| vec![end_of(source, rest, verb, line, format!("via needs {what}"))];
    let (name, inner) = rest.split_first().ok_or_else(|| needs("the name of a coordinator"))?;
    let coordinator = value::name(&name.text).map_err(|error| vec![error])?;
    let first = inner.first().ok_or_else(|| needs("a statement, such as place"))?;
    let statement = statement(inner, source, line, Inside { via: true, ..inside })?;
    if !goes_via_a_coordinator(&statement) {
        let fault = format!("{} is not asked of a coordinator", first.text.quoted());
        let allowed = "place, failover, outcome, show, explain, expect, pool apply, host set, drain, undrain, mark, repeat";
        return Err(vec![first.text.fault(fault, allowed)]);
    }
    Ok(Statement::Via { coordinator, statement: Box::new(statement) })
}

fn goes_via_a_coordinator(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Place(_)
            | Statement::Failover(_)
            | Statement::Outcome { .. }
            | Statement::Show(_)
            | Statement::Explain(_)
            | Statement::Expect(_)
            | Statement::PoolApply { .. }
            | Statement::HostSet { .. }
            | Statement::Drain { .. }
            | Statement::Undrain(_)
            | Statement::Mark { .. }
            | Statement::Repeat(_)
    )
}
