//! What if an agent says something else than ours would?
//!
//! The protocol is public and anyone may write an agent; somebody may also write a broken or a hostile one. This one
//! stands for all of them: a plain client of `AgentService.Attach` that sends exactly what the test tells it to, when
//! the test tells it to, and nothing by itself except the answer to a ping and, when told so, its consent to every place
//! that it is asked for. Values that no real machine would show at
//! the right moment are seen through the same door as real ones.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use usher_proto::v1;
use usher_proto::v1::attach_request::Message as Said;
use usher_proto::v1::attach_response::Message as Heard;

use crate::client::Client;
use crate::wait::{LONG, wait_for};

/// A Hello that nothing is wrong with: a host of pool `desk` that reports once a minute.
pub fn hello(name: &str) -> v1::Hello {
    v1::Hello {
        protocol_version: 1,
        agent_version: "0.0.0-fake".to_owned(),
        host_id: uuid::Uuid::new_v4().to_string(),
        boot_id: uuid::Uuid::new_v4().to_string(),
        stream_epoch: 1,
        incarnation_ms: 1000,
        host_name: name.to_owned(),
        endpoints: vec![v1::Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 }],
        pool: "desk".to_owned(),
        cores: Some(8),
        memory_bytes: Some(32 << 30),
        report_interval_ms: 60_000,
        latency_period_ms: 60_000,
        ..Default::default()
    }
}

/// A Load with CPU and memory in percent, users and processes.
pub fn load(cpu: f64, memory: f64, users: u32, processes: u32) -> v1::Load {
    const TOTAL: u64 = 100_000_000_000;
    v1::Load {
        cpu_percent: Some(cpu),
        memory_used_bytes: Some((memory / 100.0 * TOTAL as f64).round() as u64),
        memory_total_bytes: Some(TOTAL),
        users: Some(users),
        processes: Some(processes),
        streams_held: 1,
        ..Default::default()
    }
}

/// A window of one operation: `calls` calls at `expansion` times its baseline of 1 ms.
pub fn operation(name: &str, calls: f64, expansion: f64) -> v1::OperationWindow {
    v1::OperationWindow {
        name: name.to_owned(),
        ok: calls,
        sum_us: calls * expansion * 1000.0,
        min_us: Some(1000.0),
        baseline_us: Some(1000.0),
        baseline_age_ms: Some(1000),
        baseline_samples: 100,
        ..Default::default()
    }
}

/// Loads that all agents of this test have sent.
static REPORTS: AtomicU64 = AtomicU64::new(0);

/// What the coordinator sent, and how it ended.
#[derive(Debug, Default)]
struct Inbox {
    heard: Vec<Heard>,
    tick: Option<u64>,
    ended: Option<Result<(), Status>>,
}

/// An agent in a test's hands. Dropping it breaks the stream.
#[derive(Debug)]
pub struct FakeAgent {
    hello: v1::Hello,
    client: Client,
    requests: mpsc::Sender<v1::AttachRequest>,
    inbox: Arc<Mutex<Inbox>>,
    manners: Arc<Manners>,
    reading: JoinHandle<()>,
    sequence: u64,
}

/// What it does by itself.
#[derive(Debug, Default)]
struct Manners {
    ignores_pings: AtomicBool,
    admits: AtomicBool,
}

impl Manners {
    fn answer(&self, heard: &Heard) -> Option<Said> {
        match heard {
            Heard::Ping(ping) if !self.ignores_pings.load(Ordering::Relaxed) => {
                Some(Said::Pong(v1::Pong { nonce: ping.nonce }))
            }
            Heard::ExpectSession(v1::ExpectSession { place: Some(place), ask: true, .. })
                if self.admits.load(Ordering::Relaxed) =>
            {
                let (token, attempt) = (place.token.clone(), place.attempt);
                Some(Said::PlaceAnswer(v1::PlaceAnswer { token, attempt, refused: None }))
            }
            _ => None,
        }
    }
}

impl Drop for FakeAgent {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl FakeAgent {
    /// Opens a stream with this Hello and waits for the Welcome.
    ///
    /// # Errors
    /// The coordinator's refusal.
    ///
    /// # Panics
    /// If the coordinator says nothing.
    pub async fn attach(client: &Client, hello: v1::Hello) -> Result<Self, Status> {
        let fake = Self::open(client, Said::Hello(hello.clone()), hello).await?;
        let what = format!("a Welcome for {}", fake.hello.host_name);
        wait_for(&what, LONG, async || {
            let inbox = fake.inbox();
            let is_welcome = |heard: &Heard| matches!(heard, Heard::Welcome(_));
            match &inbox.ended {
                Some(Err(status)) => Ok(Err(status.clone())),
                _ if inbox.heard.iter().any(is_welcome) => Ok(Ok(())),
                ended => Err(format!("ended: {ended:?}, heard: {:?}", inbox.heard)),
            }
        })
        .await?;
        Ok(fake)
    }

