//! `AgentService`: one stream per host. It introduces itself, then tells and is told.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Semaphore, oneshot},
    time::{Instant, MissedTickBehavior, interval_at, timeout},
};
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, Streaming};
use usher_placement::farm::{AttachRefused, Ticks};
use usher_proto::{
    self as proto,
    error::{self, reason},
    read,
    v1::{self, agent_service_server::AgentService, attach_request, attach_response::Message},
    write,
};
use usher_runtime::{identity::Transport, shutdown::Shutdown};
use usher_types::{FieldFault, Goodbye, Hello, HostId, PendingLimit, Replica, Session, UserLimit};

use super::{caller, pages::Pages, unavailable};
use crate::{
    farm_command::{Admitted, FarmCommand, Source},
    links::{HostLink, HostOutput, OUTBOX},
    shared::Shared,
    store::{StoreHandle, Write},
    stored,
};

/// How long a stream may be open before it says who it is.
const HELLO_WITHIN: Duration = Duration::from_secs(5);
/// How long a host may take to answer a ping before another machine may have its id.
const PING_WITHIN: Duration = Duration::from_secs(2);
const TICK_EVERY: Duration = Duration::from_secs(1);
/// With its first tick a host takes all the places for told that were given while it was away: decisions that were made
/// just before it came back are through by then.
const FIRST_TICK: Duration = Duration::from_millis(50);
/// Messages of one stream that may wait for the farm: a host that floods waits for itself and fills nobody's queue.
const TURNS: usize = 4;

/// The service.
pub(crate) struct Agents {
    pub shared: Arc<Shared>,
    pub store: StoreHandle,
    pub shutdown: Shutdown,
}

#[tonic::async_trait]
impl AgentService for Agents {
    type AttachStream = HostOutput;

    async fn attach(
        &self,
        request: Request<Streaming<v1::AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        if self.shutdown.has_begun() {
            return Err(Status::unavailable("the coordinator is shutting down"));
        }
        let caller = caller(&request)?;
        let certificate = (caller.transport == Transport::Tls).then(|| caller.name.clone());
        let mut incoming = request.into_inner();
        let hello = first_hello(&mut incoming).await?;
        if hello.is_virtual {
            self.check_virtual(&hello, certificate.as_deref())?;
        }
        let admitted = self.register(&hello, certificate).await?;
        let registered = Registered { shared: &self.shared, hello: Some(&hello) };
        self.keep_what_lasts(&hello, &admitted).await?;
        let (link, output) = HostLink::new(hello.stream_epoch, OUTBOX);
        // From here on every new place is told through the link; what was given before is told now.
        self.shared.links.open(hello.host_id.clone(), link.clone());
        self.welcome(&hello, admitted.settings, &link);
        registered.serves();
        let stream = HostStream {
            shared: self.shared.clone(),
            link,
            interval: hello.report_interval,
            host_id: hello.host_id,
            ticks: Ticks::default(),
            told_spread_ms: 0,
            turns: Arc::new(Semaphore::new(TURNS)),
            replicas: Pages::default(),
            sessions: Pages::default(),
        };
        self.shutdown.spawn(stream.run(incoming, self.shutdown.token()));
        Ok(Response::new(output))
    }
}

/// A host that was let in. If its stream is not served after all, it is not connected either.
struct Registered<'a> {
    shared: &'a Arc<Shared>,
    hello: Option<&'a Hello>,
}

impl Registered<'_> {
    fn serves(mut self) {
        self.hello = None;
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if let Some(hello) = self.hello.take() {
            let (host_id, stream_epoch) = (hello.host_id.clone(), hello.stream_epoch);
            let farm = self.shared.farm.clone();
            let detach = FarmCommand::Detach { host_id, stream_epoch, goodbye: None };
            // The queue may be full at this moment, and a drop cannot wait.
            tokio::spawn(async move { farm.send(detach).await });
        }
    }
}

async fn first_hello(incoming: &mut Streaming<v1::AttachRequest>) -> Result<Hello, Status> {
    let first = timeout(HELLO_WITHIN, incoming.message())
        .await
        .map_err(|_| Status::deadline_exceeded("no Hello within 5 s"))??
        .and_then(|first| first.message);
    match first {
        Some(attach_request::Message::Hello(hello)) => {
            read::hello(hello).map_err(|faults| error::invalid_fields(&faults))
        }
        _ => Err(error::invalid_fields(&[FieldFault::new("message", "another one", "Hello first")])),
    }
}

