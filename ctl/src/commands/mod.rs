//! What does each command ask, and how is the answer shown?
//!
//! Each file holds a command's arguments, the one call that it makes, and a pure function from the answer to text.

pub(crate) mod backup;
pub(crate) mod baseline;
pub(crate) mod calc;
pub(crate) mod connect;
pub(crate) mod coordinators;
pub(crate) mod decisions;
pub(crate) mod drain;
pub(crate) mod explain;
pub(crate) mod failover;
pub(crate) mod hosts;
pub(crate) mod locate;
pub(crate) mod manual;
pub(crate) mod mark;
pub(crate) mod outcome;
pub(crate) mod place;
pub(crate) mod pool;
pub(crate) mod quarantine;
pub(crate) mod replicas;
pub(crate) mod restore;
pub(crate) mod scenario;
pub(crate) mod sessions;
pub(crate) mod simulate;

use std::time::Duration;

use crate::cli::{Command, Globals};
use crate::connect::Coordinators;
use crate::failure::Failure;
use crate::quickstart;

/// What every command works with.
#[derive(Debug)]
pub(crate) struct Context {
    globals: Globals,
}

impl Context {
    /// For these options.
    pub(crate) const fn new(globals: Globals) -> Self {
        Self { globals }
    }

    /// Whether the answer is for a script.
    pub(crate) const fn json(&self) -> bool {
        self.globals.json
    }

    /// Whom to ask. Only commands that ask read the configuration: `calc` works with a broken one.
    ///
    /// # Errors
    /// If the configuration cannot be used.
    pub(crate) fn coordinators(&self) -> Result<Coordinators, Failure> {
        Coordinators::from_options(&self.globals)
    }

    /// As [`coordinators`](Self::coordinators), for what takes longer than a question unless another time was asked for.
    ///
    /// # Errors
    /// If the configuration cannot be used.
    pub(crate) fn coordinators_within(&self, longest: Duration) -> Result<Coordinators, Failure> {
        let timeout = Some(self.globals.timeout.unwrap_or(longest));
        Coordinators::from_options(&Globals { timeout, ..self.globals.clone() })
    }

    /// Does what was typed.
    ///
    /// # Errors
    /// Whatever made it fail.
    pub(crate) async fn run(&self, command: Command) -> Result<(), Failure> {
        match command {
            Command::Quickstart(arguments) => quickstart::run(self, arguments).await,
            Command::Hosts(arguments) => hosts::list(self, arguments).await,
            Command::Host(command) => hosts::host(self, command).await,
            Command::Coordinators(arguments) => coordinators::run(self, arguments).await,
            Command::Replicas(arguments) => replicas::run(self, arguments).await,
            Command::Locate(arguments) => locate::run(self, arguments).await,
            Command::Mark(arguments) => mark::run(self, arguments).await,
            Command::Sessions(arguments) => sessions::run(self, arguments).await,
            Command::Place(arguments) => place::run(self, arguments).await,
            Command::Failover(arguments) => failover::run(self, arguments).await,
            Command::Connect(arguments) => connect::run(self, arguments).await,
            Command::Outcome(arguments) => outcome::run(self, arguments).await,
            Command::Explain(arguments) => explain::run(self, arguments).await,
            Command::Decisions(arguments) => decisions::run(self, arguments).await,
            Command::Drain(arguments) => drain::drain(self, arguments).await,
            Command::Undrain(arguments) => drain::undrain(self, arguments).await,
            Command::Pool(command) => pool::run(self, command).await,
            Command::Backup(arguments) => backup::run(self, arguments).await,
            Command::Restore(arguments) => restore::run(self, arguments).await,
            Command::Quarantine(arguments) => quarantine::run(self, arguments).await,
            Command::Baseline(command) => baseline::run(self, command).await,
            Command::Scenario(command) => scenario::run(self, &command),
            Command::Simulate(arguments) => simulate::run(self, &arguments),
            Command::Calc(command) => calc::run(self, &command),
            Command::Completions(arguments) => manual::completions(&arguments),
            Command::Man(arguments) => manual::pages(&arguments),
        }
    }
}
