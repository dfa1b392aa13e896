//! Whom do we ask, and when do we ask the next one?
//!
//! All coordinators are equal, so the first that answers is right, whatever it answers: a no is an answer. Only silence
//! (no connection, a broken one, no answer in time) passes the call on to the next. A call that was passed on may have
//! been done by the silent one, so every call here is one that may be made twice; a placement says with its attempt
//! number that it is.

use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use usher_placement::host::Naming;
use usher_runtime::net::{ConnectError, PLAIN_HINT, Timeouts, connect};
use usher_runtime::tls::TlsFiles;

use crate::cli::Globals;
use crate::client_config::ClientConfig;
use crate::failure::{Failure, Refusal, Silence};
use crate::output::text::clean;

/// Metadata that names the gateway on plain loopback.
const GATEWAY_KEY: &str = "usher-gateway";

/// The coordinators of the farm, in the order in which they are asked.
#[derive(Debug, Clone)]
pub(crate) struct Coordinators {
    addresses: Vec<String>,
    timeout: Duration,
    gateway: Option<MetadataValue<Ascii>>,
    tls: Option<TlsFiles>,
    naming: Naming,
}

/// One try at one coordinator.
#[derive(Debug, Clone)]
pub(crate) struct Try {
    /// Coordinators that were asked before and did not answer.
    pub(crate) earlier: u32,
    timeout: Duration,
    gateway: Option<MetadataValue<Ascii>>,
}

impl Try {
    /// The request with its deadline, after which the coordinator grants nothing, and with the gateway's name.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        if let Some(gateway) = &self.gateway {
            request.metadata_mut().insert(GATEWAY_KEY, gateway.clone());
        }
        request
    }
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
        Ok(Self {
            // An empty environment variable names nobody.
            addresses: if named.is_empty() { config.coordinators } else { named },
            timeout,
            gateway: gateway.as_deref().map(gateway_value).transpose()?,
            tls: config.tls.files(),
            naming,
        })
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
        Self { addresses: vec![address], timeout, gateway: None, tls: None, naming: Naming::default() }
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
        let mut silences = Vec::new();
        let mut earlier = 0;
        for address in &self.addresses {
            let silence = |cause: String| Silence { coordinator: address.clone(), cause };
            let timeouts = Timeouts { connect: self.timeout, ..Timeouts::default() };
            let connecting = connect(address, self.tls.as_ref(), &timeouts);
            let channel = match tokio::time::timeout(self.timeout, connecting).await {
                Ok(Ok(channel)) => channel,
                Ok(Err(ConnectError::Target(error))) => return Err(Failure::usage(error.to_string())),
                Ok(Err(error)) => {
                    // The address stands before it already.
                    let cause = error.to_string();
                    let cause = cause.trim_start_matches(&format!("cannot connect to {address}: "));
                    silences.push(silence(cause.to_owned()));
                    continue;
                }
                Err(_elapsed) => {
                    silences.push(silence(self.too_late()));
                    continue;
                }
            };
            let this = Try { earlier, timeout: self.timeout, gateway: self.gateway.clone() };
            earlier += 1;
            match tokio::time::timeout(self.timeout, call(channel, this)).await {
                Ok(Ok(response)) => return Ok(response.into_inner()),
                Ok(Err(status)) => match Refusal::of(operation, &status) {
                    Some(refusal) => return Err(Failure::Refused(Box::new(refusal))),
                    None => silences.push(silence(self.hung_up(&status))),
                },
                Err(_elapsed) => silences.push(silence(self.too_late())),
            }
        }
        Err(Failure::NoAnswer(silences))
    }

    fn hung_up(&self, status: &Status) -> String {
        let cause = cause_of(status);
        let is_local = std::error::Error::source(status).is_some();
        if is_local && self.tls.is_none() { format!("{cause}; {PLAIN_HINT}") } else { cause }
    }

    fn too_late(&self) -> String {
        format!("no answer within {}", crate::output::text::duration(self.timeout))
    }
}