impl Agents {
    /// Whether a modelled host may come at all, and whether its certificate may bring another one.
    fn check_virtual(&self, hello: &Hello, certificate: Option<&str>) -> Result<(), Status> {
        let config = &self.shared.config;
        let name = &hello.host_name;
        if !config.allow_virtual {
            let message = format!("host {name} is virtual, and this coordinator has allow_virtual = false");
            let code = Code::PermissionDenied;
            return Err(error::status(code, reason::NOT_AUTHORIZED, message, Default::default(), None));
        }
        let most = config.limits.max_virtual_hosts;
        if self.shared.virtual_hosts.claim(certificate, &hello.host_id, most) {
            return Ok(());
        }
        let whose =
            certificate.map_or_else(|| "plain loopback".to_owned(), |name| format!("certificate {name}"));
        let message = format!(
            "host {name} is one virtual host too many of {whose}: it has brought {most} since this coordinator started, \
             as many as limits.max_virtual_hosts allows"
        );
        let code = Code::ResourceExhausted;
        Err(error::status(code, reason::MAX_VIRTUAL_HOSTS, message, Default::default(), None))
    }

    /// Lets the host in. If another machine holds its id, whoever answers a ping stays.
    async fn register(&self, hello: &Hello, certificate: Option<String>) -> Result<Admitted, Status> {
        match self.attach_once(hello, certificate.clone(), false).await? {
            Err(AttachRefused::InUse { host_id, held_by, claimed_by, .. }) => {
                let alive = match self.shared.links.get(&host_id) {
                    Some(link) => link.answers(PING_WITHIN).await,
                    None => false,
                };
                if alive {
                    tracing::error!(%host_id, held_by, claimed_by, "two machines have one host id, the second is refused");
                    let in_use = AttachRefused::InUse { host_id, held_by, claimed_by, stream_epoch: 0 };
                    return Err(refused(&in_use));
                }
                self.attach_once(hello, certificate, true).await?.map_err(|why| refused(&why))
            }
            other => other.map_err(|why| refused(&why)),
        }
    }

    async fn attach_once(
        &self,
        hello: &Hello,
        certificate_name: Option<String>,
        old_is_dead: bool,
    ) -> Result<Result<Admitted, AttachRefused>, Status> {
        let (answer, answered) = oneshot::channel();
        let hello = Box::new(hello.clone());
        let command = FarmCommand::Attach { hello, certificate_name, old_is_dead, answer };
        self.shared.farm.send(command).await.map_err(unavailable)?;
        answered.await.map_err(unavailable)
    }

    /// Stores what this attach has changed: all of it, or none.
    async fn keep_what_lasts(&self, hello: &Hello, admitted: &Admitted) -> Result<(), Status> {
        let (attached, host_id) = (&admitted.attached, &hello.host_id);
        let mut writes = Vec::new();
        if let Some(certificate) = &attached.bind {
            writes.push(Write::PutBinding(certificate.clone(), host_id.clone()));
        }
        if let Some(retired) = &attached.retired {
            tracing::info!(%retired, %host_id, "a host was replaced by another one with its certificate name");
            writes.push(Write::MoveMarks(retired.clone(), host_id.clone()));
        }
        if attached.drain_ended {
            writes.push(Write::DeleteDrain(host_id.clone()));
        }
        if writes.is_empty() {
            return Ok(());
        }
        let Err(error) = self.store.write(writes).await else { return Ok(()) };
        tracing::error!(%error, %host_id, "cannot store what an attach has changed");
        if let Some(certificate) = attached.bind.clone() {
            // In force only what is stored: the next attach binds it again.
            self.shared.farm.send(FarmCommand::Unbind { certificate }).await.map_err(unavailable)?;
        }
        Err(Status::unavailable("what this attach changes could not be stored"))
    }

    fn welcome(&self, hello: &Hello, settings: Option<v1::PoolSettings>, link: &HostLink) {
        link.send(Message::Welcome(v1::Welcome {
            coordinator_id: self.shared.coordinator_id.clone(),
            instance_id: self.shared.instance_id.clone(),
            reconnect_spread_ms: self.shared.reconnect_spread_ms(),
        }));
        if let Some(settings) = settings {
            link.send(Message::PoolSettings(settings));
        }
        let now = self.shared.now();
        for place in self.shared.ledger.to_tell(&hello.host_id, now) {
            let expect = proto::ExpectSession {
                place,
                ask: false,
                max_users: UserLimit::Unlimited,
                max_pending: PendingLimit::Unlimited,
            };
            link.send(Message::ExpectSession(write::expect_session(&expect)));
        }
    }
}

