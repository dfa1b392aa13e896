//! How do the timings of programs reach the agent?
//!
//! Over UDP on the loopback, the way of every StatsD client, and over a unix datagram socket, which no other host and
//! no network namespace can reach by mistake. One task reads both and hands batches to a bounded queue. It never waits
//! for the reader of the queue: a sender on a unix socket would block behind us. What does not fit is dropped and
//! counted.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UdpSocket, UnixDatagram};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::counters::IngestCounters;
use super::statsd::{Word, parse_datagram};
use crate::socket_file::{SocketFile, bind_datagram};

/// Longest datagram that is read whole. More than UDP can carry; on a unix socket a client must split before.
pub const MAX_DATAGRAM_BYTES: usize = 65_536;

/// The port that StatsD clients send to when nothing is set.
pub const DEFAULT_UDP: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8125);

/// Every program of the host may send its timings.
const SOCKET_MODE: u32 = 0o666;

/// Wait after a failure of a socket, so that one that fails for good does not take a CPU.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// A timing that outlives its datagram.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnedTiming {
    /// The operation: `A-Z a-z 0-9 _ . -`, 1..=128 bytes.
    pub name: String,
    /// How long the call took, microseconds, > 0 and finite.
    pub duration_us: f64,
    /// Calls that it stands for, 1..=1e6.
    pub weight: f64,
}

/// What a line told, for longer than its datagram lives.
#[derive(Debug, Clone, PartialEq)]
pub enum OwnedWord {
    /// A call that succeeded.
    Finished(OwnedTiming),
    /// A call that failed, or the share of calls that it stands for.
    Failed {
        /// The operation.
        name: String,
        /// Calls that it stands for, 1..=1e6.
        weight: f64,
    },
    /// Calls that have begun and not finished.
    InFlight {
        /// The operation.
        name: String,
        /// How many.
        count: u32,
        /// Since when the oldest of them runs. Absent: not told.
        oldest: Option<Duration>,
    },
}

impl From<OwnedTiming> for OwnedWord {
    fn from(timing: OwnedTiming) -> Self {
        Self::Finished(timing)
    }
}

impl From<Word<'_>> for OwnedWord {
    fn from(word: Word<'_>) -> Self {
        match word {
            Word::Finished(timing) => Self::Finished(OwnedTiming {
                name: timing.name.to_owned(),
                duration_us: timing.duration_us,
                weight: timing.weight,
            }),
            Word::Failed { name, weight } => Self::Failed { name: name.to_owned(), weight },
            Word::InFlight { name, count, oldest } => Self::InFlight { name: name.to_owned(), count, oldest },
        }
    }
}

/// All words of one datagram, at least one.
pub type TimingBatch = Vec<OwnedWord>;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddresses {
    /// UDP address; `None` listens on none. Beyond the loopback, anybody who reaches the port can make the host look
    /// slow.
    pub udp: Option<SocketAddr>,
    /// Path of the unix socket; `None` makes none.
    pub unix: Option<PathBuf>,
}

