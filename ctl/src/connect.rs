//! Whom do we ask, and when do we ask the next one?
//!
//! That is the gateways' library's affair: here its answers become what this program says and how it ends.

use std::time::Duration;

use tonic::transport::Channel;
use tonic::{Response, Status};
use usher_client::{CallFailure, InOrder};
use usher_placement::host::Naming;

use crate::cli::Globals;
use crate::client_config::{CacheSettings, ClientConfig};
use crate::failure::{Failure, Refusal, Silence};
use crate::output::text::clean;

pub(crate) use usher_client::Try;

/// The coordinators of the farm, in the order in which they are asked.
#[derive(Debug, Clone)]
pub(crate) struct Coordinators {
    in_order: InOrder,
    naming: Naming,
    cache: CacheSettings,
}

impl Coordinators {
    /// From options and environment, then the file, then the defaults.
    ///
    /// # Errors
    /// [`Failure::Usage`] if one of them is wrong.
    pub(crate) fn from_options(globals: &Globals) -> Result<Self, Failure> {
        let config = ClientConfig::load(globals.config.as_deref(), |name| std::env::var_os(name))?;
        let named = globals.coordinator.iter().flatten().filter(|address| !address.trim().is_empty());
        let named: Vec<String> = named.cloned().collect();
        let timeout = globals.timeout.unwrap_or_else(|| config.timeout());
        let naming = config.naming()?;
        let gateway = globals.gateway.clone().or(config.gateway);
        // An empty environment variable names nobody.
        let addresses = if named.is_empty() { config.coordinators } else { named };
        let in_order = InOrder::new(addresses, timeout, gateway.as_deref(), config.tls.files());
        let in_order = in_order.map_err(|error| Failure::usage(error.to_string()))?;
        Ok(Self { in_order, naming, cache: config.cache })
    }

    /// Whom it asks.
    pub(crate) const fn in_order(&self) -> &InOrder {
        &self.in_order
    }

    /// What the settings say of the farm on disk.
    pub(crate) const fn cache(&self) -> &CacheSettings {
        &self.cache
    }

    /// A login name in the form in which coordinators get it.
    ///
    /// # Errors
    /// [`Failure::Usage`] if it cannot be one, and is to be hidden: it is not sent as it is then.
    pub(crate) fn user_as_sent(&self, user: Option<String>) -> Result<Option<String>, Failure> {
        let hide = |user: String| {
            let sent = self.naming.sent(&user);
            sent.ok_or_else(|| Failure::usage(format!("--user {}: cannot be a login name", clean(&user))))
        };
        user.map(hide).transpose()
    }

    /// One plain coordinator on this machine.
    pub(crate) fn loopback(address: String, timeout: Duration) -> Self {
        let in_order = InOrder::loopback(address, timeout);
        Self { in_order, naming: Naming::default(), cache: CacheSettings::default() }
    }

    #[cfg(test)]
    pub(crate) fn with_cache(self, cache: CacheSettings) -> Self {
        Self { cache, ..self }
    }

    /// Makes a call at the first coordinator that answers. `operation` says in an error what was asked for:
    /// "listing the hosts".
    ///
    /// # Errors
    /// [`Failure::Refused`] with the first answer that is a no, [`Failure::NoAnswer`] if there is none,
    /// [`Failure::Usage`] if an address or a certificate file cannot be used.
    pub(crate) async fn call<T>(
        &self,
        operation: &str,
        call: impl AsyncFn(Channel, Try) -> Result<Response<T>, Status>,
    ) -> Result<T, Failure> {
        self.in_order.call(call).await.map_err(|failure| match failure {
            CallFailure::Refused(status) => Failure::Refused(Box::new(Refusal::of(operation, &status))),
            CallFailure::NoAnswer(silences) => {
                let silence = |silence: usher_client::Silence| Silence {
                    coordinator: silence.coordinator,
                    cause: silence.cause,
                };
                Failure::NoAnswer(silences.into_iter().map(silence).collect())
            }
            CallFailure::Target(error) => Failure::usage(error.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coordinators(addresses: &[&str]) -> Coordinators {
        let addresses = addresses.iter().map(ToString::to_string).collect();
        let in_order = InOrder::new(addresses, Duration::from_secs(5), None, None).unwrap();
        Coordinators { in_order, naming: Naming::default(), cache: CacheSettings::default() }
    }

    #[tokio::test]
    async fn what_came_of_a_call_is_told_apart_by_the_exit_code() {
        let open = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = open.local_addr().unwrap().to_string();
        let ends_with = async |status: fn() -> Status, address: &str| {
            let call =
                coordinators(&[address]).call::<()>("x", async |_channel, _try: Try| Err(status())).await;
            call.unwrap_err().exit_code()
        };
        assert_eq!(ends_with(|| Status::not_found("no"), &address).await, 1);
        assert_eq!(ends_with(|| Status::unavailable("gone"), &address).await, 3);
        for wrong in ["nonsense:x", "10.0.0.1:7443"] {
            assert_eq!(ends_with(|| Status::not_found("no"), wrong).await, 2, "{wrong}");
        }
    }
}
