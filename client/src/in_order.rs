//! Whom does a program ask that asks once and ends?
//!
//! All coordinators are equal, so the first that answers is right, whatever it answers: a no is an answer. Silence (no
//! connection, a broken one, no answer in time, or one that cannot tell now) passes the call on to the next, and so does a
//! no that only the view of the one that says it explains; that counts if nobody knows better. A call that was passed on may have
//! been done by the silent one, so every call here is one that may be made twice; a placement says with its attempt
//! number that it is.

use std::error::Error as _;
use std::time::Duration;

use thiserror::Error;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use usher_proto::error::{error_info, reason};
use usher_runtime::net::{ConnectError, PLAIN_HINT, TargetError, Timeouts, connect};
use usher_runtime::tls::TlsFiles;

use crate::answer::{Answer, cause_of, judge, knows};
use crate::error::{SetupError, Silence};

/// Metadata that names the gateway on plain loopback.
const GATEWAY_KEY: &str = "usher-gateway";

/// The coordinators of the farm, asked one after the other on connections of the moment.
#[derive(Debug, Clone)]
pub struct InOrder {
    coordinators: Vec<String>,
    timeout: Duration,
    gateway: Option<MetadataValue<Ascii>>,
    tls: Option<TlsFiles>,
}

/// One try at one coordinator.
#[derive(Debug, Clone)]
pub struct Try {
    /// Coordinators that were asked before and did not answer.
    pub earlier: u32,
    pub(crate) timeout: Duration,
    pub(crate) gateway: Option<MetadataValue<Ascii>>,
}

impl Try {
    /// The request with its deadline, after which the coordinator grants nothing, and with the gateway's name.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        if let Some(gateway) = &self.gateway {
            request.metadata_mut().insert(GATEWAY_KEY, gateway.clone());
        }
        request
    }
}

/// Why a call has no answer that is a yes.
#[derive(Debug)]
pub enum CallFailure {
    /// The first no that every coordinator would give, or the one that says most.
    Refused(Status),
    /// There is none.
    NoAnswer(Vec<Silence>),
    /// An address, or a certificate file, cannot be used.
    Target(TargetError),
}

impl InOrder {
    /// These coordinators in this order, each of which may take `timeout`; `gateway` is who asks on plain loopback.
    ///
    /// # Errors
    /// [`SetupError::Gateway`] if the name cannot travel.
    pub fn new(
        coordinators: Vec<String>,
        timeout: Duration,
        gateway: Option<&str>,
        tls: Option<TlsFiles>,
    ) -> Result<Self, SetupError> {
        Ok(Self { coordinators, timeout, gateway: gateway.map(gateway_value).transpose()?, tls })
    }

    /// One plain coordinator on this machine, asked in nobody's name.
    pub fn loopback(coordinator: String, timeout: Duration) -> Self {
        Self { coordinators: vec![coordinator], timeout, gateway: None, tls: None }
    }

    /// Whom it asks, in order.
    pub(crate) fn coordinators(&self) -> &[String] {
        &self.coordinators
    }

    /// The farm that our certificate is of. Absent: there is none, or it does not say.
    pub(crate) fn farm(&self) -> Option<String> {
        self.tls.as_ref()?.own_identity().ok()?.farm
    }

    /// Makes a call at the first coordinator that answers, or that has a better answer than those before it.
    ///
    /// # Errors
    /// [`CallFailure`].
    pub async fn call<T>(
        &self,
        call: impl AsyncFn(Channel, Try) -> Result<Response<T>, Status>,
    ) -> Result<T, CallFailure> {
        let mut silences = Vec::new();
        let mut doubtful: Option<Status> = None;
        let mut earlier = 0;
        for address in &self.coordinators {
            let silence = |cause: String| Silence { coordinator: address.clone(), cause };
            let channel = match self.reach(address).await {
                Ok(channel) => channel,
                Err(Unreached::Target(error)) => return Err(CallFailure::Target(error)),
                Err(Unreached::Silent(cause)) => {
                    silences.push(silence(cause));
                    continue;
                }
            };
            let this = self.try_after(earlier);
            earlier += 1;
            match tokio::time::timeout(self.timeout, call(channel, this)).await {
                Ok(Ok(response)) => return Ok(response.into_inner()),
                Ok(Err(status)) => match kind(address, &status) {
                    Kind::No => return Err(CallFailure::Refused(status)),
                    Kind::Doubtful => doubtful = Some(better(doubtful, status)),
                    Kind::Silence(cause) => {
                        silences.push(silence(cause.unwrap_or_else(|| self.hung_up(&status))));
                    }
                },
                Err(_elapsed) => silences.push(silence(too_late(self.timeout))),
            }
        }
        Err(doubtful.map_or(CallFailure::NoAnswer(silences), CallFailure::Refused))
    }

