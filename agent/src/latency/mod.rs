//! How long do the programs of this host take for their work?
//!
//! Programs tell their timings in StatsD lines, over UDP on the loopback or over a unix datagram socket; here they are
//! parsed and counted, and the baselines (how long an operation takes when the host is not loaded) are kept on disk.
//! What the timings mean for the host, its expansion factor and its index, is decided elsewhere.

pub mod baseline_file;
pub mod counters;
pub mod in_flight;
pub mod listener;
pub mod statsd;
