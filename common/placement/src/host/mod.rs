//! What does one host say of itself, and what may it promise?
//!
//! The host is where equal coordinators meet: each of them gives places, and only the host sees all. So the host keeps
//! the book of places, its own latches and what holds against it for failing, and sends them to everybody in each
//! Load. Agents run this code, and so do the scripted hosts of a scenario: there is no second set of rules.
//!
//! It refuses to look at a clock, a file or a socket: instants, measurements and messages are passed in, reports and
//! what must outlive the agent come out.

mod book;
mod core;
mod logons;
mod measurement;
mod naming;
mod penalties;
mod reach;
mod ready_age;
mod record;
mod session_list;
mod settings;
mod standing;

pub use book::{BookRecord, HostBook, Limits, Occupancy};
pub use core::{CoreSettings, HostCore};
pub use measurement::Measurement;
pub use naming::{NameHasher, NameSettings, Naming};
pub use reach::{HeldBack, Report, ToldShare};
pub use record::HostRecord;
pub use session_list::{MAX_LISTED_OF_USER, MAX_LISTED_USERS, SessionList};
pub use settings::VersionedSettings;
pub use standing::Standing;
