//! The coordinator: agents report to it, it decides, gateways ask it.

pub mod cli;
pub mod config;
pub mod http;
pub mod layers;
pub mod listening;
pub mod metrics;
mod server {
    pub(crate) async fn run(
        config: crate::config::CoordinatorConfig,
        shutdown: usher_runtime::shutdown::Shutdown,
    ) -> anyhow::Result<()> {
        let _ = (config, shutdown);
        Ok(())
    }
}
pub mod store;

/// Version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Commit of this build, `unknown` if it was not built from a git repository.
pub const COMMIT: &str = env!("USHER_COMMIT");