    /// A connection of the moment to one of them.
    pub(crate) async fn reach(&self, address: &str) -> Result<Channel, Unreached> {
        let timeouts = Timeouts { connect: self.timeout, ..Timeouts::default() };
        let connecting = connect(address, self.tls.as_ref(), &timeouts);
        match tokio::time::timeout(self.timeout, connecting).await {
            Ok(Ok(channel)) => Ok(channel),
            Ok(Err(ConnectError::Target(error))) => Err(Unreached::Target(error)),
            Ok(Err(error)) => Err(Unreached::Silent(without_address(&error, address))),
            Err(_elapsed) => Err(Unreached::Silent(too_late(self.timeout))),
        }
    }

    /// A try after so many that were not answered.
    pub(crate) fn try_after(&self, earlier: u32) -> Try {
        Try { earlier, timeout: self.timeout, gateway: self.gateway.clone() }
    }

    fn hung_up(&self, status: &Status) -> String {
        let cause = cause_of(status);
        let is_local = status.source().is_some();
        if is_local && self.tls.is_none() { format!("{cause}; {PLAIN_HINT}") } else { cause }
    }
}

/// Why there is no connection.
#[derive(Debug, Error)]
pub(crate) enum Unreached {
    #[error(transparent)]
    Target(TargetError),
    #[error("{0}")]
    Silent(String),
}

/// What a status is.
enum Kind {
    No,
    Doubtful,
    /// With what a coordinator said that could not answer. Absent: it was made by the way there.
    Silence(Option<String>),
}

fn kind(coordinator: &str, status: &Status) -> Kind {
    let Some(info) = error_info(status) else {
        // One of a coordinator without a reason counts here: people see it.
        let is_transport = status.source().is_some()
            || matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled);
        return if is_transport { Kind::Silence(None) } else { Kind::No };
    };
    match judge(coordinator, status, false) {
        Answer::No(_) => Kind::No,
        Answer::Doubtful(_) => Kind::Doubtful,
        // If nobody is better, people are to see when it will be.
        Answer::Silence(_) if info.reason == reason::STALE => Kind::Doubtful,
        Answer::Silence(cause) => Kind::Silence(Some(cause)),
    }
}

/// The no of who knows more of the farm, then the one that says more.
fn better(before: Option<Status>, now: Status) -> Status {
    let says = |status: &Status| error_info(status).map(|info| (knows(&info.reason), info.metadata.len()));
    match before {
        Some(before) if says(&before) >= says(&now) => before,
        _ => now,
    }
}

/// A name as metadata.
pub(crate) fn gateway_value(name: &str) -> Result<MetadataValue<Ascii>, SetupError> {
    let printable = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    name.parse().ok().filter(|_| printable).ok_or_else(|| SetupError::Gateway(name.to_owned()))
}

/// The address stands before it already.
pub(crate) fn without_address(error: &ConnectError, address: &str) -> String {
    let cause = error.to_string();
    cause.trim_start_matches(&format!("cannot connect to {address}: ")).to_owned()
}

pub(crate) fn too_late(timeout: Duration) -> String {
    let seconds = timeout.as_secs_f64();
    if seconds >= 1.0 {
        format!("no answer within {seconds:.1}s")
    } else {
        format!("no answer within {:.1}ms", seconds * 1e3)
    }
}

#[cfg(test)]
mod tests;
