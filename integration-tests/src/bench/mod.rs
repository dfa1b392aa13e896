//! What is measured, and against what?
//!
//! Machines differ and are noisy, so a figure alone says little. Everything here is a ratio of two things that were
//! measured in turn in one run on one machine, the median of several such pairs, with processor time first: it does not
//! depend on who else waits for the processor. How many calls go through in a second is only believed when the machine
//! does nothing else, so what else it did is measured too.

mod cpu;
mod figures;
mod goals;

pub use cpu::{CpuTime, machine_busy, processors, reaped_children};
pub use figures::{median, spread, summary};
pub use goals::{Bound, Goal, print_goals};
