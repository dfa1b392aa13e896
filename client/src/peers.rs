//! Which coordinator is asked first?
//!
//! All are equal, so any that answers will do; but one that hangs costs a login its patience. Each coordinator has a task
//! that keeps a connection to it, and a record of how it fares:
//!
//! * One that was silent, or said nonsense, is **down**: it is asked after all others, and for longer each time, until a
//!   probe finds that it answers again.
//! * Of those that are not, the one that hears most of the farm comes first. One that has not said for half a minute how much
//!   that is may hear all of it.
//! * Then one whose answers take several times as long as another's comes later.
//! * Among equals it is the same one each time, and another one for each client: chance decides it once.
//!
//! It refuses to ask several at once: a login that two coordinators place has two places for a moment.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::RngExt;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Request;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use usher_runtime::net::{Timeouts, connect};
use usher_runtime::tls::TlsFiles;

use crate::error::Refusal;
use crate::in_order::without_address;

/// Time for one try to connect.
const CONNECT: Duration = Duration::from_secs(2);
/// Waits between tries to connect, and between probes of one that is down.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Time for the answer to a probe.
const PROBE: Duration = Duration::from_secs(1);
/// The weight of the newest answer in the mean time of answers.
const NEWEST: f64 = 0.2;
/// So many times slower than the quickest, and by so much, is slow.
const SLOW_TIMES: f64 = 4.0;
const SLOW_BY: Duration = Duration::from_millis(50);
/// Hearing less of the farm than this share is partial.
const FULL_VIEW: f64 = 0.9;
/// One that heard too little is looked at again after this time.
const VIEW_LASTS: Duration = Duration::from_secs(30);

/// The coordinators of the farm.
#[derive(Debug)]
pub(crate) struct Peers {
    peers: Vec<Arc<Peer>>,
    recovered: Arc<Notify>,
}

/// A connection, as it stands.
#[derive(Clone, Debug)]
enum Link {
    Connecting,
    Up(Channel),
    Down(String),
}

/// One coordinator.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: String,
    link: watch::Sender<Link>,
    broken: Notify,
    recovered: Arc<Notify>,
    health: Mutex<Health>,
    /// Its place among equals.
    lot: u64,
}

#[derive(Debug, Default)]
struct Health {
    /// Why it is down.
    down: Option<String>,
    /// Since when.
    down_since: Option<Instant>,
    /// It has named a host that was told of, on this connection.
    is_ours: bool,
    mean_s: Option<f64>,
    /// Hosts heard and registered, and when it said so.
    heard: Option<(u32, u32, Instant)>,
}

impl Peers {
    /// Keeps connections to these coordinators until `end`.
    pub(crate) fn start(addresses: &[String], tls: Option<&TlsFiles>, end: &CancellationToken) -> Self {
        let recovered = Arc::new(Notify::new());
        let peer = |address: &String| {
            let peer = Arc::new(Peer {
                address: address.clone(),
                link: watch::channel(Link::Connecting).0,
                broken: Notify::new(),
                recovered: recovered.clone(),
                health: Mutex::default(),
                lot: rand::rng().random(),
            });
            let (kept, tls, end) = (peer.clone(), tls.cloned(), end.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = end.cancelled() => {}
                    () = kept.keep_connected(tls.as_ref()) => {}
                }
            });
            peer
        };
        Self { peers: addresses.iter().map(peer).collect(), recovered }
    }

    /// All, in the order in which they are asked now.
    pub(crate) fn in_order(&self) -> Vec<Arc<Peer>> {
        let quickest =
            self.peers.iter().filter_map(|peer| peer.health().mean_s).fold(f64::INFINITY, f64::min);
        let mut peers: Vec<_> = self.peers.iter().map(|peer| (peer.rank(quickest), peer.clone())).collect();
        peers.sort_by_key(|(rank, _)| *rank);
        peers.into_iter().map(|(_, peer)| peer).collect()
    }

    /// The coordinator of this address.
    pub(crate) fn named(&self, address: &str) -> Option<Arc<Peer>> {
        self.peers.iter().find(|peer| peer.address == address).cloned()
    }

    /// Until one that was down answers again. For one that waits; what came before it waited counts.
    pub(crate) async fn recovery(&self) {
        self.recovered.notified().await;
    }

    /// For how long all of them have been down. Absent: one is not. That nobody was asked is no silence.
    pub(crate) fn down_for(&self) -> Option<Duration> {
        let since: Option<Vec<Instant>> = self.peers.iter().map(|peer| peer.health().down_since).collect();
        since?.into_iter().max().map(|since| since.elapsed())
    }
}

/// By what they are ordered: down, missing share of the farm in percent, slow, lot.
type Rank = (bool, u32, bool, u64);

impl Peer {
    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rank(&self, quickest_s: f64) -> Rank {
        let health = self.health();
        let is_slow = health
            .mean_s
            .is_some_and(|mean| mean > SLOW_TIMES * quickest_s && mean > quickest_s + SLOW_BY.as_secs_f64());
        (health.down.is_some(), health.missing_percent(), is_slow, self.lot)
    }

    /// Whether it did not answer when it was last asked.
    pub(crate) fn is_down(&self) -> bool {
        self.health().down.is_some()
    }

    /// Whether it hears too few hosts.
    pub(crate) fn is_partial(&self) -> bool {
        self.health().missing_percent() > 0
    }

