//! What do the agent, the coordinator and the command line need from the machine they run on?
//!
//! Everything that decides in usher is pure: time, randomness and bytes are arguments. This crate is
//! where those arguments come from, written once so that the three programs read their settings, name
//! their peers, open their sockets and stop in the same way. It decides nothing about hosts, users or
//! placements, and knows no message of the wire protocol.

pub mod aside;
pub mod backoff;
pub mod clock;
pub mod config;
pub mod doors;
pub mod identity;
pub mod net;
pub mod shutdown;
pub mod telemetry;
pub mod tls;

#[cfg(test)]
mod test_pki;

/// Commit of this build; `unknown` if it was not built from a git repository.
pub const COMMIT: &str = env!("USHER_COMMIT");
