//! What if the network is slow, loses packets, or swallows everything without a word?
//!
//! A TCP proxy in front of one port, whose weather the test changes while connections stand. The kernel's netem is not
//! needed, and what a program of ours meets is the same: TCP hides a lost packet behind a pause, a slow line behind a
//! full buffer, and a dead peer behind silence.
//!
//! Bytes are never changed and never leave their order. Bytes that were swallowed are gone: the direction of a
//! connection that lost some stays silent when the weather is fair again, as where a firewall has forgotten it; new
//! connections work.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::RngExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::netns::Machine;
use crate::wait::LONG;

/// What happens to bytes on their way, in each direction.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Weather {
    /// Each byte comes so much later.
    pub delay: Duration,
    /// How likely a packet is lost, 0..=1: what was in it comes, with all that follows it, a retransmission later.
    pub loss: f64,
    /// At most so many bytes a second. Absent: as fast as it goes.
    pub bytes_per_second: Option<u32>,
    /// What clients send is swallowed.
    pub swallows_requests: bool,
    /// What the other side answers is swallowed.
    pub swallows_answers: bool,
}

impl Weather {
    /// Nothing comes through either way, and nobody closes: the half-open connection after a power cut.
    pub fn half_open() -> Self {
        Self { swallows_requests: true, swallows_answers: true, ..Self::default() }
    }
}

/// The shortest time after which Linux sends a packet again.
const RETRANSMISSION: Duration = Duration::from_millis(200);
/// Bytes that are carried at once.
const PACKET: usize = 16 * 1024;

/// A proxy that runs on the test's own runtime. Its connections end with it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
    machine: Option<Machine>,
    weather: watch::Sender<Weather>,
    lines: Arc<Lines>,
    accepting: Option<JoinHandle<()>>,
}

/// The connections that stand.
#[derive(Debug, Default)]
struct Lines {
    accepted: AtomicUsize,
    swallowed: AtomicUsize,
    open: Mutex<Vec<AbortHandle>>,
}

impl Proxy {
    /// Listens on a port of loopback that it keeps, and passes everything on to `target`.
    ///
    /// # Panics
    /// If it cannot listen.
    pub async fn start(target: SocketAddr) -> Self {
        Self::start_at(None, SocketAddr::from(([127, 0, 0, 1], 0)), target).await
    }

    /// On a machine of a network, at an address of it.
    ///
    /// # Panics
    /// If it cannot listen.
    pub async fn start_at(machine: Option<&Machine>, at: SocketAddr, target: SocketAddr) -> Self {
        let listener = listen(machine, at).unwrap();
        let mut proxy = Self {
            address: listener.local_addr().unwrap(),
            target: Arc::new(Mutex::new(target)),
            machine: machine.cloned(),
            weather: watch::Sender::new(Weather::default()),
            lines: Arc::default(),
            accepting: None,
        };
        proxy.accept(listener);
        proxy
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The weather from now on, for connections that stand as well.
    pub fn weather(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }

    /// New connections go there.
    pub fn retarget(&self, target: SocketAddr) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
    }

    /// New connections are refused by the kernel, as where nobody listens. Those that stand go on.
    pub async fn refuse(&mut self) {
        let Some(accepting) = self.accepting.take() else { return };
        accepting.abort();
        // The port is closed when the task is gone.
        let _ = accepting.await;
    }

    /// Ends [`Proxy::refuse`].
    ///
    /// # Panics
    /// If somebody else took its port.
    pub fn admit(&mut self) {
        if self.accepting.is_none() {
            self.accept(listen(self.machine.as_ref(), self.address).unwrap());
        }
    }

    /// Breaks every connection that stands.
    pub fn reset(&self) {
        for line in self.lines.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            line.abort();
        }
    }

    /// Connections that were accepted so far.
    pub fn accepted(&self) -> usize {
        self.lines.accepted.load(Ordering::Relaxed)
    }

    /// Bytes that were swallowed so far.
    pub fn swallowed(&self) -> usize {
        self.lines.swallowed.load(Ordering::Relaxed)
    }

    fn accept(&mut self, listener: TcpListener) {
        let (target, machine) = (Arc::clone(&self.target), self.machine.clone());
        let (weather, lines) = (self.weather.subscribe(), Arc::clone(&self.lines));
        self.accepting = Some(tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                lines.accepted.fetch_add(1, Ordering::Relaxed);
                let target = *target.lock().unwrap_or_else(PoisonError::into_inner);
                let line = carry(client, target, machine.clone(), weather.clone(), Arc::clone(&lines));
                let handle = tokio::spawn(line).abort_handle();
                let mut open = lines.open.lock().unwrap_or_else(PoisonError::into_inner);
                open.retain(|line| !line.is_finished());
                open.push(handle);
            }
        }));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
        self.reset();
    }
}

/// A socket belongs to the machine on which it was made.
fn socket(machine: Option<&Machine>) -> std::io::Result<TcpSocket> {
    machine.map_or_else(TcpSocket::new_v4, |machine| machine.within(TcpSocket::new_v4))
}

fn listen(machine: Option<&Machine>, at: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = socket(machine)?;
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(1024)
}