    /// It answered, after so long.
    pub(crate) fn answered(&self, took: Duration) {
        let mut health = self.health();
        self.is_well(&mut health);
        let took = took.as_secs_f64();
        health.mean_s = Some(health.mean_s.map_or(took, |mean| mean + NEWEST * (took - mean)));
    }

    /// It refused, after so long.
    pub(crate) fn refused(&self, refusal: &Refusal, took: Duration) {
        self.answered(took);
        if let Some((heard, registered)) = refusal.hosts_heard() {
            self.hears(heard, registered);
        }
    }

    /// So much of the farm it hears.
    pub(crate) fn hears(&self, hosts: u32, of: u32) {
        self.health().heard = Some((hosts, of, Instant::now()));
    }

    /// It was silent, or said nonsense.
    pub(crate) fn failed(&self, why: String) {
        let mut health = self.health();
        if health.down.is_none() {
            tracing::warn!(coordinator = self.address, why, "a coordinator does not answer");
        }
        health.is_silent(why);
        drop(health);
        self.broken.notify_one();
    }

    /// It named a host that was told of.
    pub(crate) fn is_ours(&self) {
        self.health().is_ours = true;
    }

    /// Whether it has named such a host since it was last down: then one that was not told of is a new one.
    pub(crate) fn was_ours(&self) -> bool {
        self.health().is_ours
    }

    /// The connection, as soon as there is one.
    ///
    /// # Errors
    /// Why there is none: the last try failed, or none succeeds `within` the time.
    pub(crate) async fn channel(&self, within: Duration) -> Result<Channel, String> {
        let mut link = self.link.subscribe();
        let waiting = async {
            loop {
                match &*link.borrow_and_update() {
                    Link::Up(channel) => return Ok(channel.clone()),
                    Link::Down(why) => return Err(why.clone()),
                    Link::Connecting => {}
                }
                if link.changed().await.is_err() {
                    return Err("the client is ending".to_owned());
                }
            }
        };
        timeout(within, waiting).await.unwrap_or_else(|_| Err("not connected yet".to_owned()))
    }

    /// Connects, and connects again whenever the connection is found broken; what is down is probed.
    async fn keep_connected(&self, tls: Option<&TlsFiles>) {
        let timeouts = Timeouts { connect: CONNECT, ..Timeouts::default() };
        let mut wait = FIRST_WAIT;
        loop {
            match connect(&self.address, tls, &timeouts).await {
                Ok(channel) => {
                    self.link.send_replace(Link::Up(channel.clone()));
                    if self.watch_over(channel).await {
                        wait = FIRST_WAIT;
                    }
                }
                Err(error) => {
                    let why = without_address(&error, &self.address);
                    self.link.send_replace(Link::Down(why.clone()));
                    let mut health = self.health();
                    if health.down.is_none() {
                        tracing::warn!(coordinator = self.address, why, "cannot connect to a coordinator");
                    }
                    health.is_silent(why);
                }
            }
            sleep(jittered(wait)).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Until the connection is broken. Whether it was any good.
    async fn watch_over(&self, channel: Channel) -> bool {
        let mut health_service = HealthClient::new(channel);
        let mut was_good = self.probe(&mut health_service).await;
        let mut wait = FIRST_WAIT;
        let mut fails = u32::from(!was_good);
        loop {
            let is_down = self.health().down.is_some();
            if is_down {
                // One that answers calls again is not probed on.
                let until = Instant::now() + jittered(wait);
                sleep_until(until).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            } else {
                (wait, fails) = (FIRST_WAIT, 0);
                self.broken.notified().await;
                continue;
            }
            if self.probe(&mut health_service).await {
                was_good = true;
                fails = 0;
            } else {
                fails += 1;
            }
            // A connection on which nothing answers may be dead although its peer is not.
            if fails >= 2 {
                self.link.send_replace(Link::Connecting);
                return was_good;
            }
        }
    }

    /// Asks whether it lives. If so, it is down no more.
    async fn probe(&self, service: &mut HealthClient<Channel>) -> bool {
        let mut request = Request::new(HealthCheckRequest::default());
        request.set_timeout(PROBE);
        let is_alive = matches!(timeout(PROBE, service.check(request)).await, Ok(Ok(_)));
        if is_alive {
            self.is_well(&mut self.health());
        }
        is_alive
    }

    fn is_well(&self, health: &mut Health) {
        if health.down.is_some() {
            tracing::info!(coordinator = self.address, "a coordinator answers again");
            self.recovered.notify_one();
        }
        (health.down, health.down_since) = (None, None);
    }
}

impl Health {
    fn is_silent(&mut self, why: String) {
        self.down_since.get_or_insert_with(Instant::now);
        (self.down, self.is_ours) = (Some(why), false);
    }

    /// The share of the farm that it does not hear, percent; 0 if it hears enough, or did not say.
    fn missing_percent(&self) -> u32 {
        match self.heard {
            Some((heard, of, at)) if at.elapsed() < VIEW_LASTS && !is_full_view(heard, of) => {
                100 - u32::try_from(u64::from(heard) * 100 / u64::from(of.max(1))).unwrap_or(100)
            }
            _ => 0,
        }
    }
}

/// Whether so many hosts heard are enough of those that are registered.
pub(crate) fn is_full_view(heard: u32, registered: u32) -> bool {
    f64::from(heard) >= FULL_VIEW * f64::from(registered)
}

/// Between half of it and all of it.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(rand::rng().random_range(0.5..=1.0))
}

#[cfg(test)]
mod tests;
