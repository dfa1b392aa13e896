//! The agent of an usher farm: it measures its host, tells every coordinator, and keeps the book of the places that
//! were given on it.
//!
//! * [`sample`], [`latency`] and [`inventory`] read this machine; each source can fail alone.
//! * [`host`] is what is known of one host and decides what it may promise; [`admission`] keeps its promises over a
//!   restart.
//! * [`report`] carries it to the coordinators, and [`user_names`] hides login names on the way where a pool wants that.
//! * [`virtual_hosts`] are models in the place of machines, over the same streams.
//! * [`process`] puts it together; [`cli`] is what an operator types.

pub mod admission;
pub mod cli;
pub mod config;
pub mod host;
pub mod inventory;
pub mod latency;
pub mod process;
pub mod report;
pub mod sample;
pub mod user_names;
pub mod virtual_hosts;
