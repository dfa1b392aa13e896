//! The load: what is called, by how many at once, and how many answers came.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Status};
use usher_integration_tests::Client;
use usher_proto::bench_v1::EchoRequest;
use usher_proto::bench_v1::echo_service_client::EchoServiceClient;
use usher_proto::v1;
use usher_proto::v1::placement_service_client::PlacementServiceClient;

/// Connections of one load, and calls that each has under way.
pub(crate) const CONNECTIONS: usize = 8;
const AT_ONCE: usize = 8;
/// What is echoed: about what a request for a place is long.
const PAYLOAD_BYTES: usize = 100;

/// What is called, again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// Nothing: what the hosts' reports cost is seen alone.
    Nothing,
    /// The empty call.
    Echo,
    /// A decision that reserves nothing.
    DryRun,
    /// A place, given back at once: two calls, counted as one.
    PlaceAndCancel,
    /// A place that is given back when the load has ended: for a pool whose hosts are asked for their consent.
    Ask,
    /// The second of the two alone, about a place that nobody has.
    OutcomeOfNothing,
}

impl Call {
    /// As a command line names it.
    pub(crate) fn named(word: &str) -> Option<Self> {
        match word {
            "echo" => Some(Self::Echo),
            "dry_run" => Some(Self::DryRun),
            "place" => Some(Self::PlaceAndCancel),
            "consent" => Some(Self::Ask),
            "outcome" => Some(Self::OutcomeOfNothing),
            _ => None,
        }
    }
}

/// The connections to one coordinator: to its services, and to its echo.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    pub(crate) services: Vec<Channel>,
    pub(crate) echo: Vec<Channel>,
}

impl Connections {
    pub(crate) fn new(services: impl Fn() -> Client, echo: impl Fn() -> Client) -> Self {
        let several = |one: &dyn Fn() -> Client| (0..CONNECTIONS).map(|_| one().channel).collect();
        Self { services: several(&services), echo: several(&echo) }
    }
}

/// Counts over all loads of this process: no two requests have one name.
static NAMES: AtomicU64 = AtomicU64::new(0);

/// One caller on one connection.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    echo: EchoServiceClient<Channel>,
    placement: PlacementServiceClient<Channel>,
    payload: Vec<u8>,
    /// Places that were not given back yet.
    held: Vec<String>,
}

impl Caller {
    pub(crate) fn new(connections: &Connections, number: usize) -> Self {
        let at = number % CONNECTIONS;
        Self {
            echo: EchoServiceClient::new(connections.echo[at].clone()),
            placement: PlacementServiceClient::new(connections.services[at].clone()),
            payload: vec![7; PAYLOAD_BYTES],
            held: Vec::new(),
        }
    }

    /// One call. `Ok(false)`: no host gave its consent.
    pub(crate) async fn once(&mut self, call: Call) -> Result<bool, Status> {
        match call {
            Call::Nothing => std::future::pending().await,
            Call::Echo => {
                let request = EchoRequest { payload: self.payload.clone() };
                self.echo.echo(request).await.map(|_| true)
            }
            Call::DryRun => {
                let request = v1::PlaceRequest { dry_run: true, ..request() };
                self.placement.place(request).await.map(|_| true)
            }
            Call::PlaceAndCancel => match self.place().await? {
                Some(request_id) => self.cancel(request_id).await.map(|()| true),
                None => Ok(false),
            },
            Call::Ask => {
                let place = self.place().await?;
                self.held.extend(place.clone());
                Ok(place.is_some())
            }
            Call::OutcomeOfNothing => self.cancel(request().request_id).await.map(|()| true),
        }
    }

    /// The name of a place that is now ours. Absent: no host gave its consent.
    async fn place(&mut self) -> Result<Option<String>, Status> {
        let request = request();
        let request_id = request.request_id.clone();
        match self.placement.place(request).await {
            Ok(_) => Ok(Some(request_id)),
            Err(status) if status.code() == Code::ResourceExhausted => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Gives back what is held.
    async fn cancel_held(&mut self) -> Result<(), Status> {
        for request_id in std::mem::take(&mut self.held) {
            self.cancel(request_id).await?;
        }
        Ok(())
    }

    async fn cancel(&mut self, request_id: String) -> Result<(), Status> {
        let outcome = v1::Outcome::Cancelled.into();
        let request = v1::ReportOutcomeRequest { request_id, outcome, cause: None };
        self.placement.report_outcome(request).await.map(drop)
    }
}

/// A login of a user of their own: about a hundred bytes.
fn request() -> v1::PlaceRequest {
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    v1::PlaceRequest {
        // As long as a UUID.
        request_id: format!("{number:012x}-login-of-a-benchmark-------"),
        pool: crate::farm::POOL.to_owned(),
        user: Some(format!("user-{number:012}@example.org")),
        ..v1::PlaceRequest::default()
    }
}

/// Callers that call until they are told to stop.
#[derive(Debug)]
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
    callers: JoinSet<Result<(), Status>>,
}

impl Load {
    pub(crate) fn start(connections: &Connections, call: Call) -> Self {
        let mut load = Self {
            stop: Arc::default(),
            answered: Arc::default(),
            refused: Arc::default(),
            callers: JoinSet::new(),
        };
        let callers = if call == Call::Nothing { 0 } else { CONNECTIONS * AT_ONCE };
        for number in 0..callers {
            let mut caller = Caller::new(connections, number);
            let (stop, answered, refused) = (load.stop.clone(), load.answered.clone(), load.refused.clone());
            load.callers.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let counter = if caller.once(call).await? { &answered } else { &refused };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                caller.cancel_held().await
            });
        }
        load
    }

    /// Calls answered so far, and calls for which no host gave its consent.
    pub(crate) fn answers(&self) -> (u64, u64) {
        (self.answered.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    pub(crate) async fn end(mut self) -> Result<(), Status> {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.callers.join_next().await {
            ended.expect("a caller does not panic")?;
        }
        Ok(())
    }
}

/// Time of each of `count` calls, one after the other.
pub(crate) async fn one_at_a_time(
    connections: &Connections,
    call: Call,
    count: usize,
) -> Result<Vec<Duration>, Status> {
    let mut caller = Caller::new(connections, 0);
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let begun = Instant::now();
        caller.once(call).await?;
        times.push(begun.elapsed());
    }
    caller.cancel_held().await?;
    Ok(times)
}
