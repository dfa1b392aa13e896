//! The farm from outside: what hosts and admins say goes in, states and marks and places come out. Nothing is decided
//! here; the tests of decisions are in `tests/placing`.

#![expect(clippy::unwrap_used, reason = "the builder of a test fails as the test does")]

mod blind;
mod clock;
mod directory;
mod endings;
mod follow;
mod grace;
mod latches;
mod marks;
mod settings;
mod states;
mod successes;
mod support;
mod watched;
