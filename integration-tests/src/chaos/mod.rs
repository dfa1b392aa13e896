//! What goes wrong in a run of chaos, when, and was a promise broken by it?
//!
//! Only what can be judged without a process: the schedule, which a seed makes, and the checker, which reads what the hosts
//! wrote of themselves. The processes, the faults and the load are in `examples/chaos`.

mod checker;
mod holdings;
mod schedule;

pub use checker::{Findings, Held, Outage, check};
pub use holdings::{Holdings, LogError, TokenName};
pub use schedule::{COORDINATORS, Fault, Length, Planned, schedule};
