//! The farm, as a coordinator tells of it.

mod check;
mod mirror;

pub(crate) use check::watched;
/// Words of a coordinator, for tests.
#[cfg(test)]
pub(crate) use mirror::tests as telling;
pub(crate) use mirror::{Host, Known, Mirror, Taken};
