//! How loaded is a host, in one number that can be compared across its pool?

mod weighted;

pub use weighted::{Filled, LoadTerms, Metrics, Scale};
