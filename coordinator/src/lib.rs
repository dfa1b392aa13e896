//! The coordinator: agents report to it, it decides, gateways ask it.

mod backup;
mod bench_echo;
pub mod cli;
pub mod config;
mod drains;
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
mod policy_file;
mod pool_history;
mod publish;
pub mod server;
mod shared;
pub mod store;
mod store_follow;
mod stored;
mod virtual_hosts;

/// Version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
