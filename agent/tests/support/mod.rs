//! A coordinator that does exactly what a test says, on a real socket, and an agent in this process.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};
use usher_agent::config::AgentConfig;
use usher_agent::process::{self, AgentError};
use usher_agent::virtual_hosts::{ModelKind, VirtualOptions};
use usher_proto::v1;
use usher_proto::v1::agent_service_server::{AgentService, AgentServiceServer};
use usher_proto::v1::attach_request::Message as FromAgent;
use usher_proto::v1::attach_response::Message as ToAgent;
use usher_runtime::config::HumanDuration;
use usher_runtime::shutdown::Shutdown;

/// Longest wait for anything; far above what any of it takes.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// What must happen within [`LONG`].
pub(crate) async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("{what} did not happen"))
}

/// A coordinator in a test's hands.
pub(crate) struct Coordinator {
    pub(crate) address: String,
    streams: mpsc::Receiver<Stream>,
    server: JoinHandle<()>,
}

/// One stream of an agent.
pub(crate) struct Stream {
    from_agent: mpsc::Receiver<v1::AttachRequest>,
    to_agent: mpsc::Sender<Result<v1::AttachResponse, Status>>,
}

struct Service {
    streams: mpsc::Sender<Stream>,
}

type Responses = Pin<Box<dyn tokio_stream::Stream<Item = Result<v1::AttachResponse, Status>> + Send>>;

#[tonic::async_trait]
impl AgentService for Service {
    type AttachStream = Responses;

    async fn attach(
        &self,
        request: Request<Streaming<v1::AttachRequest>>,
    ) -> Result<Response<Responses>, Status> {
        let mut messages = request.into_inner();
        let (requests, from_agent) = mpsc::channel(1);
        let (to_agent, responses) = mpsc::channel(64);
        // Whoever does not read `from_agent` is a coordinator that does not read its socket.
        tokio::spawn(async move {
            while let Ok(Some(message)) = messages.message().await {
                if requests.send(message).await.is_err() {
                    return;
                }
            }
        });
        self.streams.send(Stream { from_agent, to_agent }).await.map_err(|_| Status::unavailable("gone"))?;
        Ok(Response::new(Box::pin(ReceiverStream::new(responses))))
    }
}