    /// Opens a stream whose first message is anything.
    ///
    /// # Errors
    /// The coordinator's refusal.
    pub async fn open(client: &Client, first: Said, hello: v1::Hello) -> Result<Self, Status> {
        let (requests, queue) = mpsc::channel(64);
        requests.send(v1::AttachRequest { message: Some(first) }).await.unwrap();
        let responses = client.agents.clone().attach(ReceiverStream::new(queue)).await?.into_inner();
        let inbox = Arc::default();
        let manners: Arc<Manners> = Arc::default();
        let reading = tokio::spawn(read(responses, Arc::clone(&inbox), requests.clone(), manners.clone()));
        Ok(Self { hello, client: client.clone(), requests, inbox, manners, reading, sequence: 0 })
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it does not answer pings: a machine that is gone behind a connection that is not.
    pub fn ignore_pings(&self) {
        self.manners.ignores_pings.store(true, Ordering::Relaxed);
    }

    /// From now on it consents to every place that it is asked for, whatever the limit.
    pub fn admit_all(&self) {
        self.manners.admits.store(true, Ordering::Relaxed);
    }

    /// Its Hello.
    pub fn hello(&self) -> &v1::Hello {
        &self.hello
    }

    /// Its host's id.
    pub fn id(&self) -> &str {
        &self.hello.host_id
    }

    /// Its host's name.
    pub fn name(&self) -> &str {
        &self.hello.host_name
    }

    /// Sends a message as it is.
    ///
    /// # Panics
    /// If the stream has ended.
    pub async fn say(&self, message: Said) {
        let request = v1::AttachRequest { message: Some(message) };
        assert!(self.requests.send(request).await.is_ok(), "the stream of {} has ended", self.name());
    }

    /// As [`FakeAgent::say`]; whether the stream was still open.
    pub async fn try_say(&self, message: Option<Said>) -> bool {
        self.requests.send(v1::AttachRequest { message }).await.is_ok()
    }

    /// Sends a Load and waits until the coordinator has taken it in. Its sequence, incarnation, tick and uptime are
    /// filled in.
    ///
    /// # Panics
    /// If it is not taken.
    pub async fn report(&mut self, load: v1::Load) -> v1::HostInfo {
        self.sequence += 1;
        // Its uptime is shown as it came: this Load's is like no other's, on any stream.
        let uptime_ms = Some(3_600_000 + REPORTS.fetch_add(1, Ordering::Relaxed));
        let load = v1::Load {
            sequence: self.sequence,
            incarnation_ms: self.hello.incarnation_ms,
            tick_echo: self.inbox().tick,
            uptime_ms,
            ..load
        };
        self.say(Said::Load(load)).await;
        self.seen("its report to be taken in", |host| host.uptime_ms == uptime_ms).await
    }

    /// Sends a whole window and waits until the coordinator has taken it in.
    ///
    /// # Panics
    /// If it is not taken.
    pub async fn latency(&mut self, operations: Vec<v1::OperationWindow>) -> v1::HostInfo {
        self.sequence += 1;
        let names: Vec<String> = operations.iter().map(|operation| operation.name.clone()).collect();
        let sums: Vec<f64> = operations.iter().map(|operation| operation.sum_us).collect();
        let latency = v1::Latency {
            sequence: self.sequence,
            incarnation_ms: self.hello.incarnation_ms,
            window_ms: 5 * u64::from(self.hello.latency_period_ms),
            operations,
            overflow_calls: 0,
        };
        self.say(Said::Latency(latency)).await;
        wait_for("the window to be taken in", LONG, async || {
            let details = self.client.host_details(self.id()).await.map_err(|status| status.to_string())?;
            let windows = || details.operations.iter().filter_map(|operation| operation.window.as_ref());
            let taken = windows().map(|window| window.name.clone()).eq(names.iter().cloned())
                && windows().map(|window| window.sum_us).eq(sums.iter().copied());
            if taken { Ok(details.host.unwrap()) } else { Err(format!("{:?}", details.operations)) }
        })
        .await
    }

    /// Tells what the host holds and waits until the coordinator has taken it in.
    ///
    /// # Panics
    /// If it is not taken.
    pub async fn replicas(&mut self, resources: &[&str]) -> v1::HostInfo {
        self.sequence += 1;
        let replica =
            |resource: &&str| v1::Replica { resource_id: (*resource).to_owned(), ..Default::default() };
        let replicas = resources.iter().map(replica).collect();
        let page = v1::InventoryPage { generation: self.sequence, page: 0, last: true, replicas };
        self.say(Said::InventoryPage(page)).await;
        let count = u32::try_from(resources.len()).unwrap();
        self.seen("its resources to be listed", |host| host.replicas == count).await
    }

    /// Tells which sessions the host has and waits until the coordinator has taken it in.
    ///
    /// # Panics
    /// If it is not taken.
    pub async fn sessions(&mut self, sessions: Vec<v1::Session>) {
        self.sequence += 1;
        let page = v1::SessionsPage {
            generation: self.sequence,
            page: 0,
            last: true,
            sessions: sessions.clone(),
            unlisted_sessions: 0,
        };
        self.say(Said::SessionsPage(page)).await;
        wait_for("the sessions to be listed", LONG, async || {
            let details = self.client.host_details(self.id()).await.map_err(|status| status.to_string())?;
            let ids =
                |list: &[v1::Session]| list.iter().map(|session| session.id.clone()).collect::<Vec<_>>();
            let taken = ids(&details.sessions) == ids(&sessions);
            if taken { Ok(()) } else { Err(format!("{:?}", details.sessions)) }
        })
        .await;
    }

    /// Says good-bye and ends its stream.
    pub async fn goodbye(self, reason: v1::GoodbyeReason) {
        self.say(Said::Goodbye(v1::Goodbye { reason: reason.into() })).await;
        let gone = |heard: &Inbox| heard.ended.is_some();
        wait_for(
            "the stream's end",
            LONG,
            async || {
                if gone(&self.inbox()) { Ok(()) } else { Err("it is open") }
            },
        )
        .await;
    }

    /// Waits until the coordinator shows the host so.
    ///
    /// # Panics
    /// If it does not.
    pub async fn seen(&self, what: &str, mut holds: impl FnMut(&v1::HostInfo) -> bool) -> v1::HostInfo {
        let what = format!("{}: {what}", self.name());
        wait_for(&what, LONG, async || {
            if let Some(ended) = &self.inbox().ended {
                return Err(format!("its stream has ended: {ended:?}"));
            }
            let host = self.client.host(self.id()).await.map_err(|status| status.to_string())?;
            if holds(&host) { Ok(host) } else { Err(format!("{host:?}")) }
        })
        .await
    }

    /// Everything that the coordinator has sent on this stream, except ticks and pings.
    pub fn heard(&self) -> Vec<Heard> {
        self.inbox().heard.clone()
    }

    /// The first message among all of this stream's that `pick` takes.
    ///
    /// # Panics
    /// If none comes.
    pub async fn hears<T>(&self, what: &str, mut pick: impl FnMut(&Heard) -> Option<T>) -> T {
        wait_for(&format!("{} hears {what}", self.name()), LONG, async || {
            let inbox = self.inbox();
            inbox.heard.iter().find_map(&mut pick).ok_or_else(|| format!("{:?}", inbox.heard))
        })
        .await
    }

    /// The newest tick on this stream.
    pub fn tick(&self) -> Option<u64> {
        self.inbox().tick
    }

    /// How the stream ended. Absent: it is open.
    pub fn ended(&self) -> Option<Result<(), Status>> {
        self.inbox().ended.clone()
    }

    /// Waits for the end of the stream.
    ///
    /// # Errors
    /// What the coordinator ended it with.
    ///
    /// # Panics
    /// If it does not end within the time.
    pub async fn end(&self, within: Duration) -> Result<(), Status> {
        wait_for("the stream's end", within, async || self.ended().ok_or("it is open")).await
    }
}

async fn read(
    mut responses: Streaming<v1::AttachResponse>,
    inbox: Arc<Mutex<Inbox>>,
    requests: mpsc::Sender<v1::AttachRequest>,
    manners: Arc<Manners>,
) {
    loop {
        let next = responses.message().await;
        let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
        match next {
            Ok(Some(response)) => {
                let Some(heard) = response.message else { continue };
                if let Some(answer) = manners.answer(&heard) {
                    // A full queue is the test's own doing.
                    let _ = requests.try_send(v1::AttachRequest { message: Some(answer) });
                }
                match heard {
                    Heard::Tick(tick) => inbox.tick = Some(tick.tick),
                    Heard::Ping(_) => {}
                    heard => inbox.heard.push(heard),
                }
            }
            Ok(None) => {
                inbox.ended = Some(Ok(()));
                return;
            }
            Err(status) => {
                inbox.ended = Some(Err(status));
                return;
            }
        }
    }
}
