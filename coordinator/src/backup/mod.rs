//! How does what people decided outlive its store, and how does it move into another one?
//!
//! As one text file. Its first line says what it is of and when it was made, each line after that is a row (table, key, and the
//! row as the store holds it), the last line counts the rows and has the SHA-256 of all lines before it. A file that was cut,
//! or that somebody has changed, is refused as a whole: half of a farm's decisions is worse than none. Every kind of store has
//! the same rows, so a backup of one kind restores into any other.
//!
//! What agents tell again by themselves (loads, sessions, replicas, drains that hosts keep) is not in it, and neither is who a
//! coordinator is: a restored one is another coordinator.
//!
//! A restore goes forwards: where settings change, a pool gets a version that nobody has seen yet, never an earlier one. Agents
//! and other coordinators take the highest version that they hear of.

mod file;
mod plan;
#[cfg(test)]
mod tests;

pub(crate) use self::{
    file::{Backup, Header, write},
    plan::{By, Kind, Planned, What, plan},
};