impl Coordinator {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (streams_in, streams) = mpsc::channel(16);
        let service = AgentServiceServer::new(Service { streams: streams_in });
        let serve = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(listener));
        let server = tokio::spawn(async move { serve.await.unwrap() });
        Self { address, streams, server }
    }

    /// The next stream of an agent, before anything is read from it.
    pub(crate) async fn attached(&mut self) -> Stream {
        soon("a stream", self.streams.recv()).await.unwrap()
    }

    /// As [`Coordinator::attached`], greeted and past its Hello.
    pub(crate) async fn greeted(&mut self) -> Stream {
        let mut stream = self.attached().await;
        stream.hello().await;
        let instance_id = format!("run of {}", self.address);
        let welcome = v1::Welcome { coordinator_id: "test".into(), instance_id, reconnect_spread_ms: 2000 };
        stream.send(ToAgent::Welcome(welcome)).await;
        stream
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Stream {
    /// The next message, whatever it is. Absent: the agent ended the stream.
    pub(crate) async fn next(&mut self) -> Option<FromAgent> {
        soon("a message", self.from_agent.recv()).await.map(|request| request.message.unwrap())
    }

    pub(crate) async fn send(&self, message: ToAgent) {
        self.to_agent.send(Ok(v1::AttachResponse { message: Some(message) })).await.unwrap();
    }

    /// For whoever speaks beside the test.
    pub(crate) fn sender(&self) -> mpsc::Sender<Result<v1::AttachResponse, Status>> {
        self.to_agent.clone()
    }

    pub(crate) async fn refuse(self, status: Status) {
        self.to_agent.send(Err(status)).await.unwrap();
    }

    pub(crate) async fn hello(&mut self) -> v1::Hello {
        match self.next().await {
            Some(FromAgent::Hello(hello)) => hello,
            other => panic!("not a Hello: {other:?}"),
        }
    }

    /// The first message that `pick` takes; the others are read and forgotten.
    pub(crate) async fn wait_for<T>(
        &mut self,
        what: &str,
        mut pick: impl FnMut(FromAgent) -> Option<T>,
    ) -> T {
        let found = async {
            loop {
                let request = self.from_agent.recv().await.expect("the agent ended the stream");
                if let Some(found) = pick(request.message.unwrap()) {
                    return found;
                }
            }
        };
        soon(what, found).await
    }

    /// The first Load for which `holds`.
    pub(crate) async fn load(&mut self, what: &str, mut holds: impl FnMut(&v1::Load) -> bool) -> v1::Load {
        self.wait_for(what, |message| match message {
            FromAgent::Load(load) if holds(&load) => Some(load),
            _ => None,
        })
        .await
    }

    /// Asks for a place and waits for the answer.
    pub(crate) async fn ask(
        &mut self,
        place: v1::PendingPlace,
        max_users: u32,
    ) -> Result<(), v1::RefusalReason> {
        let token = place.token.clone();
        let max_users = Some(max_users);
        let expect =
            v1::ExpectSession { place: Some(place), ask: true, max_users, ..v1::ExpectSession::default() };
        self.send(ToAgent::ExpectSession(expect)).await;
        self.wait_for("an answer", |message| match message {
            FromAgent::PlaceAnswer(answer) if answer.token == token => Some(match answer.refused {
                None => Ok(()),
                Some(reason) => Err(v1::RefusalReason::try_from(reason).unwrap()),
            }),
            _ => None,
        })
        .await
    }
}

pub(crate) fn place(request: &str, user: &str) -> v1::PendingPlace {
    v1::PendingPlace {
        token: Some(v1::Token { gateway: "g1".into(), request_id: request.into() }),
        attempt: 1,
        content_hash: 7,
        pool: "default".into(),
        endpoint: Some(v1::Endpoint { kind: "ssh".into(), address: "127.0.0.1".into(), port: 2201 }),
        user: Some(user.into()),
        cost: 1,
        counted_users: 1,
        left_ms: 120_000,
        connected: false,
        admitted: false,
    }
}

pub(crate) fn lists(load: &v1::Load, request: &str) -> bool {
    load.pending.iter().any(|place| place.token.as_ref().is_some_and(|token| token.request_id == request))
}

/// Settings of an agent whose files lie below `folder`.
pub(crate) fn config(folder: &Path, coordinators: &[&Coordinator]) -> AgentConfig {
    let mut config = AgentConfig {
        coordinators: coordinators.iter().map(|coordinator| coordinator.address.clone()).collect(),
        report_interval: HumanDuration::from_millis(200),
        state_dir: folder.join("state"),
        runtime_dir: folder.join("run"),
        ..AgentConfig::default()
    };
    config.latency.period = HumanDuration::from_millis(200);
    config.statsd.listen = "none".into();
    config
}

/// One modelled host with these values, or with a model's own life when there are none.
pub(crate) fn one_host(values: Option<&str>) -> VirtualOptions {
    VirtualOptions {
        count: 1,
        first: 1,
        kind: if values.is_some() { ModelKind::Fixed } else { ModelKind::Model },
        values: values.into_iter().map(|values| values.parse().unwrap()).collect(),
        seed: 1,
        ..VirtualOptions::default()
    }
}

/// An agent that runs.
pub(crate) struct Agent {
    pub(crate) shutdown: Shutdown,
    task: JoinHandle<Result<(), AgentError>>,
}

impl Agent {
    pub(crate) fn start(config: AgentConfig, modelled: Option<VirtualOptions>) -> Self {
        let shutdown = Shutdown::new();
        let watched = shutdown.clone();
        let task = tokio::spawn(async move { process::run(&config, modelled.as_ref(), &watched).await });
        Self { shutdown, task }
    }

    /// Ends it as a SIGKILL would: nothing is said, nothing is written.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    pub(crate) async fn stop(self) {
        self.shutdown.begin();
        soon("the agent's end", self.task).await.unwrap().unwrap();
    }
}
