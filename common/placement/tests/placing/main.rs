//! The decision core from outside: reports go in, decisions come out.

#![expect(clippy::unwrap_used, reason = "the builder of a test fails as the test does")]

mod affinity;
mod attach;
mod choice;
mod failover;
mod grace;
mod limits;
mod pools;
mod properties;
mod reports;
mod sequences;
mod states;
mod storm;
mod support;
mod tokens;
