//! The decision core from outside: reports go in, decisions come out.

#![expect(clippy::unwrap_used, reason = "the builder of a test fails as the test does")]

mod affinity;
mod attach;
mod blind;
mod choice;
mod crowds;
mod extremes;
mod failover;
mod generated;
mod grace;
mod limits;
mod methods;
mod order;
mod pools;
mod predictive;
mod properties;
mod reports;
mod sequences;
mod states;
mod storm;
mod support;
mod tokens;
