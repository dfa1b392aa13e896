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
//! | `order` | of two candidates, which comes first? |
//! | `own` | does the user belong to one of them? |
//! | `choose` | who is it? |
//! | `redirect` | who was passed over, and why? |
//! | `refusal` | why nobody? |
//! | `call` | what happens between question and answer? |
//! | `ends` | which places end because somebody says so? |
//! | `record` | what must be kept to explain it later? |

mod assess;
mod blind;
mod call;
mod choose;
mod ends;
mod excluded;
mod explanation;
mod flags;
mod order;
mod own;
mod record;
mod redirect;
mod refusal;
mod request;
mod reserve;
mod trace;

pub use assess::{Assessment, Inputs, Limits, assess_pool};
pub use call::{
    Answer, Ask, AskedSession, Call, CallParts, Consent, ConsentAsked, Denied, Desk, Door, HostMessage,
    Placed, Step, ToHost,
};
pub use choose::{Choice, Decision, PlacementReason, decide};
pub use ends::{OutcomeReport, Reported, report_outcome};
pub use excluded::Excluded;
pub use explanation::{ExplainedHost, Explanation, HostNumbers, explain};
pub use flags::Flags;
pub use order::Tier;
pub use record::{DecisionRecord, ExplainedRecord, RecordedChoice, RecordedRedirect};
pub use redirect::{Redirect, RedirectReason};
pub use refusal::{Refusal, RefusalKind};
pub use request::{Failover, Request};
pub use reserve::{Asked, Reserved, reserve_best};
pub use trace::UserTrace;