fn gateway_value(name: &str) -> Result<MetadataValue<Ascii>, Failure> {
    let printable = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    name.parse()
        .ok()
        .filter(|_| printable)
        .ok_or_else(|| Failure::usage(format!("gateway {name:?} is not a name of A-Z a-z 0-9 _ . -")))
}

/// The library says "transport error"; what happened is in its sources.
fn cause_of(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        let inner = error.to_string();
        if !text.contains(&inner) {
            text = format!("{text}: {inner}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coordinators(addresses: &[&str]) -> Coordinators {
        Coordinators {
            addresses: addresses.iter().map(ToString::to_string).collect(),
            timeout: Duration::from_secs(5),
            gateway: None,
            tls: None,
            naming: Naming::default(),
        }
    }

    /// An address at which a connection is made and nothing more: enough for a call that answers by itself.
    async fn listening() -> (tokio::net::TcpListener, String) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, address)
    }

    async fn closed() -> String {
        let (listener, address) = listening().await;
        drop(listener);
        address
    }

    #[tokio::test]
    async fn silent_coordinators_are_passed_over_until_one_answers() {
        let (closed, (_listener, open)) = (closed().await, listening().await);
        let answer = coordinators(&[&closed, &open])
            .call("x", async |_channel, this: Try| Ok(Response::new(this.earlier)))
            .await
            .unwrap();
        assert_eq!(answer, 0, "no call was made at the first");
    }

    #[tokio::test]
    async fn a_no_is_an_answer_and_nobody_else_is_asked() {
        let ((_a, first), (_b, second)) = (listening().await, listening().await);
        let failure = coordinators(&[&first, &second])
            .call::<()>("x", async |_channel, this: Try| Err(Status::not_found(this.earlier.to_string())))
            .await
            .unwrap_err();
        assert!(matches!(&failure, Failure::Refused(refusal) if refusal.message == "0"), "{failure:?}");
    }

    #[tokio::test]
    async fn when_nobody_answers_each_is_named_with_its_cause() {
        let (closed, (_listener, open)) = (closed().await, listening().await);
        let failure = coordinators(&[&closed, &open])
            .call::<()>("x", async |_channel, _try: Try| Err(Status::unavailable("gone")))
            .await
            .unwrap_err();
        let Failure::NoAnswer(silences) = &failure else { panic!("{failure:?}") };
        assert_eq!([&silences[0].coordinator, &silences[1].coordinator], [&closed, &open]);
        assert!(silences[0].cause.contains("refused"), "{silences:?}");
        assert_eq!(silences[1].cause, "gone");
    }

    #[tokio::test]
    async fn an_address_that_cannot_be_one_is_wrong_use() {
        for wrong in ["nonsense:x", "10.0.0.1:7443"] {
            let failure = coordinators(&[wrong])
                .call::<()>("x", async |_channel, _try: Try| Err(Status::unavailable("gone")))
                .await
                .unwrap_err();
            assert_eq!(failure.exit_code(), 2, "{wrong}: {failure:?}");
        }
    }

    #[test]
    fn every_request_carries_its_deadline_and_the_gateway() {
        let this =
            Try { earlier: 0, timeout: Duration::from_secs(2), gateway: Some(gateway_value("g-1").unwrap()) };
        let request = this.request(());
        let value = |key| request.metadata().get(key).and_then(|value| value.to_str().ok());
        assert_eq!(value(GATEWAY_KEY), Some("g-1"));
        assert_eq!(value("grpc-timeout"), Some("2000000u"));
        let nameless = Try { gateway: None, ..this }.request(());
        assert!(nameless.metadata().get(GATEWAY_KEY).is_none());
    }

    #[test]
    fn a_gateway_name_that_cannot_travel_is_wrong_use() {
        assert!(gateway_value("bastion-1").is_ok());
        for wrong in ["", "a b", "a\nb", "tür"] {
            assert!(gateway_value(wrong).is_err(), "{wrong:?}");
        }
    }
}
