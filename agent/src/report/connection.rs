//! When is a coordinator called again?
//!
//! After any loss within a random time that the coordinator chose, so that a farm does not come back in one second.
//! A coordinator that refuses us (a wrong certificate, an id that is in use) is asked again slowly and logged once:
//! only a person can mend that, and a log full of it hides the rest. One that turns out to be another name of a
//! coordinator that has a stream already rests until that stream is lost, and is looked at now and then: a name may come to
//! mean another coordinator.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};
use usher_proto::error::{error_info, reason};
use usher_proto::v1::agent_service_client::AgentServiceClient;
use usher_proto::v1::attach_request::Message;
use usher_proto::{SetDrain, SetDrainAnswer, v1, write};
use usher_runtime::backoff::Reconnect;
use usher_runtime::clock::Clock;
use usher_runtime::net::{ConnectError, Dial, PLAIN_HINT};
use usher_types::{Goodbye, Hello};

use super::inbound::{Wanted, wanted};
use super::outbound::{NewestTick, OutEnd, Outbound};
use crate::coordinators::Losses;
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
/// Longest wait before another name of a coordinator is looked at again; the shortest is half of it.
const REST_WAIT: Duration = Duration::from_secs(60);
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
    /// How it is reached.
    pub dial: Arc<dyn Dial>,
    /// The host.
    pub host: HostHandle,
    /// Hears when the stream is lost.
    pub losses: Losses,
    /// Boot-time clock.
    pub clock: Arc<dyn Clock>,
    /// Draws its waits. One of its own, so that no two streams wait for equally long.
    pub rng: StdRng,
    /// Says when to stop.
    pub leaving: Leaving,
}

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
enum StreamEnd {
    #[error("said good-bye")]
    Goodbye,
    #[error("the coordinator sends us elsewhere: {reason}{}", told_back_in(*back_in))]
    Elsewhere { reason: String, back_in: Option<Duration> },
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

fn told_back_in(after: Option<Duration>) -> String {
    after.map(|after| format!(", and may be back in {} s", after.as_secs())).unwrap_or_default()
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
        let mut wait = reconnect.wait(self.clock.now(), &mut self.rng);
        let mut is_refused = false;
        let streams = self.host.streams_held.clone();
        loop {
            let now = self.clock.now();
            if !wait.is_zero() {
                streams.waits(self.number, is_refused, now, now + wait);
            }
            tokio::select! {
                _ = self.leaving.wait_for(Option::is_some) => return,
                () = tokio::time::sleep(wait) => {}
            }
            // It may have turned out in the meantime that it is another name.
            if let Some(same_as) = streams.same_as(self.number).filter(|_| !wait.is_zero()) {
                let Some(next) = self.rest(same_as, &mut reconnect).await else { return };
                wait = next;
                continue;
            }
            streams.connects(self.number);
            let end = self.attach(&mut reconnect, &mut last_failure).await;
            streams.ended(self.number, end.to_string(), self.clock.now());
            // The host may be gone, and then it counts on nobody.
            let _ = self.host.commands.send(HostCommand::Detached { from: self.number }).await;
            if let Some(same_as) = self.same_as(&end) {
                let Some(next) = self.rest(same_as, &mut reconnect).await else { return };
                wait = next;
                continue;
            }
            if matches!(end, StreamEnd::Goodbye | StreamEnd::HostGone) {
                tracing::info!(host = %self.host.hello.host_name, coordinator = self.target, "detached: {end}");
                return;
            }
            self.losses.lost();
            is_refused = end.is_refusal();
            wait = if is_refused {
                REFUSED_WAIT.mul_f64(0.5 + 0.5 * self.rng.random::<f64>())
            } else {
                reconnect.wait(self.clock.now(), &mut self.rng)
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

    /// The coordinator that this is another name of: it says so, or has given our stream up for one under that name.
    fn same_as(&self, end: &StreamEnd) -> Option<usize> {
        let streams = &self.host.streams_held;
        let said = match end {
            StreamEnd::Goodbye | StreamEnd::HostGone => return None,
            StreamEnd::Status(status) => error_info(status),
            _ => None,
        };
        let said = said.filter(|info| info.reason == reason::SAME_COORDINATOR);
        let instance = said.as_ref().and_then(|info| info.metadata.get("instance_id"));
        let named = instance.and_then(|instance| streams.number_of(instance));
        named.or_else(|| streams.same_as(self.number)).filter(|same_as| *same_as != self.number)
    }

    /// Waits until the stream under the other name is lost, or for a while. How long to wait then before a call; absent: the
    /// agent leaves.
    async fn rest(&mut self, same_as: usize, reconnect: &mut Reconnect) -> Option<Duration> {
        let streams = self.host.streams_held.clone();
        let mut losses = streams.losses();
        let wait = REST_WAIT.mul_f64(0.5 + 0.5 * self.rng.random::<f64>());
        let now = self.clock.now();
        if streams.rests(self.number, same_as, now, now + wait) {
            let (host, coordinator) = (&self.host.hello.host_name, self.target.as_str());
            tracing::info!(%host, coordinator, same_as, "it is another name of a coordinator that has a stream");
        }
        // It counts for nothing from now on.
        let _ = self.host.commands.send(HostCommand::Coordinators).await;
        let lost = losses.wait_for(|_| streams.same_as(self.number).is_none());
        tokio::select! {
            _ = self.leaving.wait_for(Option::is_some) => None,
            // As everybody who lost that stream, this name waits its time.
            _ = lost => Some(reconnect.wait(self.clock.now(), &mut self.rng)),
            () = tokio::time::sleep(wait) => Some(Duration::ZERO),
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
        let channel = self.dial.dial(&self.target).await.map_err(Box::new)?;
        let (out, requests) = mpsc::channel(OUT);
        let epoch = self.host.epochs.next(self.clock.now());
        out.send(self.hello(epoch)).await.map_err(|_| StreamEnd::Ended)?;
        let mut client = AgentServiceClient::new(channel);
        let attached = timeout(ATTACH_WAIT, client.attach(ReceiverStream::new(requests))).await;
        let attached = attached.map_err(|_| StreamEnd::NoAnswer)?;
        let messages = attached.map_err(|status| self.not_attached(status))?.into_inner();

        // The host must know it before its stream.
        if self.host.streams_held.stands_alone(self.number) {
            self.tell(HostCommand::Coordinators).await?;
        }
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
        self.tell(HostCommand::Attached { from: self.number }).await?;
        let inbound = self.listen(epoch, messages, reply, &tick, reconnect, last_failure);
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

    async fn tell(&self, command: HostCommand) -> Result<(), StreamEnd> {
        self.host.commands.send(command).await.map_err(|_| StreamEnd::HostGone)
    }

    fn not_attached(&self, status: Status) -> StreamEnd {
        // A status that came over the wire has no cause here.
        let hung_up = std::error::Error::source(&status).is_some();
        if hung_up && self.dial.is_plain() { StreamEnd::PlainHungUp(Box::new(status)) } else { status.into() }
    }

    fn hello(&self, stream_epoch: u64) -> v1::AttachRequest {
        let hello = Hello { stream_epoch, ..(*self.host.hello).clone() };
        // What the program can do, not what the host is.
        let held_instance_ids = self.host.streams_held.instances_beside(self.number);
        let hello = v1::Hello { keeps_drain: true, held_instance_ids, ..write::hello(&hello) };
        v1::AttachRequest { message: Some(Message::Hello(hello)) }
    }

    /// Keeps a drain while the stream goes on: a disk may take its time. The host's task answers, after it has said so in
    /// its reports.
    fn keep_drain(&self, SetDrain { nonce, drain }: SetDrain, reply: &mpsc::Sender<Answer>) {
        let (drains, commands, reply) = (self.host.drains.clone(), self.host.commands.clone(), reply.clone());
        tokio::spawn(async move {
            let answer = SetDrainAnswer { nonce, outcome: drains.keep(drain).await };
            // A host that has stopped tells nobody.
            let _ = commands.send(HostCommand::DrainKept { answer, reply }).await;
        });
    }

    async fn listen(
        &self,
        epoch: u64,
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
                    let now = self.clock.now();
                    if self.host.streams_held.attached(self.number, &instance_id, epoch, now) {
                        self.tell(HostCommand::Coordinators).await?;
                    }
                    let (host, coordinator) = (&self.host.hello.host_name, self.target.as_str());
                    tracing::info!(%host, coordinator, coordinator_id, instance_id, "attached");
                }
                Ok(Wanted::Tick { tick: newest, spread, confirmed_elsewhere }) => {
                    tick.set(newest);
                    self.host.streams_held.heard(self.number, self.clock.now());
                    self.tell(HostCommand::Ticked { from: self.number }).await?;
                    spread.into_iter().for_each(|spread| reconnect.told(spread));
                    if let Some(age) = confirmed_elsewhere {
                        self.tell(HostCommand::ConfirmedElsewhere { age }).await?;
                    }
                }
                Ok(Wanted::Host(command)) => self.tell(command).await?,
                Ok(Wanted::Drain(set)) => self.keep_drain(set, &reply),
                Ok(Wanted::Answer(answer)) => {
                    // A full queue is that of a coordinator that does not read, and whose silence ends the stream.
                    let _ = reply.try_send(answer);
                }
                Ok(Wanted::GoElsewhere { reason, back_in }) => {
                    return Err(StreamEnd::Elsewhere { reason, back_in });
                }
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
