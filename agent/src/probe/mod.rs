//! Does what users need answer, and how fast?
//!
//! The host's own door is tried as its pool's kind says: measuring CPU and memory does not notice that nobody can get
//! in, and a host with a dead door is the emptiest of all. Three failures in a row close it, one success opens it.
//! What else an operator names (a file server, a directory, a web page, a program) is tried too. Each try is a call of
//! an operation like any other: its time enters the host's availability index, its failure counts as a failed call.
//!
//! A try creates no session: it ends the connection as soon as the other side has shown that it is there. It has a
//! deadline and tasks of its own, so nothing here delays a report.

pub mod config;
pub mod door;
mod door_state;
mod named;
mod tls;
pub(crate) mod tries;

pub use config::{DoorConfig, ProbeConfig, ProbeKind};
pub use door::DoorWatch;
pub use named::run_probes;
pub use tries::TryError;

use std::time::Duration;

use crate::latency::listener::{OwnedTiming, OwnedWord};

/// The word about one try of the operation `name`.
pub(crate) fn word(name: &str, took: Duration, succeeded: bool) -> OwnedWord {
    let name = name.to_owned();
    if succeeded {
        // A timer's step of 0 would be refused; the shortest that it tells is a microsecond.
        let duration_us = (took.as_secs_f64() * 1e6).max(1.0);
        OwnedWord::Finished(OwnedTiming { name, duration_us, weight: 1.0 })
    } else {
        OwnedWord::Failed { name, weight: 1.0 }
    }
}
