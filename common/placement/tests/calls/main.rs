//! One call from its question to its answer, with hosts that say what the test wants.

#![expect(clippy::unwrap_used, reason = "the builder of a test fails as the test does")]

mod consent;
mod doors;
mod outcomes;
mod retries;
mod support;
