//! What would this farm do?
//!
//! A scenario is a text that describes a farm and what happens to it. It is played through the very code that decides in
//! a coordinator ([`decision`](crate::decision), [`farm`](crate::farm)) and keeps promises on a host
//! ([`host`](crate::host)), with a clock of its own: nothing here decides anything, and a rule that is not in those
//! modules is in no scenario. The same text gives the same events, always.
//!
//! | time | |
//! |---|---|
//! | begins | ten days after every machine's boot, 2026-01-01 on every wall clock; there is the coordinator `c1`, with an empty store and no grace |
//! | passes | only by `advance`. At one instant: the hosts in the order of their lines, then the coordinators' ticks (each second), then whoever wakes up from a freeze |
//! | of a message | none. A host that changed says so to all coordinators when its line is done |
//! | of a call | its own. 250 ms of silence count against its second and its deadline; the farm's clock stands still |
//!
//! What a script may do to the world and the product has no word for:
//!
//! * A frozen coordinator answers nobody (`DEADLINE_EXCEEDED`, reason `frozen`), and of each host the newest report
//!   waits for it. Woken up, it takes those for as old as the last tick that it had sent. Admins ask another one.
//! * `restart` is a stop in order: what is known of the hosts is stored before, unless the coordinator is frozen.
//! * A host whose line is refused (no pool, a capacity of 0) does not start; what is said of it later changes nothing.
//! * A host whose id another machine has is a machine without an identity: it is not registered, and no admin can speak
//!   of it. What happens on the machine itself happens on it alone.
//! * A pool that no line declares comes into being with its first host, unless the scenario declares pools: then a host
//!   in another one is a misspelling.
//! * A value of a report that is refused stays refused until the next report.
//! * `sessions` and `session` say how users change since a count that a report gave; the first list only names users
//!   that were counted. Sessions of a first list that comes while no login is on its way may be days old, and end no
//!   place.
//! * `outcome ... gateway=g2` is the word of another gateway about the same login: it counts as that gateway's success
//!   or failure. An outcome goes to the coordinator that answered the login.
//! * A failover without a cause has the cause `other`.
//! * A label stands for what it was given to last.
//! * Learned baselines lie on the host's disk, and outlive its boots.

mod coordinator;
mod event;
mod machine;
mod store;
pub mod syntax;
#[cfg(test)]
mod tests;
mod world;

use std::fmt;

use thiserror::Error;

pub use event::{
    Count, Event, EventKind, Explained, ExplainedLine, Failure, Numbers, Obstacle, Placed, PredictedTerms,
    Refused, Shown, Terms,
};
pub use syntax::SyntaxError;

/// What became of a scenario.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Run {
    /// What happened, in order.
    pub events: Vec<Event>,
    /// How many expectations were checked, each key of a line for itself.
    pub checked: usize,
    /// The line at which it had to stop. Absent: it was run to its end.
    pub stopped: Option<RunError>,
}

impl Run {
    /// The expectations that did not hold, in order.
    pub fn failures(&self) -> impl Iterator<Item = &Failure> {
        self.events.iter().filter_map(|event| match &event.kind {
            EventKind::ExpectationFailed(failure) => Some(failure),
            _ => None,
        })
    }

    /// Whether it was run to its end and every expectation held.
    pub fn holds(&self) -> bool {
        self.stopped.is_none() && self.failures().next().is_none()
    }
}

/// What happened, and where it had to stop, as people read it: each event on lines of its own.
impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.events.iter().try_for_each(|event| writeln!(f, "{event}"))?;
        self.stopped.iter().try_for_each(|stopped| writeln!(f, "{stopped}"))
    }
}

/// A line that is well written and yet cannot be run: it names a host, a placement or a coordinator that there is not.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub struct RunError {
    /// Line, from 1.
    pub line: u32,
    /// Where in the line the word stands, from 1, in characters.
    pub column: u32,
    /// What is wrong.
    pub fault: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, fault, suggestion } = self;
        write!(f, "{line}:{column}: {fault}")?;
        suggestion.iter().try_for_each(|meant| write!(f, ", did you mean {meant}?"))
    }
}

/// Plays a scenario to its end, or to a line that cannot be run.
///
/// # Errors
/// Everything that is wrong with the text, at most fifty faults; nothing was run then.
pub fn run(text: &str) -> Result<Run, Vec<SyntaxError>> {
    syntax::parse(text).map(|lines| world::World::new().run(&lines))
}

/// The same for a scenario as it lies in a file.
///
/// # Errors
/// As [`run`]; also where the bytes are no UTF-8.
pub fn run_bytes(bytes: &[u8]) -> Result<Run, Vec<SyntaxError>> {
    syntax::parse_bytes(bytes).map(|lines| world::World::new().run(&lines))
}
