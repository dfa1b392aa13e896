//! How good are the placements? A modelled farm under a storm of logins, placed by the crates that coordinators run.
//!
//! In a storm every method that ranks hosts by what they reported last sends all logins of an interval to the host that
//! looked best. The question is how near one comes to an oracle that knows everything. So the farm is a model, with
//! sessions, logons, noise and agents that report late; what places the logins is not: usher's methods are a
//! [`Farm`](usher_placement::farm::Farm), its snapshots, cells and ledger, and what a logon costs must be learned from
//! reports, as on a real farm. Beside them stand the rules that others use, and the oracle.
//!
//! | module | question |
//! |---|---|
//! | `login` | what does one login cost? |
//! | `scene` | what happens to the farm, and what of it does chance decide? |
//! | `machines` | what do the hosts do with what they are given? |
//! | `sensors` | what does an agent tell? |
//! | `method` | who decides, and by what? |
//! | `run` | what comes of one farm, one method and one seed? |
//! | `figures` | how good was it? |
//! | `spread` | how sure is that over many seeds? |
//! | `own_farm` | what of the farm of somebody who asks? |
//!
//! A seed settles everything. All methods of a seed meet the same logins, sessions, noise and faults: each host draws
//! from a generator of its own, and what methods draw themselves moves nothing else.
//!
//! It answers for its model: it does not know networks, disks or clients, and its users do not give up and try again.

mod figures;
mod login;
mod machines;
mod method;
mod own_farm;
mod parallel;
mod run;
mod scene;
mod sensors;
mod spread;

pub use figures::{Figures, Placement, Trace, percentile};
pub use login::{LOGON_CORES, Login};
pub use machines::{CORES, MEMORY_GB, STEP_S};
pub use method::Method;
pub use own_farm::{FarmFault, OwnFarm};
pub use parallel::each;
pub use run::{DRAIN_S, run, run_with_settings, trace};
pub use scene::{Arrivals, LEAD_IN_S, Scene, Sizes};
pub use spread::Spread;
