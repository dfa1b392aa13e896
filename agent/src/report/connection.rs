//! When is a coordinator called again?
//!
//! After any loss within a random time that the coordinator chose, so that a farm does not come back in one second.
//! A coordinator that refuses us (a wrong certificate, an id that is in use) is asked again slowly and logged once:
//! only a person can mend that, and a log full of it hides the rest.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};
use usher_proto::v1::agent_service_client::AgentServiceClient;
use usher_proto::v1::attach_request::Message;
use usher_proto::{v1, write};
use usher_runtime::backoff::Reconnect;
use usher_runtime::clock::Clock;
use usher_runtime::net::{ConnectError, PLAIN_HINT, Timeouts, connect};
use usher_runtime::tls::TlsFiles;
use usher_types::{Goodbye, Hello};

use super::inbound::{Wanted, wanted};
use super::outbound::{NewestTick, OutEnd, Outbound};
use crate::host::handle::ANSWERS;
use crate::host::{Answer, HostCommand, HostHandle};
use crate::sample::describe;

/// A coordinator that says nothing for so long is gone: it ticks every second.
const SILENCE: Duration = Duration::from_secs(15);
/// Longest wait for the answer to Attach.
const ATTACH_WAIT: Duration = Duration::from_secs(10);
/// How long the coordinator may take to end the stream after our good-bye.
const GOODBYE_WAIT: Duration = Duration::from_secs(1);
/// Longest wait before a coordinator that refuses us is asked again; the shortest is half of it.
const REFUSED_WAIT: Duration = Duration::from_secs(30);
/// Messages that are handed to the connection and not yet taken by it: an answer and the report that follows from it.
/// More would only grow old there.
const OUT: usize = 2;

/// Whether, and why, the agent leaves. Absent: it stays.
pub type Leaving = watch::Receiver<Option<Goodbye>>;

/// Keeps one host attached to one coordinator.
#[derive(Debug)]
pub struct Reporter {
    /// The coordinator's number in the agent's list.
    pub number: usize,
    /// Its address, `host:port`.
    pub target: String,
    /// Our certificate. Absent: plain, which only goes to this machine.
    pub tls: Option<TlsFiles>,
    /// The host.
    pub host: HostHandle,
    /// Boot-time clock.
    pub clock: Arc<dyn Clock>,
    /// Says when to stop.
    pub leaving: Leaving,
}

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
enum StreamEnd {
    #[error("said good-bye")]
    Goodbye,
    #[error("the coordinator sends us elsewhere: {0}")]
    Elsewhere(String),
    #[error("the coordinator ended the stream")]
    Ended,
    #[error("no answer to attach within {} s", ATTACH_WAIT.as_secs())]
    NoAnswer,
    #[error("no word of the coordinator for {} s", SILENCE.as_secs())]
    Silent,
    #[error("the host has stopped")]
    HostGone,
    #[error("{:?}: {}", .0.code(), .0.message())]
    Status(Box<Status>),
    #[error("the coordinator hung up before it answered: {}; {PLAIN_HINT}", .0.message())]
    PlainHungUp(Box<Status>),
    #[error(transparent)]
    Connect(#[from] Box<ConnectError>),
}

impl StreamEnd {
    /// Only a person can mend it.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Status(status) => matches!(
                status.code(),
                Code::PermissionDenied
                    | Code::Unauthenticated
                    | Code::InvalidArgument
                    | Code::FailedPrecondition
                    | Code::AlreadyExists
                    | Code::OutOfRange
                    | Code::Unimplemented
            ),
            Self::Connect(error) => matches!(**error, ConnectError::Target(_)),
            _ => false,
        }
    }
}

impl From<Status> for StreamEnd {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

impl Reporter {
    /// Runs until the agent leaves.
    pub async fn run(mut self) {
        let mut reconnect = Reconnect::new();
        let mut last_failure = String::new();
        let mut wait = reconnect.wait(self.clock.now(), &mut rand::rng());
        let mut is_refused = false;
        let streams = self.host.streams_held.clone();
        loop {
            let now = self.clock.now();
            streams.waits(self.number, is_refused, now, now + wait);
            tokio::select! {
                _ = self.leaving.wait_for(Option::is_some) => return,
                () = tokio::time::sleep(wait) => {}
            }
            streams.connects(self.number);
            let end = self.attach(&mut reconnect, &mut last_failure).await;
            streams.ended(self.number, end.to_string(), self.clock.now());
            // The host may be gone, and then it counts on nobody.
            let _ = self.host.commands.send(HostCommand::Detached { from: self.number }).await;
            if matches!(end, StreamEnd::Goodbye | StreamEnd::HostGone) {
                tracing::info!(host = %self.host.hello.host_name, coordinator = self.target, "detached: {end}");
                return;
            }
            is_refused = end.is_refusal();
            wait = if is_refused {
                REFUSED_WAIT.mul_f64(0.5 + 0.5 * rand::rng().random::<f64>())
            } else {
                reconnect.wait(self.clock.now(), &mut rand::rng())
            };
            let (why, host) = (end.to_string(), &self.host.hello.host_name);
            if why == last_failure {
                tracing::debug!(%host, coordinator = self.target, ?wait, "still not attached: {why}");
            } else {
                tracing::warn!(%host, coordinator = self.target, ?wait, "not attached: {why}");
                last_failure = why;
            }
        }
    }

