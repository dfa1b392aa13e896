//! Where does one login go?
//!
//! Deciding never acts: [`decide`] reads a snapshot, the cells and a seed and says what should be done; [`reserve_best`]
//! is the loop around it that takes the place. [`explain`] runs the same steps over the same inputs, with every number
//! written down.

mod assess;
mod choose;
mod explanation;
mod refusal;
mod request;
mod reserve;

pub use assess::{Assessment, Excluded, Inputs, Tier, assess_pool};
pub use choose::{Choice, Decision, PlacementReason, decide};
pub use explanation::{ExplainedHost, Explanation, explain};
pub use refusal::{Refusal, RefusalKind};
pub use request::{Failover, FailoverCause, Flags, Request};
pub use reserve::{Reserved, reserve_best};