fn refused(why: &AttachRefused) -> Status {
    let (code, reason) = match why {
        // Two machines claim one identity, and both live.
        AttachRefused::InUse { .. } | AttachRefused::OtherHost { .. } => {
            (Code::AlreadyExists, reason::HOST_ID_IN_USE)
        }
        AttachRefused::OlderStream(_) => (Code::Aborted, reason::HOST_ID_IN_USE),
        AttachRefused::OtherCertificate { .. } | AttachRefused::OtherName { .. } => {
            (Code::PermissionDenied, reason::IDENTITY_MISMATCH)
        }
    };
    error::status(code, reason, why.to_string(), Default::default(), None)
}

/// One host's stream, after its introduction.
struct HostStream {
    shared: Arc<Shared>,
    link: Arc<HostLink>,
    host_id: HostId,
    interval: Duration,
    ticks: Ticks,
    told_spread_ms: u32,
    turns: Arc<Semaphore>,
    replicas: Pages<Replica>,
    sessions: Pages<Session>,
}

impl HostStream {
    async fn run(mut self, incoming: Streaming<v1::AttachRequest>, shutdown: CancellationToken) {
        let _open = self.shared.metrics.stream_opened();
        tracing::info!(host_id = %self.host_id, stream_epoch = self.link.stream_epoch, "host attached");
        let goodbye = self.serve(incoming, shutdown).await;
        self.shared.links.close(&self.host_id, &self.link);
        self.link.finish();
        let stream_epoch = self.link.stream_epoch;
        let detach = FarmCommand::Detach { host_id: self.host_id.clone(), stream_epoch, goodbye };
        // The farm task ends before the streams do when the process stops.
        let _ = self.shared.farm.send(detach).await;
        tracing::info!(host_id = %self.host_id, stream_epoch, ?goodbye, "host detached");
    }