    /// One stream, from the connection to its end. While leaving it ends within some seconds, whatever the peer does.
    async fn attach(&mut self, reconnect: &mut Reconnect, last_failure: &mut String) -> StreamEnd {
        let mut leaving = self.leaving.clone();
        tokio::select! {
            end = self.stream(reconnect, last_failure) => end.err().unwrap_or(StreamEnd::Ended),
            () = async {
                // An error says that the process goes down.
                let _ = leaving.wait_for(Option::is_some).await;
                tokio::time::sleep(GOODBYE_WAIT * 2).await;
            } => StreamEnd::Goodbye,
        }
    }

    async fn stream(
        &mut self,
        reconnect: &mut Reconnect,
        last_failure: &mut String,
    ) -> Result<(), StreamEnd> {
        let channel =
            connect(&self.target, self.tls.as_ref(), &Timeouts::default()).await.map_err(Box::new)?;
        let (out, requests) = mpsc::channel(OUT);
        out.send(self.hello()).await.map_err(|_| StreamEnd::Ended)?;
        let mut client = AgentServiceClient::new(channel);
        let attached = timeout(ATTACH_WAIT, client.attach(ReceiverStream::new(requests))).await;
        let attached = attached.map_err(|_| StreamEnd::NoAnswer)?;
        let messages = attached.map_err(|status| self.not_attached(status))?.into_inner();

        let _held = self.host.streams_held.hold(self.number);
        let (reply, answers) = mpsc::channel(ANSWERS);
        let tick = Arc::new(NewestTick::default());
        let outbound = Outbound {
            number: self.number,
            host: self.host.clone(),
            clock: self.clock.clone(),
            tick: tick.clone(),
            answers,
            leaving: self.leaving.clone(),
            out,
        };
        self.host
            .commands
            .send(HostCommand::Attached { from: self.number })
            .await
            .map_err(|_| StreamEnd::HostGone)?;
        let inbound = self.listen(messages, reply, &tick, reconnect, last_failure);
        tokio::pin!(inbound);
        let out_end = tokio::select! {
            end = &mut inbound => return end,
            end = outbound.run() => end,
        };
        // Our half is closed; the coordinator closes its own, or says what was wrong.
        let end = timeout(GOODBYE_WAIT, inbound).await;
        match (out_end, end) {
            (OutEnd::SaidGoodbye, _) => Err(StreamEnd::Goodbye),
            (OutEnd::Closed, Ok(end)) => end,
            (OutEnd::Closed, Err(_)) => Err(StreamEnd::Ended),
        }
    }

    fn not_attached(&self, status: Status) -> StreamEnd {
        // A status that came over the wire has no cause here.
        let hung_up = std::error::Error::source(&status).is_some();
        if hung_up && self.tls.is_none() { StreamEnd::PlainHungUp(Box::new(status)) } else { status.into() }
    }

    fn hello(&self) -> v1::AttachRequest {
        let hello =
            Hello { stream_epoch: self.host.epochs.next(self.clock.now()), ..(*self.host.hello).clone() };
        v1::AttachRequest { message: Some(Message::Hello(write::hello(&hello))) }
    }

    async fn listen(
        &self,
        mut messages: Streaming<v1::AttachResponse>,
        reply: mpsc::Sender<Answer>,
        tick: &NewestTick,
        reconnect: &mut Reconnect,
        last_failure: &mut String,
    ) -> Result<(), StreamEnd> {
        loop {
            let message = timeout(SILENCE, messages.message()).await.map_err(|_| StreamEnd::Silent)??;
            let message = message.ok_or(StreamEnd::Ended)?;
            match wanted(message, self.number, &reply) {
                Ok(Wanted::Welcome { coordinator_id, instance_id, spread }) => {
                    reconnect.told(spread);
                    reconnect.connected(self.clock.now());
                    last_failure.clear();
                    self.host.streams_held.attached(self.number, self.clock.now());
                    let (host, coordinator) = (&self.host.hello.host_name, self.target.as_str());
                    tracing::info!(%host, coordinator, coordinator_id, instance_id, "attached");
                }
                Ok(Wanted::Tick { tick: newest, spread, confirmed_elsewhere }) => {
                    tick.set(newest);
                    self.host.streams_held.heard(self.number, self.clock.now());
                    let ticked = HostCommand::Ticked { from: self.number };
                    self.host.commands.send(ticked).await.map_err(|_| StreamEnd::HostGone)?;
                    spread.into_iter().for_each(|spread| reconnect.told(spread));
                    if let Some(age) = confirmed_elsewhere {
                        let command = HostCommand::ConfirmedElsewhere { age };
                        self.host.commands.send(command).await.map_err(|_| StreamEnd::HostGone)?;
                    }
                }
                Ok(Wanted::Host(command)) => {
                    self.host.commands.send(command).await.map_err(|_| StreamEnd::HostGone)?;
                }
                Ok(Wanted::Answer(answer)) => {
                    // A full queue is that of a coordinator that does not read, and whose silence ends the stream.
                    let _ = reply.try_send(answer);
                }
                Ok(Wanted::GoElsewhere(reason)) => return Err(StreamEnd::Elsewhere(reason)),
                Ok(Wanted::Nothing) => {}
                Err(misread) => {
                    tracing::warn!(coordinator = self.target, error = describe(&misread), "message ignored");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_a_person_can_mend_is_retried_slowly() {
        let refusal = |code| StreamEnd::from(Status::new(code, "")).is_refusal();
        for code in
            [Code::PermissionDenied, Code::Unauthenticated, Code::InvalidArgument, Code::AlreadyExists]
        {
            assert!(refusal(code), "{code:?}");
        }
        for code in
            [Code::Unavailable, Code::Cancelled, Code::DeadlineExceeded, Code::Unknown, Code::Internal]
        {
            assert!(!refusal(code), "{code:?}");
        }
        assert!(!StreamEnd::Silent.is_refusal());
    }
}
