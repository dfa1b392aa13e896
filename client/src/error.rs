//! Why a login has no host.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use thiserror::Error;
use tonic::Code;
use usher_runtime::net::TargetError;

/// Why a client cannot be made.
#[derive(Debug, Error)]
pub enum SetupError {
    /// No coordinator is named.
    #[error("no coordinator is named")]
    NoCoordinator,
    /// An address cannot be used, or the certificate files cannot.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A name that cannot travel.
    #[error("gateway {0:?} is not a name of A-Z a-z 0-9 _ . -")]
    Gateway(String),
    /// There would be no time to answer.
    #[error("the deadline of a call must be longer than 0")]
    NoTime,
    /// A client lives in tasks.
    #[error("a client needs a tokio runtime around it")]
    NoRuntime,
}

/// Why a login has no host.
#[derive(Debug, Error)]
pub enum Error {
    /// A coordinator answered, and said no. Asking again helps when [`Refusal::retry_after`] says so.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// No coordinator answered in time, and there was no decision without one.
    #[error("{0}")]
    NoAnswer(Box<NoAnswer>),
    /// The login name cannot be hidden as the settings ask, so it was not sent.
    #[error("the login name cannot be hashed, so it is not sent")]
    Name,
}

/// A coordinator's no.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// Who said it.
    pub coordinator: String,
    /// gRPC code.
    pub code: Code,
    /// The reason, UPPER_SNAKE as in docs/errors.md. Empty: the answer carries none.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Details; `host:NAME` says why a host could not be chosen.
    pub metadata: BTreeMap<String, String>,
    /// When asking again makes sense. Absent: not before somebody has changed something.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// What spoke against each host, by its name.
    pub fn hosts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.metadata.iter().filter_map(|(key, why)| Some((key.strip_prefix("host:")?, why.as_str())))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = if self.reason.is_empty() { format!("{:?}", self.code) } else { self.reason.clone() };
        write!(f, "coordinator {} refused: {reason}: {}", self.coordinator, self.message)
    }
}

/// A coordinator that did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Its address.
    pub coordinator: String,
    /// What happened instead.
    pub cause: String,
}

/// Nobody answered.
#[derive(Debug)]
pub struct NoAnswer {
    /// Each coordinator that was tried, with what happened there last.
    pub silences: Vec<Silence>,
    /// Why there was no decision without them.
    pub local: NoLocal,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no coordinator answered")?;
        for (at, silence) in self.silences.iter().enumerate() {
            write!(f, "{} {}: {}", if at == 0 { ":" } else { ";" }, silence.coordinator, silence.cause)?;
        }
        write!(f, "; no decision without one: {}", self.local)
    }
}

/// Why there was no decision without a coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoLocal {
    /// The settings forbid it.
    #[error("they are switched off")]
    Off,
    /// Nothing is known of the farm.
    #[error("nothing is known of the farm")]
    NothingKnown,
    /// What was kept on disk is not believed.
    #[error("the farm on disk is not used: {0}")]
    Unusable(String),
    /// What is known is too old.
    #[error("what is known of the farm is {} s old, allowed are {} s", age.as_secs(), allowed.as_secs())]
    TooOld {
        /// Its age.
        age: Duration,
        /// The most that is allowed.
        allowed: Duration,
    },
    /// There was no such pool.
    #[error("the farm had no pool {0:?}")]
    UnknownPool(String),
    /// Which hosts hold the resource was not told.
    #[error("it is not known which hosts hold {0:?}")]
    UnknownResource(String),
    /// Nobody could be chosen, by what is known.
    #[error("{reason}")]
    Refused {
        /// As a coordinator would have said it, UPPER_SNAKE.
        reason: &'static str,
        /// What spoke against each host, by name; at most 16.
        hosts: Vec<(String, String)>,
    },
    /// The request itself is wrong.
    #[error("{0}")]
    Invalid(String),
    /// The deadline of the call was over first.
    #[error("there was no time left for one")]
    TooLate,
    /// The program is ending.
    #[error("the runtime is going down")]
    Ending,
}