    async fn serve(
        &mut self,
        mut incoming: Streaming<v1::AttachRequest>,
        shutdown: CancellationToken,
    ) -> Option<Goodbye> {
        let mut ticks = interval_at(Instant::now() + FIRST_TICK, TICK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ended = self.link.ended.clone();
        loop {
            let message = tokio::select! {
                biased;
                () = ended.cancelled() => return None,
                () = shutdown.cancelled() => {
                    let reason = "the coordinator is shutting down".to_owned();
                    self.link.send(Message::GoElsewhere(v1::GoElsewhere { reason }));
                    return None;
                }
                _ = ticks.tick() => {
                    let tick = self.next_tick();
                    if !self.link.send(Message::Tick(tick)) {
                        return None;
                    }
                    continue;
                }
                message = incoming.next() => message,
            };
            match message {
                Some(Ok(v1::AttachRequest { message: Some(message) })) => match self.take(message).await {
                    Taken::On => {}
                    Taken::Goodbye(goodbye) => return Some(goodbye),
                    Taken::Stopped => return None,
                },
                // A message of a later version of the protocol.
                Some(Ok(v1::AttachRequest { message: None })) => {
                    self.shared.metrics.something_dropped("unknown")
                }
                Some(Err(status)) => {
                    tracing::debug!(host_id = %self.host_id, %status, "a host's stream broke");
                    return None;
                }
                None => return None,
            }
        }
    }

    async fn take(&mut self, message: attach_request::Message) -> Taken {
        use attach_request::Message as In;
        match message {
            In::Load(load) => return self.take_load(load).await,
            In::Latency(latency) => {
                let (latency, faults) = read::latency(latency);
                self.count("latency", &faults);
                let Some(from) = self.source(None).await else { return Taken::Stopped };
                return self.send(FarmCommand::Latency { from, latency, faults: faults.len() }).await;
            }
            In::InventoryPage(page) => {
                let (page, faults) = read::inventory_page(page);
                self.count("inventory", &faults);
                if let Some(replicas) =
                    self.replicas.take(page.generation, page.page, page.last, page.replicas)
                {
                    let Some(from) = self.source(None).await else { return Taken::Stopped };
                    return self.send(FarmCommand::Replicas { from, replicas }).await;
                }
            }
            In::SessionsPage(page) => {
                let (page, faults) = read::sessions_page(page);
                self.count("sessions", &faults);
                if let Some(sessions) =
                    self.sessions.take(page.generation, page.page, page.last, page.sessions)
                {
                    let Some(from) = self.source(None).await else { return Taken::Stopped };
                    return self.send(FarmCommand::Sessions { from, sessions }).await;
                }
            }
            In::PlaceAnswer(answer) => match read::place_answer(answer) {
                Ok(answer) => {
                    self.shared.links.consent(&self.host_id, &answer.token, answer.attempt, answer.answer);
                    self.heard();
                }
                Err(fault) => self.count("place_answer", &[fault]),
            },
            In::SessionCheckAnswer(answer) => {
                self.shared.links.session_checked(&self.host_id, answer.check_id, answer.exists);
            }
            In::Pong(pong) => self.link.pong(pong.nonce),
            In::Goodbye(goodbye) => match read::goodbye(goodbye) {
                Ok(goodbye) => return Taken::Goodbye(goodbye),
                Err(fault) => self.count("goodbye", &[fault]),
            },
            // A stream introduces itself once; a second Hello changes nothing.
            In::Hello(_) => self.shared.metrics.something_dropped("hello"),
        }
        Taken::On
    }

    async fn take_load(&mut self, load: v1::Load) -> Taken {
        let (load, faults) = read::load(load);
        self.count("load", &faults);
        let Some(from) = self.source(load.tick_echo).await else { return Taken::Stopped };
        self.send(FarmCommand::Load { from, load: Box::new(load), faults }).await
    }

    /// A host that answers is not silent any more.
    fn heard(&self) {
        let snapshot = self.shared.snapshot.load();
        if let Ok((pool, position)) = snapshot.find_host(self.host_id.as_str()) {
            let cell = &pool.members.cells[position];
            if cell.load().is_silent() {
                cell.set_silent(false);
            }
        }
    }

    fn next_tick(&mut self) -> v1::Tick {
        let now = self.shared.now();
        v1::Tick {
            tick: self.ticks.next(now),
            reconnect_spread_ms: self.changed_spread(),
            confirmed_elsewhere_ms: self
                .link
                .last_confirmed_elsewhere()
                .map(|at| stored::millis(now.since(at))),
        }
    }

    /// The first agents of a farm attach when it is small: as it grows, they must know that they come back among many.
    fn changed_spread(&mut self) -> Option<u32> {
        let spread_ms = self.shared.reconnect_spread_ms();
        (std::mem::replace(&mut self.told_spread_ms, spread_ms) != spread_ms).then_some(spread_ms)
    }

    /// When a message came, and its turn, which may have to be waited for. Absent once the process stops.
    async fn source(&self, tick_echo: Option<u64>) -> Option<Source> {
        let measured_at = self.ticks.measured_at(tick_echo, self.shared.now(), self.interval);
        let (host_id, stream_epoch) = (self.host_id.clone(), self.link.stream_epoch);
        let turn = self.turns.clone().acquire_owned().await.ok()?;
        Some(Source { host_id, stream_epoch, measured_at, turn })
    }

    async fn send(&self, command: FarmCommand) -> Taken {
        if self.shared.farm.send(command).await.is_ok() { Taken::On } else { Taken::Stopped }
    }

    fn count(&self, kind: &'static str, faults: &[FieldFault]) {
        self.shared.metrics.report_taken(kind);
        for fault in faults {
            self.shared.metrics.value_rejected(counted_field(kind, &fault.field));
            tracing::debug!(host_id = %self.host_id, kind, %fault, "a value of a report was refused");
        }
    }
}

/// Fields whose faults are counted apart: sensors break one by one.
const COUNTED_FIELDS: [&str; 19] = [
    "cpu_percent",
    "runnable_demand",
    "memory_used_bytes",
    "capacity",
    "max_users",
    "threshold_percent",
    "range",
    "sessions_*",
    "collectors",
    "pending",
    "ended",
    "psi_full_percent",
    "mounts",
    "own_availability",
    "replica_lag_ms",
    "drain",
    "outcomes",
    "penalties",
    "logons_in_progress",
];

/// As the metric names a fault of `field` in a message of this kind: never by the sender's words, which may stand in
/// the path of a field.
fn counted_field(kind: &'static str, field: &str) -> &'static str {
    let outer = field.split(['[', '.']).next().unwrap_or_default();
    COUNTED_FIELDS.into_iter().find(|counted| *counted == outer).unwrap_or(kind)
}

/// What follows from a message.
enum Taken {
    On,
    Goodbye(Goodbye),
    Stopped,
}
