//! How often may a peer be pinged that says it is too often?
//!
//! Pings find a dead connection, and some servers and proxies take frequent ones for an attack: they end the connection
//! with "too many pings". Whoever came back at the same pace would be cut off again after the same time, for ever. So the
//! interval to that peer is doubled each time, up to five minutes, for as long as this process lives; what it sends by
//! itself has to show that it is alive in between.
//!
//! The complaint is read where it comes in. A server that complains hangs up at once, and the library then tells its
//! streams of the hanging up only.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// The longest interval. A server that follows gRPC's own rule allows one ping in five minutes.
const LONGEST: Duration = Duration::from_secs(300);
/// Peers that are remembered; more are not, and are only slower to be calm with.
const MOST_PEERS: usize = 256;

static OF_PROCESS: LazyLock<PingPace> = LazyLock::new(PingPace::default);

/// The pace of pings to each peer. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct PingPace(Arc<Mutex<BTreeMap<String, u32>>>);

impl PingPace {
    /// The one of this process: whoever connects to a peer must be calm with it.
    pub(super) fn of_process() -> Self {
        OF_PROCESS.clone()
    }

    /// The interval of pings to `target`, `usual` unless it has complained.
    pub(super) fn interval(&self, target: &str, usual: Duration) -> Duration {
        let peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let doublings = peers.get(target).copied().unwrap_or_default();
        usual.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(LONGEST.max(usual))
    }

    /// `target` says that it is pinged too often.
    fn slow_down(&self, target: &str, usual: Duration) {
        let before = self.interval(target, usual);
        {
            let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if peers.len() < MOST_PEERS || peers.contains_key(target) {
                let doublings = peers.entry(target.to_owned()).or_default();
                *doublings = (*doublings + 1).min(16);
            }
        }
        let after = self.interval(target, usual);
        // Each pace is said once.
        if after > before {
            let interval_s = after.as_secs();
            tracing::warn!(
                target,
                interval_s,
                "it finds our pings too many: they come less often from now on"
            );
        }
    }

    /// Looks for a complaint in what a connection to `target` brings.
    pub(super) fn listen(&self, target: &str, usual: Duration) -> Complaints {
        Complaints { pace: self.clone(), target: target.to_owned(), usual, frames: Frames::default() }
    }
}

/// What is listened to on one connection.
#[derive(Debug)]
pub(super) struct Complaints {
    pace: PingPace,
    target: String,
    usual: Duration,
    frames: Frames,
}

impl Complaints {
    /// The next bytes that came in.
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        if self.frames.hear(bytes) {
            self.pace.slow_down(&self.target, self.usual);
        }
    }
}

/// Length of the head of a frame.
const HEAD: usize = 9;
/// The kind of the frame that ends a connection, and the code in it for too many pings.
const GOAWAY: u8 = 7;
const ENHANCE_YOUR_CALM: [u8; 4] = [0, 0, 0, 11];

/// Where in the frames of a connection we are. Frames are told apart, and nothing else is read of them.
#[derive(Debug, Default)]
struct Frames {
    head: [u8; HEAD],
    head_len: usize,
    /// Bytes of the frame's payload that are still to come, and those of its beginning that count.
    payload_left: usize,
    payload: [u8; 8],
    payload_len: usize,
}

impl Frames {
    /// Whether these bytes complete a complaint.
    fn hear(&mut self, mut bytes: &[u8]) -> bool {
        let mut complained = false;
        while !bytes.is_empty() {
            if self.head_len < HEAD {
                let taken = (HEAD - self.head_len).min(bytes.len());
                self.head[self.head_len..self.head_len + taken].copy_from_slice(&bytes[..taken]);
                self.head_len += taken;
                bytes = &bytes[taken..];
                if self.head_len == HEAD {
                    let [a, b, c, ..] = self.head;
                    self.payload_left = u32::from_be_bytes([0, a, b, c]) as usize;
                    self.payload_len = 0;
                }
            } else {
                let taken = self.payload_left.min(bytes.len());
                if self.head[3] == GOAWAY {
                    complained |= self.take_payload(&bytes[..taken]);
                }
                self.payload_left -= taken;
                bytes = &bytes[taken..];
            }
            if self.head_len == HEAD && self.payload_left == 0 {
                self.head_len = 0;
            }
        }
        complained
    }

    /// The last stream, then the code.
    fn take_payload(&mut self, bytes: &[u8]) -> bool {
        let taken = (self.payload.len() - self.payload_len).min(bytes.len());
        self.payload[self.payload_len..self.payload_len + taken].copy_from_slice(&bytes[..taken]);
        self.payload_len += taken;
        taken > 0 && self.payload_len == self.payload.len() && self.payload[4..] == ENHANCE_YOUR_CALM
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_118_each_complaint_doubles_the_interval_up_to_five_minutes_for_that_peer_alone() {
        let (pace, usual) = (PingPace::default(), Duration::from_secs(10));
        let slower = |_| {
            pace.slow_down("c1:7443", usual);
            pace.interval("c1:7443", usual).as_secs()
        };
        assert_eq!((0..7).map(slower).collect::<Vec<_>>(), [20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(pace.interval("c2:7443", usual), usual);
        for n in 0..1000 {
            pace.slow_down(&format!("x{n}"), usual);
        }
        assert!(pace.0.lock().unwrap().len() <= MOST_PEERS);
        assert_eq!(pace.interval("c1:7443", usual), LONGEST);
    }

    #[test]
    fn a_complaint_is_found_wherever_the_bytes_are_cut_and_nothing_else_is_one() {
        let frame = |kind: u8, payload: &[u8]| {
            let length = u8::try_from(payload.len()).unwrap();
            [&[0, 0, length, kind, 0, 0, 0, 0, 1][..], payload].concat()
        };
        let said = |code: u8| frame(GOAWAY, &[&[0, 0, 0, 1, 0, 0, 0, code][..], b"too_many_pings"].concat());
        // Data that looks like one, frames without a payload, an end in order, and then the complaint.
        let before = [frame(0, &said(11)), frame(4, &[]), said(0), frame(0, &[7; 200])].concat();
        let all = [before.clone(), said(11), frame(4, &[])].concat();
        for size in 1..=all.len() {
            let mut frames = Frames::default();
            assert!(!before.chunks(size).any(|bytes| frames.hear(bytes)), "{size}");
            let mut frames = Frames::default();
            let found = all.chunks(size).filter(|bytes| frames.hear(bytes)).count();
            assert_eq!(found, 1, "{size}");
        }
    }
}
