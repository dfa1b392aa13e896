//! What does a message of the wire say, once nothing in it is believed unchecked?
//!
//! Messages that open something (`Hello`, a policy, a question) are refused as a whole, with every fault or the first.
//! Reports are lenient: a wrong number becomes absent and a wrong entry is left out, each with its fault, because a
//! host that is right about its users must not be lost for being wrong about its CPU. No conversion panics, and no
//! number that is not finite passes.

mod drains;
mod hello;
mod latency;
mod load;
mod marks;
mod outcomes;
mod pages;
mod place;
mod requests;
mod settings;
mod ticks;

pub use drains::{set_drain, set_drain_answer};
pub use hello::{endpoint, hello};
pub use latency::latency;
pub use load::load;
pub use marks::{host_marks, host_marks_change, host_text, mark_replica};
pub use outcomes::{outcome_notice, penalty, told_outcome};
pub use pages::{goodbye, inventory_page, session_check, sessions_page};
pub use place::{
    attempt_or_first, cost_or_one, end_place, ended_place, expect_session, pending_place, place_answer,
    token, user_or_none,
};
pub use requests::{
    apply_pool, diff_pool, get_baselines, list_decisions, list_sessions, locate_resource, pool_history,
    report_outcome, reset_baselines_request,
};
pub use settings::{
    critical_level, drain, drain_mode_or_default, pending_limit, policy_change, pool_settings, user_limit,
};
pub use ticks::{reset_baselines, tick};
