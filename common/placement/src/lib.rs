//! Which host should this login go to, and where instead?
//!
//! The decision core: pure, so that it can be read, tested and simulated alone. It knows no clock, socket, thread or
//! global randomness; the caller passes instants, seeds and what was heard. See the README beside this file.

pub mod decision;
pub mod farm;
mod fnv;
pub mod host;
pub mod load;
pub mod reservation;
pub mod scenario;

pub use usher_availability as availability;