/// One connection, until either side ends it.
async fn carry(
    client: TcpStream,
    target: SocketAddr,
    machine: Option<Machine>,
    weather: watch::Receiver<Weather>,
    lines: Arc<Lines>,
) {
    let Ok(socket) = socket(machine.as_ref()) else { return };
    let Ok(Ok(server)) = tokio::time::timeout(LONG, socket.connect(target)).await else { return };
    // The proxy adds no pause of its own.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let lost = Arc::new(AtomicBool::new(false));
    let way = |swallows: fn(&Weather) -> bool| Way {
        weather: weather.clone(),
        swallows,
        lost: Arc::clone(&lost),
        lines: Arc::clone(&lines),
    };
    let mut ways = JoinSet::new();
    ways.spawn(way(|weather| weather.swallows_requests).run(from_client, to_server));
    ways.spawn(way(|weather| weather.swallows_answers).run(from_server, to_client));
    ways.join_all().await;
}

/// One direction of a connection.
struct Way {
    weather: watch::Receiver<Weather>,
    swallows: fn(&Weather) -> bool,
    /// This connection has lost bytes.
    lost: Arc<AtomicBool>,
    lines: Arc<Lines>,
}

impl Way {
    async fn run(self, mut from: OwnedReadHalf, to: OwnedWriteHalf) {
        let (packets, queue) = mpsc::channel::<(Instant, Vec<u8>)>(64);
        let writing = deliver(queue, to, self.lost.clone(), self.weather.clone());
        let reading = async move {
            let mut buffer = vec![0; PACKET];
            let mut is_silent = false;
            while let Ok(read @ 1..) = from.read(&mut buffer).await {
                let weather = *self.weather.borrow();
                is_silent |= (self.swallows)(&weather);
                if is_silent {
                    self.lost.store(true, Ordering::Relaxed);
                    self.lines.swallowed.fetch_add(read, Ordering::Relaxed);
                    continue;
                }
                if let Some(rate) = weather.bytes_per_second {
                    tokio::time::sleep(Duration::from_secs_f64(read as f64 / f64::from(rate))).await;
                }
                let lost = weather.loss > 0.0 && rand::rng().random_bool(weather.loss);
                let due = Instant::now() + weather.delay + if lost { RETRANSMISSION } else { Duration::ZERO };
                if packets.send((due, buffer[..read].to_vec())).await.is_err() {
                    return;
                }
            }
        };
        tokio::join!(reading, writing);
    }
}

/// Writes each packet when it is due, and none before the one ahead of it.
async fn deliver(
    mut queue: mpsc::Receiver<(Instant, Vec<u8>)>,
    mut to: OwnedWriteHalf,
    lost: Arc<AtomicBool>,
    mut weather: watch::Receiver<Weather>,
) {
    while let Some((due, bytes)) = queue.recv().await {
        tokio::time::sleep_until(due).await;
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
    // One side has closed. The other hears of it, unless word of it would be lost as well.
    let silent = |weather: &Weather| weather.swallows_requests || weather.swallows_answers;
    if lost.load(Ordering::Relaxed) && weather.wait_for(|weather| !silent(weather)).await.is_err() {
        return;
    }
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        address
    }

    async fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> Option<Vec<u8>> {
        stream.write_all(bytes).await.ok()?;
        let mut answer = vec![0; bytes.len()];
        let read = tokio::time::timeout(Duration::from_millis(700), stream.read_exact(&mut answer)).await;
        read.ok()?.ok().map(|_| answer)
    }

    #[tokio::test]
    async fn bytes_come_later_slower_or_not_at_all_and_never_changed() {
        let mut proxy = Proxy::start(echo().await).await;
        let connect = || TcpStream::connect(proxy.address());
        let mut stream = connect().await.unwrap();
        assert_eq!(exchange(&mut stream, b"fair").await.unwrap(), b"fair");

        let timed = async |stream: &mut TcpStream, bytes: &[u8]| {
            let started = Instant::now();
            assert_eq!(exchange(stream, bytes).await.unwrap(), bytes);
            started.elapsed()
        };
        proxy.weather(Weather { delay: Duration::from_millis(60), ..Weather::default() });
        assert!(timed(&mut stream, b"late").await >= Duration::from_millis(120));
        proxy.weather(Weather { loss: 1.0, ..Weather::default() });
        assert!(timed(&mut stream, b"lost").await >= 2 * RETRANSMISSION);
        proxy.weather(Weather { bytes_per_second: Some(10_000), ..Weather::default() });
        assert!(timed(&mut stream, &[7; 1000]).await >= Duration::from_millis(190));

        proxy.weather(Weather::half_open());
        assert_eq!(exchange(&mut stream, b"gone").await, None);
        assert_eq!(exchange(&mut connect().await.unwrap(), b"gone").await, None);
        assert_eq!(proxy.swallowed(), 8);
        proxy.weather(Weather::default());
        assert_eq!(exchange(&mut stream, b"dead").await, None);
        let mut fresh = connect().await.unwrap();
        assert_eq!(exchange(&mut fresh, b"new").await.unwrap(), b"new");
        assert_eq!(proxy.accepted(), 3);

        let address = proxy.address();
        proxy.refuse().await;
        let refused = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        assert_eq!(exchange(&mut fresh, b"old").await.unwrap(), b"old");
        proxy.reset();
        assert_eq!(exchange(&mut fresh, b"cut").await, None);
        proxy.admit();
        let mut last = TcpStream::connect(address).await.unwrap();
        assert_eq!(exchange(&mut last, b"back").await.unwrap(), b"back");
    }
}
