//! The agent of an usher farm: it measures its host, tells every coordinator, and keeps the book of the places that
//! were given on it.
//!
//! * [`sample`], [`latency`] and [`inventory`] read this machine; each source can fail alone.
//! * [`probe`] tries the host's own door and what else users need, [`hooks`] are programs that speak for the host,
//!   [`drain`] keeps a drain that was given on it; [`standing`] puts together what they say.
//! * [`local`] answers commands on this machine; [`timed`] tells how long a command takes.
//! * [`host`] is what is known of one host and decides what it may promise; [`admission`] keeps its promises over a
//!   restart.
//! * [`coordinators`] says who the coordinators are, from the settings and from DNS.
//! * [`report`] carries it to the coordinators, and [`user_names`] hides login names on the way where a pool wants that.
//! * [`virtual_hosts`] are models in the place of machines, over the same streams.
//! * [`process`] puts it together; [`cli`] is what an operator types.

pub mod admission;
pub mod cli;
pub mod config;
pub mod coordinators;
mod disk;
pub mod drain;
#[cfg(test)]
mod fuzz;
pub mod hooks;
pub mod host;
pub mod inventory;
pub mod latency;
pub mod local;
mod printable;
pub mod probe;
pub mod process;
pub mod program;
pub mod report;
pub mod sample;
pub mod sampled;
mod socket_file;
pub mod standing;
pub mod timed;
pub mod user_names;
pub mod virtual_hosts;
