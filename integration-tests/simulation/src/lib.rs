//! Does a farm of real coordinators and agents stay right whatever goes wrong?
//!
//! Everything between the network and the measurements is the product itself: gRPC over HTTP/2, the farm task, placing, the
//! host task, its book on disk, the streams and their reconnects. Network, clocks, machines, users, gateways and the shared
//! store are made up, and go wrong as a seed says. [`invariants`] are checked from outside; [`plan::Sabotage`] breaks one part
//! or another to show that they notice.
//!
//! One run is one process: what the system gives as chance and time is replaced for the whole of it, so that a seed gives the
//! same run again.

pub mod agent;
pub mod clock;
pub mod coordinator;
pub mod door;
pub mod faults;
pub mod gateway;
pub mod invariants;
pub mod log;
pub mod network;
pub mod operator;
pub mod plan;
pub mod run;
pub mod store;
pub mod world;
