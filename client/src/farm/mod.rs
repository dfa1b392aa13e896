//! The farm, as a coordinator tells of it.

mod check;
mod mirror;

pub(crate) use check::watched;
pub(crate) use mirror::{Host, Known, Mirror, Taken};
