//! Where does one login go?
//!
//! Deciding never acts: [`decide`] reads a snapshot, the cells and a seed and says what should be done; [`reserve_best`]
//! is the loop around it that takes the place. [`explain`] runs the same steps over the same inputs, with every number
//! written down.
//!
//! | file | question |
//! |---|---|
//! | `trace` | where is this user already? |
//! | `assess` | who is a candidate, and what speaks against the others? |
//! | `blind` | whose agents are lost, and who may be tried nevertheless? |
//! | `room` | does one more fit? |
//! | `scan` | how do all hosts stand, at once? |
//! | `crowd` | who is worth looking at in a very large pool? |
//! | `words` | which cells were read? |
//! | `order` | of two candidates, which comes first? |
//! | `own` | does the user belong to one of them? |
//! | `choose` | who is it? |
//! | `redirect` | who was passed over, and why? |
//! | `refusal` | why nobody? |
//! | `call` | what happens between question and answer? |
//! | `look` | what does a list say of a host? |
//! | `ends` | which places end because somebody says so? |
//! | `record` | what must be kept to explain it later? |

mod assess;
mod blind;
mod call;
mod choose;
mod crowd;
mod ends;
mod excluded;
mod explanation;
mod flags;
mod look;
mod order;
mod own;
mod predict;
mod record;
mod redirect;
mod refusal;
mod request;
mod reserve;
mod room;
mod scan;
mod trace;
mod words;

pub use assess::{Assessment, Inputs, assess_pool};
pub use call::{
    Answer, Ask, AskedSession, Call, CallParts, Consent, ConsentAsked, Denied, Desk, Door, HostMessage,
    Placed, Step, ToHost,
};
pub use choose::{Choice, Decision, PlacementReason, decide};
pub(crate) use crowd::Crowd;
pub use ends::{OutcomeReport, Reported, report_outcome};
pub use excluded::Excluded;
pub use explanation::{Drawn, ExplainedHost, ExplainedPrediction, Explanation, HostNumbers, explain};
pub use flags::Flags;
pub use look::{HostLook, NO_DATA, USERS_UNKNOWN, reason_of_state};
pub use order::Tier;
pub(crate) use order::code_of_tier;
pub(crate) use predict::{demand_input, expected_demand, expected_of};
pub use record::{DecisionRecord, ExplainedRecord, RecordedChoice, RecordedRedirect};
pub use redirect::{Redirect, RedirectReason};
pub use refusal::{Refusal, RefusalKind};
pub use request::{Failover, Request};
pub use reserve::{Asked, Reserved, reserve_best};
pub use room::Limits;
pub use trace::UserTrace;
pub use words::{ReadWords, Words};
