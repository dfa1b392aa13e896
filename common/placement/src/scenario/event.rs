//! What happened in a scenario?
//!
//! One event for each thing that an operator of the farm would notice: an answer, a refusal, a host that changes its
//! state, an expectation that does not hold. What a line merely says (a report that is taken, a session that comes) is
//! no event. Each has one form for people (`Display`) and one for programs (`Serialize`); both show the same facts, and
//! what is not known is absent in both.

mod show;
mod text;

use std::time::Duration;

use serde::{Serialize, Serializer};
use usher_types::{EndReason, HostState, Outcome};

pub use show::{Explained, ExplainedLine, Numbers, PredictedTerms, Shown, Terms};

/// One thing that happened.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Event {
    /// The line that made it happen, from 1.
    pub line: u32,
    /// Since the start of the scenario.
    #[serde(rename = "at_s", serialize_with = "seconds")]
    pub at: Duration,
    /// What.
    #[serde(flatten)]
    pub kind: EventKind,
}

fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

/// What happened.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// A login has a host.
    Placed(Placed),
    /// A login has none.
    Refused(Refused),
    /// A gateway said what became of a login, and nobody knows the login.
    OutcomeUnknown {
        /// The label of the login.
        name: String,
        /// What was said.
        outcome: Outcome,
    },
    /// A host changed its state.
    StateChanged {
        /// Who noticed. Empty: every coordinator.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        coordinators: Vec<String>,
        /// The host.
        host: String,
        /// What it was.
        from: HostState,
        /// What it is.
        to: HostState,
        /// Why; may be empty.
        reason: String,
    },
    /// A place ended on its host.
    PlaceEnded {
        /// The host.
        host: String,
        /// The place.
        reservation: String,
        /// Why.
        reason: EndReason,
    },
    /// An admin's mark of a replica that its host has not listed for a day is forgotten.
    MarkExpired {
        /// The host.
        host: String,
        /// What it held a copy of.
        resource: String,
    },
    /// A coordinator noticed that it had been frozen.
    Thawed {
        /// The coordinator.
        coordinator: String,
        /// For how long.
        after_s: f64,
    },
    /// A value that a host reported was dropped as wrong.
    ValueRefused {
        /// The host.
        host: String,
        /// What it sent: `report`, or `latency open_db`.
        what: String,
        /// The field, its value and what is allowed.
        why: String,
    },
    /// A host was not let in.
    HostRefused {
        /// The coordinator that said so. Absent: the host would not even start.
        #[serde(skip_serializing_if = "Option::is_none")]
        coordinator: Option<String>,
        /// The host.
        host: String,
        /// As gRPC names it.
        code: &'static str,
        /// In lower case.
        reason: &'static str,
        /// For people.
        why: String,
    },
    /// An admin's change is in force.
    PoolApplied {
        /// The pool.
        pool: String,
        /// Its version now.
        version: u64,
    },
    /// An admin's change was refused.
    ChangeRefused {
        /// Of what: `pool desk`, `host s1`.
        what: String,
        /// As gRPC names it.
        code: &'static str,
        /// In lower case.
        reason: &'static str,
        /// For people.
        why: String,
    },
    /// A host, looked at.
    Shown(Box<Shown>),
    /// A decision, explained.
    Explained(Box<Explained>),
    /// A login for which nothing was decided: its request was refused before, or its answer was not kept.
    NothingToExplain {
        /// The label of the placement.
        name: String,
        /// What was answered, in a few words.
        answer: String,
    },
    /// Which host got how many.
    Tallied {
        /// The label.
        name: String,
        /// Hosts, by name, and how many each got.
        hosts: Vec<Count>,
        /// Reasons of refusals, and how many there were of each.
        errors: Vec<Count>,
    },
    /// An expectation does not hold.
    ExpectationFailed(Failure),
}

/// How often something came out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Count {
    /// What.
    pub name: String,
    /// How often.
    pub count: u64,
}

/// The host of a login.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Placed {
    /// The label, or the id of the request.
    pub name: String,
    /// The host.
    pub host: String,
    /// Why, in lower case.
    pub reason: String,
    /// The weighted load that it was ranked by. Absent: it was not ranked by that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weighted_load: Option<f64>,
    /// The number that it was ranked by, low is good, where the pool's method is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// What qualifies the answer.
    pub flags: Vec<&'static str>,
    /// The place that counts for it. Absent: none was taken.
    pub reservation: Option<String>,
    /// The answer was given before.
    pub repeated: bool,
    /// The host that was passed over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirected_from: Option<String>,
    /// Why it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirected_for: Option<&'static str>,
}

/// Why a login has no host.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Refused {
    /// The label, or the id of the request.
    pub name: String,
    /// As gRPC names it.
    pub code: &'static str,
    /// In lower case.
    pub reason: String,
    /// What spoke against each host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Obstacle>,
    /// What else there is to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// When to try again, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<f64>,
}

/// What speaks against a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Obstacle {
    /// The host.
    pub host: String,
    /// What.
    pub why: String,
}

/// An expectation that does not hold.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Failure {
    /// The line of the expectation; in JSON the event says it.
    #[serde(skip)]
    pub line: u32,
    /// Of what: a host, a placement, a tally.
    pub subject: String,
    /// What was expected, as it is written.
    pub expected: String,
    /// What is the case instead, in the same words.
    pub found: String,
}
