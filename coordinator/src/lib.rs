//! The coordinator: agents report to it, it decides, gateways ask it.

mod bench_echo;
pub mod cli;
pub mod config;
mod farm_command;
mod farm_task;
mod grpc;
mod history;
pub mod http;
mod in_flight;
pub mod layers;
mod links;
pub mod listening;
pub mod metrics;
mod placing;
mod pool_history;
pub mod server;
mod shared;
pub mod store;
mod stored;
mod virtual_hosts;

/// Version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
