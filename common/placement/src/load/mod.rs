//! How loaded is a host, in one number that can be compared across its pool?

mod columns;
mod cost_evidence;
mod cost_learner;
mod learned_cost;
mod predictive;
mod weighted;

pub(crate) use columns::{Counts, DemandColumns, DemandFactors, LANES, LoadColumns, LoadFactors, decay};
pub use cost_evidence::{CostSample, HostEvidence};
pub use cost_learner::{Anchors, CostLearner};
pub use learned_cost::{CostBounds, LearnedCosts, LearnedValue};
pub use predictive::{DemandInput, PredictedLoad, Typical};
pub(crate) use weighted::Largest;
pub use weighted::{Filled, LoadTerms, Metrics, Scale};