/// A socket could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The UDP address is not ours or is taken.
    #[error("cannot listen for timings on UDP {address}")]
    Udp {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The path cannot be used.
    #[error("cannot listen for timings on {}", path.display())]
    Unix {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Open sockets, ready to run.
#[derive(Debug)]
pub struct LatencyListener {
    udp: Option<UdpSocket>,
    unix: Option<(UnixDatagram, SocketFile)>,
}

impl LatencyListener {
    /// Opens the sockets.
    ///
    /// # Errors
    /// When one of them cannot be opened; neither is then left behind.
    pub async fn bind(addresses: &ListenAddresses) -> Result<Self, ListenError> {
        let udp = match addresses.udp {
            Some(address) => {
                Some(UdpSocket::bind(address).await.map_err(|source| ListenError::Udp { address, source })?)
            }
            None => None,
        };
        let unix = match &addresses.unix {
            Some(path) => Some(
                bind_datagram(path, SOCKET_MODE)
                    .map_err(|source| ListenError::Unix { path: path.clone(), source })?,
            ),
            None => None,
        };
        Ok(Self { udp, unix })
    }

    /// The UDP address in use: it has the real port where 0 was asked for.
    #[must_use]
    pub fn udp_address(&self) -> Option<SocketAddr> {
        self.udp.as_ref().and_then(|socket| socket.local_addr().ok())
    }

    /// Reads until `stop`, or until nobody reads `batches` any more; then closes the sockets and removes the file.
    pub async fn run(
        self,
        batches: mpsc::Sender<TimingBatch>,
        counters: Arc<IngestCounters>,
        stop: CancellationToken,
    ) {
        // One byte more than a datagram may have: one that fills it was cut, or is too long to be believed.
        let mut udp_buffer = vec![0; MAX_DATAGRAM_BYTES + 1];
        let mut unix_buffer = vec![0; MAX_DATAGRAM_BYTES + 1];
        loop {
            let (received, buffer) = tokio::select! {
                () = stop.cancelled() => return,
                () = batches.closed() => return,
                received = receive_udp(self.udp.as_ref(), &mut udp_buffer) => (received, &udp_buffer),
                received = receive_unix(self.unix.as_ref(), &mut unix_buffer) => (received, &unix_buffer),
            };
            match received {
                Ok(length) => hand_over(buffer.get(..length).unwrap_or_default(), &batches, &counters),
                Err(error) => {
                    counters.add_receive_error();
                    tracing::warn!(%error, "cannot receive timings");
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(ERROR_PAUSE) => {}
                    }
                }
            }
        }
    }
}

async fn receive_udp(socket: Option<&UdpSocket>, buffer: &mut [u8]) -> io::Result<usize> {
    match socket {
        Some(socket) => socket.recv(buffer).await,
        None => std::future::pending().await,
    }
}

async fn receive_unix(socket: Option<&(UnixDatagram, SocketFile)>, buffer: &mut [u8]) -> io::Result<usize> {
    match socket {
        Some((socket, _)) => socket.recv(buffer).await,
        None => std::future::pending().await,
    }
}

fn hand_over(datagram: &[u8], batches: &mpsc::Sender<TimingBatch>, counters: &IngestCounters) {
    let truncated = datagram.len() > MAX_DATAGRAM_BYTES;
    let mut batch = TimingBatch::new();
    counters.add(&parse_datagram(datagram, truncated, |word| batch.push(word.into())));
    let timings = batch.len();
    if timings > 0 && batches.try_send(batch).is_err() {
        counters.add_dropped(timings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const LONG: Duration = Duration::from_secs(60);

    struct Running {
        udp: SocketAddr,
        unix: PathBuf,
        batches: mpsc::Receiver<TimingBatch>,
        counters: Arc<IngestCounters>,
        stop: CancellationToken,
        task: tokio::task::JoinHandle<()>,
        _folder: tempfile::TempDir,
    }

    async fn running(queue: usize) -> Running {
        let folder = tempfile::tempdir().expect("a folder");
        let unix = folder.path().join("statsd.sock");
        let addresses =
            ListenAddresses { udp: Some(SocketAddr::new(DEFAULT_UDP.ip(), 0)), unix: Some(unix.clone()) };
        let listener = LatencyListener::bind(&addresses).await.expect("bound");
        let udp = listener.udp_address().expect("an address");
        let (sender, batches) = mpsc::channel(queue);
        let (counters, stop) = (Arc::new(IngestCounters::default()), CancellationToken::new());
        let task = tokio::spawn(listener.run(sender, counters.clone(), stop.clone()));
        Running { udp, unix, batches, counters, stop, task, _folder: folder }
    }

    async fn send_udp(to: SocketAddr, datagram: &[u8]) {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).await.expect("bound");
        socket.send_to(datagram, to).await.expect("sent");
    }

    async fn send_unix(to: &Path, datagram: &[u8]) {
        UnixDatagram::unbound().expect("a socket").send_to(datagram, to).await.expect("sent");
    }

    async fn next(running: &mut Running) -> TimingBatch {
        tokio::time::timeout(LONG, running.batches.recv()).await.expect("in time").expect("a batch")
    }

    #[tokio::test]
    async fn timings_come_over_both_sockets_until_the_stop() {
        let mut running = running(8).await;
        send_udp(running.udp, b"open_db:2.5|ms\nbad\nopen_db:0|ms").await;
        let batch = next(&mut running).await;
        let timing = OwnedTiming { name: "open_db".into(), duration_us: 2500.0, weight: 1.0 };
        assert_eq!(batch, [OwnedWord::Finished(timing)]);
        send_unix(&running.unix, b"save:1|ms|@0.5\nsave:2|ms").await;
        assert_eq!(next(&mut running).await.len(), 2);
        let counts = running.counters.snapshot();
        assert_eq!((counts.accepted, counts.below_resolution, counts.rejected_lines()), (3, 1, 1));

        running.stop.cancel();
        tokio::time::timeout(LONG, running.task).await.expect("in time").expect("ended well");
        assert!(!running.unix.exists());
    }

    #[tokio::test]
    async fn case_046_a_datagram_longer_than_the_buffer_loses_its_last_line() {
        let mut running = running(8).await;
        let mut datagram = b"open_db:7|ms\n".repeat(MAX_DATAGRAM_BYTES / 13);
        let whole_lines = datagram.len() / 13;
        datagram.extend_from_slice(&b"save_note:1500|ms"[..MAX_DATAGRAM_BYTES + 1 - datagram.len()]);
        send_unix(&running.unix, &datagram).await;
        let batch = next(&mut running).await;
        assert_eq!(batch.len(), whole_lines);
        let is_open = |word: &OwnedWord| matches!(word, OwnedWord::Finished(one) if one.name == "open_db");
        assert!(batch.iter().all(is_open));
        assert_eq!(running.counters.snapshot().truncated_datagrams, 1);
    }

    #[tokio::test]
    async fn a_slow_reader_costs_timings_and_never_blocks_senders() {
        let mut running = running(1).await;
        for _ in 0..5 {
            send_unix(&running.unix, b"a:1|ms\nb:1|ms").await;
        }
        tokio::time::timeout(LONG, async {
            while running.counters.snapshot().accepted < 10 {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("all were read");
        assert_eq!(running.counters.snapshot().dropped, 8);
        assert_eq!(next(&mut running).await.len(), 2);
    }

    #[tokio::test]
    async fn an_address_in_use_is_named() {
        let first = running(1).await;
        let taken = ListenAddresses { udp: Some(first.udp), unix: None };
        let error = LatencyListener::bind(&taken).await.expect_err("in use");
        assert_eq!(error.to_string(), format!("cannot listen for timings on UDP {}", first.udp));
        let taken = ListenAddresses { udp: None, unix: Some(first.unix.clone()) };
        assert!(matches!(LatencyListener::bind(&taken).await, Err(ListenError::Unix { .. })));
    }
}
