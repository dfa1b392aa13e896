//! Does a host whose agent is lost still take connections?
//!
//! Lost agents are not lost hosts: the network between them and whoever asks may be cut, or an upgrade of all agents
//! may have gone wrong. Then the hosts' own doors are asked. Only addresses that hosts advertised themselves are tried,
//! one try for each host at a time and few in all, and what was found holds for a while, so that a storm of logins is no
//! storm of connections. A try goes on when its caller goes away: others wait for what it finds.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use tokio::{
    net::TcpStream,
    sync::Semaphore,
    time::{timeout, timeout_at},
};
use usher_types::{BootTime, Endpoint, HostId};

use crate::clock::Clock;

/// Longest time for one connection.
const CONNECT: Duration = Duration::from_secs(1);
/// Connections that are begun at once.
const AT_ONCE: usize = 64;
/// How long a result holds.
const FRESH: Duration = Duration::from_secs(10);
/// With more hosts than this, those that were not tried lately are forgotten.
const MANY: usize = 1024;

/// Something that tries doors. Outside tests the network; a simulated one takes its place here.
pub trait Knock: Send + Sync + fmt::Debug {
    /// Connects to `address`, a name or an IP address, and hangs up: whether somebody was there. The caller ends a
    /// wait that is too long.
    fn accepts(&self, address: String, port: u16) -> Pin<Box<dyn Future<Output = bool> + Send>>;
}

/// The network.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpKnock;

impl Knock for TcpKnock {
    fn accepts(&self, address: String, port: u16) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(async move { TcpStream::connect((address, port)).await.is_ok() })
    }
}

/// A host whose door is to be tried, and where it is.
pub type Door = (HostId, Arc<[Endpoint]>);

/// What is known of the doors of hosts.
#[derive(Debug)]
pub struct Doors {
    hosts: papaya::HashMap<HostId, Arc<HostDoor>>,
    connections: Arc<Semaphore>,
    knock: Arc<dyn Knock>,
}

impl Default for Doors {
    fn default() -> Self {
        Self::new(Arc::new(TcpKnock))
    }
}

/// One host's.
#[derive(Debug, Default)]
struct HostDoor {
    /// Held by whoever tries it.
    trying: tokio::sync::Mutex<()>,
    found: Mutex<Option<(BootTime, bool)>>,
}

impl HostDoor {
    fn found(&self, now: BootTime) -> Option<bool> {
        let found = *self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.filter(|(at, _)| now.since(*at) <= FRESH).map(|(_, is_open)| is_open)
    }

    async fn try_now(
        &self,
        endpoints: &[Endpoint],
        connections: &Semaphore,
        knock: &dyn Knock,
        clock: &dyn Clock,
    ) {
        let _trying = self.trying.lock().await;
        if self.found(clock.now()).is_some() {
            // Another call has tried it while this one waited.
            return;
        }
        let is_open = any_accepts(endpoints, connections, knock).await;
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some((clock.now(), is_open));
    }
}

impl Doors {
    /// Nothing is known yet; doors will be tried by `knock`.
    pub fn new(knock: Arc<dyn Knock>) -> Self {
        Self { hosts: papaya::HashMap::new(), connections: Arc::new(Semaphore::new(AT_ONCE)), knock }
    }

    /// Whether the host took a connection when that was tried last, if that is not long ago.
    pub fn found(&self, host_id: &HostId, now: BootTime) -> Option<bool> {
        self.hosts.pin().get(host_id)?.found(now)
    }

    /// Tries these hosts, and returns when all are known or `within` has passed.
    pub async fn try_all(&self, doors: Vec<Door>, within: Duration, clock: &Arc<dyn Clock>) {
        let tries: Vec<_> = doors
            .into_iter()
            .map(|(host_id, endpoints)| {
                let host = self.hosts.pin().get_or_insert_with(host_id, Arc::default).clone();
                let (connections, knock, clock) =
                    (self.connections.clone(), self.knock.clone(), clock.clone());
                tokio::spawn(async move {
                    host.try_now(&endpoints, &connections, &*knock, clock.as_ref()).await;
                })
            })
            .collect();
        // Whoever is not known by then counts as shut for this call.
        let _ = timeout(within, join_all(tries)).await;
        if self.hosts.len() > MANY {
            let now = clock.now();
            self.hosts.pin().retain(|_, host| Arc::strong_count(host) > 1 || host.found(now).is_some());
        }
    }
}

/// Whether one of the endpoints takes a connection. It is closed at once: nothing is said.
async fn any_accepts(endpoints: &[Endpoint], connections: &Semaphore, knock: &dyn Knock) -> bool {
    let accepts = |endpoint: &Endpoint| {
        let (address, port) = (endpoint.address.clone(), endpoint.port);
        async move {
            // Closed never: nobody closes it.
            let Ok(_one) = connections.acquire().await else { return false };
            let until = tokio::time::Instant::now() + CONNECT;
            timeout_at(until, knock.accepts(address, port)).await.unwrap_or(false)
        }
    };
    let mut tries: FuturesUnordered<_> = endpoints.iter().map(accepts).collect();
    while let Some(is_open) = tries.next().await {
        if is_open {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{ManualClock, SystemClock};
    use tokio::net::TcpListener;

    fn door(host: &str, ports: &[u16]) -> Door {
        let endpoint = |port: &u16| Endpoint { kind: "ssh".into(), address: "127.0.0.1".into(), port: *port };
        (HostId::new(host).unwrap(), ports.iter().map(endpoint).collect())
    }

    async fn open_port() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    async fn shut_port() -> u16 {
        open_port().await.1
    }

    #[tokio::test]
    async fn one_endpoint_that_takes_a_connection_is_enough() {
        let (_listener, open) = open_port().await;
        let shut = shut_port().await;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let doors = Doors::default();
        let tried = vec![door("a", &[shut, open]), door("b", &[shut])];
        doors.try_all(tried, Duration::from_secs(5), &clock).await;
        let found = |host: &str| doors.found(&HostId::new(host).unwrap(), clock.now());
        assert_eq!((found("a"), found("b"), found("c")), (Some(true), Some(false), None));
    }

    #[tokio::test]
    async fn what_was_found_holds_for_ten_seconds_and_spares_connections() {
        let (listener, open) = open_port().await;
        let manual = Arc::new(ManualClock::at(BootTime::from_millis(1_000_000)));
        let clock: Arc<dyn Clock> = manual.clone();
        let doors = Doors::default();
        let patience = Duration::from_secs(5);
        let (first, second) = (door("a", &[open]), door("a", &[open]));
        tokio::join!(
            doors.try_all(vec![first], patience, &clock),
            doors.try_all(vec![second], patience, &clock)
        );
        manual.advance(Duration::from_secs(10));
        doors.try_all(vec![door("a", &[open])], patience, &clock).await;
        listener.accept().await.unwrap();
        let second = futures::poll!(std::pin::pin!(listener.accept()));
        assert!(second.is_pending(), "three calls, one connection");
        manual.advance(Duration::from_millis(1));
        assert_eq!(doors.found(&HostId::new("a").unwrap(), clock.now()), None);
        doors.try_all(vec![door("a", &[open])], patience, &clock).await;
        listener.accept().await.unwrap();
    }
}
